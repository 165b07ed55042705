//! Input files given by the user: regular files, and streams up to a limit.
//!
//! A device such as `/dev/zero` never ends, and a pipe may not end either. Devices are rejected, and streams are read
//! up to a limit that fits in memory. Configs, texts, tables, prompts and weights are opened here. A text may be
//! compressed: its pieces are pieces of the decompressed content.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::compression::{Compression, SIGNATURE_BYTES, is_damage};
use super::own::read_own;
use super::unreadable::{self, quoted};
use crate::error::{Error, Result};

/// The maximum size of a stream, and of the content of a compressed or columnar file that is held in memory: 1 GiB.
pub(super) const MAX_STREAM_BYTES: u64 = 1 << 30;

/// The maximum size of a piece of a text: large enough that the cuts hardly affect a tokenizer, small enough to keep
/// all cores busy.
const MAX_PIECE_BYTES: usize = 1 << 16;

/// The number of bytes at the start of a file from which its format is guessed.
const HEAD_BYTES: usize = 4096;

/// The byte order mark.
pub const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A file, or the content of a stream.
#[derive(Debug)]
pub enum Input {
    /// A regular file, positioned at its beginning.
    File(File),
    /// The complete output of a pipe, such as `<(command)` or `/dev/stdin`.
    Stream(Vec<u8>),
}

/// Opens a regular file, or reads a stream.
///
/// # Errors
/// Returns an error with the path if the file is missing, cannot be read, or is neither a file nor a stream.
pub fn open(path: impl AsRef<Path>) -> Result<Input> {
    let path = path.as_ref();
    let failed = |error| Error::io("read", path, error);
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !is_stream(&kind) {
        let problem = match kind.is_dir() {
            true => "is a folder; pass the path of a file",
            false => "is a device or a socket, which may never end; pass the path of a file",
        };
        return Err(Error::file(path, problem));
    }
    let file = File::open(path).map_err(failed)?;
    match kind.is_file() {
        true => Ok(Input::File(file)),
        false => read_stream(file, path).map(Input::Stream),
    }
}

/// Reads a stream to its end; errors refer to it as `path`.
fn read_stream(stream: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream
        .take(MAX_STREAM_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > MAX_STREAM_BYTES {
        let problem = "exceeds 1 GiB, the limit for streams; write it to a file and pass the file";
        return Err(Error::file(path, problem));
    }
    Ok(bytes)
}

/// A text that can be read repeatedly, and is held in memory only if it comes from a stream.
#[derive(Debug)]
pub struct Text {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of a stream, which can be read only once.
    pub stream: Option<Vec<u8>>,
}

impl Text {
    /// Opens a regular file, or reads a stream.
    ///
    /// # Errors
    /// Returns the same errors as [`open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let stream = match open(&path)? {
            Input::File(_) => None,
            Input::Stream(bytes) => Some(bytes),
        };
        Ok(Text { path, stream })
    }

    /// Reads a small file in one of this program's own folders into memory.
    ///
    /// # Errors
    /// Returns the same errors as [`read_own`].
    pub fn open_own(path: &Path) -> Result<Self> {
        Ok(Text { path: path.to_path_buf(), stream: Some(read_own(path)?) })
    }

    /// Reads a stream; errors refer to it as `path`.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be read, or exceeds the limit.
    pub fn of_stream(stream: impl Read, path: &Path) -> Result<Self> {
        Ok(Text { path: path.to_path_buf(), stream: Some(read_stream(stream, path)?) })
    }

    /// Returns the complete text.
    ///
    /// # Errors
    /// Returns an error with the line and the byte if the text cannot be read, or is not UTF-8. Also returns an error
    /// for a compressed file whose content exceeds the limit for streams.
    pub fn read_to_string(&self) -> Result<String> {
        let (mut pieces, mut text) = (self.pieces()?, String::new());
        while let Some(piece) = pieces.next().transpose()? {
            text += &piece;
            if let Some(compression) = pieces.compression
                && text.len() as u64 > MAX_STREAM_BYTES
            {
                let (command, file) = (compression.command(), quoted(&self.path));
                let problem = format!(
                    "holds more than 1 GiB, the limit for compressed files that are read into memory; unpack it \
                     with `{command} {file} > NEW`, and pass the new file"
                );
                return Err(Error::file(&self.path, problem));
            }
        }
        Ok(text)
    }

    /// Mixes the bytes of the file or the stream, which may be compressed, into a hash.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn hash(&self, hash: &mut Sha256) -> Result<()> {
        match &self.stream {
            Some(bytes) => hash.update(bytes),
            None => {
                let copied = File::open(&self.path).and_then(|mut file| std::io::copy(&mut file, hash));
                copied.map_err(|error| Error::io("read", &self.path, error))?;
            }
        }
        Ok(())
    }

    /// Returns the pieces of the text from its beginning, without a byte order mark.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened again.
    pub fn pieces(&self) -> Result<Pieces<'_>> {
        let failed = |error| Error::io("read", &self.path, error);
        let (compression, input): (_, Box<dyn Read + Send + '_>) = match &self.stream {
            Some(bytes) => match Compression::of(bytes) {
                Some(compression) => (Some(compression), compression.reader(bytes.as_slice())),
                None => (None, Box::new(bytes.as_slice())),
            },
            None => {
                let mut file = File::open(&self.path).map_err(failed)?;
                let mut head = Vec::new();
                file.by_ref().take(SIGNATURE_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
                file.rewind().map_err(failed)?;
                match Compression::of(&head) {
                    Some(compression) => {
                        let file = BufReader::with_capacity(MAX_PIECE_BYTES, file);
                        (Some(compression), compression.reader(file))
                    }
                    None => (None, Box::new(file)),
                }
            }
        };
        let (head, buffer) = (Vec::new(), Vec::new());
        Ok(Pieces { path: &self.path, compression, input, head, buffer, line: 1, byte: 0 })
    }
}

