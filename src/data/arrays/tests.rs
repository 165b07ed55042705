//! Tests of arrays as other programs write them.

use std::fs;

use super::*;
use crate::data::config::{RowSplit, Source};
use crate::data::{load, load_whole, load_with};

/// A file in a temporary folder, and the config that reads it.
fn with(
    name: &str,
    bytes: &[u8],
    change: impl Fn(DataConfig) -> DataConfig,
) -> (tempfile::TempDir, DataConfig) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, change(DataConfig { path: path.into(), length: 7, ..DataConfig::default() }))
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn two_bytes(ids: impl IntoIterator<Item = u32>) -> Vec<u8> {
    ids.into_iter().flat_map(|id| (id as u16).to_le_bytes()).collect()
}

/// Returns the ids of both splits of a long sequence, in order.
fn ids(dataset: &Dataset) -> Vec<u32> {
    dataset.train.ids().chain(dataset.valid.ids()).collect()
}

#[test]
fn bare_ids_are_one_sequence() {
    let written: Vec<u32> = (0..200).map(|index| index * index % 23).collect();
    let (_folder, config) = with("train.bin", &two_bytes(written.clone()), |config| config);
    assert_eq!(config.source(), Source::Array);
    let dataset = load(&config, 0).unwrap();
    assert_eq!((ids(&dataset), dataset.vocabulary.size()), (written.clone(), 19));
    assert_eq!((dataset.train.targets(), dataset.valid.targets(), dataset.context()), (179, 19, 7));
    assert_eq!(dataset.array.as_ref().unwrap().to_string(), "raw, uint16, shape (200,)");
    // The same ids in memory have the same fingerprint.
    let mut in_memory = Ids::default();
    in_memory.extend(&written);
    let sets = Sequences::cut(&config, in_memory).unwrap();
    let same = Dataset::without_floor(Vocabulary::integers(19, &[]), sets);
    assert_eq!(same.fingerprint(), dataset.fingerprint());
    let batch = dataset.train.batch([3, 11].into_iter());
    assert_eq!(batch.inputs, [&written[3..10], &written[11..18]].concat());
}

#[test]
fn rows_of_a_matrix_are_sequences() {
    let written: Vec<u32> = (0..55).map(|index| index % 11).collect();
    let bytes: Vec<u8> = written.iter().flat_map(|&id| i64::from(id).to_be_bytes()).collect();
    let part = |config| DataConfig { valid_fraction: 0.4, ..config };
    let (_folder, config) = with("rows.npy", &npy(">i8", "(11, 5)", &bytes), part);
    let drawn = load(&config, 0).unwrap();
    let samples = |set: &Sequences| (0..set.len()).map(|row| set.sample(row).1).collect::<Vec<_>>();
    let mut rows = [samples(&drawn.train), samples(&drawn.valid)].concat();
    assert_eq!((drawn.train.len(), drawn.valid.len()), (6, 5));
    assert_ne!(rows.concat(), written);
    rows.sort_by_key(|row| written.chunks(5).position(|written| written == row));
    assert_eq!(rows.concat(), written);
    let config = DataConfig { split: RowSplit::Tail, ..config };
    let dataset = load(&config, 0).unwrap();
    assert_eq!((dataset.train.len(), dataset.valid.len(), dataset.context()), (6, 5, 4));
    assert_eq!(dataset.train.sample(1).1, written[5..10]);
    assert_eq!(dataset.valid.sample(4).1, written[50..]);
    assert!(config.unused_keys(Some(&dataset)).readers("length").is_some());
    let whole = load_whole(&config, 0, &dataset.vocabulary).unwrap();
    assert_eq!((whole.train.len(), whole.valid.len()), (11, 11));
}

