//! Text files as a stream of pieces, so that no file is ever held in memory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::error::{Error, Result};

/// Bytes read at a time: large enough that a tokenizer does not feel the cuts, small enough to
/// stay in a cache.
const PIECE: usize = 1 << 16;

/// The byte order mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The file at `path`, or all files below the folder there in the order of their paths. Hidden
/// ones are left out.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let visible = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
    let walk = WalkDir::new(path).follow_links(true).sort_by_file_name().into_iter();
    let mut files = Vec::new();
    for entry in walk.filter_entry(|entry| entry.depth() == 0 || visible(entry.file_name())) {
        let entry = entry.map_err(|error| {
            let at = error.path().unwrap_or(path).to_path_buf();
            match error.into_io_error() {
                Some(error) => Error::io("read", at, error),
                None => Error::file(at, None, None, "is a link to a folder that holds it; remove the link"),
            }
        })?;
        if !entry.file_type().is_dir() {
            files.push(entry.into_path());
        }
    }
    if files.is_empty() {
        return Err(Error::key("data.path", path.display(), "is a folder without files; put texts in it"));
    }
    Ok(files)
}

/// A part of a stream of texts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The text goes on. It is cut before white space where there is some: where tokenizers cut.
    Text(String),
    /// A file is over.
    End,
}

/// The files one after the other, each closed by a line break where another one follows. Stops
/// after the first error.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    files: std::slice::Iter<'a, PathBuf>,
    open: Option<Open<'a>>,
    /// Bytes that may still be read.
    left: u64,
}

#[derive(Debug)]
struct Open<'a> {
    path: &'a Path,
    file: File,
    /// What was read and not given out yet, and where it begins in the file.
    buffer: Vec<u8>,
    offset: u64,
    /// A line break would have to close the file.
    is_open_line: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(files: &'a [PathBuf]) -> Self {
        Self::up_to(files, u64::MAX)
    }

    /// Only the first `bytes` of the stream, or up to three fewer where a character would be cut.
    pub(super) fn up_to(files: &'a [PathBuf], bytes: u64) -> Self {
        Pieces { files: files.iter(), open: None, left: bytes }
    }

    /// The next piece of the open file; none when it is over.
    fn read(&mut self) -> Result<Option<String>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let wanted = (PIECE - open.buffer.len().min(PIECE)) as u64;
        let wanted = wanted.min(self.left);
        let read = Read::by_ref(&mut open.file)
            .take(wanted)
            .read_to_end(&mut open.buffer)
            .map_err(|error| Error::io("read", open.path, error))?;
        self.left -= read as u64;
        if open.offset == 0 && open.buffer.starts_with(BYTE_ORDER_MARK) {
            open.buffer.drain(..BYTE_ORDER_MARK.len());
            open.offset = BYTE_ORDER_MARK.len() as u64;
        }
        let is_last = (read as u64) < wanted || self.left == 0;
        let mut end = if is_last { open.buffer.len() } else { cut(&open.buffer) };
        if let Err(error) = std::str::from_utf8(&open.buffer[..end]) {
            // A character may go on in the next piece, or be cut by the limit.
            if error.error_len().is_some() || (is_last && self.left > 0) {
                let at = open.offset + error.valid_up_to() as u64;
                let problem = format!("is not UTF-8 at byte {at}; save it as UTF-8, as by `iconv -t UTF-8`");
                return Err(Error::file(open.path, None, None, problem));
            }
            end = error.valid_up_to();
        }
        let text = String::from_utf8_lossy(&open.buffer[..end]).into_owned();
        open.buffer.drain(..end);
        open.offset += end as u64;
        if text.is_empty() {
            let is_closed_here = std::mem::take(&mut open.is_open_line) && self.files.len() > 0;
            return Ok(is_closed_here.then(|| "\n".to_string()));
        }
        open.is_open_line = !text.ends_with('\n');
        Ok(Some(text))
    }
}

