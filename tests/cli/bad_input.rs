//! A thousand bad inputs, generated from a fixed seed: each is refused in one short line, and no file changes. An input
//! that is accepted changes only the files that the command is meant to change.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use crate::{generate::run, program, small_run};

/// The maximum length of an error line, in bytes.
const MAX_LINE: usize = 500;
/// The maximum time that any input may take.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Reads every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path);
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Restores every file, and removes all others.
fn restore(folder: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { fs::remove_dir_all(entry).unwrap() } else { fs::remove_file(entry).unwrap() }
    }
    for (path, bytes) in before {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Returns true if the command may change the file at `path`, relative to the working directory.
fn is_output_of(arguments: &[OsString], path: &Path) -> bool {
    match arguments[0].to_str() {
        Some("train") => path.starts_with("run") && arguments.iter().any(|argument| argument == "--resume"),
        Some("plot") => path.starts_with("run/plots"),
        Some("report") => path == Path::new("run/report.html"),
        _ => false,
    }
}

/// Runs the program and returns true if it refuses: in one line, and without changing any file.
fn is_refused(folder: &Path, arguments: &[OsString]) -> bool {
    let before = files(folder);
    let mut command = program(folder);
    command.args(arguments).env("RAYON_NUM_THREADS", "1");
    // A pipe could fill up before the program ends.
    let mut printed = tempfile::tempfile().unwrap();
    command.stdin(Stdio::null()).stdout(printed.try_clone().unwrap()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > TIME_LIMIT {
            child.kill().unwrap();
            panic!("{arguments:?} takes too long");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let errors =
        stderr.lines().filter(|line| !line.starts_with("warning: ") && !line.starts_with("notice: "));
    let errors = errors.collect::<Vec<_>>();
    let mut stdout = String::new();
    printed.rewind().unwrap();
    printed.read_to_string(&mut stdout).unwrap();
    for text in [&stderr, &stdout] {
        assert!(text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{arguments:?}: {text:?}");
        assert!(!text.contains(['\u{202e}', '\u{2066}']), "{arguments:?}: {text:?}");
    }
    assert!(stderr.lines().all(|line| line.len() <= MAX_LINE), "{arguments:?}: {stderr}");
    match output.status.code() {
        Some(0) => {
            let after = files(folder);
            for (path, bytes) in &before {
                let is_kept = after.get(path) == Some(bytes);
                let is_output = || is_output_of(arguments, path.strip_prefix(folder).unwrap());
                assert!(is_kept || is_output(), "{arguments:?} has changed {}: {stderr}", path.display());
            }
            restore(folder, &before);
            false
        }
        Some(1 | 2) => {
            assert_eq!(errors.len(), 1, "{arguments:?}: {stderr}");
            let error = match serde_json::from_str::<serde_json::Value>(errors[0]) {
                Ok(json) => json["error"].as_str().unwrap().to_string(),
                Err(_) => errors[0].strip_prefix("error: ").unwrap().to_string(),
            };
            assert!(!error.is_empty(), "{arguments:?}");
            assert!(!stderr.contains("internal error"), "{arguments:?}: {stderr}");
            assert!(files(folder) == before, "{arguments:?} has changed a file: {stderr}");
            true
        }
        code => panic!("{arguments:?} ended with {code:?}: {stderr}"),
    }
}

/// Draws cases until `count` of them are refused. At least one in six must be refused; the others are valid by chance.
fn assert_refusals<T: std::fmt::Debug>(
    count: usize,
    strategy: impl Strategy<Value = T>,
    mut is_refused: impl FnMut(T) -> bool,
) {
    let mut runner = TestRunner::deterministic();
    let (mut refused, mut drawn) = (0, 0);
    while refused < count {
        refused += usize::from(is_refused(strategy.new_tree(&mut runner).unwrap().current()));
        drawn += 1;
        assert!(drawn < 100 + 6 * refused, "{refused} of {drawn} were refused");
    }
}

/// Commands on the run `run` that finish quickly.
const COMMANDS: [&[&str]; 22] = [
    &["train", "run/config.toml", "--dry-run"],
    &["train", "--from", "run", "--dry-run"],
    &["train", "--resume", "run"],
    &["train", "run/config.toml", "--run", "run", "--progress", "none"],
    &["evaluate", "run"],
    &["evaluate", "run", "--split", "train", "--json"],
    &["plot", "run", "--out", "run", "--resolution", "1"],
    &["report", "run", "--json"],
    &["inspect", "run", "--tokens", "3 1 4", "--json"],
    &["inspect", "run", "--text", "3 1 4", "--out", "run"],
    &["generate", "run", "--prompt", "3 1 4", "--max-new", "3", "--top-k", "2"],
    &["generate", "run", "--tokens", "3 1 4", "--max-new", "3", "--samples", "2", "--json"],
    &["score", "run", "--text", "3 1 4"],
    &["score", "run", "--tokens", "3 1 4", "--json"],
    &["tune", "run/config.toml", "--dry-run", "--set", "tune.steps=5"],
    &["tune", "--resume", "run"],
    &["data", "run/config.toml", "--json"],
    &["config", "--defaults"],
    &["config", "--schema"],
    &["import", "run/model.safetensors", "--format", "native", "--run", "run"],
    &["export", "run", "--format", "gpt2", "--out", "run"],
    &["backends", "--list", "--json"],
];

/// Values that few or no options accept.
fn invalid_value() -> impl Strategy<Value = OsString> {
    let words = [
        "",
        "-1",
        "0",
        "1.5",
        "1e400",
        "nan",
        "-inf",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
        "\u{1b}[31mred\u{1b}[0m",
        "\u{202e}turned",
        "two\nlines",
        "a\rb",
        "nowhere",
        "run/config.toml",
        "run/nowhere",
        "run/model.safetensors",
        ".",
        "/dev/null",
        "--",
        "--set",
        "[1, 2",
        "{ min = 1",
        "\"",
        "'",
        "é日本🙂",
        "a.b=c",
        "model.heads=",
        "=",
        "3 1 4 1 5 99999",
        "3 x 4",
        "3,,4 -1",
        "true",
    ];
    let long = prop::collection::vec(any::<char>(), 1..40)
        .prop_map(|word| word.into_iter().filter(|&c| c != '\0').collect::<String>().repeat(40).into());
    let word = select(words.to_vec()).prop_map(OsString::from);
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        let bytes = prop::collection::vec(1..=255u8, 1..20).prop_map(OsString::from_vec);
        prop_oneof![6 => word, 1 => long, 1 => bytes]
    }
    #[cfg(not(unix))]
    prop_oneof![6 => word, 1 => long]
}

/// Generates config keys and unknown keys.
fn key(folder: &Path) -> impl Strategy<Value = String> + use<> {
    let schema = run(folder, &["config", "--schema"]).stdout;
    let schema: serde_json::Value = serde_json::from_slice(&schema).unwrap();
    let section = |(section, schema): (&String, &serde_json::Value)| {
        let keys = schema["properties"].as_object().unwrap().keys();
        keys.map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
    };
    let mut keys = schema["properties"].as_object().unwrap().iter().flat_map(section).collect::<Vec<_>>();
    assert!(keys.len() > 60, "{keys:?}");
    let more = [
        "tune.search.model.heads",
        "tune.search.training.learning_rate",
        "tune.search.nothing",
        "model.hed",
        "nothing",
        "a.b.c",
        "",
    ];
    keys.extend(more.map(String::from));
    select(keys)
}

fn small_run_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    let run = small_run(dir.path(), &["training.steps=2", "model.layers=1", "analysis.every=1"], "run");
    // Reading these files would only slow the tests down.
    fs::remove_dir_all(run.join("plots")).unwrap();
    fs::remove_file(run.join("report.html")).unwrap();
    dir
}

#[test]
fn meaningless_arguments_are_refused() {
    let dir = small_run_dir();
    // Replaces one value, appends others, and adds options that may not exist.
    let option = select(vec![
        "--set",
        "--json",
        "--out",
        "--run",
        "--backend",
        "--device",
        "--nothing",
        "-x",
        "--head",
    ]);
    let more = prop::collection::vec((option, invalid_value()), 0..3);
    let case = (select(COMMANDS.to_vec()), any::<Index>(), prop::option::of(invalid_value()), more);
    assert_refusals(350, case, |(command, index, value, more)| {
        let mut arguments = command.iter().map(OsString::from).collect::<Vec<_>>();
        let changed = 1 + index.index(arguments.len() - 1);
        // Options that keep a command short are never replaced.
        if let Some(value) =
            value.filter(|_| arguments[changed] != "--dry-run" && arguments[changed] != "--list")
        {
            arguments[changed] = value;
        }
        arguments.extend(more.into_iter().flat_map(|(option, value)| [option.into(), value]));
        is_refused(dir.path(), &arguments)
    });
}

#[test]
fn invalid_keys_and_configs_are_refused() {
    let dir = small_run_dir();
    let config = dir.path().join("run/config.toml");
    let intact = fs::read(&config).unwrap();
    let command = select(vec![&["train", "--dry-run"][..], &["tune", "--dry-run"], &["data"]]);
    let set = (key(dir.path()), invalid_value()).prop_map(|(key, value)| {
        let mut set = OsString::from(format!("{key}="));
        set.push(value);
        vec!["--set".into(), set]
    });
    let sets = prop::collection::vec(set, 1..3).prop_map(|sets| (sets.concat(), None));
    let damages = damage().prop_map(|damage| (Vec::new(), Some(damage)));
    assert_refusals(350, (command, prop_oneof![2 => sets, 1 => damages]), |(command, (sets, damage))| {
        fs::write(&config, damage.map_or(intact.clone(), |damage| damage.of(&intact))).unwrap();
        let arguments = command.iter().map(OsString::from).chain(["run/config.toml".into()]).chain(sets);
        is_refused(dir.path(), &arguments.collect::<Vec<_>>())
    });
}

/// A corruption of a file's bytes.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Replace(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Overwrite(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let noise = || prop::collection::vec(any::<u8>(), 1..64);
    let special = select(vec![
        b"\"".to_vec(),
        b"}".to_vec(),
        b"1e999".to_vec(),
        b"-1".to_vec(),
        b"\n\n".to_vec(),
        b"\x1b[2J".to_vec(),
        "\u{202e}".as_bytes().to_vec(),
        vec![0xff; 8],
        vec![b'['; 5_000],
    ]);
    let bytes = prop_oneof![noise(), special];
    let bytes = std::rc::Rc::new(bytes);
    prop_oneof![
        (any::<Index>(), 0..8u8).prop_map(|(index, bit)| Damage::Flip(index, bit)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), bytes.clone()).prop_map(|(index, bytes)| Damage::Replace(index, bytes)),
        (any::<Index>(), bytes.clone()).prop_map(|(index, bytes)| Damage::Insert(index, bytes)),
        (any::<Index>(), 1..200usize).prop_map(|(index, count)| Damage::Remove(index, count)),
        bytes.prop_map(Damage::Overwrite),
    ]
}

