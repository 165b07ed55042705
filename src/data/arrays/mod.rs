//! The user's array of token ids: a NumPy file (`.npy`), or the bare ids as nanoGPT writes them (`.bin`).
//!
//! An array of one dimension is one sequence, cut into windows like a text. In an array of two dimensions, each row is a
//! sequence. The ids stay in the file, which may be larger than memory, and are checked in one pass. Their tokens are
//! the integers up to the largest id, or the tokens of a `tokenizer.json`.

mod npy;
mod raw;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::{Count, DataConfig, Dtype, MAX_SIZE, Tokens};
use super::dataset::Dataset;
use super::ids::{Bytes, Ids, IdsInFile, Integer};
use super::reading::{ArrayFormat, ArrayReading, shape};
use super::sequences::{Rows, Sequences, split_rows};
use super::text::read_tokenizer;
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{self, Input, LFS_POINTER, is_lfs_pointer};
use crate::numbers::{counted, thousands};

/// The number of bytes at the start of a file from which its layout is read or inferred.
const HEAD_BYTES: usize = 1 << 16;

/// The position, the type and the shape of the ids in a file.
#[derive(Debug, PartialEq, Eq)]
struct ArrayLayout {
    /// The name of the format.
    format: ArrayFormat,
    integer: Integer,
    /// The offset of the first id, in bytes.
    start: u64,
    /// The size of each of the one or two dimensions.
    shape: Vec<usize>,
}

/// Reads the array that `config` names, with the `given` vocabulary or the one that `data.tokens` and `data.vocab`
/// select.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    let path = &file(config)?;
    let (bytes, layout) = open(config, path)?;
    let count = layout.shape.iter().product();
    let ids = IdsInFile {
        bytes: Arc::new(bytes),
        path: path.clone(),
        integer: layout.integer,
        start: layout.start,
        count,
        rows: None,
    };
    if count == 0 {
        return Err(Error::file(path, "is empty; pass an array with token ids"));
    }
    let vocabulary = match vocabulary(config, given)? {
        Some(vocabulary) => {
            checked(&ids, &layout, vocabulary.size(), &format!("the vocabulary of {vocabulary}"))?;
            vocabulary
        }
        None => match config.vocab {
            Count::Of(size) => {
                checked(&ids, &layout, size, &format!("`data.vocab` = {size}"))?;
                Vocabulary::integers(size, &[])
            }
            Count::Auto => {
                let largest = checked(&ids, &layout, MAX_SIZE, "the largest vocabulary of 1048576")?;
                Vocabulary::integers(largest as usize + 1, &[])
            }
        },
    };
    let reading =
        ArrayReading { format: layout.format, dtype: raw::name(layout.integer), shape: layout.shape.clone() };
    if layout.format == ArrayFormat::Raw && config.dtype == Dtype::Auto && given.is_none() {
        log::info!(
            "{}: is read as {} ({}) with a vocabulary of {vocabulary}; if this is wrong, set `data.dtype`, or \
             `data.tokens` to the tokenizer.json of these ids",
            path.display(),
            counted(count, "token"),
            reading.dtype
        );
    }
    let sets = match layout.shape[..] {
        [rows, columns] => in_rows(config, &ids, rows, columns)?,
        _ => Sequences::cut(config, Ids::File(ids))?,
    };
    Ok(Dataset { array: Some(Arc::new(reading)), ..Dataset::without_floor(vocabulary, sets) })
}

/// Returns the file that `config` names.
fn file(config: &DataConfig) -> Result<PathBuf> {
    let mut files = config.path.files("data.path")?;
    if files.len() == 1 {
        return Ok(files.remove(0));
    }
    let is_for_validation = |file: &&PathBuf| {
        file.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains("val"))
    };
    let remedy = match &files[..] {
        [first, second] if is_for_validation(&first) != is_for_validation(&second) => {
            let (valid, train) = if is_for_validation(&first) { (first, second) } else { (second, first) };
            format!(
                "set `data.path` = \"{}\" and `data.valid_path` = \"{}\"",
                train.display(),
                valid.display()
            )
        }
        _ => "set `data.path` to one .npy or .bin file, and `data.valid_path` to another one for validation"
            .into(),
    };
    Err(Error::key(
        "data.path",
        &config.path,
        format!("names {}, but one array is read; {remedy}", counted(files.len(), "file")),
    ))
}

/// Opens the file of an array at `path`, and determines its layout.
fn open(config: &DataConfig, path: &Path) -> Result<(Bytes, ArrayLayout)> {
    let failed = |error| Error::io("read", path, error);
    let (bytes, head, length) = match files::open(path)? {
        Input::Stream(bytes) => {
            let (head, length) = (bytes[..bytes.len().min(HEAD_BYTES)].to_vec(), bytes.len() as u64);
            (Bytes::Memory(bytes), head, length)
        }
        Input::File(mut file) => {
            let (mut head, length) = (Vec::new(), file.metadata().map_err(failed)?.len());
            file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
            (Bytes::File(file), head, length)
        }
    };
    if is_lfs_pointer(&head) {
        return Err(Error::file(path, LFS_POINTER));
    }
    if head.is_empty() {
        return Err(Error::file(path, "is empty; pass an array with token ids"));
    }
    if !head.starts_with(npy::MAGIC) {
        let layout = raw::layout(path, config.dtype, &head, length)?;
        return Ok((bytes, layout));
    }
    let layout = npy::layout(path, &head)?;
    check_length(path, &layout, length)?;
    if let Some(integer) = config.dtype.integer().filter(|integer| *integer != layout.integer) {
        let problem = format!(
            "differs from the type in the header of the file, {}; omit it",
            raw::name(layout.integer)
        );
        return Err(Error::key("data.dtype", raw::name(integer), problem));
    }
    Ok((bytes, layout))
}

