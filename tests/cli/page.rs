//! Tests of report pages in a browser: their contents, computations and input checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{SMALL, stdout_of, summary, text, train};

/// Finds a program with one of these names on the PATH.
pub(crate) fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).collect::<Vec<_>>();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Runs a script from `tests/page/` that operates a page in a real browser.
pub(crate) fn browse(script: &str, arguments: &[PathBuf]) {
    let (Some(node), Some(chromium)) =
        (installed(&["node"]), installed(&["chromium", "chromium-browser", "google-chrome"]))
    else {
        eprintln!("notice: pages are not tested, because Node.js or Chromium is not installed");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(script);
    let output = Command::new(node).arg(script).arg(chromium).args(arguments).output().unwrap();
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && printed.contains("checks of"), "{printed}");
}

/// Trains a small run whose page shows a circuit.
fn small_run(folder: &Path, sets: &[&str], name: &str) -> PathBuf {
    crate::small_run(folder, &[&["analysis.circuit=true"], sets].concat(), name)
}

/// Explores the page of `run` and compares it with `report --json`.
fn explore(folder: &Path, run: &str) {
    let expected = folder.join("expected.json");
    fs::write(&expected, stdout_of(folder, &["report", run, "--json"])).unwrap();
    browse("explore.mjs", &[folder.join(run).join("report.html"), expected]);
}

