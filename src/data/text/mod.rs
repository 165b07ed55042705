//! The user's text: a file, or a folder of files, in UTF-8.
//!
//! All files form one stream of tokens. Training reads windows of the first part at random offsets, and validation
//! reads the rest in adjacent windows. Files are separated by the end token if the tokenizer has one, or else by a line
//! break. A file is streamed in pieces, once to scan its contents and once to encode it, so that only the tokens are
//! kept in memory, or in a file if the text is large ([`cache`]).

mod bpe;
mod cache;
mod encoding;
mod segments;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::{DataConfig, Documents, Tokens, walk};
use super::damage::{self, Damage};
use super::dataset::Dataset;
use super::documents;
use super::excerpt::{and_more, excerpt};
use super::reading::TextReading;
use super::sequences::Sequences;
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{BYTE_ORDER_MARK, LFS_POINTER, Text, is_lfs_pointer};

/// The default number of tokens of byte pair encoding. Their embedding is a small share of the weights of a small
/// model, and each token covers two to three characters.
pub(super) const DEFAULT_BPE_TOKENS: usize = 1024;

/// Reads the text that `config` names, with the `given` vocabulary or the one that `data.tokens` selects.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    let Scanned { files, characters, reading } = scan(&config.path.expand("data.path")?)?;
    let bytes = reading.bytes;
    if bytes == 0 {
        return Err(Error::file(config.path.first(), "is empty; pass a text"));
    }
    if given.is_none() && BYTE_ORDER_MARK.chars().all(|mark| characters.contains(&mark)) {
        files.iter().try_for_each(refuse_byte_order_mark)?;
    }
    let vocabulary = match (given, &config.tokens) {
        (Some(vocabulary), _) if vocabulary.notation() == Notation::Words => {
            let problem = format!(
                "reads text, but the weights were trained on {vocabulary}; pass a table, or if the file is a \
                 table, add --set data.source=table"
            );
            return Err(Error::key("data.source", "text", problem));
        }
        (Some(vocabulary), _) => vocabulary.clone(),
        (None, Tokens::Auto | Tokens::Characters) => Vocabulary::characters(characters)?,
        (None, Tokens::Words) => {
            let problem = "applies to the texts of a table; use \"characters\" or \"bpe\" for a text";
            return Err(Error::key("data.tokens", "\"words\"", problem));
        }
        // The validation part must not influence the tokens, so only the training part is used.
        (None, Tokens::Bpe) => {
            let vocab = config.vocab.or(DEFAULT_BPE_TOKENS);
            let tokenizer = bpe::train(&files, config.train_part(bytes), vocab)?;
            Vocabulary::tokenizer(tokenizer)?
        }
        (None, Tokens::File(path)) => read_tokenizer(config, path)?,
    };
    // The start of a file is not known in a cache, so files without an end token are encoded again.
    let is_cached = config.documents == Documents::Joined || vocabulary.end().is_some();
    let (ids, file_starts) = match cache::folder(config, bytes).filter(|_| is_cached) {
        Some(folder) => (cache::ids(config, &folder, &files, bytes, &vocabulary)?, Vec::new()),
        None => encoding::in_memory(&files, bytes, &vocabulary)?,
    };
    let starts = documents::starts(config, &ids, &file_starts, &vocabulary)?;
    let sets = Sequences::cut_documents(config, ids, starts)?;
    Ok(Dataset { text: Some(Arc::new(reading)), ..Dataset::without_floor(vocabulary, sets) })
}

/// Reads the `tokenizer.json` that `data.tokens` names, with the end-of-text token of `data.end_of_text`.
pub(super) fn read_tokenizer(config: &DataConfig, path: &Path) -> Result<Vocabulary> {
    if path.try_exists().is_ok_and(|exists| !exists) {
        let problem = "must be \"characters\", \"bpe\" or the path of a tokenizer.json; no such file";
        return Err(Error::key("data.tokens", path.display(), problem));
    }
    let vocabulary = Vocabulary::read_tokenizer(path)?;
    match &*config.end_of_text {
        "" => Ok(vocabulary),
        name => vocabulary.with_end_named(name).ok_or_else(|| {
            let problem =
                format!("is not a token of {}; write the name of one of its tokens", path.display());
            Error::key("data.end_of_text", format!("{name:?}"), problem)
        }),
    }
}

