//! Interventions on components: ablation and scaling in the commands that read a model.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{small_run, stdout_of, text};

const INPUT: [&str; 3] = ["run", "--tokens", "3 1 4 1 5 9 2 6"];

fn loss(folder: &Path, arguments: &[&str]) -> f64 {
    json(folder, &[&["score", "--json"], &INPUT[..], arguments].concat())["loss"].as_f64().unwrap()
}

/// Returns the values at a site, with interventions.
fn values(folder: &Path, site: &str, arguments: &[&str]) -> Vec<f32> {
    let write = ["--sites", site, "--out", "a.safetensors"];
    stdout_of(folder, &[&["activations"], &INPUT[..], &write, arguments].concat());
    let bytes = fs::read(folder.join("a.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(site).unwrap();
    tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn near(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn zero_ablation_equals_that_of_inspect() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=40"], "run");
    let inspected = json(dir.path(), &[&["inspect", "--json"], &INPUT[..]].concat());
    let full = loss(dir.path(), &[]);
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let ablated = loss(dir.path(), &["--ablate", &format!("{layer}.{head}"), "--zero"]);
        let rise = inspected["scores"][layer][head]["zero_ablation"].as_f64().unwrap();
        assert!((ablated - full - rise).abs() < 1e-5, "{layer}.{head}: {ablated} - {full} is not {rise}");
    }
    // Without any component, the embedding alone determines the prediction.
    let nothing = loss(dir.path(), &["--ablate", "*", "--zero"]);
    assert!((nothing - full).abs() > 1e-3, "{nothing} {full}");
}

#[test]
fn means_and_factors_replace_the_outputs() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40", "model.bias=false"], "run");
    let written = values(folder, "mlp.0.out", &[]);
    let half: Vec<f32> = written.iter().map(|value| value / 2.0).collect();
    assert!(near(&values(folder, "mlp.0.out", &["--scale", "0.mlp=0.5"]), &half));
    // The mean over the stored sequences is the same at each position and for each input.
    let mean = values(folder, "mlp.0.out", &["--ablate", "0.mlp"]);
    assert!(
        mean.chunks(16).all(|row| near(row, &mean[..16])) && mean[..16].iter().any(|value| *value != 0.0)
    );
    let samples: Vec<Value> =
        serde_json::from_slice(&fs::read(folder.join("run/samples.json")).unwrap()).unwrap();
    let mut expected = [0.0f64; 16];
    let mut positions = 0.0;
    for sample in &samples {
        let ids: Vec<String> = sample["inputs"].as_array().unwrap().iter().map(Value::to_string).collect();
        positions += ids.len() as f64;
        let arguments = [
            "activations",
            "run",
            "--tokens",
            &ids.join(" "),
            "--sites",
            "mlp.0.out",
            "--out",
            "s.safetensors",
        ];
        stdout_of(folder, &arguments);
        let bytes = fs::read(folder.join("s.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor("mlp.0.out").unwrap();
        for (at, bytes) in data.data().as_chunks().0.iter().enumerate() {
            expected[at % 16] += f64::from(f32::from_le_bytes(*bytes));
        }
    }
    let expected = expected.map(|sum| (sum / positions) as f32);
    assert!(near(&mean[..16], &expected), "{:?} {expected:?}", &mean[..16]);
    // The option states the default.
    assert_eq!(values(folder, "mlp.0.out", &["--ablate", "0.mlp", "--mean"]), mean);
    // Heads too, and the notice names the ablation.
    let output =
        run(folder, &["score", "run", "--tokens", "3 1 4", "--ablate", "1.*, 0.1", "--scale", "0.0=2"]);
    let stderr = text(&output.stderr);
    let count = samples.len();
    assert!(
        stderr.contains(&format!(
            "notice: 4 components are replaced by their mean over {count} stored validation sequences (mean ablation): \
             0.1, 1.0, 1.1, 1.mlp"
        )) && stderr.contains("notice: 1 component is scaled: 0.0 by 2"),
        "{stderr}"
    );
}

#[test]
fn all_commands_that_read_a_model_take_interventions() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40"], "run");
    let evaluated = |more: &[&str]| {
        json(folder, &[&["evaluate", "run", "--json"], more].concat())["loss"].as_f64().unwrap()
    };
    assert!((evaluated(&["--ablate", "*.mlp"]) - evaluated(&[])).abs() > 1e-4);
    assert_eq!(evaluated(&["--scale", "*.0=1"]), evaluated(&[]));
    let generated = |more: &[&str]| {
        let arguments = ["generate", "run", "--prompt", "3 1 4", "--greedy", "--max-new", "4", "--json"];
        json(folder, &[&arguments[..], more].concat())["samples"][0]["probabilities"].clone()
    };
    assert_ne!(generated(&["--ablate", "*", "--zero"]), generated(&[]));
    let inspected =
        json(folder, &["inspect", "run", "--tokens", "3 1 4", "--json", "--no-ablation", "--ablate", "0.*"]);
    assert_eq!(inspected["tokens"], serde_json::json!([3, 1, 4]));
}

#[test]
fn impossible_interventions_are_refused() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    for (arguments, problem) in [
        (
            &["--ablate", "7.0"][..],
            "--ablate: `7.0` matches no component of this model; the components are 0.0 to 1.mlp",
        ),
        (&["--scale", "1.0"], "--scale: `1.0` is not a component with a factor of at most 1e6; write"),
        (&["--scale", "1.0=1e20"], "--scale: `1.0=1e20` is not a component with a factor"),
        (&["--scale", "1.0=x"], "--scale: `1.0=x` is not a component with a factor"),
        (&["--ablate", "1.0", "--scale", "1.*=2"], "the component 1.0 is changed twice"),
        (&["--zero"], "--ablate"),
        (&["--mean"], "--ablate"),
        (&["--ablate", "1.0", "--mean", "--zero"], "--zero"),
    ] {
        let output = run(dir.path(), &[&["score"], &INPUT[..], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(problem), "{stderr}");
    }
    fs::remove_file(dir.path().join("run/samples.json")).unwrap();
    let output = run(dir.path(), &[&["score"], &INPUT[..], &["--ablate", "1.0"]].concat());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("name a file of texts with --mean-from, or add --zero"), "{stderr}");
    let patched = run(dir.path(), &["evaluate", "run", "--patch-from", "3 1", "--at", "resid_post.0@last"]);
    let stderr = text(&patched.stderr);
    assert_eq!((patched.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("patch one text with score or inspect, or many pairs with explain"), "{stderr}");
}

/// Returns the mean of the rows of an activation, each of width 16.
fn mean_row<'a>(rows: impl IntoIterator<Item = &'a [f32]>) -> Vec<f32> {
    let rows = Vec::from_iter(rows);
    (0..16).map(|at| rows.iter().map(|row| row[at]).sum::<f32>() / rows.len() as f32).collect()
}

#[test]
fn means_of_ablated_components_come_from_texts() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40", "model.bias=false"], "run");
    fs::remove_file(folder.join("run/samples.json")).unwrap();
    fs::write(folder.join("texts.jsonl"), "{\"text\": \"3 1 4\"}\n{\"text\": \"5 9\", \"answer\": \"2\"}\n")
        .unwrap();
    fs::write(folder.join("texts.txt"), "3 1 4\n\n5 9\n").unwrap();
    let on = |tokens: &str| {
        let write = ["--sites", "mlp.0.out", "--out", "a.safetensors"];
        stdout_of(folder, &[&["activations", "run", "--tokens", tokens], &write[..]].concat());
        let bytes = fs::read(folder.join("a.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor("mlp.0.out").unwrap().data().to_vec();
        data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<_>>()
    };
    let (first, second) = (on("3 1 4"), on("5 9"));
    let expected = mean_row(first.chunks(16).chain(second.chunks(16)));
    for file in ["texts.jsonl", "texts.txt"] {
        let ablated = values(folder, "mlp.0.out", &["--ablate", "0.mlp", "--mean-from", file]);
        assert!(ablated.chunks(16).all(|row| near(row, &expected)), "{ablated:?} {expected:?}");
    }
    let output =
        run(folder, &[&["score"], &INPUT[..], &["--ablate", "1.0", "--mean-from", "texts.txt"]].concat());
    let notice = "notice: 1 component is replaced by its mean over 2 texts of texts.txt (mean ablation): 1.0";
    assert!(text(&output.stderr).contains(notice), "{}", text(&output.stderr));
}

#[test]
fn steering_takes_the_difference_of_two_prompt_files() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40"], "run");
    fs::write(folder.join("a.jsonl"), "{\"text\": \"3 1 4\"}\n{\"text\": \"5 9\"}\n").unwrap();
    fs::write(folder.join("b.txt"), "2 7\n").unwrap();
    let last = |tokens: &str| {
        let write = ["--sites", "resid_post.0", "--out", "a.safetensors"];
        stdout_of(folder, &[&["activations", "run", "--tokens", tokens], &write[..]].concat());
        let bytes = fs::read(folder.join("a.safetensors")).unwrap();
        let data = SafeTensors::deserialize(&bytes).unwrap().tensor("resid_post.0").unwrap().data().to_vec();
        let values: Vec<f32> = data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        values[values.len() - 16..].to_vec()
    };
    let (first, minus) = (mean_row([&last("3 1 4")[..], &last("5 9")]), last("2 7"));
    let before = values(folder, "resid_post.0", &[]);
    let steer = ["--steer", "a.jsonl,b.txt:resid_post.0*-2"];
    let expected: Vec<f32> =
        before.iter().enumerate().map(|(at, it)| it - 2.0 * (first[at % 16] - minus[at % 16])).collect();
    assert!(near(&values(folder, "resid_post.0", &steer), &expected));
    // The prompts are read without the other interventions.
    let ablate = ["--ablate", "0.0", "--zero"];
    let ablated: Vec<f32> = values(folder, "resid_post.0", &ablate)
        .iter()
        .enumerate()
        .map(|(at, it)| it - 2.0 * (first[at % 16] - minus[at % 16]))
        .collect();
    assert!(near(&values(folder, "resid_post.0", &[&steer[..], &ablate].concat()), &ablated));
    let output = run(folder, &[&["score"], &INPUT[..], &steer].concat());
    let notice = "notice: -2 times the mean at the last token of the 2 prompts of a.jsonl minus the mean at the last \
                  token of the 1 prompt of b.txt is added to resid_post.0";
    assert!(text(&output.stderr).contains(notice), "{}", text(&output.stderr));
}

#[test]
fn steering_adds_a_vector_at_its_site() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40", "model.bias=false"], "run");
    let write = |tokens: &str, file: &str| {
        let arguments = ["activations", "run", "--tokens", tokens, "--sites", "resid_post.0", "--out", file];
        stdout_of(folder, &arguments);
        let bytes = fs::read(folder.join(file)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor("resid_post.0").unwrap().data().to_vec();
        let values: Vec<f32> = data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let rows = values.len() / 16;
        (0..16).map(|at| values.iter().skip(at).step_by(16).sum::<f32>() / rows as f32).collect::<Vec<_>>()
    };
    let (first, second) = (write("3 3 3", "first.safetensors"), write("5 1 5 9", "second.safetensors"));
    let before = values(folder, "resid_post.0", &[]);
    let steer = ["--steer", "first.safetensors,second.safetensors:resid_post.0*-2"];
    let after = values(folder, "resid_post.0", &steer);
    let expected: Vec<f32> = before
        .iter()
        .enumerate()
        .map(|(at, value)| value - 2.0 * (first[at % 16] - second[at % 16]))
        .collect();
    assert!(near(&after, &expected), "{after:?} {expected:?}");
    assert!((loss(folder, &steer) - loss(folder, &[])).abs() > 1e-4);
    // The directions of other weights have another meaning.
    small_run(folder, &["training.steps=40", "model.bias=false", "run.seed=7"], "other");
    let warned = |name: &str| {
        let output = run(folder, &[&["score", name], &INPUT[1..], &steer].concat());
        text(&output.stderr).contains("first.safetensors was recorded with other weights")
    };
    assert!(warned("other") && !warned("run"));
    // The layer before the site does not scale the vector.
    let ablated = ["--ablate", "0.mlp", "--zero"];
    let expected: Vec<f32> = values(folder, "resid_mid.0", &[])
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(mid, (before, after))| mid + after - before)
        .collect();
    assert!(near(&values(folder, "resid_post.0", &[&steer[..], &ablated].concat()), &expected));
    let bytes = fs::read(folder.join("a.safetensors")).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let options = &header.metadata().as_ref().unwrap()["causal_attention.interventions"];
    assert_eq!(options, "--ablate 0.mlp --zero --steer first.safetensors,second.safetensors:resid_post.0*-2");

    // Pictures and the page name the altered model.
    stdout_of(folder, &[&["inspect"], &INPUT[..], &ablated, &["--out", "altered"]].concat());
    let page = fs::read_to_string(folder.join("altered/report.html")).unwrap();
    assert!(page.contains("run (--ablate 0.mlp --zero)"), "the title names the interventions");
    stdout_of(folder, &[&["inspect"], &INPUT[..], &["--out", "plain"]].concat());
    let with_model = fs::read_to_string(folder.join("plain/report.html")).unwrap();
    assert!(page.len() + 4_000 < with_model.len(), "{} {}", page.len(), with_model.len());
    refuses_wrong_vectors(folder);
}