/// Types input into the page of `run` and compares the results with `inspect --json` on the same input.
fn type_into(
    folder: &Path,
    run: &str,
    source: Option<&str>,
    (ids, texts): (&str, &[&str]),
    unknown: &str,
    has_tour: bool,
) {
    let arguments = ["inspect", run, "--tokens", ids, "--json", "--no-ablation"];
    let source_arguments = source.map(|source| ["--source", source]);
    let arguments = [&arguments[..], source_arguments.as_ref().map_or(&[], |it| &it[..])].concat();
    let inspected: Value = serde_json::from_str(&stdout_of(folder, &arguments)).unwrap();
    // The start token of an answer is not typed.
    let text = texts[usize::from(source.is_some())..].join(" ");
    // A page displays control and format characters as escapes.
    let escaped = |text: &&str| text.replace('\u{7}', "\\u{7}").replace('\u{202e}', "\\u{202e}");
    let texts: Vec<String> = texts.iter().map(escaped).collect();
    let probabilities = inspected["probabilities"].as_array().unwrap().last().unwrap();
    let input = json!({
        "text": text, "source": source, "source_tokens": inspected["source"], "tokens": inspected["tokens"], "texts": texts, "unknown": unknown,
        "probabilities": probabilities, "has_tour": has_tour,
    });
    fs::write(folder.join("input.json"), input.to_string()).unwrap();
    browse("live.mjs", &[folder.join(run).join("report.html"), folder.join("input.json")]);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn run_report_is_correct_and_reproducible() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=40", "analysis.every=10", "analysis.samples=3"], "run");
    let size = fs::metadata(dir.path().join("run/report.html")).unwrap().len();
    assert!(size < 3_000_000, "{size} bytes");
    explore(dir.path(), "run");

    // The report can be regenerated from the folder alone, byte for byte.
    let before = fs::read(dir.path().join("run/report.html")).unwrap();
    fs::remove_file(dir.path().join("run/report.html")).unwrap();
    stdout_of(dir.path(), &["report", "run"]);
    assert!(fs::read(dir.path().join("run/report.html")).unwrap() == before);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn immediate_divergence_reports_the_untrained_weights() {
    let dir = TempDir::new().unwrap();
    let sets = [
        "training.steps=40",
        "training.learning_rate=1e30",
        "training.min_learning_rate=0",
        "training.optimizer=sgd",
        "training.max_gradient_norm=0",
        "analysis.samples=1",
    ];
    assert_eq!(train(dir.path(), &[&SMALL[..], &sets].concat(), &["--run", "run"]).status.code(), Some(1));
    assert!(
        summary(&dir.path().join("run"))["best_step"].is_null(),
        "the run diverged before its first validation"
    );
    explore(dir.path(), "run");
    let page: Value = serde_json::from_str(&stdout_of(dir.path(), &["report", "run", "--json"])).unwrap();
    let start = "the untrained weights";
    assert_eq!(page["loss"]["weights"], start);
    stdout_of(dir.path(), &["plot", "run", "--format", "svg", "--out", "svg"]);
    for picture in
        ["loss", "attention", "attention_over_time", "heads", "head_scores", "prediction", "generated"]
    {
        let svg = fs::read_to_string(dir.path().join("svg").join(picture).with_extension("svg")).unwrap();
        assert!(svg.contains(start), "{picture}");
    }
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn encoder_decoder_page_shows_every_attention_kind() {
    let dir = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "training.steps=9"];
    // With label smoothing, the objective has a separate curve.
    let more = ["analysis.samples=2", "training.label_smoothing=0.1", "training.log_every=1"];
    small_run(dir.path(), &[&sets[..], &more].concat(), "run");
    let page: Value = serde_json::from_str(&stdout_of(dir.path(), &["report", "run", "--json"])).unwrap();
    for kind in ["attention", "cross", "encoder"] {
        assert_eq!(page["views"][0][kind].as_array().unwrap().len(), 2, "{kind} for both layers");
    }
    explore(dir.path(), "run");
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn vocabulary_text_is_never_markup() {
    let dir = TempDir::new().unwrap();
    let row = "<script>alert(1)</script>,</script>,\"&\"\"\",<img src=x onerror=alert(2)>\n";
    fs::write(dir.path().join("rows.csv"), row.repeat(60)).unwrap();
    let sets = ["data.source=table", "data.path=rows.csv", "training.steps=9", "analysis.samples=2"];
    small_run(dir.path(), &sets, "run");
    let page = fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    assert!(!page.contains("<img src=x") && !page.contains("<script>alert"));
    explore(dir.path(), "run");
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn page_responds_to_typed_input() {
    let dir = TempDir::new().unwrap();
    // A quarter of a second of training is enough, because the previous token determines much of the next one.
    let sets = ["data.task=arithmetic", "training.steps=120", "training.learning_rate=1e-2"];
    small_run(dir.path(), &sets, "run");
    type_into(
        dir.path(),
        "run",
        None,
        ("1 3 5 7 9 11 13 15 1 3 5", &["1", "3", "5", "7", "9", "11", "13", "15", "1", "3", "5"]),
        "<b>x",
        true,
    );
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn typed_hostile_symbols_are_never_markup() {
    let dir = TempDir::new().unwrap();
    let row = "<script>alert(1)</script>,\u{202e}\u{7},\"&\"\"\",<img/src=x/onerror=alert(2)>\n";
    fs::write(dir.path().join("rows.csv"), row.repeat(60)).unwrap();
    let sets = ["data.source=table", "data.path=rows.csv", "training.steps=9", "analysis.samples=2"];
    small_run(dir.path(), &sets, "run");
    let vocabulary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("run/vocabulary.json")).unwrap()).unwrap();
    let symbols: Vec<&str> =
        vocabulary["symbols"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    type_into(dir.path(), "run", None, ("1 2 3", &symbols[1..4]), "<img/src=y>", false);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn encoder_decoder_page_responds_to_a_source() {
    let dir = TempDir::new().unwrap();
    let sets = ["model.architecture=encoder_decoder", "data.task=reverse", "training.steps=9"];
    small_run(dir.path(), &sets, "run");
    type_into(dir.path(), "run", Some("7 2 3"), ("3 2 7", &["<end>", "3", "2", "7"]), "zz", false);
}

/// Returns the activations of attention and of feed-forward layers of a run on an input, by site.
fn component_sites(folder: &Path, run: &str, input: &[&str]) -> Value {
    stdout_of(folder, &[&["activations", run, "--sites", "*", "--out", "sites"], input].concat());
    let bytes = fs::read(folder.join("sites")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let sites = file
        .tensors()
        .into_iter()
        .filter(|(name, _)| ["attn.", "cross.", "mlp."].iter().any(|part| name.contains(part)));
    let numbers = |data: &[u8]| -> Vec<f32> {
        data.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
    };
    sites.map(|(name, site)| (name, json!({"shape": site.shape(), "values": numbers(site.data())}))).collect()
}

/// Returns what the page at `page` must show about the weights and the residual stream of `run` on an input.
fn explained_weights(folder: &Path, run: &str, page: &str, source: Option<&str>, steps: &str) -> Value {
    let typed = if source.is_some() { "3 2 7" } else { "3 1 4 1 5 2 6" };
    let input = source.map_or(vec!["--text", typed], |source| vec!["--source", source, "--text", typed]);
    let arguments = [&["inspect", run, "--json", "--no-ablation"], &input[..]].concat();
    let inspected: Value = serde_json::from_str(&stdout_of(folder, &arguments)).unwrap();
    let mut weights = json!({"decoder": inspected["weights"]});
    if source.is_some() {
        weights["cross"] = inspected["cross_weights"].clone();
        weights["encoder"] = inspected["encoder_weights"].clone();
    }
    json!({
        "page": folder.join(page), "text": typed, "source": source, "tokens": inspected["tokens"],
        "source_tokens": inspected["source"], "steps": steps, "sites": component_sites(folder, run, &input), "weights": weights,
    })
}

/// Trains a decoder with learned positions, one in the shape of Llama and an encoder-decoder, called `learned`, `llama`
/// and `translator`, and imports the first in the format of GPT-2, with a page of an input in `inspected`.
fn architectures(folder: &Path, sets: &[&str]) {
    let run = |name: &str, more: &[&str]| small_run(folder, &[sets, more].concat(), name);
    run("learned", &[]);
    let llama = ["position=rotary", "norm_kind=rms", "activation=swiglu", "bias=false", "qk_norm=true"];
    let grouped = ["heads=4", "key_value_heads=2", "d_head=6"];
    let llama = [&llama[..], &grouped].concat().iter().map(|set| format!("model.{set}")).collect::<Vec<_>>();
    run("llama", &llama.iter().map(String::as_str).collect::<Vec<_>>());
    run(
        "translator",
        &["model.architecture=encoder_decoder", "data.task=reverse", "model.position=relative"],
    );
    stdout_of(folder, &["export", "learned", "--format", "gpt2", "--out", "gpt2"]);
    stdout_of(folder, &["import", "gpt2", "--format", "gpt2", "--run", "imported"]);
    stdout_of(folder, &["inspect", "imported", "--tokens", "3 1 4", "--out", "inspected"]);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn page_computes_weights_and_streams() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let short = ["training.steps=20", "analysis.every=0"];
    small_run(folder, &[&short[..], &["model.position=alibi"]].concat(), "default");
    small_run(
        folder,
        &[&short[..], &["model.position=rotary", "model.differential=true"]].concat(),
        "differential",
    );
    architectures(folder, &short);

    let (before, after) = ("vectors products scale", "mask softmax value output");
    let plain = format!("{before} {after}");
    let biased = format!("{before} bias {after}");
    let rotated = format!("vectors rotation products scale {after}");
    let subtracted = "vectors rotation products scale mask softmax second difference value norm output";
    let cases = json!([
        explained_weights(folder, "differential", "differential/report.html", None, subtracted),
        explained_weights(folder, "default", "default/report.html", None, &biased),
        explained_weights(folder, "llama", "llama/report.html", None, &rotated),
        explained_weights(folder, "imported", "inspected/report.html", None, &plain),
        explained_weights(folder, "translator", "translator/report.html", Some("7 2 3"), &biased),
    ]);
    fs::write(folder.join("cases.json"), cases.to_string()).unwrap();
    browse("weight.mjs", &[folder.join("cases.json")]);
}

/// Returns what the page at `page` must compute about the circuit of `run` on an input, and whether its controls are used.
fn explained_circuit(
    folder: &Path,
    run: &str,
    page: &str,
    source: Option<&str>,
    [has_means, is_used]: [bool; 2],
) -> Value {
    let typed = if source.is_some() { "1 4 9 3 2 7" } else { "1 3 5 7 9 11 13 15 1 3 5 7" };
    let input = source.map_or(vec!["--text", typed], |source| vec!["--source", source, "--text", typed]);
    let output = |arguments: &[&str]| -> Value {
        let arguments = [&arguments[..1], &[run, "--json"], &arguments[1..], &input].concat();
        serde_json::from_str(&stdout_of(folder, &arguments)).unwrap()
    };
    let inspected = output(&["inspect", "--no-ablation"]);
    let mut sets = vec![(vec!["0.1"], "zero"), (vec!["1.0", "0.mlp"], "zero")];
    if has_means {
        sets.extend([(vec!["0.1"], "stored"), (vec!["1.0", "0.mlp"], "stored")]);
    }
    if source.is_some() {
        sets.extend([(vec!["cross.1.1"], "zero"), (vec!["cross.0.0", "1.mlp"], "stored")]);
    }
    let ablation = |(components, by): &(Vec<&str>, &str)| {
        let names = components.join(",");
        let zero: &[&str] = if *by == "zero" { &["--zero"] } else { &[] };
        let mut scored = output(&[&["score", "--ablate", &names], zero].concat());
        scored["components"] = json!(components);
        scored["by"] = json!(by);
        scored
    };
    let ablations: Vec<Value> = sets.iter().map(ablation).collect();
    // Inputs of an encoder-decoder are not explained.
    let explained = if source.is_some() { Value::Null } else { output(&["explain", "--neurons", "0"]) };
    json!({
        "page": folder.join(page), "text": typed, "source": source, "tokens": inspected["tokens"],
        "source_tokens": inspected["source"], "ablations": ablations, "explained": explained, "is_used": is_used,
    })
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn page_ablates_and_patches_like_the_program() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let trained =
        ["training.steps=200", "training.learning_rate=1e-2", "analysis.every=0", "model.d_model=24"];
    let task = ["data.task=arithmetic", "data.train_samples=1024", "training.batch_size=16"];
    architectures(folder, &[&trained[..], &task].concat());
    for norm in ["sandwich", "output"] {
        let sets = [&format!("model.norm={norm}"), "training.steps=800", "training.batch_size=32"];
        small_run(folder, &[&trained[..], &task, &sets].concat(), norm);
    }
    let cases = json!([
        explained_circuit(folder, "learned", "learned/report.html", None, [true, true]),
        explained_circuit(folder, "llama", "llama/report.html", None, [true, false]),
        explained_circuit(folder, "sandwich", "sandwich/report.html", None, [true, false]),
        explained_circuit(folder, "output", "output/report.html", None, [true, false]),
        explained_circuit(folder, "imported", "inspected/report.html", None, [false, true]),
        explained_circuit(folder, "translator", "translator/report.html", Some("7 2 3 9 4 1"), [true, true]),
    ]);
    fs::write(folder.join("cases.json"), cases.to_string()).unwrap();
    browse("circuit.mjs", &[folder.join("cases.json")]);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn page_refuses_unreadable_input() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=9", "analysis.samples=2", "model.position=rotary"], "run");
    browse("refused.mjs", &[dir.path().join("run/report.html")]);
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn panels_are_saved_and_pages_embedded() {
    let dir = TempDir::new().unwrap();
    let sets = ["training.steps=200", "analysis.every=100", "analysis.samples=2"];
    let report = small_run(dir.path(), &sets, "run").join("report.html");
    browse("save.mjs", std::slice::from_ref(&report));
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = folder.join("tests/peers/notebook.py");
    match Command::new(&python).arg(script).args([report, folder.join("docs/report.md")]).output() {
        Ok(output) if output.status.code() != Some(77) => {
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
        _ => eprintln!("notice: the page is not shown in a notebook, because `{python}` lacks Jupyter"),
    }
}
