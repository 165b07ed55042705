//! A run folder with modified files, and the messages about the run.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::{SMALL, program, small_run, summary, text, train};

/// Asserts that a command on `run` is refused in one line, and returns the line.
fn refused(place: &Path, command: &[&str]) -> String {
    let output = program(place).args(command).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
    said
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
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=4"], "run");
    let checkpoint = run.join("checkpoints/step-00000004");
    let replace = |name: &str| {
        fs::rename(checkpoint.join(name), run.join(name).with_extension("kept")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(checkpoint.join(name)).status();
        assert!(made.unwrap().success());
    };
    for name in ["model.safetensors", "manifest.json"] {
        replace(name);
        let said = refused(place.path(), &["evaluate", "run", "--checkpoint", "4"]);
        assert!(said.contains(name) && said.contains("is a pipe"), "{said}");
    }
    // The previous checkpoint is used instead.
    let output = program(place.path()).args(["train", "--resume", "run"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("is a pipe"), "{said}");
    assert!(said.contains("going on from run/checkpoints/step-00000000"), "{said}");
}

/// The same for the files of the run itself.
#[cfg(unix)]
#[test]
fn pipes_and_missing_run_files_are_named() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=4"], "run");
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
        let said = refused(place.path(), command);
        assert!(said.contains(name) && said.contains("is a pipe"), "{said}");
        fs::rename(&kept, &path).unwrap();
    }
    fs::remove_file(run.join("vocabulary.json")).unwrap();
    for command in [generate, &["train", "--from", "run", "--run", "new"]] {
        let said = refused(place.path(), command);
        let expected =
            "error: run/vocabulary.json: is missing: it must hold what the tokens of the weights stand for";
        assert!(said.starts_with(expected), "{said}");
    }
}

/// Removes a key from a run's summary, as in older versions.
fn forget(run: &Path, key: &str) {
    let mut summary = summary(run);
    summary.as_object_mut().unwrap().remove(key).unwrap();
    fs::write(run.join("summary.json"), summary.to_string()).unwrap();
}

