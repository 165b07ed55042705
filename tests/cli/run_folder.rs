//! Run folders with modified files, and the errors and warnings of commands on runs and configs.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::{SMALL, program, small_run, summary, text, train};

/// Asserts that a command is refused in one line, and returns the line.
fn refused(dir: &Path, command: &[&str]) -> String {
    let output = program(dir).args(command).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{command:?}: {stderr}");
    stderr
}

fn copy_run(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_run(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Reading a pipe in a checkpoint would block forever.
#[cfg(unix)]
#[test]
fn pipes_in_checkpoints_never_block() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=4"], "run");
    let checkpoint = run.join("checkpoints/step-00000004");
    let replace = |name: &str| {
        fs::rename(checkpoint.join(name), run.join(name).with_extension("kept")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(checkpoint.join(name)).status();
        assert!(status.unwrap().success());
    };
    for name in ["model.safetensors", "manifest.json"] {
        replace(name);
        let stderr = refused(dir.path(), &["evaluate", "run", "--checkpoint", "4"]);
        assert!(stderr.contains(name) && stderr.contains("is a pipe"), "{stderr}");
    }
    // The previous checkpoint is used instead.
    let output = program(dir.path()).args(["train", "--resume", "run"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.contains("is a pipe"), "{stderr}");
    assert!(stderr.contains("resuming from run/checkpoints/step-00000000"), "{stderr}");
}

/// Reading a pipe in the run folder would block forever, too.
#[cfg(unix)]
#[test]
fn pipes_and_missing_run_files_are_named() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=4"], "run");
    let plot: &[&str] = &["plot", "run"];
    let generate: &[&str] = &["generate", "run", "--prompt", "3 1"];
    for (name, command) in [
        ("samples.json", plot),
        ("metrics.csv", plot),
        ("analysis.json", plot),
        ("summary.json", plot),
        ("vocabulary.json", generate),
        ("model.safetensors", generate),
    ] {
        let (path, kept) = (run.join(name), run.join("kept"));
        fs::rename(&path, &kept).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let stderr = refused(dir.path(), command);
        assert!(stderr.contains(name) && stderr.contains("is a pipe"), "{stderr}");
        fs::rename(&kept, &path).unwrap();
    }
    fs::remove_file(run.join("vocabulary.json")).unwrap();
    for command in [generate, &["train", "--from", "run", "--run", "new"]] {
        let stderr = refused(dir.path(), command);
        let expected = "error: run/vocabulary.json: is missing; it must contain the meaning of the tokens of the weights";
        assert!(stderr.starts_with(expected), "{stderr}");
    }
}

/// Removes a key from a run's summary, as if an older version had written it.
fn forget(run: &Path, key: &str) {
    let mut summary = summary(run);
    summary.as_object_mut().unwrap().remove(key).unwrap();
    fs::write(run.join("summary.json"), summary.to_string()).unwrap();
}

#[test]
fn files_of_another_run_are_refused() {
    let dir = TempDir::new().unwrap();
    let steps = "training.steps=4";
    let own = small_run(dir.path(), &[steps, "analysis.every=2"], "own");
    let sets =
        [steps, "data.vocab=23", "model.heads=4", "model.layers=3", "data.length=30", "analysis.every=2"];
    let other = small_run(dir.path(), &sets, "other");
    let files = [
        "model.safetensors",
        "vocabulary.json",
        "samples.json",
        "analysis.json",
        "head_scores.csv",
        "summary.json",
    ];
    // The same shapes, but other weights.
    let twin = small_run(dir.path(), &[steps, "analysis.every=2", "run.seed=1"], "twin");
    let shorter = small_run(dir.path(), &["training.steps=3", "analysis.every=2"], "shorter");
    let histories = ["analysis.json", "metrics.csv", "head_scores.csv"];
    let twin_files = [&twin, &shorter].into_iter().flat_map(|run| histories.map(|file| (run, file)));
    for (other, file) in files.map(|file| (&other, file)).into_iter().chain(twin_files) {
        let run = dir.path().join("mixed");
        copy_run(&own, &run);
        fs::copy(other.join(file), run.join(file)).unwrap();
        for command in [
            &["evaluate", "mixed"][..],
            &["plot", "mixed"],
            &["generate", "mixed", "--prompt", "1 2"],
            &["train", "--resume", "mixed", "--set", "training.steps=8"],
        ] {
            let stderr = refused(dir.path(), command);
            assert!(stderr.contains(&format!("mixed/{file}")), "{command:?} names {file}: {stderr}");
            assert!(stderr.contains("another run") || stderr.contains("a different model"), "{stderr}");
            assert!(
                stderr.contains("back") || stderr.contains("restore"),
                "the error includes a remedy: {stderr}"
            );
        }
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn edited_numbers_are_named_with_their_file() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=4"], "run");
    small_run(dir.path(), &["training.steps=4", "run.seed=1"], "twin");
    let edit = |file: &str, pointer: &str| {
        let path = run.join(file);
        let original = fs::read(&path).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&original).unwrap();
        *json.pointer_mut(pointer).unwrap() = 0.25.into();
        fs::write(path, json.to_string()).unwrap();
        original
    };
    for key in ["best_valid_loss", "accuracy", "last_valid_loss", "last_train_loss"] {
        let original = edit("summary.json", &format!("/{key}"));
        let expected = format!("run/summary.json: `{key}` differs from metrics.csv");
        for command in
            [&["evaluate", "run"][..], &["plot", "run"], &["compare", "run", "twin"], &["runs", "."]]
        {
            let stderr = text(&program(dir.path()).args(command).output().unwrap().stderr);
            assert!(stderr.contains(&expected), "{command:?}: {stderr}");
        }
        fs::write(run.join("summary.json"), original).unwrap();
    }
    edit("analysis.json", "/heads/0/0/entropy");
    for command in [&["evaluate", "run"][..], &["report", "run"], &["compare", "run", "twin"]] {
        let stderr = text(&program(dir.path()).args(command).output().unwrap().stderr);
        assert!(
            stderr.contains("run/analysis.json: has changed, or belongs to another run"),
            "{command:?}: {stderr}"
        );
    }
}

#[test]
fn foreign_metrics_are_refused_without_a_summary() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=4", "training.log_every=1"], "run");
    let longer = small_run(dir.path(), &["training.steps=9", "training.log_every=1", "run.seed=1"], "longer");
    // A killed run has no summary.
    fs::remove_file(run.join("summary.json")).unwrap();
    let resume = ["train", "--resume", "run", "--set", "training.steps=6"];
    let own = fs::read(run.join("metrics.csv")).unwrap();
    let foreign = fs::read(longer.join("metrics.csv")).unwrap();
    assert!(foreign.len() > own.len());
    fs::write(run.join("metrics.csv"), &foreign).unwrap();
    let stderr = refused(dir.path(), &resume);
    assert!(stderr.contains("run/metrics.csv: has changed, or belongs to another run"), "{stderr}");
    assert!(fs::read(run.join("metrics.csv")).unwrap() == foreign, "the foreign file is not truncated");
    // Further rows are allowed, because the resumed run repeats their steps.
    fs::write(run.join("metrics.csv"), [&own[..], b"5,1,train,2.0,0"].concat()).unwrap();
    assert!(program(dir.path()).args(resume).output().unwrap().status.success());
}

#[test]
fn changed_weights_are_refused_when_hashes_exist() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=4"], "run");
    let weights = run.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let stderr = refused(dir.path(), &["evaluate", "run"]);
    assert!(
        stderr.contains("run/model.safetensors") && stderr.contains("has changed since the run wrote it"),
        "{stderr}"
    );

    // Without a summary, the checkpoints record the hashes of the written files.
    let summary = fs::read(run.join("summary.json")).unwrap();
    fs::remove_file(run.join("summary.json")).unwrap();
    let stderr = refused(dir.path(), &["evaluate", "run"]);
    assert!(
        stderr.contains("run/model.safetensors") && stderr.contains("has changed since the run wrote it"),
        "{stderr}"
    );
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    assert!(program(dir.path()).args(["evaluate", "run"]).output().unwrap().status.success());
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    fs::write(run.join("summary.json"), summary).unwrap();

    forget(&run, "weights_sha256");
    let output = program(dir.path()).args(["evaluate", "run"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    // A single NaN weight, and all of them.
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
    for first in [bytes.len() - 4, header] {
        bytes[first..].chunks_exact_mut(4).for_each(|weight| weight.copy_from_slice(&f32::NAN.to_le_bytes()));
        fs::write(&weights, &bytes).unwrap();
        for command in [
            &["evaluate", "run"][..],
            &["score", "run", "--tokens", "3 1 4"],
            &["generate", "run", "--tokens", "3 1 4"],
            &["inspect", "run", "--tokens", "3 1 4", "--json"],
            &["export", "run", "--format", "gpt2"],
            &["train", "--from", "run", "--run", "again"],
        ] {
            let stderr = refused(dir.path(), command);
            let expected = "run/model.safetensors: contains non-finite weights";
            assert!(stderr.contains(expected) && stderr.len() <= 501, "{command:?}: {stderr}");
        }
    }
}

#[test]
fn foreign_vocabulary_of_equal_size_is_refused() {
    let dir = TempDir::new().unwrap();
    let run = |name: &str, letters: &str| {
        let file = format!("{name}.txt");
        fs::write(dir.path().join(&file), letters.repeat(60)).unwrap();
        let path = format!("data.path={file}");
        small_run(dir.path(), &["data.source=text", &path, "data.vocab=auto", "training.steps=2"], name)
    };
    let (own, other) = (run("own", "abcd ef"), run("other", "uvwx yz"));
    let generate = ["generate", "own", "--tokens", "1 2", "--max-new", "3"];
    assert!(program(dir.path()).args(generate).output().unwrap().status.success());
    fs::copy(other.join("vocabulary.json"), own.join("vocabulary.json")).unwrap();
    for command in
        [&generate[..], &["plot", "own"], &["train", "--resume", "own", "--set", "training.steps=4"]]
    {
        let stderr = refused(dir.path(), command);
        assert!(stderr.contains("own/vocabulary.json: has changed, or belongs to another run"), "{stderr}");
    }
    forget(&own, "vocabulary_sha256");
    assert!(program(dir.path()).args(generate).output().unwrap().status.success());
}

#[test]
fn foreign_samples_with_equal_vocabulary_are_refused() {
    let dir = TempDir::new().unwrap();
    let own = small_run(dir.path(), &["training.steps=2"], "own");
    let shorter = small_run(dir.path(), &["training.steps=2", "data.length=9"], "shorter");
    assert_eq!(
        fs::read(own.join("vocabulary.json")).unwrap(),
        fs::read(shorter.join("vocabulary.json")).unwrap()
    );
    fs::copy(shorter.join("samples.json"), own.join("samples.json")).unwrap();
    let stderr = refused(dir.path(), &["plot", "own"]);
    let expected = "own/samples.json: has changed, or belongs to another run; restore this run's file";
    assert!(stderr.contains(expected), "{stderr}");
    forget(&own, "samples_sha256");
    assert!(
        program(dir.path()).args(["plot", "own"]).output().unwrap().status.success(),
        "older runs lack the hash"
    );
}

#[test]
fn start_run_is_named_as_typed() {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=2"], "run");
    fs::remove_file(run.join("model.safetensors")).unwrap();
    let stderr = refused(dir.path(), &["train", "--from", "run"]);
    assert!(stderr.starts_with("error: `run` does not have a model.safetensors"), "{stderr}");
}

#[test]
fn overlong_trapezoid_is_refused_before_creating_files() {
    let dir = TempDir::new().unwrap();
    let trapezoid = ["training.schedule=trapezoid", "training.steps=30", "training.warmup=20"];
    let sets = [&SMALL[..], &trapezoid, &["training.cooldown=11"]].concat();
    for more in [&["--run", "run"][..], &["--dry-run"]] {
        let output = train(dir.path(), &sets, more);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        let part = "error: --set: `training.cooldown` = 11 is too long: with `training.warmup` = 20, the ramps \
                    take 31 steps, but the run has 30 steps; shorten one of them";
        assert!(stderr.starts_with(part), "{stderr}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join("a.toml"), "[training]\nprecision = \"f16\"\ncooldown = 11\n").unwrap();
    for (sets, part) in [
        (&trapezoid[..], "error: a.toml:2: `training.precision` = f16 is not supported by ndarray"),
        (
            &["training.precision=f32", "training.schedule=trapezoid", "training.steps=9"],
            "error: a.toml:3: `training.cooldown`",
        ),
    ] {
        let stderr = text(&train(dir.path(), sets, &["a.toml"]).stderr);
        assert!(stderr.starts_with(part) && stderr.lines().count() == 1, "{stderr}");
    }
    let sets = [&SMALL[..], &trapezoid, &["training.cooldown=10"]].concat();
    assert!(train(dir.path(), &sets, &["--run", "run"]).status.success());
}

#[test]
fn slow_bf16_warns_and_unknown_instructions_are_refused() {
    let dir = TempDir::new().unwrap();
    let dry_run = |set: &str| {
        let mut command = program(dir.path());
        command.args(["train", "--backend", "ndarray", "--dry-run", "--set", "training.precision=bf16"]);
        command.env("CAUSAL_ATTENTION_INSTRUCTION_SET", set).output().unwrap()
    };
    let output = dry_run("portable");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("warning: training.precision = bf16 is slower than f32 on this processor"),
        "{stderr}"
    );
    let refused = dry_run("avx3");
    let stderr = text(&refused.stderr);
    assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    let part = "error: CAUSAL_ATTENTION_INSTRUCTION_SET = \"avx3\" must be one of portable, avx2, avx512";
    assert!(stderr.starts_with(part), "{stderr}");
}

#[test]
fn training_warnings_are_printed_and_saved() {
    let dir = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=3", "training.warmup=50"]].concat();
    for more in [&["--run", "run"][..], &["--dry-run"]] {
        let output = train(dir.path(), &sets, more);
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        for part in
            ["warning: validation has 384 targets", "warning: training.warmup = 50 takes the entire run"]
        {
            assert!(stderr.contains(part), "{more:?}: {stderr}");
        }
    }
    let saved = summary(&dir.path().join("run"))["warnings"].to_string();
    assert!(saved.contains("384 targets") && saved.contains("training.warmup"), "{saved}");
}

#[test]
fn printed_defaults_load_and_schema_is_valid() {
    let dir = TempDir::new().unwrap();
    let printed = |option: &str| {
        let output = program(dir.path()).args(["config", option]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    fs::write(dir.path().join("all.toml"), printed("--defaults")).unwrap();
    let output = program(dir.path()).args(["data", "all.toml", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let schema = serde_json::from_str::<serde_json::Value>(&printed("--schema")).unwrap();
    assert_eq!(schema["properties"]["training"]["properties"]["steps"]["type"][0], "integer");
    assert_eq!(program(dir.path()).arg("config").output().unwrap().status.code(), Some(2));
}
