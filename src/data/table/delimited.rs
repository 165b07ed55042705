//! CSV, and its relatives with tabs, semicolons or spaces.

use csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::Row;
use super::lines::Lines;
use crate::error::{Error, Result};

/// What may stand between values, in the order in which a first line is searched for it.
const DELIMITERS: [u8; 4] = *b",\t; ";

/// Reads lines of delimited values.
#[derive(Debug)]
pub(super) struct Delimited<'a> {
    reader: Reader<Lines<'a>>,
    delimiter: u8,
}

impl<'a> Delimited<'a> {
    pub fn new(mut lines: Lines<'a>) -> Result<Self> {
        let delimiter = lines.next_filled()?.map_or(b',', |(_, line)| delimiter(line.trim().as_bytes()));
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).trim(Trim::All).delimiter(delimiter);
        Ok(Delimited { reader: builder.from_reader(lines), delimiter })
    }

    /// The next line; none at the end of the file.
    pub fn next(&mut self) -> Result<Option<Row>> {
        let mut values = StringRecord::new();
        self.reader.get_mut().first = None;
        match self.reader.read_record(&mut values) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return Err(self.problem(error)),
        }
        let line = self.reader.get_mut().first.unwrap_or(1);
        if self.delimiter == b' ' {
            // Several spaces are one.
            values = values.iter().filter(|value| !value.is_empty()).collect();
        }
        Ok(Some(Row::sequence(line, values)))
    }

    fn problem(&self, error: csv::Error) -> Error {
        let problem = format!("cannot be read as a table: {error}");
        match error.into_kind() {
            csv::ErrorKind::Io(error) => match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => Error::Failed(format!("{problem}: {error}")),
            },
            _ => Error::Input(problem),
        }
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
