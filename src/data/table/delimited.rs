//! CSV, and its relatives with tabs, semicolons or spaces.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use super::row::{Layout, Row};
use crate::error::{Error, Result};

/// What may stand between values, in the order in which a first line is searched for it.
const DELIMITERS: [u8; 4] = *b",\t; ";

/// Reads lines of delimited values.
#[derive(Debug)]
pub(super) struct Delimited<'a> {
    path: &'a Path,
    reader: Reader<File>,
    record: ByteRecord,
    delimiter: u8,
}

impl<'a> Delimited<'a> {
    pub fn open(path: &'a Path) -> Result<Self> {
        let failed = |error| Error::io("read", path, error);
        let mut file = File::open(path).map_err(failed)?;
        let mut first = Vec::new();
        let mut start = BufReader::new(Read::by_ref(&mut file).take(1 << 16));
        while first.trim_ascii().is_empty() && start.read_until(b'\n', &mut first).map_err(failed)? > 0 {}
        let delimiter = delimiter(first.trim_ascii());
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .delimiter(delimiter)
            .from_reader(file);
        Ok(Delimited { path, reader, record: ByteRecord::new(), delimiter })
    }

    pub fn layout(&self) -> Layout<'static> {
        Layout::Delimited(self.delimiter.into())
    }

    /// Reads the next line into `row`; false at the end of the file.
    pub fn read(&mut self, row: &mut Row) -> Result<bool> {
        row.clear();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error) => {
                let problem = format!("cannot be read as a table: {error}");
                return Err(Error::file(self.path, None, None, problem));
            }
        }
        if let Some(position) = self.record.position() {
            (row.line, row.byte) = (position.line() as usize, position.byte());
        }
        for value in &self.record {
            match std::str::from_utf8(value) {
                // Several spaces are one.
                Ok("") if self.delimiter == b' ' => {}
                Ok(value) => row.push(value),
                Err(_) => return Err(self.not_utf8(row)),
            }
        }
        row.trim_end();
        Ok(true)
    }

    /// Looks for the byte in the file: values have lost quotes and spaces.
    fn not_utf8(&self, row: &Row) -> Error {
        let offset = File::open(self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(row.byte))?;
            let mut bytes = Vec::new();
            file.take(1 << 20).read_to_end(&mut bytes)?;
            Ok(std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), |_| 0) as u64)
        });
        not_utf8(self.path, row.line, row.byte + offset.unwrap_or(0))
    }
}

/// The first candidate that stands in a line, outside of quotes.
fn delimiter(line: &[u8]) -> u8 {
    let mut is_quoted = false;
    let unquoted: Vec<u8> = line
        .iter()
        .copied()
        .filter(|&byte| {
            is_quoted ^= byte == b'"';
            !is_quoted
        })
        .collect();
    DELIMITERS.into_iter().find(|delimiter| unquoted.contains(delimiter)).unwrap_or(b',')
}

pub(super) fn not_utf8(path: &Path, line: usize, byte: u64) -> Error {
    let problem = format!("is not UTF-8 at byte {byte}; save it as UTF-8, as by `iconv -t UTF-8`");
    Error::file(path, Some(line), None, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_one_outside_of_quotes() {
        for (line, expected) in [
            (&b"1,2 3"[..], b','),
            (b"1\t2 3", b'\t'),
            (b"\"a,b\";c", b';'),
            (b"1 2 3", b' '),
            (b"12", b','),
            (b"\"a \"\",\"\" b\"\tc", b'\t'),
        ] {
            assert_eq!(delimiter(line), expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
