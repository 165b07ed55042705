//! CSV, and its relatives with tabs, semicolons or spaces.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{Row, trimmed};
use crate::error::{Error, Result};

/// What may stand between values, in the order in which a first line is searched for it.
const DELIMITERS: [u8; 4] = *b",\t; ";

/// The lines of delimited values.
pub(super) fn rows<'t>(path: &'t Path, text: &'t str) -> impl Iterator<Item = Result<Row>> + 't {
    let delimiter = delimiter(text.trim_start().lines().next().unwrap_or_default().trim_end());
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).trim(Trim::All).delimiter(delimiter);
    let records = builder.from_reader(text.as_bytes()).into_records();
    records.map(move |record| {
        let failed = |error| Error::file(path, format!("cannot be read as a table: {error}"));
        let mut values = record.map_err(failed)?;
        let line = values.position().map_or(1, |position| {
            // A record starts with the blank lines before it.
            let rest = &text[position.byte() as usize..];
            let blank = &rest[..rest.len() - rest.trim_start_matches(['\r', '\n']).len()];
            position.line() as usize + blank.matches('\n').count()
        });
        if delimiter == b' ' {
            // Several spaces are one.
            values = values.iter().filter(|value| !value.is_empty()).collect::<StringRecord>();
        }
        Ok((line, trimmed(values)))
    })
}

/// The first candidate that stands in a line, outside of quotes.
fn delimiter(line: &str) -> u8 {
    let unquoted: Vec<&str> = line.split('"').step_by(2).collect();
    let stands = |delimiter: &u8| unquoted.iter().any(|part| part.as_bytes().contains(delimiter));
    DELIMITERS.into_iter().find(stands).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_one_outside_of_quotes() {
        for (line, expected) in [
            ("1,2 3", b','),
            ("1\t2 3", b'\t'),
            ("\"a,b\";c", b';'),
            ("1 2 3", b' '),
            ("12", b','),
            ("\"a \"\",\"\" b\"\tc", b'\t'),
        ] {
            assert_eq!(delimiter(line), expected, "{line}");
        }
    }
}
