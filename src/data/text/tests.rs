//! Tests of texts as users write them.

use proptest::prelude::*;

use std::fs;

use super::*;
use crate::data::config::{Count, Source};
use crate::data::{Sequences, load, load_with};

/// Files in a temporary folder, and the configs that read them.
struct Texts(tempfile::TempDir);

impl Texts {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        Texts(folder)
    }

    fn config(&self, name: &str) -> DataConfig {
        DataConfig {
            source: Some(Source::Text),
            path: self.0.path().join(name).into(),
            length: 7,
            ..DataConfig::default()
        }
    }

    fn tokens(&self, name: &str) -> Tokens {
        Tokens::File(self.0.path().join(name))
    }
}

/// Returns the ids of a split, window by window: its first input, then all targets.
fn ids(split: &Sequences) -> Vec<u32> {
    let batch = split.batches(split.len()).next().unwrap();
    let targets = batch.targets.iter().zip(&batch.roles);
    let counted = targets.filter(|(_, role)| **role != crate::data::Role::Padding);
    [batch.inputs[0]].into_iter().chain(counted.map(|(target, _)| *target)).collect()
}

/// Decodes both splits as one text: the first validation token follows the last training token.
fn read_back(dataset: &Dataset) -> String {
    let all = [ids(&dataset.train), ids(&dataset.valid)].concat();
    dataset.vocabulary.check(&all).unwrap();
    dataset.vocabulary.decode(&all)
}

fn message(config: &DataConfig) -> String {
    load(config, 0).unwrap_err().to_string()
}

const TEXT: &str = "Wär's nur so leicht, wie's klingt!\n\n  Ein Satz, noch ein Satz.\n";

#[test]
fn training_on_a_whole_file_uses_all_of_it() {
    let long = "to be or not ".repeat(60);
    let texts = Texts::new(&[("a", long.as_bytes()), ("b", b"to be")]);
    let valid_path = texts.config("b").path;
    let config = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(264), valid_path, ..texts.config("a") };
    let dataset = crate::data::load(&config, 0).unwrap();
    assert_eq!(dataset.vocabulary.size(), 264, "byte pairs are trained on the training file");
    let config = DataConfig { lengths: Some([4, 12]), ..config };
    let dataset = crate::data::load(&config, 0).unwrap();
    assert_eq!((dataset.train.lengths(), dataset.valid.lengths()), (Some([4, 12]), None));
}

#[test]
fn text_splits_into_training_head_and_validation_tail() {
    let texts = Texts::new(&[("a", b"abcdefghij".repeat(10).as_slice())]);
    let dataset = load(&DataConfig { valid_fraction: 0.25, ..texts.config("a") }, 0).unwrap();
    assert_eq!((dataset.train.targets(), dataset.valid.targets()), (74, 24));
    assert_eq!(dataset.vocabulary.size(), 10);
    assert_eq!(read_back(&dataset), "abcdefghij".repeat(10));
    assert_eq!((dataset.context(), dataset.floor), (7, None));
}

#[test]
fn every_tokenizer_reproduces_the_text() {
    let long = TEXT.repeat(200);
    let texts = Texts::new(&[("a", long.as_bytes())]);
    let bpe = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(300), ..texts.config("a") };
    for config in [texts.config("a"), bpe] {
        let dataset = load(&config, 0).unwrap();
        assert_eq!(read_back(&dataset), long);
        // The stored vocabulary is sufficient to get the same ids.
        let stored = serde_json::to_string(&dataset.vocabulary).unwrap();
        let vocabulary: Vocabulary = serde_json::from_str(&stored).unwrap();
        let again = load_with(&config, 0, &vocabulary).unwrap();
        assert_eq!(ids(&again.train), ids(&dataset.train));
        assert_eq!(again.vocabulary, dataset.vocabulary);
    }
}

#[test]
fn trained_tokenizers_are_deterministic_and_reloadable() {
    let texts = Texts::new(&[("a", TEXT.repeat(300).as_bytes())]);
    let config = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(280), ..texts.config("a") };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.vocabulary.size(), 280);
    assert_eq!(load(&config, 1).unwrap().vocabulary, dataset.vocabulary);
    // With merges, the text has fewer tokens than bytes.
    assert!(dataset.train.targets() < TEXT.len() * 270 / 2);
    let stored = serde_json::to_value(&dataset.vocabulary).unwrap();
    fs::write(texts.0.path().join("tokenizer.json"), stored["tokenizer"].to_string()).unwrap();
    let given = DataConfig { tokens: texts.tokens("tokenizer.json"), ..texts.config("a") };
    assert_eq!(ids(&load(&given, 0).unwrap().train), ids(&dataset.train));
}

