//! Weights that leave for other programs and come from them.

use std::{fs, path::Path, process::Command};

use burn::tensor::{Int, Tensor};
use burn_ndarray::NdArray;
use causal_attention::model::{Inputs, ModelConfig, Sizes};
use causal_attention::weights::file::WeightsFile;
use causal_attention::weights::native::{self, Description, Tensors};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use crate::generate::{json, run};
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
    for (name, sets) in [("untied", &[][..]), ("tied", &["model.tie_embeddings=true", "model.gelu=tanh"])] {
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

/// A safetensors file of small tensors, each filled with zeros.
fn write_zeros(path: &Path, tensors: &[(&str, &[usize])]) {
    let tensors: Vec<(&str, &[usize], Vec<u8>)> = tensors
        .iter()
        .map(|&(name, shape)| (name, shape, vec![0; 4 * shape.iter().product::<usize>()]))
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn what_cannot_be_imported_is_one_line_and_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
    write_zeros(
        &path("wrong.safetensors"),
        &[
            ("wte.weight", &[7, 4]),
            ("wpe.weight", &[5, 4]),
            ("h.0.attn.c_attn.weight", &[4, 11]),
            ("ln_f.weight", &[4]),
            ("extra", &[2]),
        ],
    );
    let config = r#"{"n_head": 2, "n_layer": 1, "n_embd": 4"#;
    fs::write(path("config.json"), format!("{config}}}")).unwrap();
    fs::write(path("llama.json"), format!("{config}, \"model_type\": \"llama\"}}")).unwrap();
    fs::write(path("relu.json"), format!("{config}, \"activation_function\": \"relu\"}}")).unwrap();
    fs::write(path("heads.json"), r#"{"n_head": 3}"#).unwrap();
    fs::write(path("broken.json"), "{\n\"n_head\": }").unwrap();
    fs::write(path("elsewhere.index.json"), r#"{"weight_map": {"a": "../other"}}"#).unwrap();
    fs::write(path("truncated.safetensors"), &fs::read(path("wrong.safetensors")).unwrap()[..300]).unwrap();
    // A pickle that would run a program: posix.system("true").
    fs::write(path("code.pt"), b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.").unwrap();
    fs::create_dir(path("empty")).unwrap();
    let before = fs::read_dir(place.path()).unwrap().count();

    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["wrong.safetensors"],
            &[
                "`h.0.attn.c_attn.weight` is [4, 11], not [4, 12]",
                "`extra` is left over",
                "`h.0.ln_1.weight` is missing",
                "`ln_f.bias` is missing",
            ],
        ),
        (&["wrong.safetensors", "--config", "llama.json"], &["llama.json: `model_type` is \"llama\""]),
        (&["wrong.safetensors", "--config", "relu.json"], &["`activation_function` is \"relu\""]),
        (&["wrong.safetensors", "--config", "heads.json"], &["`model.heads` = 3 must divide"]),
        (&["wrong.safetensors", "--config", "broken.json"], &["broken.json:2:"]),
        (&["wrong.safetensors", "--config", "nowhere.json"], &["nowhere.json"]),
        (&["truncated.safetensors"], &["truncated.safetensors: is no whole safetensors"]),
        (&["code.pt"], &["code.pt: is no PyTorch file", "posix.system", "pickled code is never run"]),
        (&["elsewhere.index.json"], &["names `../other`, which is no file beside it"]),
        (&["empty"], &["empty: holds no weights"]),
        (&["nowhere.safetensors"], &["nowhere.safetensors"]),
    ];
    for (arguments, parts) in cases {
        let arguments =
            [&["import", "--backend", "ndarray", "--format", "gpt2", "--run", "run"][..], arguments].concat();
        let output = run(place.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in parts {
            assert!(said.contains(part), "{arguments:?} should say {part:?}: {said}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), before, "{arguments:?} leaves nothing");
    }

    small_run(place.path(), &["training.steps=2", "model.position=rotary"], "rotary");
    let output = run(place.path(), &["export", "rotary", "--format", "gpt2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`model.position` = \"rotary\" is not what GPT-2 has"));
    assert!(!path("rotary/export").exists());
}

/// Logits of the exported model by the peer that the format is for, where it is installed.
#[test]
fn transformers_computes_the_same_logits_from_our_export() {
    let place = TempDir::new().unwrap();
    let cases: [(&str, &[&str]); 3] = [
        ("default", &[]),
        ("tied", &["model.tie_embeddings=true", "model.gelu=tanh", "model.norm_epsilon=1e-3"]),
        ("unbiased", &["model.bias=false", "model.feed_forward=3"]),
    ];
    for (name, sets) in cases {
        let folder = small_run(place.path(), &[&["training.steps=20"], sets].concat(), name);
        assert!(run(place.path(), &["export", name, "--format", "gpt2"]).status.success());

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
        let expected = place.path().join("expected.safetensors");
        fs::write(&expected, safetensors::serialize(views, None).unwrap()).unwrap();

        compare_with_peer("gpt2.py", &folder.join("export/gpt2"), &expected);
    }
}

/// Runs a script of the peers on an export and what is expected of it; not where the peer is not installed.
fn compare_with_peer(script: &str, export: &Path, expected: &Path) {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
    let Ok(output) = Command::new(&python).arg(script).arg(export).arg(expected).output() else {
        return eprintln!("skipped: there is no `{python}`; PEER_PYTHON names another");
    };
    if output.status.code() == Some(77) {
        return eprintln!("skipped: {python} has no transformers: {}", text(&output.stdout));
    }
    assert!(output.status.success(), "{export:?}: {}{}", text(&output.stdout), text(&output.stderr));
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
    let bytes = ["data.tokens=bpe", "data.vocab=280"];
    for (run_name, sets) in [("characters", &[][..]), ("pairs", &bytes[..])] {
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
        for format in ["gpt2", "pytorch-names"] {
            assert!(run(place.path(), &["export", run_name, "--format", format]).status.success());
            let export = path(run_name).join("export").join(format);
            compare_with_peer("tokenizer.py", &export, &path("expected.json"));
        }
        // By the tokenizer alone, as another program writes it.
        let export = path(run_name).join("export/gpt2");
        fs::remove_file(export.join("vocabulary.json")).unwrap();
        let again = format!("{run_name}-again");
        let arguments = ["import", export.to_str().unwrap(), "--format", "gpt2", "--run", &again];
        let imported = run(place.path(), &arguments);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        for (text, ids) in expected {
            assert_eq!(self::ids(place.path(), &again, text), ids, "{text:?}");
        }
    }
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
    let write = |name: &str, d_model: usize| {
        let model = ModelConfig { d_model, layers: 5, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let weights = native::collect(&model.init::<NdArray>(sizes, &Default::default()).unwrap()).unwrap();
        let bytes = native::to_bytes(&weights, Some(&Description { model, sizes })).unwrap();
        let file = format!("{name}.safetensors");
        fs::write(place.path().join(&file), &bytes).unwrap();
        assert!(run(place.path(), &["import", &file, "--format", "native", "--run", name]).status.success());
        bytes.len() as f64
    };
    let (large, small) = (write("large", 384), write("small", 16));
    let peak = |name| peak_memory(place.path(), &["generate", name, "--tokens", "1 2", "--max-new", "2"]);
    let ratio = (peak("large") - peak("small")) / (large - small);
    assert!(ratio < 1.3, "{ratio} of the weights");
}

#[test]
#[cfg(unix)]
fn a_pytorch_file_that_is_a_stream_is_refused_at_once_and_one_that_unpacks_to_much_more_too() {
    let place = TempDir::new().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let import = |named: &str| {
        let program = env!("CARGO_BIN_EXE_causal-attention");
        let line = format!("exec timeout 60 {program} import {named} --format nanogpt --run run");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).env("FILE", peers.join("nanogpt.pt")).current_dir(place.path());
        let output = shell.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{named}: {said}");
        said
    };
    assert!(Command::new("mkfifo").arg(place.path().join("pipe.pt")).status().unwrap().success());
    let (file, pipe) = (peers.join("nanogpt.pt"), place.path().join("pipe.pt"));
    let writer = std::thread::spawn(move || fs::copy(file, pipe));
    for stream in ["pipe.pt", "<(cat $FILE)"] {
        let said = import(stream);
        assert!(said.contains("is a stream") && said.contains("save it as a file"), "{said}");
    }
    writer.join().unwrap().unwrap();
    let said = import(peers.join("expanded.pt").to_str().unwrap());
    assert!(said.contains("it unpacks to 4 MB, far more than the 1 MB of the file"), "{said}");
    assert!(!place.path().join("run").exists());
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
