//! The readers of the program's formats. Each takes the contents of a file, and may refuse them but not panic.

use std::fs;
use std::path::{Path, PathBuf};

use causal_attention::config::Config;
use causal_attention::data::config::DataConfig;
use causal_attention::data::{self, Vocabulary};
use causal_attention::training::{self, RunFolder, Summary};
use causal_attention::weights::file::WeightsFile;
use causal_attention::weights::gguf::Gguf;
use causal_attention::weights::{native, tokenizer as tokenizers};
use tempfile::TempDir;

/// A reader by the name of its format.
pub type Reader = (&'static str, fn(&[u8]));

/// Every format, in the order of the alphabet.
pub const ALL: [Reader; 10] = [
    ("arrays", arrays),
    ("checkpoints", checkpoints),
    ("config", config),
    ("gguf", gguf),
    ("json", json),
    ("metrics", metrics),
    ("safetensors", safetensors),
    ("tables", tables),
    ("texts", texts),
    ("tokenizer", tokenizer),
];

thread_local! {
    /// The folder of a thread's files, kept because creating one takes longer than reading a small file.
    static FOLDER: TempDir = TempDir::new().expect("the temporary folder is writable");
}

/// Writes a file, calls `read` with its path, and returns what it returns.
fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    FOLDER.with(|folder| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder"))
            .expect("the temporary folder is writable");
        fs::write(&path, bytes).expect("the temporary folder is writable");
        read(&path)
    })
}

/// Reads data and decodes some of it. What was read once must be readable with the same vocabulary.
fn read_data(name: &str, bytes: &[u8]) {
    with_file(name, bytes, |path| {
        let config = DataConfig { path: PathBuf::from(path).into(), length: 8, ..DataConfig::default() };
        let Ok(dataset) = data::load(&config, 1) else { return };
        for set in [&dataset.train, &dataset.valid] {
            for batch in set.batches(8).take(4) {
                dataset.vocabulary.check(&batch.inputs).expect("the ids of the data are in its vocabulary");
                dataset.vocabulary.decode(&batch.inputs);
            }
        }
        data::load_with(&config, 1, &dataset.vocabulary)
            .expect("data can be read again with its own vocabulary");
    });
}

/// A NumPy array of token ids.
pub fn arrays(bytes: &[u8]) {
    read_data("a.npy", bytes);
}

/// A table with delimiters.
pub fn tables(bytes: &[u8]) {
    read_data("a.csv", bytes);
}

/// A table of JSON objects or lists.
pub fn json(bytes: &[u8]) {
    read_data("a.jsonl", bytes);
}

/// A plain text.
pub fn texts(bytes: &[u8]) {
    read_data("a.txt", bytes);
}

/// A config. One that is accepted must be the same when it is written and read again.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(config) = Config::parse(text, Path::new("config.toml"), &[]) else { return };
    let _ = config.check();
    let again =
        Config::parse(&config.to_toml(), Path::new("again.toml"), &[]).expect("a written config can be read");
    assert_eq!(again.to_toml(), config.to_toml());
}

/// The state and the manifest of a checkpoint, and the summary of a run.
pub fn checkpoints(bytes: &[u8]) {
    for name in
        ["checkpoints/step-00000001/state.json", "checkpoints/step-00000001/manifest.json", "summary.json"]
    {
        with_file(name, bytes, |_| {});
    }
    FOLDER.with(|folder| {
        let run = RunFolder::at(folder.path());
        training::provenance_of(&run);
        let _ = training::checkpoint_steps(&run).map(|steps| {
            steps.into_iter().for_each(|step| drop(training::checkpoint_weights(&run, step)));
        });
        let _ = Summary::read(&run);
    });
}

/// The metrics of a run.
pub fn metrics(bytes: &[u8]) {
    with_file("metrics.csv", bytes, |path| drop(training::read_metrics(path)));
}

/// A GGUF file: its config, its tokenizer and its tensors.
pub fn gguf(bytes: &[u8]) {
    with_file("a.gguf", bytes, |path| {
        let Ok(file) = WeightsFile::open(path) else { return };
        let Ok(Some(gguf)) = Gguf::open(&[file]) else { return };
        let _ = gguf.config();
        gguf.tokenizer_config();
        if let Ok(Some(vocabulary)) = gguf.vocabulary() {
            encode(&vocabulary);
        }
        if let Ok(tensors) = gguf.tensors() {
            tensors.values().for_each(|tensor| drop(tensor.read()));
        }
    });
}

/// A file of safetensors, with or without the description of a model.
pub fn safetensors(bytes: &[u8]) {
    with_file("a.safetensors", bytes, |path| {
        let Ok(file) = WeightsFile::open(path) else { return };
        let _ = native::read(&file);
        let _ = native::checked(&file);
        if let Ok(tensors) = file.tensors() {
            tensors.iter().for_each(|tensor| drop(tensor.read()));
        }
    });
}

/// A `tokenizer.json`.
pub fn tokenizer(bytes: &[u8]) {
    with_file("tokenizer.json", bytes, |path| {
        if let Ok(vocabulary) = tokenizers::read(path) {
            encode(&vocabulary);
        }
    });
}

/// Encodes and decodes a text.
fn encode(vocabulary: &Vocabulary) {
    if let Ok(ids) = vocabulary.encode("A word, 12 numbers:\n\tand \u{e9}\u{1f600}.") {
        vocabulary.check(&ids).expect("the ids of a text are in its vocabulary");
        vocabulary.decode(&ids);
    }
}
