//! Modular addition: the Fourier analysis of a run, and the copies of its weights.

use std::fs;
use std::path::Path;

use causal_attention::data::{Count, DataConfig, Task, load};
use causal_attention::training::FourierAnalysis;
use serde_json::Value;
use tempfile::TempDir;

use crate::generate::run;
use crate::weights::peers::peer;
use crate::{stdout_of, text, train};

/// A run that only memorises, in a second.
const SMALL: [&str; 11] = [
    "data.task=modular_addition",
    "data.vocab=13",
    "data.train_samples=100",
    "data.valid_samples=60",
    "model.layers=1",
    "model.d_model=32",
    "training.steps=60",
    "training.validate_every=20",
    "analysis.every=20",
    "analysis.weights_every=20",
    "analysis.circuit=false",
];

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr)
}

fn analysis(run: &Path) -> FourierAnalysis {
    serde_json::from_slice(&fs::read(run.join("fourier.json")).unwrap()).unwrap()
}

#[test]
fn trained_runs_have_a_fourier_analysis() {
    let dir = TempDir::new().unwrap();
    let output = train(dir.path(), &SMALL, &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = dir.path().join("run");
    let found = analysis(&run);
    let steps: Vec<usize> = found.progress.iter().map(|it| it.step).collect();
    assert_eq!(steps, [0, 20, 40, 60], "a copy of the weights every 20 steps");
    assert_eq!((found.modulus, found.logits.len(), found.embedding.len()), (13, 6, 6));
    assert_eq!(found.neurons.iter().map(Vec::len).collect::<Vec<_>>(), [128]);
    assert!((found.logits.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    // The losses are those of the run.
    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    for row in metrics.lines().map(|line| line.split(',').collect::<Vec<_>>()) {
        let [step, _, "valid", loss, ..] = row[..] else { continue };
        let [step, loss] = [step, loss].map(|value| value.parse::<f64>().unwrap());
        let measured = found.progress.iter().find(|it| it.step as f64 == step).unwrap();
        assert!((measured.validation - loss).abs() < 1e-4, "step {step}: {} and {loss}", measured.validation);
    }
    let picture = run.join("plots/fourier.png");
    assert!(picture.is_file());
    fs::remove_file(&picture).unwrap();
    let stdout = stdout_of(dir.path(), &["explain", "run"]);
    assert!(found.sentences.iter().all(|sentence| stdout.contains(sentence.as_str())), "{stdout}");
    assert!(picture.is_file() && analysis(&run) == found);
    // It did not generalise.
    assert!(found.stages.is_empty() && stdout.contains("The run has no separate stages"), "{stdout}");
    let phases = stdout_of(dir.path(), &["phases", "run", "--no-replay", "--json"]);
    let phases: Value = serde_json::from_str(&phases).unwrap();
    assert!(phases.get("stages").is_none(), "{phases}");
}

/// Compares the analysis with fast Fourier transforms of the exported model's logits, if transformers is installed.
#[test]
#[ignore = "needs PyTorch and transformers: `.ci/run peers`"]
fn fourier_transforms_in_pytorch_agree() {
    let dir = TempDir::new().unwrap();
    let sets =
        [&SMALL[..], &["model.position=learned", "model.activation=relu", "training.steps=200"]].concat();
    let output = train(dir.path(), &sets, &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    stdout_of(dir.path(), &["export", "run", "--format", "transformers"]);
    let (task, vocab) = (Task::ModularAddition, Count::Of(13));
    let config = DataConfig { task, vocab, train_samples: 100, valid_samples: 60, ..DataConfig::default() };
    let batch = load(&config, 0).unwrap().train.batches(100).next().unwrap();
    let pairs: Vec<&[u32]> = batch.inputs.chunks(3).map(|row| &row[..2]).collect();
    let file = dir.path().join("pairs.json");
    fs::write(&file, serde_json::to_vec(&pairs).unwrap()).unwrap();
    let run = dir.path().join("run");
    let [export, found] = [run.join("export/transformers"), run.join("fourier.json")];
    peer("fourier.py", &[&export, &found, &file].map(|path| path.to_str().unwrap()));
}

#[test]
fn resumed_runs_keep_the_same_copies_of_the_weights() {
    let dir = TempDir::new().unwrap();
    assert!(train(dir.path(), &SMALL, &["--run", "whole"]).status.success());
    let copies = |name: &str| {
        let entries = fs::read_dir(dir.path().join(name).join("weights")).unwrap().flatten();
        let mut files: Vec<_> =
            entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect();
        files.sort();
        files
    };
    // A second copy after the checkpoint of step 20, as a kill leaves it, is written again.
    let paused = [&SMALL[..], &["training.checkpoint_every=20"]].concat();
    assert!(train(dir.path(), &paused, &["--run", "parts", "--until", "30"]).status.success());
    fs::write(dir.path().join("parts/weights/step-00000040.safetensors"), "partial").unwrap();
    assert!(run(dir.path(), &["train", "--resume", "parts"]).status.success());
    assert!(copies("parts") == copies("whole"), "the same bytes");
    assert_eq!(copies("whole").len(), 4);
}

#[test]
fn sets_of_more_pairs_than_there_are_are_refused() {
    let dir = TempDir::new().unwrap();
    let task = ["train", "--set", "data.task=modular_addition", "--set", "data.vocab=50"];
    let error = refused(dir.path(), &task);
    assert!(
        error.contains("together more than the 2,500 pairs of numbers below `data.vocab` = 50"),
        "{error}"
    );
    let lengths =
        [&["train", "--set", "data.task=modular_addition"][..], &["--set", "data.lengths=[2, 3]"]].concat();
    assert!(refused(dir.path(), &lengths).contains("whose samples have four tokens"));
}
