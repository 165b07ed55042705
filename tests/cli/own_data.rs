//! Training on a user's own files, as described in the README.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use super::{SMALL, program, resume, small_run, text, without_data_warnings};

const WORDS: &str = "to be or not to be, that is the question. ";

/// Runs the program, asserts success, and returns its output.
fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(without_data_warnings(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

/// Runs the program, asserts that it fails with a one-line error, and returns that line.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
    stderr
}

fn described(folder: &Path, sets: &[&str]) -> Value {
    let mut arguments = vec!["data", "--json"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    let output = program(folder).args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{sets:?}: {}", text(&output.stderr)))
}

#[test]
fn own_data_works_with_the_shipped_config() {
    let shipped = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config.toml")).unwrap();
    for config in [None, Some(&shipped)] {
        let dir = TempDir::new().unwrap();
        if let Some(config) = config {
            fs::write(dir.path().join("config.toml"), config).unwrap();
        }
        fs::write(dir.path().join("input.txt"), WORDS.repeat(200)).unwrap();
        let row = |row: usize| format!("{},{},{}\n", row % 7, 300 - row % 5, row % 3);
        fs::write(dir.path().join("rows.csv"), (0..60).map(row).collect::<String>()).unwrap();
        let data = |sets: &[&str]| described(dir.path(), sets);

        let bpe = data(&["data.source=text", "data.path=input.txt", "data.tokens=bpe"]);
        assert!(bpe["vocab"].as_u64().unwrap() > 256, "{}", bpe["vocab"]);
        let chosen = data(&["data.source=text", "data.path=input.txt", "data.tokens=bpe", "data.vocab=260"]);
        assert_eq!(chosen["vocab"], 260);
        let table = data(&["data.source=table", "data.path=rows.csv", "data.values=integers"]);
        assert_eq!(table["vocab"], 301, "the vocabulary size follows from the table");
        // A file's source follows from its extension.
        assert_eq!(data(&["data.path=input.txt"])["source"], "text");
        assert_eq!(data(&["data.path=rows.csv"])["source"], "table");
        assert_eq!(data(&["data.path=rows.csv"])["vocab"], 12, "integers with large gaps become symbols");
        assert_eq!(data(&["data.path=rows.csv", "data.source=text"])["source"], "text");
        assert_eq!(data(&["data.task=sort"])["vocab"], 65, "a task keeps the configured vocabulary size");

        let stderr =
            refused(dir.path(), &["-q", "data", "--set", "data.source=text", "--set", "data.path=no.txt"]);
        assert!(stderr.contains("no.txt"), "{stderr}");
        let stderr = refused(dir.path(), &["data", "--set", "model.heads=5"]);
        assert!(stderr.starts_with("error: --set: `model.heads` = 5"), "{stderr}");
        let stderr = refused(dir.path(), &["data", "--set", "model.d_model=66"]);
        let expected = if config.is_some() { "config.toml:" } else { "`model.heads` = 4" };
        assert!(stderr.starts_with(&format!("error: {expected}")), "{stderr}");
    }
}

#[test]
fn source_is_inferred_from_path_or_task() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("config.toml"), "[data]\npath = \"input.txt\"\nlength = 8\n").unwrap();
    fs::write(dir.path().join("input.txt"), WORDS.repeat(20)).unwrap();
    assert_eq!(described(dir.path(), &[])["source"], "text");
    assert_eq!(described(dir.path(), &["data.task=sort"])["source"], "sequences");
    fs::write(dir.path().join("config.toml"), "[data]\nsource = \"table\"\npath = \"rows.txt\"\n").unwrap();
    fs::write(dir.path().join("other.txt"), "1,2,3\n".repeat(20)).unwrap();
    assert_eq!(described(dir.path(), &["data.path=other.txt"])["source"], "table");
}