/// An iterator over the pieces of a text, which are cut before white space if possible. If the text is not UTF-8 or
/// contains a NUL byte, it returns an error with the line, the byte and the likely format.
pub struct Pieces<'a> {
    path: &'a Path,
    compression: Option<Compression>,
    input: Box<dyn Read + Send + 'a>,
    /// The first bytes of the file.
    head: Vec<u8>,
    /// Bytes that are read but not yet returned, and the position of their start.
    buffer: Vec<u8>,
    line: usize,
    byte: usize,
}

impl Pieces<'_> {
    /// Creates the error for a failed read.
    fn failed(&self, error: std::io::Error) -> Error {
        match self.compression {
            Some(compression) if is_damage(&error) => {
                let name = compression.name();
                let problem = format!(
                    "is compressed with {name}, but is incomplete or damaged ({error}); copy or download it \
                     again"
                );
                Error::file(self.path, problem)
            }
            _ => Error::io("read", self.path, error),
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        // A piece, a byte order mark, and the rest of a character cut by the end of a piece.
        let missing = MAX_PIECE_BYTES + 8 - self.buffer.len();
        if let Err(error) = self.input.by_ref().take(missing as u64).read_to_end(&mut self.buffer) {
            return Some(Err(self.failed(error)));
        }
        if self.head.is_empty() {
            self.head.extend_from_slice(&self.buffer[..self.buffer.len().min(HEAD_BYTES)]);
        }
        if self.byte == 0 && self.buffer.starts_with(BYTE_ORDER_MARK.as_bytes()) {
            self.byte += self.buffer.drain(..BYTE_ORDER_MARK.len()).len();
        }
        let text = self.buffer.utf8_chunks().next()?.valid();
        let lines = |text: &str| text.matches('\n').count();
        let readable = text.find('\0').unwrap_or(text.len());
        if readable < self.buffer.len().min(MAX_PIECE_BYTES) {
            let problem = unreadable::problem(
                self.path,
                self.compression,
                self.byte + readable,
                &self.head,
                &self.buffer,
            );
            return Some(Err(Error::in_file(
                self.path,
                Some(self.line + lines(&text[..readable])),
                None,
                problem,
            )));
        }
        let piece = text[..end_of_piece(text)].to_string();
        self.line += lines(&piece);
        self.byte += self.buffer.drain(..piece.len()).len();
        Some(Ok(piece))
    }
}

/// Returns the end of the first piece of a text.
fn end_of_piece(text: &str) -> usize {
    let is_gap = |pair: &[u8]| !pair[0].is_ascii_whitespace() && pair[1].is_ascii_whitespace();
    match text.as_bytes().get(..MAX_PIECE_BYTES) {
        None => text.len(),
        Some(bytes) => match bytes.windows(2).rposition(is_gap) {
            Some(before) => before + 1,
            None => text.floor_char_boundary(MAX_PIECE_BYTES),
        },
    }
}

/// Returns true if `path` is a pipe, whose contents can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| is_stream(&metadata.file_type()))
}

#[cfg(unix)]
fn is_stream(kind: &fs::FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(kind)
}

#[cfg(not(unix))]
fn is_stream(_: &fs::FileType) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn devices_are_rejected_without_reading() {
        let error = Text::open("/dev/zero").unwrap_err();
        let expected = "/dev/zero: is a device or a socket, which may never end; pass the path of a file";
        assert_eq!((error.to_string().as_str(), error.exit_code()), (expected, 2));
        let error = read_own("/dev/zero".as_ref()).unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero: is a pipe, a device or a socket"), "{error}");
    }

    /// Returns the pieces of a text that comes from a stream.
    fn pieces(text: &str) -> Vec<String> {
        let text = Text { path: PathBuf::new(), stream: Some(text.into()) };
        text.pieces().unwrap().collect::<Result<_>>().unwrap()
    }

    #[test]
    fn pieces_concatenate_to_the_original_text() {
        // First text without white space, in which the maximum size of a piece can cut a character; then text with
        // sparse white space. Each is also read with a byte order mark.
        for text in ["äß€".repeat(50_000), format!("{} \n", "word".repeat(1000)).repeat(100)] {
            assert!(pieces(&text).len() > 3);
            assert_eq!(pieces(&text).concat(), text);
            assert_eq!(pieces(&format!("\u{feff}{text}")), pieces(&text));
        }
        assert_eq!((pieces("\u{feff}"), pieces("")), (vec![], vec![]));
    }

    #[test]
    fn a_piece_ends_before_white_space() {
        for piece in pieces(&"one  two\n\n".repeat(20_000)) {
            assert!(piece.ends_with("\n\n") || piece.ends_with("one") || piece.ends_with("two"));
        }
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"to be").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(Text::open(path).unwrap().read_to_string().unwrap(), "to be");
    }
}
