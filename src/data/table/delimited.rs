//! CSV, and its relatives with tabs, semicolons, spaces or bars.

use std::path::Path;

use super::{Row, delimiter, trimmed};
use crate::error::{Error, Result};

/// The lines of delimited values.
pub(super) fn rows<'t>(
    path: &'t Path,
    text: &'t str,
    delimiter: u8,
) -> impl Iterator<Item = Result<Row>> + 't {
    delimiter::records(text, delimiter).map(move |record| {
        let failed = |error| Error::file(path, format!("cannot be read as a table: {error}"));
        let values = record.map_err(failed)?;
        let line = values.position().map_or(1, |position| {
            // A record starts with the blank lines before it.
            let rest = &text[position.byte() as usize..];
            let blank = &rest[..rest.len() - rest.trim_start_matches(['\r', '\n']).len()];
            position.line() as usize + blank.matches('\n').count()
        });
        Ok((line, trimmed(values)))
    })
}
