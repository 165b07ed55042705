//! Weights that leave for other programs and come from them.

use std::{fs, path::Path, process::Command};

use burn::tensor::{Int, Tensor, TensorData};
use burn_ndarray::NdArray;
use causal_attention::model::{Inputs, ModelConfig, Sizes};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::PositionScheme;
use causal_attention::weights::file::WeightsFile;
use causal_attention::weights::native::{self, Description, Tensors};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::refused_imports::refuses_as;
use crate::{rows, small_run, text};

fn weights_file(run: &Path) -> WeightsFile {
    WeightsFile::open(run.join("model.safetensors")).unwrap()
}

fn read(run: &Path) -> (Tensors, Description) {
    native::read(&weights_file(run)).unwrap()
}

#[test]
fn a_trained_run_leaves_as_gpt2_comes_back_and_learns_on() {
    let place = TempDir::new().unwrap();
    for (name, sets) in
        [("untied", &[][..]), ("tied", &["model.tie_embeddings=true", "model.activation=gelu_tanh"])]
    {
        let run_folder = small_run(place.path(), &[&["training.steps=20"], sets].concat(), name);
        let out = place.path().join(name).join("export/gpt2");
        assert!(run(place.path(), &["export", name, "--format", "gpt2"]).status.success());
        let again = format!("{name}-again");
        let out = out.to_str().unwrap();
        let imported = run(place.path(), &["import", out, "--format", "gpt2", "--run", &again]);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let before = read(&run_folder).0;
        let after = read(&place.path().join(&again)).0;
        assert_eq!(before, after, "the weights come back in every bit");

        let arguments = |run| ["generate", run, "--prompt", "3 1 4", "--max-new", "9", "--json"];
        assert_eq!(json(place.path(), &arguments(name)), json(place.path(), &arguments(&again)));
        let evaluated = json(place.path(), &["evaluate", &again, "--json"]);
        assert!(evaluated["loss"].as_f64().unwrap() > 0.0);

        let tuned = format!("{name}-tuned");
        let sets = ["training.steps=3", "training.learning_rate=1e-9", "training.min_learning_rate=1e-9"];
        let sets = sets.map(|set| ["--set", set]);
        let sets = sets.as_flattened();
        let from = ["train", "--from", &again, "--run", &tuned, "--backend", "ndarray"];
        let output = run(place.path(), &[&from[..], sets].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let loss = json(place.path(), &["evaluate", &tuned, "--json"])["loss"].as_f64().unwrap();
        assert!((loss - evaluated["loss"].as_f64().unwrap()).abs() < 1e-4, "it starts from the weights");
    }
}

#[test]
fn a_run_that_starts_from_another_can_be_resumed() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=6"], "first");
    let train = |more: &[&str]| {
        let output = run(place.path(), &[&["train", "--backend", "ndarray"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // Shorter sequences than the weights have positions for.
    let sets = ["--set", "data.length=9", "--set", "training.schedule=constant", "--set"];
    let from = |name, steps| [&["--from", "first", "--run", name][..], &sets, &[steps]].concat();
    train(&from("whole", "training.steps=8"));
    train(&from("parts", "training.steps=4"));
    train(&["--resume", "parts", "--set", "training.steps=8"]);
    let (whole, description) = read(&place.path().join("whole"));
    assert_eq!(description.sizes.context, 12, "all positions stay");
    let last = |name: &str| rows(&place.path().join(name)).pop().unwrap();
    assert_eq!(last("whole"), last("parts"));
    assert!(!whole.is_empty());

    let output = run(place.path(), &["train", "--from", "first", "--set", "data.length=13"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`data.length` = 13") && said.contains("12 positions"), "{said}");
}

/// The exported model by the peer that the format is for, where it is installed.
#[test]
fn transformers_computes_the_same_logits_from_our_export() {
    let place = TempDir::new().unwrap();
    let llama = ["position=rotary", "norm_kind=rms", "activation=swiglu", "bias=false"];
    let gpt2: [&str; 0] = [];
    let cases: [(&str, &str, &[&str], &[&str]); 9] = [
        ("default", "gpt2", &gpt2, &[]),
        ("tied", "gpt2", &gpt2, &["tie_embeddings=true", "activation=gelu_tanh", "norm_epsilon=1e-3"]),
        ("unbiased", "gpt2", &gpt2, &["bias=false", "d_inner=23", "activation=relu2"]),
        ("shared", "llama", &llama, &["key_value_heads=1", "rope_theta=500", "tie_embeddings=true"]),
        (
            "biased",
            "llama",
            &llama,
            &["bias=true", "activation=geglu", "d_head=6", "rope_scaling=linear", "rope_factor=2"],
        ),
        ("some-biased", "qwen2", &llama, &["query_key_value_bias=true", "d_head=10"]),
        ("attention-biased", "llama", &llama, &["query_key_value_bias=true", "attention_output_bias=true"]),
        // The original context is longer than the model's.
        ("scaled", "llama", &llama, &["rope_scaling=llama3", "rope_factor=8"]),
        ("normed", "qwen3", &llama, &["qk_norm=true", "d_head=6", "d_inner=23"]),
    ];
    let mut exported = vec!["compare".to_string()];
    for (name, family, common, more) in cases {
        let sets: Vec<_> = common.iter().chain(more).map(|set| format!("model.{set}")).collect();
        let sets: Vec<_> = sets.iter().map(String::as_str).chain(["training.steps=4"]).collect();
        let folder = small_run(place.path(), &sets, name);
        let output = run(place.path(), &["export", name, "--format", "transformers"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let export = folder.join("export/transformers");
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(export.join("config.json")).unwrap()).unwrap();
        assert_eq!(config["model_type"], family, "{name}");

        let device = Default::default();
        let (model, _) = native::load_model::<NdArray>(&weights_file(&folder), &device).unwrap();
        let ids = [[3i32, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]];
        let tokens = Tensor::<NdArray, 2, Int>::from_ints(ids, &device);
        let logits = model.forward(Inputs::tokens(tokens)).unwrap().into_data();
        let ids: Vec<u8> = ids.as_flattened().iter().flat_map(|id| id.to_le_bytes()).collect();
        let views = [
            ("tokens", TensorView::new(Dtype::I32, vec![2, 7], &ids).unwrap()),
            ("logits", TensorView::new(Dtype::F32, logits.shape.to_vec(), logits.as_bytes()).unwrap()),
        ];
        let expected = folder.join("expected.safetensors");
        fs::write(&expected, safetensors::serialize(views, None).unwrap()).unwrap();
        exported.extend([export, expected].map(|path| path.to_str().unwrap().to_string()));
    }
    peer("families.py", &exported.iter().map(String::as_str).collect::<Vec<_>>());

    let sets = [
        &llama.map(|set| format!("model.{set}"))[..],
        &["model.softcap=5".into(), "model.embedding_scale=2".into()],
    ];
    let sets = sets.concat();
    small_run(
        place.path(),
        &sets.iter().map(String::as_str).chain(["training.steps=1"]).collect::<Vec<_>>(),
        "capped",
    );
    let output = run(place.path(), &["export", "capped", "--format", "transformers"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    let keys = "of [model] llama needs embedding_scale = 1, softcap = 0; ";
    assert!(said.contains(keys), "{said}");
}

/// Runs a script of the peers on an export and what is expected of it; not where the peer is not installed.
fn compare_with_peer(script: &str, export: &Path, expected: &Path) {
    peer(script, &[export.to_str().unwrap(), expected.to_str().unwrap()]);
}

/// Runs a script of the peers; false where the peer is not installed.
fn peer(script: &str, arguments: &[&str]) -> bool {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
    let Ok(output) = Command::new(&python).arg(script).args(arguments).output() else {
        eprintln!("skipped: there is no `{python}`; PEER_PYTHON names another");
        return false;
    };
    if output.status.code() == Some(77) {
        eprintln!("skipped: {python} has no transformers: {}", text(&output.stdout));
        return false;
    }
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    true
}

/// What a model of transformers computes, beside its files, and what this program computes with it.
struct Expected(Vec<u8>);

impl Expected {
    fn read(folder: &Path) -> Self {
        Self(fs::read(folder.join("expected.safetensors")).unwrap())
    }

    fn numbers(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        let numbers = view.data().as_chunks().0.iter().map(|&bytes| match view.dtype() {
            Dtype::I32 => i32::from_le_bytes(bytes) as f32,
            _ => f32::from_le_bytes(bytes),
        });
        (view.shape().to_vec(), numbers.collect())
    }

    /// The numbers agree, as far as the largest of them can be told from its neighbours.
    fn assert_close(&self, name: &str, found: &[f32]) {
        let (_, expected) = self.numbers(name);
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 1e-5 * largest, "{name} at {at}: {found}, not {expected}");
        }
    }
}

/// Ids as they are typed.
fn typed(ids: &[f32]) -> String {
    ids.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")
}

/// Imports a model that transformers saved, by what its folder says, and compares all that it computes; then exports
/// it and imports it again.
fn agrees_with_transformers(place: &Path, folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let imported = run(place, &["import", folder.to_str().unwrap(), "--run", name]);
    assert!(imported.status.success(), "{name}: {}", text(&imported.stderr));

    let expected = Expected::read(folder);
    let (shape, tokens) = expected.numbers("tokens");
    let [batch, time] = shape[..] else { panic!("{shape:?}") };
    let rows: Vec<_> = tokens.chunks(time).map(typed).collect();
    let device = Default::default();
    let (model, _) = native::load_model::<NdArray>(&weights_file(&place.join(name)), &device).unwrap();
    let ids = tokens.iter().map(|&id| id as i32).collect::<Vec<_>>();
    let ids = TensorData::new(ids, [batch, time]);
    let inputs = Inputs::tokens(Tensor::<NdArray, 2, Int>::from_data(ids, &device));
    let logits = model.forward(inputs).unwrap().into_data();
    expected.assert_close("logits", logits.as_slice().unwrap());

    // [layers, batch, heads, time, time] there, a row of the batch at a time here.
    let inspect = |row: &String| json(place, &["inspect", name, "--tokens", row, "--no-ablation", "--json"]);
    let inspected: Vec<_> = rows.iter().map(inspect).collect();
    let layers = inspected[0]["weights"].as_array().unwrap().len();
    let maps: Vec<_> =
        (0..layers).flat_map(|layer| inspected.iter().map(move |row| &row["weights"][layer])).collect();
    expected.assert_close("attentions", &flat(&json!(maps)));

    let scored = json(place, &["score", name, "--tokens", &rows[0], "--json"]);
    let (_, logits) = expected.numbers("logits");
    let vocab = logits.len() / tokens.len();
    for (at, score) in flat(&scored["log_probabilities"]).into_iter().enumerate() {
        let row = &logits[at * vocab..][..vocab];
        let sum = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
        let expected = f64::from(row[tokens[at + 1] as usize]) - sum;
        assert!((f64::from(score) - expected).abs() < 1e-4, "{name}: {score}, not {expected}");
    }

    let (_, greedy) = expected.numbers("greedy");
    let prompt = typed(&greedy[..5]);
    for cache in [&[][..], &["--no-cache"]] {
        let generate = ["generate", name, "--tokens", &prompt, "--max-new", "32", "--greedy", "--json"];
        let written = json(place, &[&generate[..], &["--ignore-end"], cache].concat());
        assert_eq!(flat(&written["samples"][0]["tokens"]), greedy[5..], "{name} {cache:?}");
        let (_, generated) = expected.numbers("generated");
        let written = json(place, &[&generate[..], cache].concat())["samples"][0].take();
        let before_the_end = &generated[5..generated.len() - 1];
        assert_eq!(
            (flat(&written["tokens"]), &written["ended"]),
            (before_the_end.to_vec(), &json!("stop_token"))
        );
    }

    let exported = run(place, &["export", name, "--format", "transformers"]);
    assert!(exported.status.success(), "{name}: {}", text(&exported.stderr));
    let export = place.join(name).join("export/transformers");
    let contents = |folder: &Path, file: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
    };
    let [there, here] = [folder, &export].map(|folder| {
        let config = contents(folder, "config.json");
        let ids = ["bos_token_id", "eos_token_id", "pad_token_id"].map(|key| config[key].clone());
        (ids, contents(folder, "generation_config.json"))
    });
    assert_eq!(there, here, "{name}");
    let again = format!("{name}-again");
    assert!(run(place, &["import", export.to_str().unwrap(), "--run", &again]).status.success());
    let bytes = |run: &str| fs::read(place.join(run).join("model.safetensors")).unwrap();
    assert!(read(&place.join(name)).0 == read(&place.join(&again)).0, "{name}: the weights come back");
    // All but SmolLM3, which goes out as the Llama that it is, come back to the same bytes, config included.
    assert!(name == "smollm3" || bytes(name) == bytes(&again), "{name}");
}

/// All numbers of a value, in their order.
fn flat(value: &serde_json::Value) -> Vec<f32> {
    match value {
        serde_json::Value::Array(values) => values.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap() as f32],
    }
}

#[test]
fn small_models_of_today_compute_what_transformers_computed() {
    let place = TempDir::new().unwrap();
    for name in ["llama", "qwen3"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families").join(name);
        agrees_with_transformers(place.path(), &folder);
        // What transformers stored comes out again by its names, in every bit.
        let [there, here] = [folder, place.path().join(name).join("export/transformers")].map(|folder| {
            let tensors = weights_file(&folder).tensors().unwrap().into_iter();
            tensors.map(|tensor| (tensor.name.clone(), tensor.read().unwrap())).collect::<Tensors>()
        });
        assert_eq!(there, here);

        // They learn on, and what they became leaves as the same family.
        let tuned = format!("{name}-tuned");
        let sets = ["training.steps=2", "data.length=12", "data.train_samples=32", "data.valid_samples=16"];
        let sets = sets.map(|set| ["--set", set]);
        let from = ["train", "--from", name, "--run", &tuned, "--backend", "ndarray"];
        let output = run(place.path(), &[&from[..], sets.as_flattened()].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(run(place.path(), &["export", &tuned, "--format", "transformers"]).status.success());
        let config =
            |run: &str| fs::read(place.path().join(run).join("export/transformers/config.json")).unwrap();
        assert_eq!(config(name), config(&tuned));
    }
}

/// Seeded models of every family by the peer, where it is installed: imported, compared, exported, and compared there.
#[test]
fn every_family_agrees_with_transformers_in_both_directions() {
    let place = TempDir::new().unwrap();
    let models = place.path().join("models");
    if !peer("families.py", &["make", models.to_str().unwrap()]) {
        return;
    }
    let mut exported = vec!["compare".to_string()];
    for model in fs::read_dir(&models).unwrap() {
        let model = model.unwrap();
        agrees_with_transformers(place.path(), &model.path());
        let export = place.path().join(model.file_name()).join("export/transformers");
        for path in [export, model.path().join("expected.safetensors")] {
            exported.push(path.to_str().unwrap().to_string());
        }
    }
    assert!(exported.len() > 20, "{exported:?}");
    assert!(peer("families.py", &exported.iter().map(String::as_str).collect::<Vec<_>>()));
}

/// The ids of a text by a run's own vocabulary.
fn ids(place: &Path, run: &str, text: &str) -> serde_json::Value {
    json(place, &["score", run, "--text", text, "--json"])["tokens"].take()
}

#[test]
fn an_exported_tokenizer_is_read_by_transformers_and_comes_back() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("words.txt"), "to be or not to be, that is the question.\n".repeat(60)).unwrap();
    let llama =
        ["model.position=rotary", "model.norm_kind=rms", "model.activation=swiglu", "model.bias=false"];
    let bytes = [&["data.tokens=bpe", "data.vocab=280"][..], &llama].concat();
    // Of a family that transformers has a tokenizer of its own for.
    let [qwen2, qwen3] =
        ["model.query_key_value_bias=true", "model.qk_norm=true"].map(|set| [&[set][..], &llama].concat());
    for (run_name, sets) in
        [("characters", &[][..]), ("qwen2", &qwen2[..]), ("qwen3", &qwen3[..]), ("pairs", &bytes[..])]
    {
        let text_sets = ["data.source=text", "data.path=words.txt", "training.steps=2"];
        small_run(place.path(), &[&text_sets[..], &["data.vocab=auto"], sets].concat(), run_name);
        let texts = ["to be", "that is the question.\nor not", "  be  or"];
        let expected = texts.map(|text| (text, ids(place.path(), run_name, text)));
        let description = read(&path(run_name)).1;
        let json = serde_json::json!({
            "vocabulary": description.sizes.vocab,
            "texts": serde_json::Map::from_iter(expected.clone().map(|(text, ids)| (text.to_string(), ids))),
        });
        fs::write(path("expected.json"), json.to_string()).unwrap();
        for format in ["transformers", "pytorch-names"] {
            let output = run(place.path(), &["export", run_name, "--format", format]);
            assert!(output.status.success());
            let export = path(run_name).join("export").join(format);
            let is_misread = (run_name, format) == ("qwen2", "transformers");
            assert_eq!(text(&output.stderr).contains("load this one by PreTrainedTokenizerFast"), is_misread);
            if !is_misread {
                compare_with_peer("tokenizer.py", &export, &path("expected.json"));
            }
        }
        // By the tokenizer alone, as another program writes it.
        let export = path(run_name).join("export/transformers");
        fs::remove_file(export.join("vocabulary.json")).unwrap();
        let again = format!("{run_name}-again");
        let arguments = ["import", export.to_str().unwrap(), "--run", &again];
        let imported = run(place.path(), &arguments);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        for (text, ids) in expected {
            assert_eq!(self::ids(place.path(), &again, text), ids, "{text:?}");
        }
    }
}

#[test]
fn special_tokens_come_along_are_used_as_transformers_does_and_leave_as_they_came() {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("model");
    fs::create_dir(&folder).unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/llama");
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(peers.join(name), folder.join(name)).unwrap();
    }
    // Letters; 12, which ends a text, and 25, which the tokenizer puts before one, are special.
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    let name = |(letter, id): (char, u32)| match id {
        12 => ("</s>".to_string(), json!(id)),
        25 => ("<s>".to_string(), json!(id)),
        _ => (letter.to_string(), json!(id)),
    };
    let vocab = serde_json::Map::from_iter(('a'..='}').zip(0..).map(name));
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "added_tokens": [special(12, "</s>"), special(25, "<s>")], "decoder": {"type": "Fuse"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [25], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let write =
        |name: &str, value: &serde_json::Value| fs::write(folder.join(name), value.to_string()).unwrap();
    write("tokenizer.json", &tokenizer);
    write(
        "tokenizer_config.json",
        &json!({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "padding_side": "left"}),
    );
    write(
        "special_tokens_map.json",
        &json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}}),
    );
    let done = |arguments: &[&str]| {
        let output = run(place.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    done(&["import", "model", "--run", "run"]);
    assert_eq!(ids(place.path(), "run", "ab"), json!([25, 0, 1]));
    let inspected = json(place.path(), &["inspect", "run", "--text", "ab", "--no-ablation", "--json"]);
    assert_eq!(inspected["tokens"], json!([25, 0, 1]), "{inspected}");

    let prompt = typed(&Expected::read(&peers).numbers("greedy").1[..5]);
    let generate = ["generate", "run", "--tokens", &prompt, "--greedy", "--max-new", "20"];
    let sample =
        |more: &[&str]| json(place.path(), &[&generate[..], &["--json"], more].concat())["samples"][0].take();
    let (stopped, on) = (sample(&[]), sample(&["--ignore-end"]));
    assert_eq!((&stopped["ended"], flat(&stopped["tokens"]).len()), (&json!("stop_token"), 7));
    assert_eq!(flat(&on["tokens"]).len(), 20);
    let exact = on["text"].as_str().unwrap();
    assert!(exact.contains("</s>"), "{exact}");
    let shown = done(&[&generate[..], &["--ignore-end"]].concat());
    assert!(shown.trim_end().ends_with(&exact.replace("</s>", "").replace("<s>", "")), "{shown}: {exact}");
    let given = json(place.path(), &["generate", "run", "--prompt", "ab", "--max-new", "1", "--json"]);
    assert_eq!(given["samples"][0]["prompt"], json!([25, 0, 1]));
    let shown = done(&["generate", "run", "--prompt", "ab", "--max-new", "1", "--samples", "2"]);
    assert!(shown.starts_with("--- sample 1\nab"), "{shown}");
    // Without a prompt: what begins a text.
    assert_eq!(
        sample_of(place.path(), &["--greedy", "--max-new", "3"]),
        sample_of(place.path(), &["--tokens", "3", "--greedy", "--max-new", "3"])
    );

    fs::write(place.path().join("text.txt"), "abcabcabd".repeat(60)).unwrap();
    let sets = ["data.path=text.txt", "data.length=12", "training.steps=1"].map(|set| ["--set", set]);
    done(
        &[&["train", "--from", "run", "--run", "tuned", "--backend", "ndarray"], sets.as_flattened()]
            .concat(),
    );
    for name in ["run", "tuned"] {
        done(&["export", name, "--format", "transformers", "--out", &format!("{name}-out")]);
        let contents = |folder: &Path, file: &str| -> serde_json::Value {
            serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
        };
        let export = place.path().join(format!("{name}-out"));
        for file in
            ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
        {
            assert_eq!(contents(&export, file)["model"]["vocab"], contents(&folder, file)["model"]["vocab"]);
            if file != "tokenizer.json" {
                assert_eq!(contents(&export, file), contents(&folder, file), "{name}: {file}");
            }
        }
        for (key, id) in [("bos_token_id", 3), ("eos_token_id", 1), ("pad_token_id", 6)] {
            assert_eq!(contents(&export, "config.json")[key], id, "{name}: {key}");
        }
    }

    done(&["export", "run", "--format", "safetensors", "--out", "own"]);
    done(&["import", "own", "--run", "own-again"]);
    let kept = |run: &str| fs::read(place.path().join(run).join("transformers.json")).unwrap();
    assert_eq!(kept("run"), kept("own-again"));

    // Without these files a model has the tokens that its config names, or those of its family where it names none; a
    // run of its own begins a text as its tokenizer does.
    for name in ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let contents = |path: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(place.path().join(path)).unwrap()).unwrap()
    };
    let mut config = contents("model/config.json");
    for key in ["bos_token_id", "eos_token_id"] {
        config.as_object_mut().unwrap().remove(key);
    }
    write("config.json", &config);
    done(&["import", "model", "--run", "plain"]);
    let llama =
        ["model.position=rotary", "model.norm_kind=rms", "model.activation=swiglu", "model.bias=false"];
    let sets =
        ["data.path=text.txt", "data.tokens=model/tokenizer.json", "data.vocab=auto", "training.steps=1"];
    small_run(place.path(), &[&sets[..], &llama[..]].concat(), "made");
    for (name, tokens, ids) in [("plain", ["b", "c"], [1, 2]), ("made", ["<s>", "</s>"], [25, 12])] {
        done(&["export", name, "--format", "transformers", "--out", &format!("{name}-out")]);
        for ((key, token), id) in ["bos_token", "eos_token"].into_iter().zip(tokens).zip(ids) {
            assert_eq!(contents(&format!("{name}-out/tokenizer_config.json"))[key], token, "{name}");
            assert_eq!(contents(&format!("{name}-out/config.json"))[format!("{key}_id")], id, "{name}");
        }
    }

    write("generation_config.json", &json!({"eos_token_id": [1, "x"]}));
    let said =
        "generation_config.json: `eos_token_id` is [1,\"x\"]: expected the id of a token, or a list of ids";
    refuses_as(place.path(), "again", &["model"], &[said]);
    fs::write(folder.join("generation_config.json"), "{\n\"a\": }").unwrap();
    refuses_as(place.path(), "again", &["model"], &["generation_config.json:2:"]);
}

/// The new tokens of the one sample that the run `run` writes.
fn sample_of(place: &Path, arguments: &[&str]) -> serde_json::Value {
    json(place, &[&["generate", "run", "--json"], arguments].concat())["samples"][0]["tokens"].take()
}

/// The most memory that the program takes, in bytes, as Linux counts it.
#[cfg(target_os = "linux")]
fn peak_memory(place: &Path, arguments: &[&str]) -> f64 {
    let mut child =
        crate::program(place).args(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        peak = most.map_or(peak, |most| 1024.0 * most.trim().parse::<f64>().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    peak
}

#[test]
#[cfg(target_os = "linux")]
fn weights_are_in_memory_once() {
    let place = TempDir::new().unwrap();
    // One that leaves as a Llama, whose matrices are packed of several.
    let write = |name: &str, d_model: usize| {
        let model = ModelConfig {
            d_model,
            layers: 5,
            position: PositionScheme::Rotary,
            norm_kind: NormKind::Rms,
            activation: Activation::Swiglu,
            bias: false,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let weights = native::collect(&model.init::<NdArray>(sizes, &Default::default()).unwrap()).unwrap();
        let bytes = native::to_bytes(&weights, Some(&Description { model, sizes })).unwrap();
        fs::write(place.path().join(format!("{name}.safetensors")), &bytes).unwrap();
        bytes.len() as f64
    };
    let (large, small) = (write("large", 384), write("small", 16));
    let check = |arguments: &[&str]| {
        let peak = |name| {
            let arguments: Vec<_> = arguments.iter().map(|part| part.replace("NAME", name)).collect();
            peak_memory(place.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let ratio = (peak("large") - peak("small")) / (large - small);
        assert!(ratio < 1.3, "{arguments:?}: {ratio} of the weights");
    };
    check(&["import", "NAME.safetensors", "--run", "NAME"]);
    check(&["generate", "NAME", "--tokens", "1 2", "--max-new", "2"]);
    check(&["export", "NAME", "--format", "transformers"]);
    check(&["import", "NAME/export/transformers", "--run", "NAME-again"]);
}

#[test]
fn imported_weights_and_their_vocabulary_are_known_again() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "trained");
    let import = ["import", "trained/model.safetensors", "--format", "native", "--run", "run"];
    assert!(run(place.path(), &import).status.success());
    let evaluate = || run(place.path(), &["evaluate", "run"]);
    assert!(evaluate().status.success());
    for (file, problem) in
        [("model.safetensors", "its content has changed"), ("vocabulary.json", "is not the file")]
    {
        let path = place.path().join("run").join(file);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        // The last bit of the last weight, and a space for a line break.
        match file {
            "model.safetensors" => *changed.last_mut().unwrap() ^= 1,
            _ => *changed.iter_mut().find(|byte| **byte == b'\n').unwrap() = b' ',
        }
        fs::write(&path, changed).unwrap();
        let refused = evaluate();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("run/{file}: ")) && said.contains(problem), "{said}");
        fs::write(&path, whole).unwrap();
    }
    assert!(evaluate().status.success());
}

#[test]
fn an_export_in_plain_names_says_what_it_holds() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    let output = run(place.path(), &["export", "run", "--format", "pytorch-names", "--out", "here"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = fs::read(place.path().join("here/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("blocks.0.attention.qkv.weight").unwrap().shape(), [48, 16]);
    assert_eq!(file.tensor("blocks.1.attention_norm.weight").unwrap().shape(), [16]);
    assert_eq!(file.tensor("embedding.token.weight").unwrap().shape(), [16, 16]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("here/config.json")).unwrap()).unwrap();
    assert_eq!(config["model"]["d_model"], 16);
    assert_eq!(config["sizes"]["context"], 12);
    assert!(place.path().join("here/vocabulary.json").is_file());
}
