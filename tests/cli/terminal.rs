//! Terminal output, unwritable outputs, and files that are never overwritten.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;

use crate::generate::{json, run};
use crate::{program, small_run, text};

/// Reads every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn commands_never_overwrite_user_files() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    fs::create_dir(dir.path().join("foreign")).unwrap();
    fs::write(dir.path().join("foreign/config.json"), "{}").unwrap();
    fs::write(dir.path().join("page.html"), "mine").unwrap();
    let before = files(dir.path());
    for arguments in [
        &["report", "run", "--out", "page.html"][..],
        &["plot", "run", "--out", "foreign"],
        &["plot", "run", "--out", "run"],
    ] {
        assert_eq!(run(dir.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
    for out in ["run", "run/plots", "foreign", "foreign/config.json"] {
        for arguments in [
            &["export", "run", "--format", "gpt2", "--out", out][..],
            &["export", "run", "--format", "safetensors", "--out", out],
            &["inspect", "run", "--tokens", "3 1 4", "--out", out],
        ] {
            let output = run(dir.path(), arguments);
            let stderr = text(&output.stderr);
            assert_eq!(
                (output.status.code(), stderr.lines().count()),
                (Some(2), 1),
                "{arguments:?}: {stderr}"
            );
            assert!(stderr.contains(&format!("`{out}` already exists")), "{stderr}");
        }
    }
    // A link to a user's folder replaces a folder of the run.
    fs::rename(dir.path().join("run/plots"), dir.path().join("mine")).unwrap();
    std::os::unix::fs::symlink("../mine", dir.path().join("run/plots")).unwrap();
    let output = run(dir.path(), &["plot", "run", "--format", "svg"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("run/plots: is a link, and files are never written through links"), "{stderr}");
    fs::remove_file(dir.path().join("run/plots")).unwrap();
    fs::rename(dir.path().join("mine"), dir.path().join("run/plots")).unwrap();
    assert!(files(dir.path()) == before, "no file has changed");
    for arguments in [["export", "run", "--format", "gpt2"], ["inspect", "run", "--tokens", "3 1 4"]] {
        for _ in 0..2 {
            let output = run(dir.path(), &arguments);
            assert!(output.status.success(), "the program replaces its own output: {}", text(&output.stderr));
        }
    }
    fs::write(dir.path().join("run/inspect/report.html"), "mine").unwrap();
    let after = files(dir.path());
    assert!(before.iter().all(|(path, bytes)| after[path] == *bytes));
    let output = run(dir.path(), &["inspect", "run", "--tokens", "3 1 4"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("`run/inspect` contains `report.html`, which has changed since `inspect` wrote it"),
        "{stderr}"
    );
    assert!(files(dir.path()) == after);
}

#[test]
fn unwritable_stdout_fails_in_one_line() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["data"],
        &["data", "--json"],
        &["evaluate", "run"],
        &["generate", "run", "--prompt", "3 1", "--max-new", "3"],
        &["generate", "run", "--prompt", "3 1", "--max-new", "3", "--json"],
        &["score", "run", "--text", "3 1 4"],
        &["export", "run", "--format", "gpt2"],
        &["inspect", "run", "--tokens", "3 1 4", "--json"],
        &[
            "train",
            "--run",
            "again",
            "--progress",
            "none",
            "--backend",
            "ndarray",
            "--set",
            "training.steps=1",
            "--set",
            "analysis.circuit=false",
        ],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program(dir.path()).args(arguments).stdout(full).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(
            stderr.lines().count() == 1 && stderr.contains("cannot write to standard output"),
            "{stderr}"
        );
    }
    assert!(dir.path().join("again/report.html").exists(), "the run is saved even if stdout is closed");
}

#[test]
fn closed_stdout_ends_printing_but_not_training() {
    let dir = TempDir::new().unwrap();
    small_run(dir.path(), &["training.steps=2"], "run");
    let train = ["train", "--run", "again", "--progress", "none", "--backend", "ndarray", "--set"];
    let one_step = ["training.steps=1", "--set", "analysis.circuit=false"];
    for (arguments, code) in [
        (&["generate", "run", "--prompt", "3", "--max-new", "9000000000000000000"][..], Some(141)),
        (&["generate", "run", "--prompt", "3", "--samples", "18446744073709551615"], Some(141)),
        (&[&train[..], &one_step].concat(), Some(0)),
    ] {
        let mut command = program(dir.path());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let _ = pipe.read(&mut [0; 16]).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code, "{arguments:?} {:?}", output.status.signal());
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
    assert!(dir.path().join("again/report.html").exists());
}

#[test]
fn names_and_tokens_never_control_the_terminal() {
    let dir = TempDir::new().unwrap();
    let name = "red\u{1b}[31m\u{202e}\u{9b}";
    let table = "a\u{1b}[2J,b\u{202e}\na\u{1b}[2J,b\u{202e}\n".repeat(20);
    fs::write(dir.path().join("table.csv"), table).unwrap();
    let data = ["--set", "data.path=table.csv", "--set", "data.length=2", "--set", "data.vocab=auto"];
    let small = ["--set", "training.steps=2", "--set", "model.d_model=16", "--set", "data.source=table"];
    let trained = [&["train", "--backend", "ndarray"], &data[..], &small].concat();
    let tuned = [&["tune", "--backend", "ndarray"], &data[..], &small].concat();
    let search = ["--set", "tune.search.model.heads=[2]", "--set", "tune.overfit_check=false", "--set"];
    let search = [&search[..], &["tune.method=grid"]].concat();
    let (study, symbol) = (format!("{name}-study"), "a\u{1b}[2J");
    for (arguments, succeeds) in [
        (&["evaluate", "nowhere\u{1b}"][..], false),
        (&["train", name], false),
        (&["generate", "nowhere\u{1b}"], false),
        (&["--set", name], false),
        (&[&["data"], &data[..]].concat(), true),
        (&[&trained[..], &["--run", name]].concat(), true),
        (&["evaluate", name], true),
        (&["score", name, "--text", &format!("{symbol} b\u{202e}")], true),
        (&["score", name, "--text", &format!("{symbol} nothing\u{1b}")], false),
        (&["generate", name, "--prompt", symbol, "--max-new", "3"], true),
        (&["generate", name, "--prompt", symbol, "--max-new", "3", "--samples", "2"], true),
        (&["generate", name, "--prompt", symbol, "--max-new", "3", "--json"], true),
        (&["inspect", name, "--text", symbol], true),
        (&["export", name, "--format", "safetensors"], true),
        (&["train", "--resume", name], false),
        (&[&tuned[..], &search, &["--run", &study]].concat(), true),
        (&["tune", "--resume", &study], true),
    ] {
        let output = run(dir.path(), arguments);
        assert_eq!(output.status.success(), succeeds, "{arguments:?}: {}", text(&output.stderr));
        for printed in [text(&output.stdout), text(&output.stderr)] {
            let is_control = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!printed.contains(is_control), "{arguments:?}: {printed:?}");
        }
    }
    let refused = run(dir.path(), &["evaluate", &format!("nowhere{name}"), "--json"]);
    let stderr: serde_json::Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert!(stderr["error"].as_str().unwrap().contains(name), "{stderr}");
}

#[test]
fn json_output_lists_the_written_files() {
    let dir = TempDir::new().unwrap();
    let train = ["train", "--run", "run", "--backend", "ndarray", "--set", "training.steps=4", "--set"];
    let trained = json(
        dir.path(),
        &[&train[..], &["training.checkpoint_every=2", "--set", "analysis.circuit=false", "--json"]].concat(),
    );
    assert_eq!(
        (&trained["run"], &trained["steps"], &trained["ended"]),
        (&"run".into(), &4.into(), &"completed".into())
    );
    let paths = |value: &serde_json::Value| -> Vec<PathBuf> {
        value.as_array().unwrap().iter().map(|path| dir.path().join(path.as_str().unwrap())).collect()
    };
    assert!(paths(&trained["pictures"]).iter().all(|path| path.is_file()));
    for _ in 0..2 {
        let plotted = json(dir.path(), &["plot", "run", "--out", "pictures", "--format", "svg", "--json"]);
        let pictures = paths(&plotted["pictures"]);
        assert!(pictures.len() > 5 && pictures.iter().all(|path| path.is_file()), "{pictures:?}");
    }
    let arguments = ["export", "run", "--format", "safetensors", "--checkpoint", "2", "--json"];
    let exported = paths(&json(dir.path(), &arguments)["files"]);
    let checkpoint = dir.path().join("run/checkpoints/step-00000002/model.safetensors");
    let weights = exported.iter().find(|path| path.ends_with("model.safetensors")).unwrap();
    assert!(fs::read(weights).unwrap() == fs::read(&checkpoint).unwrap());
    let loss =
        |more: &[&str]| json(dir.path(), &[&["evaluate", "run", "--json"], more].concat())["loss"].as_f64();
    assert_eq!(loss(&["--checkpoint", "4"]), trained["best_valid_loss"].as_f64());
    assert_ne!(loss(&["--checkpoint", "2"]), loss(&[]));
    let refused = run(dir.path(), &["evaluate", "run", "--checkpoint", "3"]);
    assert!(text(&refused.stderr).contains("checkpoints at the steps 0, 2, 4"), "{}", text(&refused.stderr));
    let mut flipped = fs::read(&checkpoint).unwrap();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&checkpoint, flipped).unwrap();
    let refused = run(dir.path(), &["evaluate", "run", "--checkpoint", "2"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is damaged"), "{}", text(&refused.stderr));
    assert!(run(dir.path(), &["report", "run", "--out", "page.html"]).status.success());
    assert!(dir.path().join("page.html").is_file());
}

#[test]
fn progress_prints_without_terminal_but_not_with_json() {
    use burn_ndarray::NdArray;
    use causal_attention::model::{ModelConfig, Sizes};
    use causal_attention::weights::native::{Description, collect, to_bytes};

    let dir = TempDir::new().unwrap();
    let model = ModelConfig { d_model: 192, layers: 4, heads: 8, ..ModelConfig::default() };
    let sizes = Sizes { vocab: 11, context: 512, source_context: None };
    let weights = collect(&model.init::<NdArray>(sizes, &Default::default()).unwrap()).unwrap();
    let bytes = to_bytes(&weights, Some(&Description { model, sizes })).unwrap();
    fs::write(dir.path().join("large.safetensors"), bytes).unwrap();
    let import = ["import", "large.safetensors", "--format", "native", "--run", "run"];
    assert!(run(dir.path(), &import).status.success());
    let tokens = "3 1 4 ".repeat(170);
    let sets = ["--set", "training.batch_size=1", "--set", "data.valid_samples=120"];
    let inspect = ["inspect", "run", "--tokens", &tokens];
    for (arguments, lines) in [
        (&inspect[..], "/32 heads ablated"),
        (&[&["evaluate", "run"], &sets[..]].concat(), "/120 batches"),
        (&[&inspect[..], &["--json"]].concat(), ""),
    ] {
        let output = program(dir.path()).args(arguments).env("RAYON_NUM_THREADS", "1").output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        let stderr = stderr.lines().filter(|line| !line.contains("notice: ")).collect::<Vec<_>>();
        assert_eq!(stderr.is_empty(), lines.is_empty(), "{stderr:?}");
        assert!(stderr.iter().all(|line| line.ends_with(lines)), "{stderr:?}");
    }
}

#[test]
fn long_warnings_are_shortened() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("a".repeat(240)).join("b".repeat(240));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("words.txt"), "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let sets = ["data.source=text", "data.path=words.txt", "data.vocab=auto", "training.steps=2"];
    small_run(&folder, &sets, "run");
    fs::write(folder.join("words.txt"), "not to be or to be, that is the question. ".repeat(40)).unwrap();
    let output = run(dir.path(), &["evaluate", folder.join("run").to_str().unwrap()]);
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.starts_with("warning: the data has changed"), "{stderr}");
    assert!(stderr.ends_with("so the scores are for other data\n") && stderr.len() <= 501, "{stderr}");
}
