//! Users' own files, as described in the README, and their contents.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use super::{SMALL, beside_data_warnings, program, resume, small_run, text};

const WORDS: &str = "to be or not to be, that is the question. ";

/// Runs the program, asserts success, and returns its output.
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(beside_data_warnings(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

/// Runs the program, asserts that it refuses in one line, and returns the line.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
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
        let place = TempDir::new().unwrap();
        if let Some(config) = config {
            fs::write(place.path().join("config.toml"), config).unwrap();
        }
        fs::write(place.path().join("input.txt"), WORDS.repeat(200)).unwrap();
        let row = |row: usize| format!("{},{},{}\n", row % 7, 300 - row % 5, row % 3);
        fs::write(place.path().join("rows.csv"), (0..60).map(row).collect::<String>()).unwrap();
        let data = |sets: &[&str]| described(place.path(), sets);

        let bpe = data(&["data.source=text", "data.path=input.txt", "data.tokens=bpe"]);
        assert!(bpe["vocab"].as_u64().unwrap() > 256, "{}", bpe["vocab"]);
        let asked = data(&["data.source=text", "data.path=input.txt", "data.tokens=bpe", "data.vocab=260"]);
        assert_eq!(asked["vocab"], 260);
        let table = data(&["data.source=table", "data.path=rows.csv"]);
        assert_eq!(table["vocab"], 301, "as many ids as the table has");
        // A file's source follows from its extension.
        assert_eq!(data(&["data.path=input.txt"])["source"], "text");
        assert_eq!(data(&["data.path=rows.csv"])["source"], "table");
        assert_eq!(data(&["data.path=rows.csv"])["vocab"], 301);
        assert_eq!(data(&["data.path=rows.csv", "data.source=text"])["source"], "text");
        assert_eq!(data(&["data.task=sort"])["vocab"], 65, "a task keeps the config's size");

        let said =
            refused(place.path(), &["-q", "data", "--set", "data.source=text", "--set", "data.path=no.txt"]);
        assert!(said.contains("no.txt"), "{said}");
        let said = refused(place.path(), &["data", "--set", "model.heads=5"]);
        assert!(said.starts_with("error: --set: `model.heads` = 5"), "{said}");
        let said = refused(place.path(), &["data", "--set", "model.d_model=66"]);
        let expected = if config.is_some() { "config.toml:" } else { "`model.heads` = 4" };
        assert!(said.starts_with(&format!("error: {expected}")), "{said}");
    }
}

#[test]
fn source_is_inferred_from_path_or_task() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("config.toml"), "[data]\npath = \"input.txt\"\nlength = 8\n").unwrap();
    fs::write(place.path().join("input.txt"), WORDS.repeat(20)).unwrap();
    assert_eq!(described(place.path(), &[])["source"], "text");
    assert_eq!(described(place.path(), &["data.task=sort"])["source"], "sequences");
    fs::write(place.path().join("config.toml"), "[data]\nsource = \"table\"\npath = \"rows.txt\"\n").unwrap();
    fs::write(place.path().join("other.txt"), "1,2,3\n".repeat(20)).unwrap();
    assert_eq!(described(place.path(), &["data.path=other.txt"])["source"], "table");
}

#[test]
fn a_replaced_file_or_task_is_told() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("input.txt"), WORDS.repeat(20)).unwrap();
    let told = |config: &str, set: &str| {
        fs::write(place.path().join("config.toml"), format!("[data]\nlength = 8\n{config}\n")).unwrap();
        let output = program(place.path()).args(["data", "--set", set]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        beside_data_warnings(&output.stderr)
    };
    let task = told("path = \"input.txt\"", "data.task=sort");
    assert_eq!(
        task,
        "notice: config.toml:3: `data.path` = \"input.txt\" is replaced by `data.task` = \"sort\"\n"
    );
    let path = told("task = \"sort\"", "data.path=input.txt");
    assert_eq!(
        path,
        "notice: config.toml:3: `data.task` = \"sort\" is replaced by `data.path` = \"input.txt\"\n"
    );
    assert_eq!(
        told("task = \"sort\"", "data.task=reverse") + &told("path = \"a\"", "data.path=input.txt"),
        ""
    );
}

