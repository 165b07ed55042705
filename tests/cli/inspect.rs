//! `inspect`: results on user input, and refusals.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{program, small_run, stdout_of, text};

#[test]
fn inspect_reports_weights_scores_and_probabilities() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=9"], "run");
    let json: Value =
        serde_json::from_str(&stdout_of(dir.path(), &["inspect", "run", "--tokens", "3 1 4 1 5", "--json"]))
            .unwrap();
    assert_eq!(json["tokens"], serde_json::json!([3, 1, 4, 1, 5]));
    assert!(!dir.path().join("run/inspect").exists(), "--json writes no files");
    let weight = |layer: usize, head: usize, query: usize, key: usize| {
        json["weights"][layer][head][query][key].as_f64().unwrap()
    };
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for query in 0..5 {
            let row = (0..5).map(|key| weight(layer, head, query, key)).collect::<Vec<_>>();
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
            assert!(
                row[query + 1..].iter().all(|&weight| weight == 0.0),
                "no query attends to a future key: {row:?}"
            );
        }
        // The 1 at position 3 is the only repeated token. It first occurs at position 1, followed by position 2.
        let scores = &json["scores"][layer][head];
        let close = |name: &str, expected: f64| {
            assert!((scores[name].as_f64().unwrap() - expected).abs() < 1e-6, "{name}: {scores}");
        };
        close("induction", weight(layer, head, 3, 2));
        close("duplicate", weight(layer, head, 3, 1));
        close("self", (0..5).map(|position| weight(layer, head, position, position)).sum::<f64>() / 5.0);
        assert!(scores["zero_ablation"].is_f64());
    }
    let rows = json["probabilities"].as_array().unwrap();
    let sums =
        rows.iter().map(|row| row.as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum::<f64>());
    assert!(rows.len() == 5 && sums.clone().all(|sum| (sum - 1.0).abs() < 1e-5));
    // `score` uses the fast forward pass, and `inspect` the one that returns attention weights.
    let scored: Value =
        serde_json::from_str(&stdout_of(dir.path(), &["score", "run", "--tokens", "3 1 4 1 5", "--json"]))
            .unwrap();
    for (position, token) in [1usize, 4, 1, 5].into_iter().enumerate() {
        let by_maps = rows[position][token].as_f64().unwrap().ln();
        let fast = scored["log_probabilities"][position].as_f64().unwrap();
        assert!((by_maps - fast).abs() < 1e-5, "{by_maps} {fast}");
    }

    let arguments = ["inspect", "run", "--tokens", "3 1 4 1 5", "--json", "--no-ablation"];
    let mut without: Value = serde_json::from_str(&stdout_of(dir.path(), &arguments)).unwrap();
    let mut with = json;
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert!(without["scores"][layer][head]["zero_ablation"].take().is_null());
        with["scores"][layer][head]["zero_ablation"].take();
    }
    assert_eq!(with, without, "--no-ablation changes no other result");

    stdout_of(dir.path(), &["inspect", "run", "--text", "3 1 4 1 5", "--out", "seen", "--format", "svg"]);
    for file in ["attention.svg", "heads.svg", "head_scores.svg", "prediction.svg", "report.html"] {
        assert!(dir.path().join("seen").join(file).is_file(), "{file}");
    }
}

#[test]
fn pictures_can_be_untitled_and_pdfs() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=3"], "run");
    let read = |file: &str| fs::read(dir.path().join(file)).unwrap();
    let given = ["inspect", "run", "--text", "3 1 4 1 5", "--format", "svg"];
    let paper = ["--out", "paper", "--no-title", "--color-scale", "head"];
    stdout_of(dir.path(), &[&given[..], &["--out", "seen"]].concat());
    stdout_of(dir.path(), &[&given[..], &paper].concat());
    assert!(text(&read("seen/heads.svg")).contains("attention of all heads"));
    let untitled = text(&read("paper/heads.svg"));
    assert!(!untitled.contains("attention of all heads") && untitled.contains("of the head"), "{untitled}");
    stdout_of(dir.path(), &["plot", "run", "--format", "pdf", "--width", "246", "--out", "pdf"]);
    for file in ["loss.pdf", "heads.pdf", "attention.pdf"] {
        let pdf = text(&read(&format!("pdf/{file}")));
        assert!(pdf.starts_with("%PDF"), "{file}");
        let height = pdf.split_once("/MediaBox [0 0 246 ").unwrap().1.split_once(']').unwrap().0;
        // A picture of 900 pixels scaled to this width would be lower, with text of 3 points.
        assert!(height.parse::<f64>().unwrap() > 200.0, "{file} is laid out for its width: {height}");
    }
    let paper = ["--format", "pdf", "--width", "246", "--no-title", "--out"];
    stdout_of(dir.path(), &[&["explain", "run", "--pattern", "repeat:4"], &paper[..], &["why"]].concat());
    small_run(dir.path(), &["training.steps=3", "run.seed=2"], "other");
    stdout_of(dir.path(), &[&["compare", "run", "other"], &paper[..], &["side"]].concat());
    for file in ["why/logit_lens.pdf", "side/losses.pdf"] {
        assert!(text(&read(file)).contains("/MediaBox [0 0 246 "), "{file}");
    }
}