#[test]
fn replaced_file_or_task_is_reported() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("input.txt"), WORDS.repeat(20)).unwrap();
    let notice = |config: &str, set: &str| {
        fs::write(dir.path().join("config.toml"), format!("[data]\nlength = 8\n{config}\n")).unwrap();
        let output = program(dir.path()).args(["data", "--set", set]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        without_data_warnings(&output.stderr)
    };
    let task = notice("path = \"input.txt\"", "data.task=sort");
    assert_eq!(
        task,
        "notice: config.toml:3: `data.path` = \"input.txt\" is replaced by `data.task` = \"sort\"\n"
    );
    let path = notice("task = \"sort\"", "data.path=input.txt");
    assert_eq!(
        path,
        "notice: config.toml:3: `data.task` = \"sort\" is replaced by `data.path` = \"input.txt\"\n"
    );
    assert_eq!(
        notice("task = \"sort\"", "data.task=reverse") + &notice("path = \"a\"", "data.path=input.txt"),
        ""
    );
    // A file replaces a file of another kind, not the task that the config also names.
    let config = "[data]\nlength = 8\npath = \"a.bin\"\nsource = \"array\"\ntask = \"sort\"\n";
    fs::write(dir.path().join("config.toml"), config).unwrap();
    let sets = ["data", "--set", "data.path=input.txt", "--set", "data.source=text"];
    let output = program(dir.path()).args(sets).output().unwrap();
    assert_eq!(without_data_warnings(&output.stderr), "", "{}", text(&output.stderr));
}