/// Returns an error if a NumPy file is shorter or longer than its header declares.
fn check_length(path: &Path, layout: &ArrayLayout, length: u64) -> Result<()> {
    let mut sizes = layout.shape.iter().map(|&size| size as u64);
    let all = sizes.try_fold(layout.integer.bytes as u64, u64::checked_mul);
    let expected = all.and_then(|all| all.checked_add(layout.start));
    match expected == Some(length) {
        true => Ok(()),
        false => {
            let problem = format!(
                "is incomplete or damaged: its header declares the shape {}, but the file has {}; copy it again",
                shape(&layout.shape),
                counted(length as usize, "byte")
            );
            Err(Error::file(path, problem))
        }
    }
}

/// Returns the vocabulary that `given` or `data.tokens` determine; `None` for integers.
fn vocabulary(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Option<Vocabulary>> {
    match (given, &config.tokens) {
        (Some(vocabulary), _) if vocabulary.notation() == Notation::Words && !vocabulary.is_integers() => {
            let problem = format!(
                "reads token ids, but the weights were trained on {vocabulary}; pass a table, and if the file \
                 is one, add --set data.source=table"
            );
            Err(Error::key("data.source", "array", problem))
        }
        (Some(vocabulary), _) => Ok(Some(vocabulary.clone())),
        (None, Tokens::File(tokenizer)) => read_tokenizer(config, tokenizer).map(Some),
        (None, Tokens::Bpe | Tokens::Words) => {
            let problem = "trains a tokenizer on a text, but an array already holds token ids; omit it, or pass \
                           the path of their tokenizer.json";
            Err(Error::key("data.tokens", &config.tokens, problem))
        }
        (None, Tokens::Auto | Tokens::Characters) => Ok(None),
    }
}

/// Returns the largest id.
///
/// # Errors
/// Returns an error with the position of the first id that is negative or not below `size`. `limit` describes the
/// origin of `size`.
fn checked(ids: &IdsInFile, layout: &ArrayLayout, size: usize, limit: &str) -> Result<u64> {
    let (index, id) = match ids.largest(size as u64 - 1)? {
        Ok(largest) => return Ok(largest),
        Err(outside) => outside,
    };
    let position = match layout.shape[..] {
        [_, columns] => format!("row {}, column {}", index / columns, index % columns),
        _ => format!("position {}", thousands(index as f64)),
    };
    let dtype = match layout.format {
        ArrayFormat::Raw => {
            "; check `data.dtype`, which is read as ".to_string() + &raw::name(layout.integer)
        }
        ArrayFormat::Npy | ArrayFormat::LlmC => String::new(),
    };
    let problem = match id < 0 {
        true => {
            format!("holds {id} at {position} (from 0), but token ids are never negative; replace it{dtype}")
        }
        false => format!(
            "holds the id {id} at {position} (from 0), which is outside {limit}; ids must be below {size}{dtype}"
        ),
    };
    Err(Error::file(&ids.path, problem))
}

/// Splits the rows of an array into training and validation sets.
fn in_rows(
    config: &DataConfig,
    ids: &IdsInFile,
    rows: usize,
    columns: usize,
) -> Result<(Sequences, Sequences)> {
    let path = &ids.path;
    if !(2..=MAX_SIZE).contains(&columns) {
        let problem = format!(
            "has rows of {}, but a sequence needs 2 to {MAX_SIZE}; reshape it to one dimension to read one long \
             sequence in windows",
            counted(columns, "id")
        );
        return Err(Error::file(path, problem));
    }
    if let Some(lengths) = config.lengths {
        let problem = "applies to one long sequence, but each row of this array is a sequence; remove it";
        return Err(config.wrong_lengths(lengths, problem));
    }
    let set = |indices: Vec<usize>| {
        let selected = ids.selected_rows(columns, indices);
        Sequences::rows(Rows::of_equal_length(Ids::File(selected), columns))
    };
    let train = config.train_part(rows);
    if !config.is_one_split() && rows == 1 {
        let problem = "has a single row, but training and validation need one each; add rows, or reshape it to one \
                       dimension to read one long sequence in windows";
        return Err(Error::file(path, problem));
    }
    if !config.is_one_split() && (train == 0 || train == rows) {
        let problem = format!(
            "has {}, of which `data.valid_fraction` = {} leaves {train} for training and {} for validation, but \
             both need one; use more rows, or change the fraction",
            counted(rows, "row"),
            config.valid_fraction,
            rows - train
        );
        return Err(Error::file(path, problem));
    }
    let (train, valid) = split_rows(config, rows);
    Ok((set(train), set(valid)))
}

#[cfg(test)]
mod tests;