/// Where to cut: before the last white space that follows something else, or else at the end.
fn cut(bytes: &[u8]) -> usize {
    let is_gap = |pair: &[u8]| !pair[0].is_ascii_whitespace() && pair[1].is_ascii_whitespace();
    bytes.windows(2).rposition(is_gap).map_or(bytes.len(), |before| before + 1)
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.open.is_none() {
            if self.left == 0 {
                return None;
            }
            let path = self.files.next()?;
            match File::open(path) {
                Ok(file) => {
                    self.open = Some(Open { path, file, buffer: Vec::new(), offset: 0, is_open_line: false });
                }
                Err(error) => return Some(Err(Error::io("read", path, error))),
            }
        }
        match self.read() {
            Ok(Some(text)) => Some(Ok(Piece::Text(text))),
            Ok(None) => {
                self.open = None;
                Some(Ok(Piece::End))
            }
            Err(error) => {
                self.left = 0;
                self.open = None;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn stream(files: &[PathBuf]) -> Result<Vec<Piece>> {
        Pieces::new(files).collect()
    }

    fn joined(pieces: Vec<Piece>) -> String {
        let text = |piece| if let Piece::Text(text) = piece { text } else { String::new() };
        pieces.into_iter().map(text).collect()
    }

    #[test]
    fn pieces_put_together_are_the_file_whatever_their_cuts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        // No white space at all, with characters of three bytes that no piece ends at; then white
        // space far apart.
        for text in ["äß€".repeat(50_000), format!("{} \n", "word".repeat(1000)).repeat(100)] {
            fs::write(&path, &text).unwrap();
            let pieces = stream(std::slice::from_ref(&path)).unwrap();
            assert!(pieces.len() > 3);
            assert_eq!(joined(pieces), text);
        }
    }

    #[test]
    fn a_piece_ends_before_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "one  two\n\n".repeat(20_000)).unwrap();
        for piece in stream(&[path]).unwrap() {
            let Piece::Text(text) = piece else { continue };
            assert!(text.ends_with("\n\n") || text.ends_with("one") || text.ends_with("two"));
        }
    }

    #[test]
    fn a_limit_cuts_the_stream_at_a_character() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = ["a", "b"].map(|name| folder.path().join(name)).into();
        files.iter().for_each(|path| fs::write(path, "x€").unwrap());
        let text = |bytes| joined(Pieces::up_to(&files, bytes).collect::<Result<_>>().unwrap());
        assert_eq!([0, 1, 3, 4, 5, 99].map(text), ["", "x\n", "x\n", "x€\n", "x€\nx", "x€\nx€"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named_by_file_and_offset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let mut bytes = "ä b ".repeat(50_000).into_bytes();
        let length = bytes.len();
        // In the middle, and a character cut short at the very end.
        for (at, wrong) in [(100_003, vec![0xff]), (length, vec![0xc3])] {
            let right = bytes.clone();
            bytes.splice(at.min(length)..at.min(length), wrong);
            fs::write(&path, &bytes).unwrap();
            bytes = right;
            let error = stream(std::slice::from_ref(&path)).unwrap_err().to_string();
            let expected = format!("{}: is not UTF-8 at byte {at}; save it", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_its_paths_without_hidden_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["c", "b/z", "a", ".hidden", "b/a"] {
            fs::write(folder.path().join(name), format!("\u{feff}{name}")).unwrap();
        }
        let files = files(folder.path()).unwrap();
        assert_eq!(joined(stream(&files).unwrap()), "a\nb/a\nb/z\nc");
        assert_eq!(stream(&files).unwrap().iter().filter(|piece| **piece == Piece::End).count(), 4);
    }

    #[test]
    fn nothing_to_read_is_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = files(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("`data.path` = ") && error.contains("folder without files"), "{error}");
        let missing = folder.path().join("missing");
        let error = files(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read `{}`: ", missing.display())), "{error}");
    }
}