#[test]
fn token_ids_beyond_the_tokenizer_are_reported() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, contents: &str| fs::write(dir.path().join(name), contents).unwrap();
    write("a.txt", &"ab ".repeat(200));
    write("tokenizer.json", TOKENIZER);
    write("config.json", r#"{"eos_token_id": [2, 77], "pad_token_id": -1}"#);
    write("generation_config.json", r#"{"bos_token_id": 3, "eos_token_id": 1}"#);
    write("tokenizer_config.json", r#"{"added_tokens_decoder": {"9": {"content": "<x>"}}}"#);
    let sets =
        ["data.path=a.txt", "data.tokens=tokenizer.json", "data.length=8"].map(|set| ["--set", set]).concat();
    let output = program(dir.path()).arg("data").args(sets).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.lines().count() == 3, "{stderr}");
    for (file, key, id) in [
        ("config.json", "eos_token_id", 77),
        ("generation_config.json", "bos_token_id", 3),
        ("tokenizer_config.json", "added_tokens_decoder", 9),
    ] {
        let expected = format!(
            "{file}: `{key}` names the token {id}, which is ignored because the tokenizer has 3 tokens;"
        );
        assert!(stderr.contains(&expected), "{stderr}");
    }
}

/// A tokenizer with three tokens.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}"#;

#[test]
fn runs_keep_their_own_tokenizer() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("words.txt"), WORDS.repeat(40)).unwrap();
    let bpe = ["data.path=words.txt", "data.tokens=bpe", "data.vocab=280", "training.steps=3"];
    let bpe_run = small_run(dir.path(), &bpe, "bpe");
    let stored: Value = serde_json::from_slice(&fs::read(bpe_run.join("vocabulary.json")).unwrap()).unwrap();
    let tokenizer = dir.path().join("tokenizer.json");
    fs::write(&tokenizer, stored["tokenizer"].to_string()).unwrap();

    let sets = ["data.path=words.txt", "data.tokens=tokenizer.json", "training.max_minutes=1e-9"];
    small_run(dir.path(), &sets, "run");
    fs::remove_file(&tokenizer).unwrap();
    succeeds(dir.path(), &["evaluate", "run"]);
    succeeds(dir.path(), &["inspect", "run", "--text", "to be"]);
    succeeds(dir.path(), &["generate", "run", "--prompt", "to be", "--max-new", "3"]);
    succeeds(dir.path(), &["score", "run", "--text", "to be"]);
    let output = resume(dir.path(), "run").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let mut fresh = vec!["train", "--backend", "ndarray"];
    SMALL.iter().chain(&sets).for_each(|set| fresh.extend(["--set", set]));
    let stderr = refused(dir.path(), &fresh);
    assert!(stderr.contains("`data.tokens` = tokenizer.json") && stderr.contains("no such file"), "{stderr}");
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn relative_data_paths_work_from_any_folder() {
    let dir = TempDir::new().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(dir.path().join("words.txt"), WORDS.repeat(40)).unwrap();
    small_run(dir.path(), &["data.path=words.txt", "training.max_minutes=1e-9"], "run");
    succeeds(&elsewhere, &["evaluate", "../run"]);
    let output = resume(&elsewhere, "../run").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    // The data file may move: it is recognised by its contents.
    fs::rename(dir.path().join("words.txt"), dir.path().join("moved.txt")).unwrap();
    let moved = |path: &str| resume(&elsewhere, "../run").args(["--set", path]).output().unwrap();
    let output = moved("data.path=../moved.txt");
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::write(dir.path().join("other.txt"), WORDS.repeat(39)).unwrap();
    let output = moved("data.path=../other.txt");
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("the data has changed"), "{stderr}");
    fs::rename(dir.path().join("moved.txt"), dir.path().join("words.txt")).unwrap();

    // The original config may be passed again, relative to the same folder.
    let mut config = String::from("[data]\nsource = \"text\"\npath = \"words.txt\"\nlength = 12\n");
    config += "[model]\nd_model = 16\nheads = 2\n";
    config += "[training]\nbatch_size = 8\nmax_minutes = 1e-9\nbackend = \"ndarray\"\n";
    fs::write(dir.path().join("own.toml"), config).unwrap();
    succeeds(dir.path(), &["train", "own.toml", "--run", "own", "--progress", "none"]);
    let again =
        ["train", "own.toml", "--resume", "own", "--progress", "none", "--max-minutes", "0", "--steps", "3"];
    let output = program(dir.path()).args(again).output().unwrap();
    let stderr = without_data_warnings(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("because of training.steps = 3 (was not set)") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn file_contents_are_quoted_in_one_short_line() {
    let dir = TempDir::new().unwrap();
    let rows = "1,2,3\n".repeat(50_000);
    let long = "x".repeat(100_000);
    let files = [
        (
            "open.csv",
            format!("1,2,3\n1,\"2,3\n{rows}"),
            "open.csv:2: has text after a closing quote, or a quote that is never closed; ",
        ),
        ("long.csv", format!("1,2\n1,{long}\n"), "long.csv:2: value 2: `xxxx"),
        ("long.jsonl", format!("[1,\"{long}\"]\n"), "long.jsonl:1: value 2: `xxxx"),
        ("escape.csv", "1,2\n1,\u{1b}[31m\n".to_string(), "`\\u{1b}[31m` is not an integer"),
    ];
    for (name, content, part) in files {
        fs::write(dir.path().join(name), content).unwrap();
        let stderr = refused(dir.path(), &["data", "--set", &format!("data.path={name}")]);
        assert!(stderr.contains(part) && stderr.len() < 400, "{name}: {stderr}");
    }
    let names = (0..500).map(|index| format!("column{index}")).collect::<Vec<_>>().join(",");
    fs::write(dir.path().join("wide.csv"), format!("{names}\n")).unwrap();
    let stderr = refused(dir.path(), &["data", "--set", "data.path=wide.csv", "--set", "data.column=none"]);
    assert!(stderr.contains("column19, 480 more") && stderr.len() < 600, "{stderr}");
}

#[test]
fn characters_dropped_by_a_tokenizer_are_located() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.txt"), format!("{}\naé\n", "ab ".repeat(200))).unwrap();
    fs::write(dir.path().join("tokenizer.json"), TOKENIZER).unwrap();
    let stderr = refused(
        dir.path(),
        &[
            "data",
            "--set",
            "data.path=a.txt",
            "--set",
            "data.tokens=tokenizer.json",
            "--set",
            "data.length=8",
        ],
    );
    assert!(stderr.contains("a.txt:2:2: `é` is not in the vocabulary of 3 tokens"), "{stderr}");
}
