//! How a table was read, for a person to check before training.

use serde::Serialize;

use csv::StringRecord;

/// Rows that are shown.
const SHOWN: usize = 3;

/// How a table was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TableReading {
    /// `csv` or `json`.
    pub format: &'static str,
    /// The delimiter of CSV, by its name in a config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<String>,
    /// The names of the columns; none where the first line is data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Vec<String>>,
    /// The fewest and the most values of a row.
    pub columns: [usize; 2],
    /// The first rows as parsed.
    pub rows: Vec<Vec<String>>,
    /// Rows without a value.
    #[serde(skip)]
    pub(super) empty: usize,
    /// Rows in which the last of the named columns have no value.
    #[serde(skip)]
    pub(super) short: usize,
    /// Whether the last line is shorter than all others and has no line break.
    #[serde(skip)]
    pub(super) is_cut: bool,
    /// What was guessed, with the key that decides it.
    #[serde(skip)]
    pub(crate) guesses: Vec<String>,
}

impl TableReading {
    /// Counts the values of a row that is not blank, and keeps the first rows.
    pub(super) fn add(&mut self, row: &StringRecord) {
        if row.is_empty() {
            self.empty += 1;
            return;
        }
        let [least, most] = &mut self.columns;
        *least = if *most == 0 { row.len() } else { row.len().min(*least) };
        *most = row.len().max(*most);
        if self.rows.len() < SHOWN {
            self.rows.push(row.iter().map(str::to_string).collect());
        }
    }
}