#[test]
fn validation_text_does_not_influence_the_tokens() {
    let train = "ab ".repeat(900);
    let texts = Texts::new(&[("a", (train + &"xy ".repeat(100)).as_bytes())]);
    let config = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(300), ..texts.config("a") };
    let vocabulary = load(&config, 0).unwrap().vocabulary;
    assert_eq!(vocabulary.encode(" ab").unwrap().len(), 1);
    assert_eq!(vocabulary.encode(" xy").unwrap().len(), 3);
}

#[test]
fn folder_files_join_with_newlines_or_end_tokens() {
    let texts = Texts::new(&[("a", &b"one "[..]), ("b", b"two\n"), ("c", b""), ("d", b"three")]);
    let text = read_back(&load(&DataConfig { length: 1, ..texts.config("") }, 0).unwrap());
    assert_eq!(text, "one \ntwo\nthree");
    let config = DataConfig { length: 1, tokens: Tokens::Bpe, ..texts.config("") };
    let dataset = load(&config, 0).unwrap();
    let end = dataset.vocabulary.end().map(|end| dataset.vocabulary.token(end)).unwrap();
    assert_eq!(end, "<|endoftext|>");
    assert_eq!(read_back(&dataset), format!("one {end}two\n{end}{end}three{end}"));
}

#[test]
fn each_file_starts_with_the_start_token() {
    let texts = Texts::new(&[("a", &b"one two\n"[..]), ("b", b"three four five\n")]);
    let config = DataConfig { length: 1, tokens: Tokens::Bpe, ..texts.config("") };
    let mut stored = serde_json::to_value(load(&config, 0).unwrap().vocabulary).unwrap();
    stored["tokenizer"]["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"B": {"id": "B", "ids": [0], "tokens": ["B"]}},
    });
    let vocabulary = serde_json::from_value(stored).unwrap();
    let dataset = load_with(&config, 0, &vocabulary).unwrap();
    let [begin, end] = [0, vocabulary.end().unwrap()].map(|id| vocabulary.token(id));
    let expected = format!("{begin}one two\n{end}{begin}three four five\n{end}");
    assert_eq!(read_back(&dataset), expected);
}

#[test]
fn unusable_text_and_settings_are_refused() {
    let texts = Texts::new(&[
        ("empty", b""),
        ("short", b"abcd"),
        ("tail", b"abcdefghijklmnop"),
        ("latin1", b"gr\xfcn und blau und rot"),
        ("no_tokenizer", b"{\"version\": \"1.0\"}"),
    ]);
    let path = |name: &str| texts.0.path().join(name).display().to_string();
    let starts = |config: &DataConfig, expected: String| {
        let message = message(config);
        assert!(message.starts_with(&expected), "{message}");
    };
    starts(&texts.config("missing"), format!("cannot read `{}`: ", path("missing")));
    starts(&texts.config("empty"), format!("{}: is empty", path("empty")));
    starts(&texts.config("latin1"), format!("{}:1: is not UTF-8 at byte 2; ", path("latin1")));
    let short =
        format!("{}: has 3 tokens for training, fewer than a window of `data.length` = 7", path("short"));
    starts(&texts.config("short"), short);
    let tail = DataConfig { valid_fraction: 0.05, ..texts.config("tail") };
    let expected = "has 16 tokens, of which `data.valid_fraction` = 0.05 leaves 1 for validation";
    starts(&tail, format!("{}: {expected}", path("tail")));
    let tokens = DataConfig { tokens: texts.tokens("no_tokenizer"), ..texts.config("short") };
    starts(&tokens, format!("{}: is not a tokenizer: ", path("no_tokenizer")));
    let tokens = DataConfig { tokens: Tokens::File("charaters".into()), ..texts.config("short") };
    starts(&tokens, "`data.tokens` = charaters must be \"characters\", \"bpe\" or the path".into());
    let vocab = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(256), ..texts.config("short") };
    starts(&vocab, "`data.vocab` = 256 must be above 256 with `data.tokens` = \"bpe\"".into());
    starts(
        &DataConfig { path: crate::data::Paths::default(), ..texts.config("") },
        "`data.path` = \"\" does not name a file".into(),
    );
    for fraction in [0.0, 1.0, -0.5, f64::NAN] {
        let config = DataConfig { valid_fraction: fraction, ..texts.config("tail") };
        starts(&config, format!("`data.valid_fraction` = {fraction} must be in (0, 1)"));
    }
}

