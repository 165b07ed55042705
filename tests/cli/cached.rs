//! Runs whose text is read from the token cache.

use std::fs;

use tempfile::TempDir;

use crate::{SMALL, assert_same_result, program, stdout_of, text, train};

const WORDS: &str = "to be or not to be, that is the question. ";

#[test]
fn a_cached_text_trains_to_the_same_bytes() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    fs::write(folder.join("words.txt"), WORDS.repeat(300)).unwrap();
    let sets =
        [&SMALL[..1], &SMALL[3..4], &SMALL[6..], &["data.path=words.txt", "training.steps=9"]].concat();
    let output = train(folder, &[&sets[..], &["data.cache=none"]].concat(), &["--run", "kept"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = train(folder, &[&sets[..], &["data.cache=tokens"]].concat(), &["--run", "cached"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let notice = "notice: words.txt: its 1 MB of text is tokenised into `tokens/";
    assert!(stderr.contains(notice), "{stderr}");
    assert_same_result(&folder.join("cached"), &folder.join("kept"));
    assert_eq!(fs::read_dir(folder.join("tokens")).unwrap().count(), 1);
    // The folder may be deleted, or another one be used.
    fs::remove_dir_all(folder.join("tokens")).unwrap();
    stdout_of(folder, &["evaluate", "cached"]);
    stdout_of(
        folder,
        &["train", "--resume", "cached", "--set", "data.cache=none", "--set", "training.steps=11"],
    );
    stdout_of(folder, &["report", "cached"]);
}

#[test]
fn a_cache_that_is_not_a_folder_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("words.txt"), WORDS.repeat(300)).unwrap();
    let sets = ["data", "--set", "data.path=words.txt", "--set", "data.cache=words.txt"];
    let output = program(dir.path()).args(sets).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.starts_with("error: cannot create `words.txt`"), "{stderr}");
}