#[test]
fn ids_outside_the_vocabulary_are_located() {
    let written = (0..150).map(|index| if index == 131 { 60_000 } else { index % 13 });
    let (_folder, config) = with("a.bin", &two_bytes(written), |config| config);
    let path = config.path.to_string();
    assert_eq!(load(&config, 0).unwrap().vocabulary.size(), 60_001);
    let given = DataConfig { vocab: Count::Of(13), ..config.clone() };
    let expected = format!(
        "{path}: holds the id 60000 at position 131 (from 0), which is outside `data.vocab` = 13; ids must be \
         below 13; check `data.dtype`, which is read as uint16"
    );
    assert_eq!(load(&given, 0).unwrap_err().to_string(), expected);
    let error = load_with(&config, 0, &Vocabulary::integers(13, &[])).unwrap_err().to_string();
    assert!(error.contains("is outside the vocabulary of 13 integers"), "{error}");
    let symbols = Vocabulary::symbols(vec!["a".into()], None).unwrap();
    let error = load_with(&config, 0, &symbols).unwrap_err().to_string();
    assert!(error.starts_with("`data.source` = array reads token ids, but the weights"), "{error}");

    let bytes: Vec<u8> = [3i16, 5, 0, -7, 1, 2].iter().flat_map(|id| id.to_le_bytes()).collect();
    let (_folder, config) = with("a.npy", &npy("<i2", "(2, 3)", &bytes), |config| config);
    let error = load(&config, 0).unwrap_err().to_string();
    assert!(error.contains("holds -7 at row 1, column 0 (from 0), but token ids are never"), "{error}");
}

#[test]
fn unusable_arrays_are_refused() {
    let ids = two_bytes((0..60).map(|index| index % 7));
    let message = |name: &str, bytes: &[u8], change: &dyn Fn(DataConfig) -> DataConfig| {
        let (_folder, config) = with(name, bytes, change);
        load(&config, 0).unwrap_err().to_string()
    };
    let same = |config| config;
    for (name, bytes, expected) in [
        ("empty.bin", vec![], "is empty; pass an array"),
        ("empty.npy", npy("<u2", "(0,)", &[]), "is empty; pass an array"),
        ("cut.npy", npy("<u2", "(61,)", &ids), "the shape (61,), but the file has "),
        ("long.npy", npy("<u2", "(7, 8)", &ids), "the shape (7, 8), but the file has "),
        ("huge.npy", npy("<u8", "(9999999999999, 9999999999999)", &ids), "is incomplete or damaged"),
        ("narrow.npy", npy("<u2", "(60, 1)", &ids), "has rows of 1 id, but a sequence needs 2"),
        (
            "one.npy",
            npy("<u2", "(1, 60)", &ids),
            "has a single row, but training and validation need one each; add rows, or reshape",
        ),
        ("short.bin", ids[..8].to_vec(), "has 3 tokens for training, fewer than a window"),
        ("a.npy.gz", b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "looks like gzip, not an array"),
    ] {
        let message = message(name, &bytes, &same);
        assert!(message.contains(expected), "{name}: {message}");
    }
    let bpe = message("a.bin", &ids, &|config| DataConfig { tokens: Tokens::Bpe, ..config });
    assert!(bpe.starts_with("`data.tokens` = \"bpe\" trains a tokenizer on a text, but"), "{bpe}");
    let other = npy("<u2", "(60,)", &ids);
    let dtype = message("a.npy", &other, &|config| DataConfig { dtype: Dtype::Uint8, ..config });
    assert!(dtype.starts_with("`data.dtype` = uint8 differs from the type in the header"), "{dtype}");
}

#[cfg(unix)]
#[test]
fn an_array_is_read_from_a_pipe() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let written: Vec<u32> = (0..90).map(|index| index % 11).collect();
    std::io::Write::write_all(&mut writer, &two_bytes(written.clone())).unwrap();
    drop(writer);
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)).into();
    let config = DataConfig { source: Some(Source::Array), path, length: 7, ..DataConfig::default() };
    assert_eq!(ids(&load(&config, 0).unwrap()), written);
}
