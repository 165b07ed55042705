//! What a user names to be read: a regular file, or a stream up to a limit.
//!
//! A device such as `/dev/zero` never ends, and neither may a pipe: what is no file is refused, and of a
//! stream no more is read than memory has room for. Everything that a user names is opened here.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};

/// The most bytes that are read of a stream: 1 GiB, which is held in memory.
const LARGEST_STREAM: u64 = 1 << 30;

/// A file, or what a stream held.
#[derive(Debug)]
pub enum Input {
    /// A regular file, at its beginning.
    File(File),
    /// All that came out of a pipe, as `<(command)` or `/dev/stdin` are.
    Stream(Vec<u8>),
}

/// Opens a regular file, or reads a stream.
///
/// # Errors
/// When there is none, it cannot be read, or is something else: names the path.
pub fn open(path: impl AsRef<Path>) -> Result<Input> {
    let path = path.as_ref();
    let failed = |error| Error::io("read", path, error);
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_file() {
        return File::open(path).map(Input::File).map_err(failed);
    }
    if !is_stream(&kind) {
        let problem = match kind.is_dir() {
            true => "is a folder; give the path of a file",
            false => "is a device or a socket, which may never end; give the path of a file",
        };
        return Err(Error::file(path, None, None, problem));
    }
    let stream = File::open(path).map_err(failed)?;
    read_stream(stream, path).map(Input::Stream)
}

/// Reads a stream to its end, which errors call `path`.
///
/// # Errors
/// When it cannot be read, or is longer than memory has room for.
pub fn read_stream(stream: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream
        .take(LARGEST_STREAM + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > LARGEST_STREAM {
        let problem =
            "is a stream of more than 1 GiB, and is held in memory; write it into a file and name that";
        return Err(Error::file(path, None, None, problem));
    }
    Ok(bytes)
}

/// Reads the whole of a regular file or a stream.
///
/// # Errors
/// As [`open`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    match open(path)? {
        Input::Stream(bytes) => Ok(bytes),
        Input::File(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
            Ok(bytes)
        }
    }
}

/// Reads the whole of a regular file or a stream as text, without the byte order mark that some editors put
/// before it.
///
/// # Errors
/// As [`open`], and when it is not UTF-8: names the line and the byte.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let mut text = String::from_utf8(read(path)?).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte].iter().filter(|&&byte| byte == b'\n').count() + 1;
        let problem = format!("is not UTF-8 at byte {byte}; save it as UTF-8, as by `iconv -t UTF-8`");
        Error::file(path, Some(line), None, problem)
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
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
    fn what_never_ends_is_refused_before_it_is_read() {
        let error = read("/dev/zero").unwrap_err();
        let expected = "/dev/zero: is a device or a socket, which may never end; give the path of a file";
        assert_eq!((error.to_string().as_str(), error.exit_code()), (expected, 2));
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"to be").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read(path).unwrap(), b"to be");
    }
}
