//! What is printed, where it can be written, and what is never written over.
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

/// Every file below a folder, with its bytes.
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
fn no_command_writes_over_what_it_did_not_make() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    fs::create_dir(place.path().join("foreign")).unwrap();
    fs::write(place.path().join("foreign/config.json"), "{}").unwrap();
    fs::write(place.path().join("page.html"), "mine").unwrap();
    let before = files(place.path());
    for arguments in [
        &["report", "run", "--out", "page.html"][..],
        &["plot", "run", "--out", "foreign"],
        &["plot", "run", "--out", "run"],
    ] {
        assert_eq!(run(place.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
    for out in ["run", "run/plots", "foreign", "foreign/config.json"] {
        for arguments in [
            &["export", "run", "--format", "gpt2", "--out", out][..],
            &["export", "run", "--format", "safetensors", "--out", out],
            &["inspect", "run", "--tokens", "3 1 4", "--out", out],
        ] {
            let output = run(place.path(), arguments);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
            assert!(said.contains(&format!("`{out}` exists already")), "{said}");
        }
    }
    assert!(files(place.path()) == before, "not a byte has changed");
    for arguments in [["export", "run", "--format", "gpt2"], ["inspect", "run", "--tokens", "3 1 4"]] {
        for _ in 0..2 {
            let output = run(place.path(), &arguments);
            assert!(output.status.success(), "what it made itself is made again: {}", text(&output.stderr));
        }
    }
    let after = files(place.path());
    assert!(before.iter().all(|(path, bytes)| after[path] == *bytes));
}

#[test]
fn output_that_cannot_be_written_is_one_line_and_a_failure() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
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
        &["train", "--run", "again", "--backend", "ndarray", "--set", "training.steps=1"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program(place.path()).args(arguments).stdout(full).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains("cannot write to standard output"), "{said}");
    }
    assert!(place.path().join("again/report.html").exists(), "a run is saved whoever reads of it");
}

#[test]
fn a_closed_pipe_ends_what_only_writes_and_no_run() {
    let place = TempDir::new().unwrap();
    small_run(place.path(), &["training.steps=2"], "run");
    for (arguments, ends_by) in [
        (&["generate", "run", "--prompt", "3", "--max-new", "9000000000000000000"][..], Some(141)),
        (&["generate", "run", "--prompt", "3", "--samples", "18446744073709551615"], Some(141)),
        (&["train", "--run", "again", "--backend", "ndarray", "--set", "training.steps=1"], Some(0)),
    ] {
        let mut command = program(place.path());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let _ = pipe.read(&mut [0; 16]).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), ends_by, "{arguments:?} {:?}", output.status.signal());
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    }
    assert!(place.path().join("again/report.html").exists());
}

#[test]
fn no_name_or_token_controls_the_terminal_and_json_is_exact() {
    let place = TempDir::new().unwrap();
    let name = "red\u{1b}[31m\u{202e}\u{9b}";
    let table = "a\u{1b}[2J b\u{202e}\na\u{1b}[2J b\u{202e}\n".repeat(20);
    fs::write(place.path().join("table.csv"), table).unwrap();
    let data = ["data", "--set", "data.path=table.csv", "--set", "data.length=2"];
    for arguments in [&["evaluate", name][..], &["train", name], &data, &["generate", name], &["--set", name]]
    {
        let output = run(place.path(), arguments);
        for said in [text(&output.stdout), text(&output.stderr)] {
            let controls = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!said.contains(controls), "{arguments:?}: {said:?}");
        }
    }
    let refused = run(place.path(), &["evaluate", name, "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert!(said["error"].as_str().unwrap().contains(name), "{said}");
}

#[test]
fn every_command_that_makes_something_says_in_json_what_and_where() {
    let place = TempDir::new().unwrap();
    let train = ["train", "--run", "run", "--backend", "ndarray", "--set", "training.steps=4", "--set"];
    let trained = json(place.path(), &[&train[..], &["training.checkpoint_every=2", "--json"]].concat());
    assert_eq!(
        (&trained["run"], &trained["steps"], &trained["ended"]),
        (&"run".into(), &4.into(), &"completed".into())
    );
    let paths = |value: &serde_json::Value| -> Vec<PathBuf> {
        value.as_array().unwrap().iter().map(|path| place.path().join(path.as_str().unwrap())).collect()
    };
    assert!(paths(&trained["pictures"]).iter().all(|path| path.is_file()));
    for _ in 0..2 {
        let plotted = json(place.path(), &["plot", "run", "--out", "pictures", "--format", "svg", "--json"]);
        let pictures = paths(&plotted["pictures"]);
        assert!(pictures.len() > 5 && pictures.iter().all(|path| path.is_file()), "{pictures:?}");
    }
    let arguments = ["export", "run", "--format", "safetensors", "--checkpoint", "2", "--json"];
    let exported = paths(&json(place.path(), &arguments)["files"]);
    let of_step = place.path().join("run/checkpoints/step-00000002/model.safetensors");
    let weights = exported.iter().find(|path| path.ends_with("model.safetensors")).unwrap();
    assert!(fs::read(weights).unwrap() == fs::read(&of_step).unwrap());
    let loss =
        |more: &[&str]| json(place.path(), &[&["evaluate", "run", "--json"], more].concat())["loss"].as_f64();
    assert_eq!(loss(&["--checkpoint", "4"]), trained["best_valid_loss"].as_f64());
    assert_ne!(loss(&["--checkpoint", "2"]), loss(&[]));
    let refused = run(place.path(), &["evaluate", "run", "--checkpoint", "3"]);
    assert!(text(&refused.stderr).contains("checkpoints of the steps 2, 4"), "{}", text(&refused.stderr));
    let mut flipped = fs::read(&of_step).unwrap();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&of_step, flipped).unwrap();
    let refused = run(place.path(), &["evaluate", "run", "--checkpoint", "2"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is damaged"), "{}", text(&refused.stderr));
    assert!(run(place.path(), &["report", "run", "--out", "page.html"]).status.success());
    assert!(place.path().join("page.html").is_file());
}
