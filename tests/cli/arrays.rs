//! Arrays of token ids as nanoGPT, llm.c and NumPy write them.

use std::fs;
use std::path::Path;

use causal_attention::data::Vocabulary;
use serde_json::Value;
use tempfile::TempDir;

use crate::{SMALL, program, small_run, stdout_of, summary, text, train};

const WORDS: &str = "to be or not to be, that is the question. ";

fn two_bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect()
}

/// Returns an array in the format of NumPy, with 16-bit integers.
fn npy(shape: &str, ids: &[u32]) -> Vec<u8> {
    let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &two_bytes(ids)]
        .concat()
}

/// Returns the output of `data --json` and its standard error.
fn described(folder: &Path, sets: &[&str]) -> (Value, String) {
    let mut command = program(folder);
    command.args(["data", "--json"]);
    sets.iter().for_each(|set| _ = command.args(["--set", set]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{sets:?}: {}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), text(&output.stderr))
}

#[test]
fn bare_ids_train_and_all_commands_read_them() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let ids = (0..2_000).map(|index| index * (index / 5) % 13).collect::<Vec<u32>>();
    fs::write(folder.join("train.bin"), two_bytes(&ids)).unwrap();
    fs::write(folder.join("val.bin"), two_bytes(&ids[..300])).unwrap();
    let (data, notice) = described(folder, &["data.path=train.bin"]);
    assert_eq!((&data["source"], &data["vocab"]), (&"array".into(), &13.into()));
    assert_eq!((&data["array"]["format"], &data["array"]["dtype"]), (&"raw".into(), &"uint16".into()));
    let expected = "notice: train.bin: is read as 2,000 tokens (uint16) with a vocabulary of 13 integers; if this is \
                    wrong, set `data.dtype`, or `data.tokens` to the tokenizer.json of these ids\n";
    assert_eq!(notice, expected);

    let sets =
        [&SMALL[..1], &SMALL[3..4], &SMALL[6..], &["training.steps=5", "data.path=train.bin"]].concat();
    let output = train(folder, &sets, &["--run", "run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let config = fs::read_to_string(folder.join("run/config.toml")).unwrap();
    assert!(config.contains("source = \"array\""), "{config}");
    let evaluated = stdout_of(folder, &["evaluate", "run", "--data", "val.bin", "--json"]);
    let evaluated: Value = serde_json::from_str(&evaluated).unwrap();
    assert_eq!(evaluated["tokens"], 299, "{evaluated}");
    let generated = stdout_of(folder, &["generate", "run", "--prompt", "3 1 4", "--max-new", "5"]);
    assert!(generated.split_whitespace().all(|id| id.parse::<u32>().is_ok_and(|id| id < 13)), "{generated}");
    for arguments in [
        &["score", "run", "--tokens", "3 1 4 2", "--json"][..],
        &["inspect", "run", "--tokens", "3 1 4"],
        &["report", "run"],
        &["evaluate", "run"],
        &["train", "--from", "run", "--data", "val.bin", "--steps", "2", "--run", "more"],
        &["train", "--resume", "run", "--set", "training.steps=7"],
    ] {
        stdout_of(folder, arguments);
    }
    assert_eq!(summary(&folder.join("run"))["steps"], 7);
    let search = "tune.search={\"training.batch_size\"=[4,8]}";
    let tune =
        ["tune", "--run", "study", "--set", search, "--set", "tune.method=grid", "--set", "tune.steps=2"];
    let is_fixed =
        |set: &&&str| !set.starts_with("training.steps") && !set.starts_with("training.batch_size");
    let sets = sets.iter().filter(is_fixed).flat_map(|set| ["--set", set]);
    stdout_of(folder, &tune.into_iter().chain(sets).collect::<Vec<_>>());
}

#[test]
fn a_folder_of_arrays_names_its_files() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("prepared")).unwrap();
    let ids = (0..900).map(|index| index * (index / 5) % 13).collect::<Vec<u32>>();
    fs::write(dir.path().join("prepared/train.bin"), two_bytes(&ids)).unwrap();
    let (alone, _) = described(dir.path(), &["data.path=prepared"]);
    assert_eq!(alone["source"], "array");
    fs::write(dir.path().join("prepared/val.bin"), two_bytes(&ids)).unwrap();
    let output = program(dir.path()).args(["data", "--set", "data.path=prepared"]).output().unwrap();
    let expected = "error: --set: `data.path` = prepared names 2 files, but one array is read; set `data.path` = \
                    \"prepared/train.bin\" and `data.valid_path` = \"prepared/val.bin\"\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), expected));
    let followed =
        described(dir.path(), &["data.path=prepared/train.bin", "data.valid_path=prepared/val.bin"]);
    assert_eq!(followed.0["valid"]["targets"], 899);
}

