//! Text files as a stream of pieces, so that no file is ever held in memory.

use std::io::Read;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::data::input::{self, Input};
use crate::error::{Error, Result};

/// Bytes read at a time: large enough that a tokenizer does not feel the cuts, small enough to
/// stay in a cache.
const PIECE: usize = 1 << 16;

/// The byte order mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A file, or what a stream held.
#[derive(Debug)]
pub(super) struct Text {
    path: PathBuf,
    held: Option<Vec<u8>>,
    /// How many there are.
    pub bytes: u64,
}

impl Text {
    fn open(path: PathBuf) -> Result<Self> {
        Ok(match input::open(&path)? {
            Input::File(file) => {
                let bytes = file.metadata().map_err(|error| Error::io("read", &path, error))?.len();
                Text { path, held: None, bytes }
            }
            Input::Stream(held) => {
                let held = held.into_inner();
                Text { path, bytes: held.len() as u64, held: Some(held) }
            }
        })
    }

    fn reader(&self) -> Result<Box<dyn Read + Send + '_>> {
        Ok(match &self.held {
            Some(bytes) => Box::new(bytes.as_slice()),
            None => Box::new(input::open(&self.path)?),
        })
    }
}

/// The file or stream at `path`, or all files below the folder there in the order of their paths. Hidden
/// ones are left out.
pub(super) fn texts(path: &Path) -> Result<Vec<Text>> {
    let visible = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
    let walk = WalkDir::new(path).follow_links(true).sort_by_file_name().into_iter();
    let mut texts = Vec::new();
    for entry in walk.filter_entry(|entry| entry.depth() == 0 || visible(entry.file_name())) {
        let entry = entry.map_err(|error| {
            let at = error.path().unwrap_or(path).to_path_buf();
            match error.into_io_error() {
                Some(error) => Error::io("read", at, error),
                None => Error::file(at, None, None, "is a link to a folder that holds it; remove the link"),
            }
        })?;
        let kind = entry.file_type();
        if !kind.is_dir() && !kind.is_file() && entry.depth() > 0 {
            let problem = "is a pipe, a socket or a device, which may never end; take it out of the folder";
            return Err(Error::file(entry.path(), None, None, problem));
        }
        if !kind.is_dir() {
            texts.push(Text::open(entry.into_path())?);
        }
    }
    if texts.is_empty() {
        return Err(Error::key("data.path", path.display(), "is a folder without files; put texts in it"));
    }
    Ok(texts)
}

/// Where a piece begins: the file, and line and column in it, from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    path: &'a Path,
    line: usize,
    column: usize,
}

impl Place<'_> {
    /// The place behind a `text` that begins here.
    fn after(self, text: &str) -> Self {
        let Self { path, line, column } = self;
        match text.rfind('\n') {
            None => Self { path, line, column: column + text.chars().count() },
            Some(last) => {
                let line = line + text.matches('\n').count();
                Self { path, line, column: 1 + text[last + 1..].chars().count() }
            }
        }
    }

    /// A problem behind the first `characters` of a `text` that begins here.
    pub(super) fn problem(self, text: &str, characters: usize, problem: String) -> Error {
        let before: String = text.chars().take(characters).collect();
        let Self { path, line, column } = self.after(&before);
        Error::file(path, Some(line), Some(column), problem)
    }
}

/// The pieces of one text, and where each begins: cut before white space where there is some, which is where
/// tokenizers cut. Ends after the first error.
pub(super) struct Pieces<'a> {
    text: &'a Text,
    reader: Option<Box<dyn Read + Send + 'a>>,
    /// What was read and not given out yet, where it begins in the file, and as a line and a column.
    buffer: Vec<u8>,
    offset: u64,
    place: Place<'a>,
    /// Bytes that may still be read.
    left: u64,
    /// Whether another text follows, and a line break would have to close this one.
    is_followed: bool,
    is_open_line: bool,
    is_over: bool,
}

/// The pieces of each of the texts, of which one that another one follows is closed by a line break. Only of
/// the first `bytes`, or up to three fewer where a character would be cut.
pub(super) fn pieces(texts: &[Text], bytes: u64) -> impl Iterator<Item = Pieces<'_>> {
    let mut left = bytes;
    texts.iter().zip(1..).map(move |(text, count)| {
        let most = left;
        left = left.saturating_sub(text.bytes);
        Pieces {
            text,
            reader: None,
            buffer: Vec::new(),
            offset: 0,
            place: Place { path: &text.path, line: 1, column: 1 },
            left: most,
            is_followed: count < texts.len(),
            is_open_line: false,
            is_over: false,
        }
    })
}

