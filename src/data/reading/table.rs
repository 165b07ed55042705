//! A summary of how a table was read, to check before training.

use std::collections::HashSet;
use std::fmt;

use serde::{Serialize, Serializer};

use csv::StringRecord;

/// The maximum number of rows in the summary.
const MAX_ROWS: usize = 3;

/// The format and the first rows of a table, and the guesses made when it was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TableReading {
    /// The format.
    pub format: TableFormat,
    /// The CSV delimiter, by its name in a config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<String>,
    /// The number of files.
    pub files: usize,
    /// The groups of rows, each of which is a sequence; serialized as their number.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number_of")]
    pub groups: Option<HashSet<String>>,
    /// The number of sequences that are left out because they are longer than `data.length`.
    pub left_out: usize,
    /// The number of lines that are skipped as comments.
    pub comments: usize,
    /// The names of the columns; `None` if the first line is data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Vec<String>>,
    /// The minimum and the maximum number of values per row.
    pub columns: [usize; 2],
    /// The first rows as parsed.
    pub rows: Vec<Vec<String>>,
    /// True if sequences have targets that do not count with `data.loss_on` = "target".
    #[serde(skip)]
    pub(in crate::data) has_sources: bool,
    /// The rows that lack values.
    #[serde(skip)]
    pub(in crate::data) gaps: Gaps,
    /// Guesses, each with the key that overrides it.
    #[serde(skip)]
    pub(crate) guesses: Vec<String>,
}

fn number_of<S: Serializer>(groups: &Option<HashSet<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    groups.as_ref().map(HashSet::len).serialize(serializer)
}

/// The format of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    /// Lines of delimited values.
    #[default]
    Csv,
    /// Lines that are texts.
    Lines,
    /// JSON arrays or objects.
    Json,
    /// Parquet.
    Parquet,
    /// Arrow.
    Arrow,
}

impl fmt::Display for TableFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Counts of rows that lack values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::data) struct Gaps {
    /// The number of rows without any value.
    pub empty: usize,
    /// The number of rows with fewer values than the table has column names.
    pub short: usize,
    /// True if the last line is shorter than all others and does not end in a line break.
    pub is_cut: bool,
}

impl TableReading {
    /// Counts the values of a row, and keeps the first rows. Counts an empty row separately.
    pub(in crate::data) fn add(&mut self, row: &StringRecord) {
        if row.is_empty() {
            self.gaps.empty += 1;
            return;
        }
        let [min, max] = &mut self.columns;
        *min = if *max == 0 { row.len() } else { row.len().min(*min) };
        *max = row.len().max(*max);
        if self.rows.len() < MAX_ROWS {
            self.rows.push(row.iter().map(str::to_string).collect());
        }
    }
}