#[test]
fn invalid_inspect_input_is_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=3"], "run");
    fs::write(dir.path().join("file"), "").unwrap();
    let long = "1 ".repeat(40);
    let cases: [(&[&str], &[&str]); 18] = [
        (
            &["inspect", "run", "--tokens", "3 1", "--json", "--head", "1"],
            &["--head has no effect", "--out DIR"],
        ),
        (
            &["inspect", "run", "--tokens", "3 1", "--json", "--format", "svg"],
            &["--format has no effect", "--out DIR"],
        ),
        (
            &["plot", "run", "--format", "svg", "--resolution", "2"],
            &["--resolution has no effect with --format svg"],
        ),
        (&["plot", "run", "--width", "246"], &["--width has no effect with --format png"]),
        (&["explain", "run", "--width", "246"], &["--width has no effect with --format png"]),
        (&["explain", "run", "--json", "--no-title"], &["--no-title has no effect with --json"]),
        (&["compare", "run", "run", "--format", "svg"], &["--format has no effect", "--out DIR"]),
        (
            &["inspect", "run", "--tokens", "3 1", "--why", "0.0:1:0", "--color-scale", "sqrt"],
            &["--why", "--color-scale"],
        ),
        (
            &["inspect", "run", "--tokens", "3 1", "--json", "--no-title"],
            &["--no-title has no effect", "--out DIR"],
        ),
        (
            &["inspect", "run", "--tokens", "3 1", "--json", "--color-scale", "sqrt"],
            &["--color-scale has no effect", "--out DIR"],
        ),
        (&["inspect", "run", "--tokens", "3 999"], &["999", "vocabulary"]),
        (&["inspect", "run", "--tokens", "3 x"], &["`x`", "token 2"]),
        (&["inspect", "run", "--text", "3 ? 4"], &["?"]),
        (&["inspect", "run", "--tokens", ""], &["at least one token"]),
        (&["inspect", "run", "--tokens", &long], &["40", "12"]),
        (&["inspect", "run", "--tokens", "3 1", "--head", "7"], &["--head", "`model.heads` = 2"]),
        (&["inspect", "run", "--tokens", "3 1", "--out", "file"], &["`file`"]),
        (&["inspect", "nowhere", "--tokens", "3"], &["`nowhere`: no such run folder"]),
    ];
    for (arguments, parts) in cases {
        let output = program(dir.path()).args(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(
            parts.iter().all(|part| stderr.contains(part)),
            "{arguments:?}: expected {parts:?} in {stderr}"
        );
    }
}

#[test]
fn incomplete_runs_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=3"], "run");
    // A killed run has no summary.
    let summary = dir.path().join("run/summary.json");
    fs::rename(&summary, dir.path().join("summary")).unwrap();
    let output = program(dir.path()).args(["plot", "run"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("has not ended") && stderr.contains("`train --resume run`"), "{stderr}");
    fs::rename(dir.path().join("summary"), &summary).unwrap();

    let metrics = dir.path().join("run/metrics.csv");
    let own = fs::read(&metrics).unwrap();
    fs::write(&metrics, "step,epoch\n1,x\n").unwrap();
    for command in ["plot", "report"] {
        let output = program(dir.path()).args([command, "run"]).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("metrics.csv"), "{stderr}");
    }
    fs::write(&metrics, own).unwrap();
    fs::remove_file(dir.path().join("run/model.safetensors")).unwrap();
    let output = program(dir.path()).args(["inspect", "run", "--tokens", "3"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("model.safetensors") && stderr.contains("`train --resume run`"), "{stderr}");
}