/// Returns an error with the line number of a byte order mark within a file.
fn refuse_byte_order_mark(file: &File) -> Result<()> {
    let mut line = 1;
    for piece in file.text.pieces()? {
        let piece = piece?;
        let before = piece.split(BYTE_ORDER_MARK).next().unwrap_or_default();
        line += before.matches('\n').count();
        if before.len() < piece.len() {
            let problem = "has a byte order mark inside the text, as in joined files; remove the mark";
            return Err(Error::in_file(&file.text.path, Some(line), None, problem));
        }
    }
    Ok(())
}

/// A scanned file.
#[derive(Debug)]
struct File {
    text: Text,
    bytes: usize,
    /// True if no line break is added after the file: it is the last file, is empty, or ends in a line break.
    is_closed: bool,
}

impl File {
    /// Iterates over the pieces of the text, followed by a line break unless the text `is_closed`.
    fn pieces(&self, is_closed: bool) -> Result<impl Iterator<Item = Result<String>> + Send> {
        Ok(self.text.pieces()?.chain((!is_closed).then(|| Ok("\n".to_string()))))
    }
}

/// The result of the first pass over the files of a text.
struct Scanned {
    files: Vec<File>,
    /// The characters that occur, in ascending order.
    characters: Vec<char>,
    reading: TextReading,
}

/// Scans the files, streams and folders at `paths`, in this order, with the files of a folder in path order. Hidden
/// files are skipped.
fn scan(paths: &[PathBuf]) -> Result<Scanned> {
    let mut files: Vec<File> = Vec::new();
    let mut occurs = vec![false; char::MAX as usize + 1];
    // True if the previous file needs no line break after it.
    let mut is_closed = true;
    let (mut damage, mut reading) = (Damage::default(), TextReading::default());
    let mut with_markup = Vec::new();
    for (path, entry) in paths.iter().flat_map(|path| walk(path).map(move |entry| (path, entry))) {
        let entry = entry?;
        let kind = entry.file_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() && entry.depth() > 0 {
            let problem = "is a pipe, a socket or a device, which may never end; remove it from the folder";
            return Err(Error::file(entry.path(), problem));
        }
        if let Some(before) = files.last_mut() {
            before.is_closed = is_closed;
            occurs['\n' as usize] |= !is_closed;
        }
        is_closed = true;
        let mut file = File { text: Text::open(entry.into_path())?, bytes: 0, is_closed };
        for piece in file.text.pieces()? {
            let piece = piece?;
            piece.chars().for_each(|character| occurs[character as usize] = true);
            damage.scan(&piece);
            if file.bytes == 0 {
                if is_lfs_pointer(piece.as_bytes()) {
                    return Err(Error::file(&file.text.path, LFS_POINTER));
                }
                with_markup.extend(damage::markup(&piece).map(|format| (file.text.path.clone(), format)));
            }
            file.bytes += piece.len();
            is_closed = piece.ends_with('\n');
        }
        let name = file.text.path.strip_prefix(path).ok().filter(|name| !name.as_os_str().is_empty());
        reading.add(name.unwrap_or(path).display().to_string(), &file.text.path, file.bytes);
        files.push(file);
    }
    let codes = (0..).zip(occurs).filter_map(|(code, occurs)| occurs.then_some(code));
    if files.is_empty() {
        let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
        return Err(Error::key("data.path", path.display(), "is a folder without files; add texts to it"));
    }
    reading.warnings.extend(warn_of_markup(&with_markup));
    reading.warnings.extend(damage.warnings());
    Ok(Scanned { files, characters: codes.filter_map(char::from_u32).collect(), reading })
}

/// Returns a warning about the files that begin with markup, given with their formats.
fn warn_of_markup(files: &[(PathBuf, &str)]) -> Option<String> {
    let (path, format) = files.first()?;
    let more = and_more(files.len() - 1, "file");
    Some(format!(
        "{} is {format}{more}, so its markup is learned; convert it to plain text unless you want the markup",
        excerpt(&path.display().to_string())
    ))
}

#[cfg(test)]
mod tests;
