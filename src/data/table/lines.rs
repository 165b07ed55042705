//! A file line by line, so that errors can say where something stands and no file is held in memory.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// The lines of a file, and the same as a stream of bytes that hands out one line at a time.
pub(super) struct Lines<'a> {
    path: &'a Path,
    reader: Box<dyn BufRead>,
    /// The present line, and how many of its bytes were handed out.
    text: String,
    given: usize,
    /// The number of the present line, from 1, and where the next one begins in the file.
    number: usize,
    offset: u64,
    /// The first line with something in it that was handed out since this was taken.
    pub first: Option<usize>,
}

impl<'a> Lines<'a> {
    pub fn new(path: &'a Path, reader: Box<dyn BufRead>) -> Self {
        Lines { path, reader, text: String::new(), given: 0, number: 0, offset: 0, first: None }
    }

    /// Goes on to the next line; false at the end of the file.
    pub fn advance(&mut self) -> Result<bool> {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.clear();
        let read = self.reader.read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| Error::io("read", self.path, error))? as u64;
        self.number += usize::from(read > 0);
        self.text = into_text(bytes, self.path, self.number, self.offset)?;
        (self.offset, self.given) = (self.offset + read, 0);
        Ok(read > 0)
    }

    /// Goes on to the next line that is not blank, and returns it with its number.
    pub fn next_filled(&mut self) -> Result<Option<(usize, &str)>> {
        while self.advance()? {
            if !self.text.trim().is_empty() {
                return Ok(Some((self.number, self.text.trim_end())));
            }
        }
        Ok(None)
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            if !self.advance().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
        if !self.text.trim().is_empty() {
            self.first.get_or_insert(self.number);
        }
        let read = (&self.text.as_bytes()[self.given..]).read(buffer)?;
        self.given += read;
        Ok(read)
    }
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.number)
    }
}

/// Bytes of a file as text, without the byte order mark that some editors put before UTF-8; they begin at the
/// `offset` of the file, in the `line` of that number.
pub(super) fn into_text(bytes: Vec<u8>, path: &Path, line: usize, offset: u64) -> Result<String> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = line + error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
        let byte = offset + valid as u64;
        let problem = format!("is not UTF-8 at byte {byte}; save it as UTF-8, as by `iconv -t UTF-8`");
        Error::file(path, Some(line), None, problem)
    })?;
    if offset == 0 && text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}
