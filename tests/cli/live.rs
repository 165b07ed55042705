//! The model inside a page computes the same results as the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use burn::tensor::{Int, Tensor};
use burn_ndarray::NdArray;
use causal_attention::model::{Architecture, Inputs, ModelConfig, Source};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::PositionScheme;
use causal_attention::weights::{file::WeightsFile, native};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::page::{browse, installed};
use super::{generate::json, small_run, text};

/// The tested models, which together cover every architecture, position scheme, norm, activation and flag.
const MODELS: [(&str, &[&str]); 13] = [
    ("learned", &["model.head_bias=true", "model.embedding_norm=true"]),
    (
        "llama",
        &[
            "model.position=rotary",
            "model.rope_scaling=llama3",
            "model.rope_factor=4",
            "model.rope_original_context=64",
            "model.norm_kind=rms",
            "model.activation=swiglu",
            "model.qk_norm=true",
            "model.heads=4",
            "model.key_value_heads=2",
            "model.d_head=6",
            "model.bias=false",
            "model.tie_embeddings=true",
            "model.softcap=3",
            "model.embedding_scale=2.5",
        ],
    ),
    (
        "alibi",
        &[
            "model.position=alibi",
            "model.norm=post",
            "model.activation=relu",
            "model.heads=6",
            "model.d_head=4",
            "model.window=4",
        ],
    ),
    (
        "relative",
        &[
            "model.architecture=encoder_decoder",
            "data.task=reverse",
            "model.position=relative",
            "model.activation=geglu",
            "model.norm=post",
        ],
    ),
    ("sinusoidal", &["model.position=sinusoidal", "model.activation=gelu_tanh", "model.embedding_norm=true"]),
    // More than a million parameters, which the page stores in half precision.
    ("half", &["model.d_model=256", "model.position=rotary"]),
    (
        "gemma",
        &[
            "model.position=rotary",
            "model.rope_theta_local=100",
            "model.window=4",
            "model.layer_pattern=[\"local\", \"global\"]",
            "model.norm=sandwich",
            "model.activation=geglu_tanh",
            "model.norm_kind=rms",
            "model.norm_unit_offset=true",
            "model.attention_scale=0.4",
            "model.attention_softcap=2",
            "model.attention_gate=elementwise",
            "model.sinks=off_by_one",
        ],
    ),
    (
        "neox",
        &[
            "model.position=rotary",
            "model.rotary_fraction=0.5",
            "model.rotary_skip_every=2",
            "model.parallel=true",
            "model.norm=output",
            "model.qk_norm=true",
            "model.qk_norm_scope=all_heads",
            "model.key_value_heads=2",
            "model.attention_gate=head",
            "model.sinks=learned",
        ],
    ),
    (
        "differential",
        &[
            "model.differential=true",
            "model.position=rotary",
            "model.rotary_fraction=0.5",
            "model.d_head=8",
            "model.key_value_heads=1",
            "model.qk_norm=true",
            "model.norm_unit_offset=true",
            "model.attention_gate=head",
            "model.attention_softcap=2",
            "model.sinks=learned",
            "model.window=4",
        ],
    ),
    ("random", &["model.position=random_sinusoidal", "model.largest_position=100"]),
    ("one-layer", &["model.architecture=one_layer", "model.qk_norm=true"]),
    ("none", &["model.position=none", "model.activation=silu", "model.query_key_value_bias=false"]),
    (
        "translator",
        &[
            "model.architecture=encoder_decoder",
            "data.task=sort",
            "model.position=alibi",
            "model.activation=relu2",
            "model.differential=true",
            "model.norm_kind=rms",
            "model.embedding_norm=true",
            "model.window=3",
            "model.layer_pattern=[\"local\", \"global\"]",
        ],
    ),
];

/// Returns a run's logits for tokens, with Burn's operations on ndarray.
fn logits(run: &Path, tokens: &[u32], source: Option<&[u32]>) -> Vec<f32> {
    let device = Default::default();
    let file = WeightsFile::open(run.join("model.safetensors")).unwrap();
    let (model, _) = native::load_model::<NdArray>(&file, &device).unwrap();
    let row = |ids: &[u32]| {
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        Tensor::<NdArray, 1, Int>::from_ints(&ids[..], &device).unsqueeze::<2>()
    };
    let source = source.map(|source| Source { tokens: row(source), lengths: vec![source.len()] });
    let inputs = Inputs { source, ..Inputs::tokens(row(tokens)) };
    model.forward(inputs).unwrap().into_data().to_vec().unwrap()
}