impl Damage {
    /// Returns a damaged copy of a file's bytes.
    fn of(&self, intact: &[u8]) -> Vec<u8> {
        let mut bytes = intact.to_vec();
        let last = bytes.len();
        match self {
            Self::Flip(index, bit) => bytes[index.index(last)] ^= 1 << bit,
            Self::Cut(index) => bytes.truncate(index.index(last)),
            Self::Replace(index, by) => {
                let start = index.index(last);
                bytes.splice(start..last.min(start + by.len()), by.iter().copied());
            }
            Self::Insert(index, new) => {
                let start = index.index(last);
                bytes.splice(start..start, new.iter().copied());
            }
            Self::Remove(index, count) => {
                let start = index.index(last);
                bytes.drain(start..last.min(start + count));
            }
            Self::Overwrite(new) => bytes.clone_from(new),
        }
        bytes
    }
}

/// Damages a file, runs the command, and restores everything.
fn with_damage(folder: &Path, file: &Path, damage: &Damage, command: &[&str]) -> bool {
    let before = files(folder);
    fs::write(file, damage.of(&before[file])).unwrap();
    let refused = is_refused(folder, &command.iter().map(OsString::from).collect::<Vec<_>>());
    fs::write(file, &before[file]).unwrap();
    refused
}

#[test]
fn damaged_run_folders_are_refused() {
    let dir = small_run_dir();
    let all = files(dir.path()).into_keys().filter(|path| !path.ends_with("lock")).collect::<Vec<_>>();
    let command = select(vec![
        &["evaluate", "run"][..],
        &["generate", "run", "--prompt", "3 1 4", "--max-new", "3"],
        &["score", "run", "--text", "3 1 4"],
        &["inspect", "run", "--text", "3 1 4", "--json"],
        &["report", "run", "--json"],
        &["export", "run", "--format", "gpt2", "--out", "out"],
        &["train", "--resume", "run", "--set", "training.steps=4", "--until", "3", "--progress", "none"],
        &["train", "--from", "run", "--dry-run"],
        &["tune", "--resume", "run"],
    ]);
    assert_refusals(100, (select(all), damage(), command), |(file, damage, command)| {
        with_damage(dir.path(), &file, &damage, command)
    });
}