/// Checks that vectors which do not exist or do not fit are refused.
fn refuses_wrong_vectors(folder: &Path) {
    for (name, text) in [("vector.csv", "1,2\n"), ("bad.jsonl", "{\"prompt\": \"3\"}\n"), ("empty.txt", "\n")]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    for (steer, problem) in [
        ("first.safetensors:resid_post.7", "--steer: `resid_post.7` is not a site of this model"),
        (
            "first.safetensors:attn.0.pattern",
            "first.safetensors: has no activation `attn.0.pattern`, only resid_post.0",
        ),
        ("nowhere.safetensors:resid_post.0", "nowhere.safetensors"),
        ("first.safetensors", "write FILE:SITE*FACTOR"),
        (
            "vector.csv:resid_post.0",
            "vector.csv: is not a file of `activations` (.safetensors); name a file of prompts",
        ),
        ("bad.jsonl:resid_post.0", "bad.jsonl:1: is not a prompt: missing field `text`"),
        ("empty.txt:resid_post.0", "empty.txt: has no prompts; write one per line"),
        ("first.safetensors:resid_post.0*1e7", "write FILE:SITE*FACTOR"),
        ("first.safetensors:logits", "`logits` cannot be steered; add the vector to final"),
    ] {
        let output =
            crate::program(folder).args(["score"]).args(INPUT).args(["--steer", steer]).output().unwrap();
        let stderr = crate::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(problem), "{steer}: {stderr}");
    }
}

#[test]
fn the_output_of_a_mean_ablated_head_is_its_mean() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    small_run(folder, &["training.steps=40", "model.bias=false"], "run");
    let ablate = ["--ablate", "0.1"];
    let outputs = values(folder, "attn.0.out", &ablate);
    let time = outputs.len() / 32;
    let head = &outputs[time * 16..];
    assert!(
        head[..16].iter().any(|value| *value != 0.0) && head.chunks(16).all(|row| near(row, &head[..16]))
    );
    let (before, after) = (values(folder, "resid_pre.0", &ablate), values(folder, "resid_mid.0", &ablate));
    let sum = |at: usize| before[at] + outputs[at] + head[at];
    assert!(
        near(&after, &(0..after.len()).map(sum).collect::<Vec<_>>()),
        "the stream is the sum of the outputs"
    );
    let inspected = json(folder, &[&["inspect", "--json"], &INPUT[..], &ablate].concat());
    assert!(inspected["scores"][0][1]["zero_ablation"].is_null(), "{inspected}");
    assert!(inspected["scores"][0][0]["zero_ablation"].is_number());
}
