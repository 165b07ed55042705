//! `scale`: predictions of step times for more workers.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{SMALL, text};

#[test]
fn scale_predicts_and_plots_step_times() {
    let dir = TempDir::new().unwrap();
    let sets = SMALL.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
    let given = ["--backend", "ndarray", "--bandwidth", "10", "--latency", "50"];
    let small = [&["scale"][..], &given, &sets, &["--set", "training.shards=4"]].concat();
    let output = run(dir.path(), &[&small[..], &["--workers", "2..8", "--out", "made"]].concat());
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in
        ["gradients of 2 sequences, 1 of 4 shards", "10.00 Gbit/s each way", "workers", "made/scaling.png"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let row = |workers: &str| stdout.lines().map(str::trim).find(|line| line.starts_with(workers)).unwrap();
    assert!(row("1  ").contains("100.0 %") && row("8  ").contains('-'), "{stdout}");
    assert!(fs::metadata(dir.path().join("made/scaling.png")).unwrap().len() > 1_000);

    let prediction = json(dir.path(), &[&small[..], &["--workers", "3..4", "--json"]].concat());
    let predicted = prediction["predicted"].as_array().unwrap();
    assert_eq!(predicted.iter().map(|at| at["workers"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(prediction["parts"]["exchange"], Value::Null, "a single worker does not exchange gradients");
    let seconds = |at: &Value| at["shared"]["seconds"].as_f64().unwrap();
    let [shard, copies, update] = [
        &prediction["parts"]["shards"]["4"]["1"],
        &prediction["parts"]["copies"],
        &prediction["parts"]["update"],
    ]
    .map(|part| part.as_f64().unwrap());
    let exchange = predicted[1]["exchange"].as_f64().unwrap();
    assert!((seconds(&predicted[1]) - (shard + copies + exchange + update)).abs() < 1e-12, "{prediction}");
    assert!(!dir.path().join("runs").exists(), "nothing is trained");
}

#[test]
fn invalid_scale_options_are_refused() {
    let dir = TempDir::new().unwrap();
    for (arguments, part) in [
        (&[][..], "--bandwidth GBIT and --latency MICROSECONDS"),
        (&["--bandwidth", "1"], "mpirun -n 2 causal-attention scale"),
        (&["--bandwidth", "0", "--latency", "1"], "must be a positive number"),
        (&["--bandwidth", "1", "--latency", "inf"], "must be a non-negative number"),
        (&["--workers", "8"], "e.g. 2..1024"),
        (&["--workers", "8..2"], "in ascending order"),
        (&["--workers", "5..7"], "no power of two"),
        (&["--format", "svg"], "--out"),
        (&["--bandwidth", "1", "--latency", "1", "--set", "training.shards=3"], "`training.shards` = 3"),
    ] {
        let output = run(dir.path(), &[&["scale"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}
