//! Tests of the token cache: equal ids, resumption after a kill, and damage.

use std::fs;

use super::*;
use crate::data::config::{Count, Source, Tokens};
use crate::data::{Dataset, load, load_with};

/// A text in a temporary folder, and the config that caches its tokens there.
fn texts(files: &[(&str, String)]) -> (tempfile::TempDir, DataConfig) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("texts")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join("texts").join(name), text).unwrap();
    }
    let cache = Cache::Folder(folder.path().join("cache"));
    let path = folder.path().join("texts");
    (
        folder,
        DataConfig {
            source: Some(Source::Text),
            path: path.into(),
            length: 7,
            cache,
            ..DataConfig::default()
        },
    )
}

fn ids(dataset: &Dataset) -> Vec<u32> {
    dataset.train.ids().chain(dataset.valid.ids()).collect()
}

/// Returns the files of the cache with their contents.
fn cached(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder.join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

fn long(seed: u32) -> String {
    (0..60_000_u32).map(|word| format!("w{} ", word.wrapping_mul(2_654_435_761) % 1_000 + seed)).collect()
}

#[test]
fn cached_and_kept_tokens_are_equal() {
    let (folder, config) = texts(&[("a", long(0)), ("b", long(5) + "\n"), ("c", "end".into())]);
    let bpe = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(300), ..config.clone() };
    for (config, count) in [(config, 1), (bpe, 2)] {
        let kept = load(&DataConfig { cache: Cache::None, ..config.clone() }, 0).unwrap();
        for _ in 0..2 {
            let read = load(&config, 0).unwrap();
            assert_eq!(ids(&read), ids(&kept));
            assert_eq!((read.fingerprint(), read.vocabulary), (kept.fingerprint(), kept.vocabulary.clone()));
        }
        let files = cached(folder.path());
        assert!(files.iter().all(|(path, _)| path.extension().is_some_and(|name| name == "ids")));
        assert_eq!(files.len(), count, "the second time, the file is read");
    }
}

#[test]
fn another_text_or_vocabulary_has_another_file() {
    let (folder, config) = texts(&[("a", long(0))]);
    let first = load(&config, 0).unwrap();
    fs::write(config.path.first().join("a"), long(1)).unwrap();
    assert_ne!(ids(&load(&config, 0).unwrap()), ids(&first));
    let more = Vocabulary::characters(" 0123456789wxyz".chars()).unwrap();
    load_with(&config, 0, &more).unwrap();
    assert_eq!(cached(folder.path()).len(), 3);
}

/// A sink that fails after some rounds, as if the process were killed.
struct Killed<'a>(Writer<'a>, u64);

impl Sink for Killed<'_> {
    fn has_round(&self) -> bool {
        self.0.has_round()
    }

    fn push(&mut self, ids: &[u32]) -> Result<()> {
        self.0.push(ids)
    }

    fn end_round(&mut self, bytes: usize) -> Result<()> {
        assert!(self.0.rounds <= self.1);
        self.0.end_round(bytes)?;
        self.0.checkpoint().unwrap();
        // These ids are not counted, because their round is not complete.
        if self.0.rounds == self.1 {
            self.0.push(&[3; 1_000])?;
            self.0.flush().unwrap();
            return Err(Error::Failed("killed".into()));
        }
        Ok(())
    }
}

#[test]
fn a_killed_tokenisation_continues_to_the_same_file() {
    // The first file has two rounds.
    let (folder, config) = texts(&[
        ("a", long(0).repeat(9)),
        ("b", long(1)),
        ("c", String::new()),
        ("d", long(3)),
        ("e", long(4)),
    ]);
    let bpe = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(260), ..config };
    let whole = load(&bpe, 0).unwrap();
    let expected = cached(folder.path());
    let scanned = super::super::scan(&[bpe.path.first().into()]).unwrap();
    let bytes = scanned.reading.bytes;
    for rounds in [1, 2, 4] {
        fs::remove_file(&expected[0].0).unwrap();
        let text = Cached::of(&folder.path().join("cache"), &scanned.files, &whole.vocabulary).unwrap();
        assert_eq!(text.complete, expected[0].0);
        let file = SystemFile::options().read(true).write(true).create_new(true).open(&text.partial).unwrap();
        let writer = Writer::resume(file, &text, bpe.path.first(), bytes, whole.vocabulary.size()).unwrap();
        let killed = encoding::encode(&scanned.files, &whole.vocabulary, &mut Killed(writer, rounds));
        assert_eq!(killed.unwrap_err().to_string(), "killed");
        let partial = fs::metadata(&text.partial).unwrap().len();
        assert!(text.read().unwrap().is_none(), "a partial file is not taken for a complete one");
        // The next process continues: it has the rounds, and drops the ids after them.
        let file = SystemFile::options().read(true).write(true).open(&text.partial).unwrap();
        let resumed = Writer::resume(file, &text, bpe.path.first(), bytes, whole.vocabulary.size()).unwrap();
        assert_eq!((resumed.header.rounds, resumed.header.length()), (rounds, partial - 2_000));
        drop(resumed);
        assert_eq!(ids(&load(&bpe, 0).unwrap()), ids(&whole));
        assert!(cached(folder.path()) == expected, "after {rounds} rounds");
    }
}

#[test]
fn a_process_killed_before_publication_only_publishes() {
    let (folder, config) = texts(&[("a", long(0)), ("b", long(1))]);
    let bpe = DataConfig { tokens: Tokens::Bpe, vocab: Count::Of(260), ..config };
    let whole = ids(&load(&bpe, 0).unwrap());
    let expected = cached(folder.path());
    fs::rename(&expected[0].0, expected[0].0.with_extension("part")).unwrap();
    assert_eq!(ids(&load(&bpe, 0).unwrap()), whole);
    assert!(cached(folder.path()) == expected);
}

#[test]
fn damaged_files_are_made_again() {
    let (folder, config) = texts(&[("a", long(0))]);
    let whole = ids(&load(&config, 0).unwrap());
    let expected = cached(folder.path());
    let (path, bytes) = &expected[0];
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    for damaged in
        [vec![], bytes[..bytes.len() - 1].to_vec(), changed(0), changed(36), changed(99), changed(9_001)]
    {
        fs::write(path, damaged).unwrap();
        assert_eq!(ids(&load(&config, 0).unwrap()), whole);
        assert!(cached(folder.path()) == expected);
    }
}

#[test]
fn an_impossible_folder_is_an_error() {
    let (folder, config) = texts(&[("a", long(0))]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let config = DataConfig { cache: Cache::Folder(file.join("cache")), ..config };
    let error = load(&config, 0).unwrap_err();
    assert!(error.to_string().starts_with("cannot create `"), "{error}");
    assert_eq!(error.exit_code(), 2);
}