#[test]
fn ids_as_text_are_read_as_the_error_advises() {
    let dir = TempDir::new().unwrap();
    let ids = (0..900).map(|index| index * (index / 5) % 13).collect::<Vec<u32>>();
    fs::write(dir.path().join("train.bin"), two_bytes(&ids)).unwrap();
    let ids = &ids[..500];
    fs::write(dir.path().join("other.bin"), two_bytes(ids)).unwrap();
    small_run(dir.path(), &["data.path=train.bin", "data.vocab=auto", "training.steps=2"], "run");
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    fs::write(dir.path().join("ids.txt"), words.join(" ")).unwrap();
    let evaluate = |sets: &[&str]| {
        let mut command = program(dir.path());
        command.args(["evaluate", "run"]).args(sets);
        command.output().unwrap()
    };
    let refused = evaluate(&["--data", "ids.txt"]);
    let advice = "holds numbers as text, not an array; write each on its own line with tr -s ', \\t\\r' '\\n' < ids.txt > \
                  NEW.csv, and read NEW.csv with --set data.source=table --set data.column=1";
    assert!(text(&refused.stderr).contains(advice), "{}", text(&refused.stderr));
    fs::write(dir.path().join("NEW.csv"), words.join("\n")).unwrap();
    let table =
        evaluate(&["--data", "NEW.csv", "--set", "data.source=table", "--set", "data.column=1", "--json"]);
    let array = evaluate(&["--data", "other.bin", "--json"]);
    let [table, array]: [Value; 2] =
        [table, array].map(|output| serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!((&table["tokens"], &table["loss"]), (&499.into(), &array["loss"]));
}

#[test]
fn a_tokenizer_names_the_ids_of_an_array() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    fs::write(folder.join("words.txt"), WORDS.repeat(200)).unwrap();
    let sets = ["training.steps=2", "data.path=words.txt", "data.tokens=bpe", "data.vocab=280"];
    let run = small_run(folder, &sets, "text");
    let vocabulary = Vocabulary::read(run.join("vocabulary.json")).unwrap();
    let stored: Value = serde_json::from_slice(&fs::read(run.join("vocabulary.json")).unwrap()).unwrap();
    fs::write(folder.join("tokenizer.json"), stored["tokenizer"].to_string()).unwrap();
    let ids = vocabulary.encode(&WORDS.repeat(200)).unwrap();
    fs::write(folder.join("train.bin"), two_bytes(&ids)).unwrap();
    fs::write(folder.join("wide.bin"), ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>())
        .unwrap();

    let (of_text, _) = described(folder, &["data.path=words.txt", "data.tokens=tokenizer.json"]);
    for file in ["train.bin", "wide.bin"] {
        let (of_array, _) = described(
            folder,
            &[&format!("data.path={file}"), "data.tokens=tokenizer.json", "data.vocab=auto"],
        );
        for key in ["vocab", "train", "valid", "samples", "unigram_entropy"] {
            assert_eq!(of_array[key], of_text[key], "{file}: {key}");
        }
    }
    let sets =
        [&SMALL[..1], &SMALL[3..4], &SMALL[6..], &["training.steps=2", "data.path=train.bin"]].concat();
    let output = train(folder, &[&sets[..], &["data.tokens=tokenizer.json"]].concat(), &["--run", "array"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let generated = stdout_of(folder, &["generate", "array", "--prompt", "to be", "--max-new", "3"]);
    assert!(generated.starts_with("to be"), "{generated}");
    // Weights that were trained on a text continue on ids of the same tokenizer.
    stdout_of(folder, &["evaluate", "text", "--data", "train.bin", "--set", "data.source=array"]);
}

#[test]
fn matrices_of_numpy_hold_a_sequence_per_row() {
    let dir = TempDir::new().unwrap();
    let ids = (0..600).map(|index| index % 7).collect::<Vec<u32>>();
    fs::write(dir.path().join("rows.npy"), npy("(60, 10)", &ids)).unwrap();
    fs::write(dir.path().join("long.npy"), npy("(600,)", &ids)).unwrap();
    let (rows, notice) = described(dir.path(), &["data.path=rows.npy"]);
    assert_eq!((&rows["train"]["samples"], &rows["context"], notice.as_str()), (&54.into(), &9.into(), ""));
    let (long, _) = described(dir.path(), &["data.path=long.npy"]);
    assert_eq!((&long["train"]["targets"], &long["context"]), (&539.into(), &64.into()));
}

#[test]
fn files_of_other_kinds_are_refused_as_arrays() {
    let dir = TempDir::new().unwrap();
    for (name, bytes, expected) in [
        ("a.bin", WORDS.as_bytes(), "is text, not an array of token ids; set `data.source` = \"text\""),
        (
            "b.bin",
            b"\x80\x04\x95\x10\0\0\0\0",
            "looks like a Python pickle, not an array of token ids; convert",
        ),
        ("c.bin", b"\x89PNG\r\n\x1a\n\0\0\0\r", "looks like a PNG image, not an array"),
        ("d.npy", b"PK\x03\x04\x14\0\0\0", "looks like a zip archive (also .docx, .xlsx, .npz and .pt), not"),
        ("e.bin", &[1, 0, 2, 0, 3], "has 5 bytes, which is not a multiple of 2, the size of uint16"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
        let output = program(dir.path()).args(["data", "--data", name]).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{name}: {stderr}");
        assert!(stderr.contains(expected), "{name}: {stderr}");
    }
    fs::write(dir.path().join("ids.txt"), two_bytes(&[18, 47, 56, 57, 58, 1, 15, 47, 0, 64].repeat(50)))
        .unwrap();
    let output = program(dir.path()).args(["data", "--data", "ids.txt"]).output().unwrap();
    let advice = "read its ids with --set data.source=array --set data.dtype=uint16";
    assert!(text(&output.stderr).contains(advice), "{}", text(&output.stderr));
    described(dir.path(), &["data.path=ids.txt", "data.source=array", "data.dtype=uint16"]);
}