#[test]
fn invalid_utf8_is_reported_with_its_offset() {
    let bytes = "ä b\n".repeat(50_000).into_bytes();
    // An invalid byte in the middle, and a truncated character at the end.
    for (at, wrong, line) in [(100_005, vec![0xff], 20_002), (bytes.len(), vec![0xc3], 50_001)] {
        let mut bytes = bytes.clone();
        bytes.splice(at..at, wrong);
        let texts = Texts::new(&[("a", &bytes)]);
        let path = texts.0.path().join("a");
        let expected =
            format!("{}:{line}: is not UTF-8 at byte {at}; it looks like damaged UTF-8", path.display());
        let problem = message(&texts.config("a"));
        assert!(problem.starts_with(&expected), "{problem}");
    }
}

#[test]
fn folders_are_read_in_path_order_without_dotfiles() {
    let texts = Texts::new(&[]);
    let folder = texts.0.path();
    fs::create_dir(folder.join("b")).unwrap();
    for name in ["c", "b/z", "a", ".hidden", "b/a"] {
        fs::write(folder.join(name), format!("\u{feff}{name}")).unwrap();
    }
    let Scanned { files, characters, .. } = scan(&[folder.into()]).unwrap();
    assert_eq!(files.len(), 4);
    let read = |file: &File| file.pieces(file.is_closed).unwrap().collect::<Result<String>>().unwrap();
    assert_eq!(files.iter().map(read).collect::<String>(), "a\nb/a\nb/z\nc");
    assert_eq!(characters.iter().collect::<String>(), "\n/abcz");
}

#[test]
fn empty_folders_are_refused() {
    let texts = Texts::new(&[]);
    let error = scan(&[texts.0.path().into()]).map(|it| it.reading).unwrap_err().to_string();
    assert!(error.starts_with("`data.path` = ") && error.contains("folder without files"), "{error}");
}

#[cfg(unix)]
#[test]
fn sockets_and_devices_in_a_folder_are_refused() {
    let texts = Texts::new(&[]);
    let path = texts.0.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let problem = message(&texts.config(""));
    assert!(
        problem.starts_with(&format!("{}: is a pipe, a socket or a device", path.display())),
        "{problem}"
    );
    std::os::unix::fs::symlink("/dev/zero", texts.0.path().join("a")).unwrap();
    let problem = message(&texts.config(""));
    assert!(problem.contains("/a: is a pipe, a socket or a device"), "{problem}");
}

#[cfg(unix)]
#[test]
fn text_is_read_from_a_pipe() {
    for tokens in [Tokens::Characters, Tokens::Bpe] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, TEXT.repeat(20).as_bytes()).unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)).into();
        let config = DataConfig {
            source: Some(Source::Text),
            path,
            tokens,
            vocab: Count::Of(300),
            ..DataConfig::default()
        };
        assert_eq!(read_back(&load(&config, 0).unwrap()), TEXT.repeat(20));
    }
    let endless = DataConfig { path: "/dev/zero".into(), ..Texts::new(&[]).config("") };
    assert!(message(&endless).starts_with("/dev/zero: is a device or a socket, which may never end"));
}