#[test]
fn inspect_prints_only_what_is_selected() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=9"], "run");
    let inspect = |arguments: &[&str]| -> Value {
        let arguments = [&["inspect", "run", "--tokens", "3 1 4 1 5", "--json"], arguments].concat();
        serde_json::from_str(&stdout_of(dir.path(), &arguments)).unwrap()
    };
    let all = inspect(&[]);
    let scores = inspect(&["--only", "scores,ablation"]);
    assert_eq!((&scores["scores"], &scores["tokens"]), (&all["scores"], &all["tokens"]));
    let head = |only: &str| inspect(&["--only", only])["scores"][1][2].clone();
    let (attention, ablation) = (head("scores"), head("ablation"));
    assert_eq!(attention["induction"], all["scores"][1][2]["induction"]);
    assert_eq!(ablation["zero_ablation"], all["scores"][1][2]["zero_ablation"]);
    assert!(attention["zero_ablation"].is_null() && ablation["induction"].is_null());
    assert!(scores.get("weights").is_none() && scores.get("probabilities").is_none());
    let part = inspect(&["--layers", "1", "--heads", "0-1", "--only", "weights,probabilities"]);
    assert_eq!((&part["layers"], &part["heads"]), (&serde_json::json!([1]), &serde_json::json!([0, 1])));
    assert_eq!((&part["weights"][0], &part["probabilities"]), (&all["weights"][1], &all["probabilities"]));
    for (arguments, problem) in [
        (&["--layers", "2"][..], "--layers: 2 does not exist; the model has 2, counted from 0"),
        (&["--heads", "0;1"], "--heads: `0;1` is not a list of numbers and ranges; write it as 0,2-3"),
        (&["--layers", "1-0"], "--layers: `1-0` is not a list"),
    ] {
        let arguments = [&["inspect", "run", "--tokens", "3 1", "--json"], arguments].concat();
        let output = program(dir.path()).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(problem), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_attention_score_is_decomposed() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=9"], "run");
    let tokens = ["--tokens", "3 1 4 1 5"];
    let stdout =
        |arguments: &[&str]| stdout_of(dir.path(), &[&["inspect", "run"], &tokens[..], arguments].concat());
    let found: Value = serde_json::from_str(&stdout(&["--why", "1.1:4:2", "--json"])).unwrap();
    let sum = |value: &Value| value.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).sum::<f64>();
    let whole = found["score"].as_f64().unwrap() - found["position_bias"].as_f64().unwrap();
    for side in ["by_query", "by_key"] {
        assert!((sum(&found[side]) - whole).abs() < 1e-9, "{side}: {found}");
    }
    let all: Value = serde_json::from_str(&stdout(&["--json"])).unwrap();
    let weight = all["weights"][1][1][4][2].as_f64().unwrap();
    assert!((found["weight"].as_f64().unwrap() - weight).abs() < 1e-5, "{found}");
    assert_eq!(stdout(&["--why", "1.1:last:2", "--json"]), stdout(&["--why", "1.1:4:2", "--json"]));
    let printed = stdout(&["--why", "1.1:4:2"]);
    assert!(
        printed.starts_with("Head 1.1 attends from `5` at position 4 to `4` at position 2 with weight "),
        "{printed}"
    );
    for (asked, problem) in [
        ("1.1:5:2", "--why: position 5 is outside the text, whose positions are 0 to 4"),
        ("1.2:4:2", "--why: 1.2 is not a head of the model, whose heads are 0.0 to 1.1"),
        ("1.1:2:4", "--why: the key at position 4 is after the query at position 2, which does not see it"),
        ("1.1:2", "such as 1.3:7:4"),
    ] {
        let arguments = [&["inspect", "run"], &tokens[..], &["--why", asked]].concat();
        let output = program(dir.path()).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(problem), "{asked}: {}", text(&output.stderr));
    }
    small_run(dir.path(), &["training.steps=3", "model.window=2"], "windowed");
    let arguments = [&["inspect", "windowed"], &tokens[..], &["--why", "1.1:4:2"]].concat();
    let stderr = text(&program(dir.path()).args(&arguments).output().unwrap().stderr);
    assert!(stderr.contains("the key at position 2 is outside the window of 2 of layer 1"), "{stderr}");
}