/// Returns the expected values of a run's page for an input.
fn expected(dir: &Path, name: &str, typed: &[&str], texts: &[&str]) -> Value {
    let run = dir.join(name);
    let inspected = json(dir, &[&["inspect", name, "--no-ablation", "--json"], typed].concat());
    let ids = |key: &str| serde_json::from_value::<Option<Vec<u32>>>(inspected[key].clone()).unwrap();
    let (tokens, source) = (ids("tokens").unwrap(), ids("source"));
    let mut maps = json!({"decoder": inspected["weights"]});
    if source.is_some() {
        maps["cross"] = inspected["cross_weights"].clone();
        maps["encoder"] = inspected["encoder_weights"].clone();
    }
    let first = tokens[0].to_string();
    let prompt: Vec<String> = match &source {
        Some(source) => vec![source.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")],
        None => vec![first],
    };
    let greedy =
        ["generate", name, "--tokens", &prompt[0], "--greedy", "--max-new", "60", "--ignore-end", "--json"];
    let written = json(dir, &greedy);
    let texts: Vec<_> = texts
        .iter()
        .map(|text| json!([text, json(dir, &["score", name, "--text", text, "--json"])["tokens"]]))
        .collect();
    json!({
        "page": run.join("report.html"), "tokens": tokens, "source": source,
        "logits": logits(&run, &tokens, source.as_deref()), "maps": maps, "texts": texts,
        "greedy": written["samples"][0]["tokens"],
    })
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn browser_model_matches_the_program() {
    let dir = TempDir::new().unwrap();
    let mut cases = Vec::new();
    for (name, sets) in MODELS {
        small_run(dir.path(), &[&["training.steps=20", "analysis.every=0"], sets].concat(), name);
        let typed: &[_] = match sets.contains(&"model.architecture=encoder_decoder") {
            true => &["--source", "3 1 4 1", "--text", "1 4 1"],
            // This text is longer than the context of 12, so other positions are drawn.
            false if name == "random" => &["--text", "3 1 4 1 5 2 6 5 3 5 8 9 7 9 3 2 3"],
            false => &["--text", "3 1 4 1 5 2 6 5 3 5"],
        };
        cases.push(expected(dir.path(), name, typed, &[]));
    }
    let text = "To be, or not to be: that's the question. «Être» 12 345\n\n  ... we'll see 漢字\n".repeat(40);
    std::fs::write(dir.path().join("text.txt"), text).unwrap();
    let text_sets = ["data.source=text", "data.path=text.txt", "training.steps=20", "data.length=24"];
    for (name, tokens) in
        [("characters", &["data.vocab=auto"][..]), ("pairs", &["data.tokens=bpe", "data.vocab=300"])]
    {
        small_run(dir.path(), &[&text_sets[..], tokens].concat(), name);
        let texts = ["not to be: 12", "we'll see  ...\n", "Être 漢字 345"];
        cases.push(expected(dir.path(), name, &["--text", "to be that's"], &texts));
    }
    let file = dir.path().join("expected.json");
    std::fs::write(&file, json!(cases).to_string()).unwrap();
    browse("model.mjs", &[file]);
}

#[test]
fn tested_models_cover_every_choice() {
    let default = ModelConfig::default();
    let covers = |key: &str, value: String, default: String| {
        let set = format!("model.{key}={value}");
        let is_tested = MODELS.iter().any(|(_, sets)| sets.contains(&set.as_str()));
        assert!(value == default || is_tested, "no model of `MODELS` sets {set}");
    };
    for value in PositionScheme::ALL {
        covers("position", value.to_string(), default.position.to_string());
    }
    for value in Activation::ALL {
        covers("activation", value.to_string(), default.activation.to_string());
    }
    for value in NormKind::ALL {
        covers("norm_kind", value.to_string(), default.norm_kind.to_string());
    }
    for value in Architecture::ALL {
        covers("architecture", value.to_string(), default.architecture.to_string());
    }
}

#[test]
fn page_scripts_pass_their_unit_tests() {
    let Some(node) = installed(&["node"]) else {
        eprintln!("notice: page modules are not tested, because Node.js is not installed");
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let files = ["layers.test.mjs", "typed.test.mjs"].map(|file| folder.join(file));
    let tested = Command::new(node).arg("--test").args(files).output().unwrap();
    let printed = text(&tested.stdout) + &text(&tested.stderr);
    assert!(tested.status.success() && !printed.contains("# pass 0"), "{printed}");
}

#[test]
#[ignore = "needs a browser: `.ci/run page`"]
fn typed_text_keeps_windows_line_breaks() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("dos.txt"), "to be\r\nor not\r\n".repeat(60)).unwrap();
    small_run(dir.path(), &["data.path=dos.txt", "data.vocab=auto", "training.steps=9"], "run");
    browse("line_breaks.mjs", &[dir.path().join("run/report.html")]);
}