#[test]
fn characters_outside_the_vocabulary_are_located() {
    let texts = Texts::new(&[
        ("a", b"abc\nabc abc abc\n".as_slice()),
        ("b", "abc\n ab\u{df}c abc abc abc".as_bytes()),
    ]);
    let vocabulary = load(&texts.config("a"), 0).unwrap().vocabulary;
    let error = load_with(&texts.config("b"), 0, &vocabulary).unwrap_err().to_string();
    let expected = format!(
        "{}:2:4: `\u{df}` is not in the vocabulary of 5 characters",
        texts.0.path().join("b").display()
    );
    assert!(error.starts_with(&expected), "{error}");
    let integers = Vocabulary::integers(5, &[]);
    let error = load_with(&texts.config("a"), 0, &integers).unwrap_err().to_string();
    assert!(error.starts_with("`data.source` = text reads text"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            ".{0,200}".prop_map(String::into_bytes),
        ],
        length in 1usize..9,
        valid_fraction in 0.01..0.99,
        is_bpe: bool,
    ) {
        let texts = Texts::new(&[("a", &bytes)]);
        let tokens = if is_bpe { Tokens::Bpe } else { Tokens::Characters };
        let config = DataConfig { length, tokens, valid_fraction, ..texts.config("a") };
        match load(&config, 0) {
            Ok(dataset) => {
                let text = std::str::from_utf8(&bytes).unwrap();
                prop_assert_eq!(read_back(&dataset), text.strip_prefix('\u{feff}').unwrap_or(text));
            }
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    #[test]
    fn a_damaged_tokenizer_file_is_read_or_refused(
        at in 0usize..2000,
        bytes in proptest::collection::vec(any::<u8>(), 0..4),
        is_cut: bool,
    ) {
        let tokenizer = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 3,
            "strategy": "LongestFirst", "stride": 0}, "padding": null, "added_tokens": [{"id": 5,
            "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}], "normalizer": {"type": "NFC"}, "pre_tokenizer":
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "dropout": null,
            "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3,
            "\u010a": 4}, "merges": [["a", "b"]]}}"#;
        let mut damaged = tokenizer.as_bytes().to_vec();
        let at = at % damaged.len();
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged.splice(at..(at + bytes.len()).min(tokenizer.len()), bytes);
        }
        let texts = Texts::new(&[("a", b"ab a\nb".repeat(20).as_slice()), ("tokenizer.json", &damaged)]);
        let config = DataConfig { tokens: texts.tokens("tokenizer.json"), ..texts.config("a") };
        match load(&config, 0) {
            Ok(dataset) => drop(read_back(&dataset)),
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }
}

/// A tokenizer as in Llama 2: spaces become marks, one mark is prepended, and the text is not split before the merges.
const LLAMA_2: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "b": 2, "\n": 3, "ab": 4, "▁ab": 5, "▁▁": 6},
        "merges": [["a", "b"], ["▁", "ab"], ["▁", "▁"]]}}"#;

#[test]
fn long_text_encodes_like_one_string() {
    let long = "ab  b\nab a ab\n\n abab".repeat(15_000);
    let joined = LLAMA_2.replace(r#""▁▁": 6"#, r#""b▁": 6"#).replace(r#"["▁", "▁"]"#, r#"["b", "▁"]"#);
    for tokenizer in [LLAMA_2, &joined] {
        let texts = Texts::new(&[("a", long.as_bytes()), ("tokenizer.json", tokenizer.as_bytes())]);
        let config = DataConfig { tokens: texts.tokens("tokenizer.json"), ..texts.config("a") };
        let dataset = load(&config, 0).unwrap();
        let read = [ids(&dataset.train), ids(&dataset.valid)].concat();
        assert!(read == dataset.vocabulary.encode(&long).unwrap(), "{tokenizer}");
    }
}

#[test]
fn long_texts_that_cannot_be_cut_are_refused() {
    let tokenizer = LLAMA_2.replace(r#""▁▁": 6"#, r#""b▁": 6"#).replace(r#"["▁", "▁"]"#, r#"["b", "▁"]"#);
    let long = "ab ".repeat(3_000_000);
    let texts = Texts::new(&[("a", long.as_bytes()), ("tokenizer.json", tokenizer.as_bytes())]);
    let config = DataConfig { tokens: texts.tokens("tokenizer.json"), ..texts.config("a") };
    let problem = message(&config);
    assert!(
        problem.contains("/a: cannot be split within 9 MB")
            && problem.contains("split it into smaller files"),
        "{problem}"
    );
}

#[test]
fn git_lfs_pointers_are_refused() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 115394\n".repeat(9);
    let texts = Texts::new(&[("a", b"to be or not to be\n"), ("b.txt", &pointer)]);
    for name in ["b.txt", ""] {
        let problem = message(&texts.config(name));
        let expected = format!("{}: is a Git LFS pointer", texts.0.path().join("b.txt").display());
        assert!(problem.starts_with(&expected), "{problem}");
    }
}

#[test]
fn files_that_are_not_plain_text_are_reported() {
    let texts = Texts::new(&[
        ("a", "<!DOCTYPE html>\n<p>caf\u{fffd}</p>\n".repeat(9).as_bytes()),
        ("b", "<html>\n".repeat(9).as_bytes()),
    ]);
    let dataset = load(&texts.config(""), 0).unwrap();
    let guesses = dataset.guesses().cloned().collect::<Vec<_>>().join("\n");
    assert!(guesses.contains("a is HTML (and 1 more file)") && guesses.contains("U+FFFD"), "{guesses}");
    let reading = dataset.text.unwrap();
    assert_eq!((reading.files, &*reading.first), (2, &["a".to_string(), "b".into()][..]));
}