#[test]
fn a_token_id_beyond_the_tokenizer_is_told() {
    let place = TempDir::new().unwrap();
    let write = |name: &str, contents: &str| fs::write(place.path().join(name), contents).unwrap();
    write("a.txt", &"ab ".repeat(200));
    write("tokenizer.json", TOKENIZER);
    write("config.json", r#"{"eos_token_id": [2, 77], "pad_token_id": -1}"#);
    write("generation_config.json", r#"{"bos_token_id": 3, "eos_token_id": 1}"#);
    write("tokenizer_config.json", r#"{"added_tokens_decoder": {"9": {"content": "<x>"}}}"#);
    let sets =
        ["data.path=a.txt", "data.tokens=tokenizer.json", "data.length=8"].map(|set| ["--set", set]).concat();
    let output = program(place.path()).arg("data").args(sets).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 3, "{said}");
    for (file, key, id) in [
        ("config.json", "eos_token_id", 77),
        ("generation_config.json", "bos_token_id", 3),
        ("tokenizer_config.json", "added_tokens_decoder", 9),
    ] {
        let expected =
            format!("{file}: `{key}` names the token {id}, which is ignored: the tokenizer has 3 tokens;");
        assert!(said.contains(&expected), "{said}");
    }
}

/// A tokenizer with three tokens.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}"#;

#[test]
fn runs_keep_their_own_tokenizer() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("words.txt"), WORDS.repeat(40)).unwrap();
    let by_pairs = ["data.path=words.txt", "data.tokens=bpe", "data.vocab=280", "training.steps=3"];
    let made = small_run(place.path(), &by_pairs, "made");
    let stored: Value = serde_json::from_slice(&fs::read(made.join("vocabulary.json")).unwrap()).unwrap();
    let tokenizer = place.path().join("tokenizer.json");
    fs::write(&tokenizer, stored["tokenizer"].to_string()).unwrap();

    let sets = ["data.path=words.txt", "data.tokens=tokenizer.json", "training.max_minutes=1e-9"];
    small_run(place.path(), &sets, "run");
    fs::remove_file(&tokenizer).unwrap();
    done(place.path(), &["evaluate", "run"]);
    done(place.path(), &["inspect", "run", "--text", "to be"]);
    done(place.path(), &["generate", "run", "--prompt", "to be", "--max-new", "3"]);
    done(place.path(), &["score", "run", "--text", "to be"]);
    let output = resume(place.path(), "run").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let mut fresh = vec!["train", "--backend", "ndarray"];
    SMALL.iter().chain(&sets).for_each(|set| fresh.extend(["--set", set]));
    let said = refused(place.path(), &fresh);
    assert!(said.contains("`data.tokens` = tokenizer.json") && said.contains("no such file"), "{said}");
    assert!(!place.path().join("runs").exists());
}

#[test]
fn relative_data_paths_work_from_any_folder() {
    let place = TempDir::new().unwrap();
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(place.path().join("words.txt"), WORDS.repeat(40)).unwrap();
    small_run(place.path(), &["data.path=words.txt", "training.max_minutes=1e-9"], "run");
    done(&elsewhere, &["evaluate", "../run"]);
    let output = resume(&elsewhere, "../run").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    // The data file may move: it is recognised by its contents.
    fs::rename(place.path().join("words.txt"), place.path().join("moved.txt")).unwrap();
    let moved = |path: &str| resume(&elsewhere, "../run").args(["--set", path]).output().unwrap();
    let output = moved("data.path=../moved.txt");
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::write(place.path().join("other.txt"), WORDS.repeat(39)).unwrap();
    let output = moved("data.path=../other.txt");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("the data has changed"), "{said}");
    fs::rename(place.path().join("moved.txt"), place.path().join("words.txt")).unwrap();

    // The original config may be given again, relative to the same folder.
    let mut config = String::from("[data]\nsource = \"text\"\npath = \"words.txt\"\nlength = 12\n");
    config += "[model]\nd_model = 16\nheads = 2\n";
    config += "[training]\nbatch_size = 8\nmax_minutes = 1e-9\nbackend = \"ndarray\"\n";
    fs::write(place.path().join("own.toml"), config).unwrap();
    done(place.path(), &["train", "own.toml", "--run", "own", "--progress", "none"]);
    done(place.path(), &["train", "own.toml", "--resume", "own", "--progress", "none"]);
}

#[test]
fn file_contents_are_quoted_in_one_short_line() {
    let place = TempDir::new().unwrap();
    let rows = "1,2,3\n".repeat(50_000);
    let long = "x".repeat(100_000);
    let files = [
        ("open.csv", format!("1,2,3\n1,\"2,3\n{rows}"), "open.csv:2: value 2: `2,3\\n1,2,3\\n"),
        ("long.csv", format!("1,2\n1,{long}\n"), "long.csv:2: value 2: `xxxx"),
        ("long.jsonl", format!("[1,\"{long}\"]\n"), "long.jsonl:1: value 2: `xxxx"),
        ("escape.csv", "1,2\n1,\u{1b}[31m\n".to_string(), "`\\u{1b}[31m` is no integer"),
    ];
    for (name, content, part) in files {
        fs::write(place.path().join(name), content).unwrap();
        let said = refused(place.path(), &["data", "--set", &format!("data.path={name}")]);
        assert!(said.contains(part) && said.len() < 400, "{name}: {said}");
    }
    let names = (0..500).map(|index| format!("column{index}")).collect::<Vec<_>>().join(",");
    fs::write(place.path().join("wide.csv"), format!("{names}\n")).unwrap();
    let said = refused(place.path(), &["data", "--set", "data.path=wide.csv", "--set", "data.column=none"]);
    assert!(said.contains("column19, 480 more") && said.len() < 600, "{said}");
}

#[test]
fn characters_a_tokenizer_drops_are_located() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("a.txt"), format!("{}\naé\n", "ab ".repeat(200))).unwrap();
    fs::write(place.path().join("tokenizer.json"), TOKENIZER).unwrap();
    let said = refused(
        place.path(),
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
    assert!(said.contains("a.txt:2:2: `é` is not in the vocabulary of 3 tokens"), "{said}");
}