impl<'a> Pieces<'a> {
    /// The next piece; none when the text is over.
    fn read(&mut self) -> Result<Option<(String, Place<'a>)>> {
        let path = self.place.path;
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(self.text.reader()?),
        };
        let wanted = ((PIECE - self.buffer.len().min(PIECE)) as u64).min(self.left);
        let read = reader.take(wanted).read_to_end(&mut self.buffer);
        let read = read.map_err(|error| Error::io("read", path, error))? as u64;
        self.left -= read;
        if self.offset == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
            self.offset = BYTE_ORDER_MARK.len() as u64;
        }
        let is_last = read < wanted || self.left == 0;
        let mut end = if is_last { self.buffer.len() } else { cut(&self.buffer) };
        if let Err(error) = std::str::from_utf8(&self.buffer[..end]) {
            // A character may go on in the next piece, or be cut by the limit.
            if error.error_len().is_some() || (is_last && self.left > 0) {
                let at = self.offset + error.valid_up_to() as u64;
                let problem = format!("is not UTF-8 at byte {at}; save it as UTF-8, as by `iconv -t UTF-8`");
                return Err(Error::file(path, None, None, problem));
            }
            end = error.valid_up_to();
        }
        let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end);
        self.offset += end as u64;
        if text.is_empty() {
            let is_closed_here = std::mem::take(&mut self.is_open_line) && self.is_followed;
            return Ok(is_closed_here.then(|| ("\n".to_string(), self.place)));
        }
        self.is_open_line = !text.ends_with('\n');
        let begins = self.place;
        self.place = begins.after(&text);
        Ok(Some((text, begins)))
    }
}

/// Where to cut: before the last white space that follows something else, or else at the end.
fn cut(bytes: &[u8]) -> usize {
    let is_gap = |pair: &[u8]| !pair[0].is_ascii_whitespace() && pair[1].is_ascii_whitespace();
    bytes.windows(2).rposition(is_gap).map_or(bytes.len(), |before| before + 1)
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<(String, Place<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let piece = self.read().transpose();
        self.is_over = !matches!(piece, Some(Ok(_)));
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// All pieces below a path.
    fn stream(path: &Path, bytes: u64) -> Result<Vec<String>> {
        let texts = texts(path)?;
        pieces(&texts, bytes).flatten().map(|piece| piece.map(|(text, _)| text)).collect()
    }

    #[test]
    fn pieces_put_together_are_the_file_whatever_their_cuts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        // No white space at all, with characters of three bytes that no piece ends at; then white
        // space far apart.
        for text in ["äß€".repeat(50_000), format!("{} \n", "word".repeat(1000)).repeat(100)] {
            fs::write(&path, &text).unwrap();
            let pieces = stream(&path, u64::MAX).unwrap();
            assert!(pieces.len() > 3);
            assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn a_piece_ends_before_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "one  two\n\n".repeat(20_000)).unwrap();
        for text in stream(&path, u64::MAX).unwrap() {
            assert!(text.ends_with("\n\n") || text.ends_with("one") || text.ends_with("two"));
        }
    }

    #[test]
    fn a_limit_cuts_the_stream_at_a_character() {
        let folder = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| fs::write(folder.path().join(name), "x€").unwrap());
        let text = |bytes| stream(folder.path(), bytes).unwrap().concat();
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
            let error = stream(&path, u64::MAX).unwrap_err().to_string();
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
        assert_eq!(stream(folder.path(), u64::MAX).unwrap().concat(), "a\nb/a\nb/z\nc");
        assert_eq!(texts(folder.path()).unwrap().len(), 4);
    }

    #[test]
    fn nothing_to_read_is_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = texts(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("`data.path` = ") && error.contains("folder without files"), "{error}");
        let missing = folder.path().join("missing");
        let error = texts(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read `{}`: ", missing.display())), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_a_folder_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = texts(folder.path()).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{}: is a pipe, a socket or a device", path.display())),
            "{error}"
        );
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("a")).unwrap();
        let error = texts(folder.path()).unwrap_err().to_string();
        assert!(error.contains("/a: is a pipe, a socket or a device"), "{error}");
    }
}