#[test]
fn files_of_another_run_are_refused() {
    let place = TempDir::new().unwrap();
    let steps = "training.steps=4";
    let own = small_run(place.path(), &[steps, "analysis.every=2"], "own");
    let sets =
        [steps, "data.vocab=23", "model.heads=4", "model.layers=3", "data.length=30", "analysis.every=2"];
    let other = small_run(place.path(), &sets, "other");
    let files = [
        "model.safetensors",
        "vocabulary.json",
        "samples.json",
        "analysis.json",
        "head_scores.csv",
        "summary.json",
    ];
    // The same shapes, but other weights.
    let twin = small_run(place.path(), &[steps, "analysis.every=2", "run.seed=1"], "twin");
    let shorter = small_run(place.path(), &["training.steps=3", "analysis.every=2"], "shorter");
    let of_a_course = ["analysis.json", "metrics.csv", "head_scores.csv"];
    let of_twins = [&twin, &shorter].into_iter().flat_map(|run| of_a_course.map(|file| (run, file)));
    for (other, file) in files.map(|file| (&other, file)).into_iter().chain(of_twins) {
        let run = place.path().join("mixed");
        copy_run(&own, &run);
        fs::copy(other.join(file), run.join(file)).unwrap();
        for command in [
            &["evaluate", "mixed"][..],
            &["plot", "mixed"],
            &["generate", "mixed", "--prompt", "1 2"],
            &["train", "--resume", "mixed", "--set", "training.steps=8"],
        ] {
            let said = refused(place.path(), command);
            assert!(said.contains(&format!("mixed/{file}")), "{command:?} names {file}: {said}");
            assert!(said.contains("another"), "{said}");
            assert!(said.contains("back") || said.contains("anew"), "says what to do: {said}");
        }
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn edited_numbers_are_named_with_their_file() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=4"], "run");
    small_run(place.path(), &["training.steps=4", "run.seed=1"], "twin");
    let edit = |file: &str, pointer: &str| {
        let path = run.join(file);
        let kept = fs::read(&path).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        *json.pointer_mut(pointer).unwrap() = 0.25.into();
        fs::write(path, json.to_string()).unwrap();
        kept
    };
    for key in ["best_valid_loss", "accuracy", "last_valid_loss", "last_train_loss"] {
        let kept = edit("summary.json", &format!("/{key}"));
        let expected = format!("run/summary.json: `{key}` is not that of metrics.csv");
        for command in
            [&["evaluate", "run"][..], &["plot", "run"], &["compare", "run", "twin"], &["runs", "."]]
        {
            let said = text(&program(place.path()).args(command).output().unwrap().stderr);
            assert!(said.contains(&expected), "{command:?}: {said}");
        }
        fs::write(run.join("summary.json"), kept).unwrap();
    }
    edit("analysis.json", "/heads/0/0/entropy");
    for command in [&["evaluate", "run"][..], &["report", "run"], &["compare", "run", "twin"]] {
        let said = text(&program(place.path()).args(command).output().unwrap().stderr);
        assert!(
            said.contains("run/analysis.json: is not the file that the run wrote"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn foreign_metrics_are_refused_without_a_summary() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=4", "training.log_every=1"], "run");
    let longer =
        small_run(place.path(), &["training.steps=9", "training.log_every=1", "run.seed=1"], "longer");
    // The state of a killed run.
    fs::remove_file(run.join("summary.json")).unwrap();
    let resume = ["train", "--resume", "run", "--set", "training.steps=6"];
    let own = fs::read(run.join("metrics.csv")).unwrap();
    let foreign = fs::read(longer.join("metrics.csv")).unwrap();
    assert!(foreign.len() > own.len());
    fs::write(run.join("metrics.csv"), &foreign).unwrap();
    let said = refused(place.path(), &resume);
    assert!(said.contains("run/metrics.csv: is not the file that the run wrote"), "{said}");
    assert!(fs::read(run.join("metrics.csv")).unwrap() == foreign, "nothing of it is cut");
    // Rows of steps that will be repeated may follow.
    fs::write(run.join("metrics.csv"), [&own[..], b"5,1,train,2.0,0"].concat()).unwrap();
    assert!(program(place.path()).args(resume).output().unwrap().status.success());
}

#[test]
fn changed_weights_are_refused_when_hashes_exist() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=4"], "run");
    let weights = run.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let said = refused(place.path(), &["evaluate", "run"]);
    assert!(said.contains("run/model.safetensors") && said.contains("its content has changed"), "{said}");

    // Without a summary, the checkpoints record the hashes of the written files.
    let summary = fs::read(run.join("summary.json")).unwrap();
    fs::remove_file(run.join("summary.json")).unwrap();
    let said = refused(place.path(), &["evaluate", "run"]);
    assert!(said.contains("run/model.safetensors") && said.contains("its content has changed"), "{said}");
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    assert!(program(place.path()).args(["evaluate", "run"]).output().unwrap().status.success());
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    fs::write(run.join("summary.json"), summary).unwrap();

    forget(&run, "weights_sha256");
    let output = program(place.path()).args(["evaluate", "run"]).output().unwrap();
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
            let said = refused(place.path(), command);
            let expected = "run/model.safetensors: holds weights that are not finite";
            assert!(said.contains(expected) && said.len() <= 501, "{command:?}: {said}");
        }
    }
}

#[test]
fn foreign_vocabulary_of_equal_size_is_refused() {
    let place = TempDir::new().unwrap();
    let run = |name: &str, letters: &str| {
        let file = format!("{name}.txt");
        fs::write(place.path().join(&file), letters.repeat(60)).unwrap();
        let path = format!("data.path={file}");
        small_run(place.path(), &["data.source=text", &path, "data.vocab=auto", "training.steps=2"], name)
    };
    let (own, other) = (run("own", "abcd ef"), run("other", "uvwx yz"));
    let generate = ["generate", "own", "--tokens", "1 2", "--max-new", "3"];
    assert!(program(place.path()).args(generate).output().unwrap().status.success());
    fs::copy(other.join("vocabulary.json"), own.join("vocabulary.json")).unwrap();
    for command in
        [&generate[..], &["plot", "own"], &["train", "--resume", "own", "--set", "training.steps=4"]]
    {
        let said = refused(place.path(), command);
        assert!(said.contains("own/vocabulary.json: is not the file that the run wrote"), "{said}");
    }
    forget(&own, "vocabulary_sha256");
    assert!(program(place.path()).args(generate).output().unwrap().status.success());
}

#[test]
fn foreign_samples_with_equal_vocabulary_are_refused() {
    let place = TempDir::new().unwrap();
    let own = small_run(place.path(), &["training.steps=2"], "own");
    let shorter = small_run(place.path(), &["training.steps=2", "data.length=9"], "shorter");
    assert_eq!(
        fs::read(own.join("vocabulary.json")).unwrap(),
        fs::read(shorter.join("vocabulary.json")).unwrap()
    );
    fs::copy(shorter.join("samples.json"), own.join("samples.json")).unwrap();
    let said = refused(place.path(), &["plot", "own"]);
    let expected = "own/samples.json: is not the file that the run wrote: it has changed, or is another run's. Copy this";
    assert!(said.contains(expected), "{said}");
    forget(&own, "samples_sha256");
    assert!(program(place.path()).args(["plot", "own"]).output().unwrap().status.success(), "as one of old");
}

#[test]
fn start_run_is_named_as_typed() {
    let place = TempDir::new().unwrap();
    let run = small_run(place.path(), &["training.steps=2"], "run");
    fs::remove_file(run.join("model.safetensors")).unwrap();
    let said = refused(place.path(), &["train", "--from", "run"]);
    assert!(said.starts_with("error: `run` has no model.safetensors"), "{said}");
}

#[test]
fn overlong_trapezoid_is_refused_before_creating_files() {
    let place = TempDir::new().unwrap();
    let trapezoid = ["training.schedule=trapezoid", "training.steps=30", "training.warmup=20"];
    let sets = [&SMALL[..], &trapezoid, &["training.cooldown=11"]].concat();
    for more in [&["--run", "run"][..], &["--dry-run"]] {
        let output = train(place.path(), &sets, more);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        let part = "error: --set: `training.cooldown` = 11 is too long: with `training.warmup` = 20 the trapezoid \
                    takes 31 steps of the run's 30 steps: shorten one";
        assert!(said.starts_with(part), "{said}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    fs::write(place.path().join("a.toml"), "[training]\nprecision = \"f16\"\ncooldown = 11\n").unwrap();
    for (sets, part) in [
        (&trapezoid[..], "error: a.toml:2: `training.precision` = f16 is not supported by ndarray"),
        (
            &["training.precision=f32", "training.schedule=trapezoid", "training.steps=9"],
            "error: a.toml:3: `training.cooldown`",
        ),
    ] {
        let said = text(&train(place.path(), sets, &["a.toml"]).stderr);
        assert!(said.starts_with(part) && said.lines().count() == 1, "{said}");
    }
    let sets = [&SMALL[..], &trapezoid, &["training.cooldown=10"]].concat();
    assert!(train(place.path(), &sets, &["--run", "run"]).status.success());
}

#[test]
fn slow_bf16_warns_and_unknown_instructions_are_refused() {
    let place = TempDir::new().unwrap();
    let on = |set: &str| {
        let mut command = program(place.path());
        command.args(["train", "--backend", "ndarray", "--dry-run", "--set", "training.precision=bf16"]);
        command.env("CAUSAL_ATTENTION_INSTRUCTION_SET", set).output().unwrap()
    };
    let told = on("portable");
    let said = text(&told.stderr);
    assert!(told.status.success(), "{said}");
    assert!(
        said.contains("warning: training.precision = bf16 is slower than f32 on this processor"),
        "{said}"
    );
    let refused = on("avx3");
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    let part = "error: CAUSAL_ATTENTION_INSTRUCTION_SET = \"avx3\" is none of portable, avx2, avx512";
    assert!(said.starts_with(part), "{said}");
}

#[test]
fn training_warnings_are_printed_and_saved() {
    let place = TempDir::new().unwrap();
    let sets = [&SMALL[..], &["training.steps=3", "training.warmup=50"]].concat();
    for more in [&["--run", "run"][..], &["--dry-run"]] {
        let output = train(place.path(), &sets, more);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        for part in
            ["warning: validation has 384 targets", "warning: training.warmup = 50 takes the whole run"]
        {
            assert!(said.contains(part), "{more:?}: {said}");
        }
    }
    let kept = summary(&place.path().join("run"))["warnings"].to_string();
    assert!(kept.contains("384 targets") && kept.contains("training.warmup"), "{kept}");
}

#[test]
fn printed_defaults_load_and_schema_is_valid() {
    let place = TempDir::new().unwrap();
    let printed = |option: &str| {
        let output = program(place.path()).args(["config", option]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    fs::write(place.path().join("all.toml"), printed("--defaults")).unwrap();
    let output = program(place.path()).args(["data", "all.toml", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let schema = serde_json::from_str::<serde_json::Value>(&printed("--schema")).unwrap();
    assert_eq!(schema["properties"]["training"]["properties"]["steps"]["type"][0], "integer");
    assert_eq!(program(place.path()).arg("config").output().unwrap().status.code(), Some(2));
}