#[test]
fn damaged_data_and_weights_are_refused() {
    let dir = small_run_dir();
    let folder = dir.path();
    assert!(run(folder, &["export", "run", "--format", "gpt2", "--out", "gpt2"]).status.success());
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    fs::copy(peers.join("nanogpt.pt"), folder.join("nanogpt.pt")).unwrap();
    fs::write(folder.join("rows.csv"), "x,y\n\"1 2 3\",4\n\"2 3 4\",5\n".repeat(20)).unwrap();
    fs::write(folder.join("rows.jsonl"), "{\"text\": [1, 2, 3]}\n{\"text\": [2, 3, 4]}\n".repeat(20))
        .unwrap();
    fs::write(folder.join("text.txt"), "to be or not to be, that is the question. ".repeat(20)).unwrap();
    let commands = select(vec![
        ("gpt2/model.safetensors", "import gpt2 --format gpt2 --run new"),
        ("gpt2/config.json", "import gpt2 --format gpt2 --run new"),
        ("gpt2/vocabulary.json", "import gpt2 --format gpt2 --run new"),
        ("nanogpt.pt", "import nanogpt.pt --format nanogpt --run new"),
        ("run/model.safetensors", "import run/model.safetensors --format native --run new"),
        ("rows.csv", "data run/config.toml --set data.path=rows.csv --set data.vocab=auto"),
        ("rows.jsonl", "data run/config.toml --set data.path=rows.jsonl --set data.vocab=auto"),
        ("text.txt", "data run/config.toml --set data.path=text.txt --set data.vocab=auto"),
    ]);
    assert_refusals(200, (commands, damage()), |((file, command), damage)| {
        with_damage(folder, &folder.join(file), &damage, &command.split(' ').collect::<Vec<_>>())
    });
}
