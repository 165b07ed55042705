//! Summaries below a table: lines with totals, averages or the like, as spreadsheets and databases write them.

use csv::StringRecord;

use super::{Line, Table};
use crate::data::excerpt::{and_more, excerpt};
use crate::numbers::counted;

/// The words that label a summary.
const LABELS: [&str; 22] = [
    "all",
    "average",
    "averages",
    "avg",
    "count",
    "grand total",
    "gesamt",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "overall",
    "std",
    "stdev",
    "subtotal",
    "sum",
    "summe",
    "total",
    "totals",
    "variance",
];

/// The maximum number of lines of a summary.
const MAX_LINES: usize = 8;

/// The minimum number of lines above a summary.
const MIN_ROWS: usize = 10;

/// The lines that may be a summary of the lines above them, found while a table is read.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    rows: usize,
    /// The lines at the end with a label, and the first label.
    labelled: usize,
    first: Option<(Line, String)>,
    /// True if a label also occurs above the end.
    is_word_of_data: bool,
    /// For each column, true if it has a value in each row but the last.
    filled: Vec<bool>,
    /// The last row if it lacks values of filled columns, with these columns.
    gap: Option<(Line, Vec<usize>)>,
}

impl Summaries {
    /// Reads a row.
    pub(super) fn add(&mut self, line: Line, values: &StringRecord) {
        match values.iter().find(|value| is_label(value)) {
            Some(label) => {
                self.labelled += 1;
                self.first.get_or_insert_with(|| (line, label.to_string()));
            }
            None if self.labelled > 0 => self.is_word_of_data = true,
            None => {}
        }
        if let Some((_, columns)) = self.gap.take() {
            columns.into_iter().for_each(|column| self.filled[column] = false);
        }
        let is_filled = |column: usize| values.get(column).is_some_and(|value| !value.trim().is_empty());
        if self.rows == 0 {
            self.filled = (0..values.len()).map(is_filled).collect();
        }
        let is_missing = |&column: &usize| self.filled[column] && !is_filled(column);
        let missing = Vec::from_iter((0..self.filled.len()).filter(is_missing));
        self.gap = (!missing.is_empty()).then_some((line, missing));
        self.rows += 1;
    }
}

/// Returns true for a label such as `Total:`.
fn is_label(value: &str) -> bool {
    let word = value.trim().trim_end_matches(':');
    LABELS.iter().any(|label| word.eq_ignore_ascii_case(label))
}

impl Table<'_> {
    /// Warns of lines at the end that seem to summarise the lines above. `is_part` is true if only some columns are
    /// read, so that gaps in the others are not reported elsewhere.
    pub(super) fn warn_of_summaries(&mut self, found: Summaries, is_part: bool) {
        if self.config.reads_texts() {
            return;
        }
        let above = found.rows - found.labelled;
        let is_labelled = !found.is_word_of_data && found.labelled <= MAX_LINES && above >= MIN_ROWS;
        let warning = match (found.first, found.gap) {
            (Some((line, label)), _) if is_labelled => format!(
                "{} (`{}`){} at the end may summarise the lines above, but {} read as data; remove {} unless {} data",
                self.shown(line),
                excerpt(&label),
                and_more(found.labelled - 1, "line"),
                if found.labelled == 1 { "is" } else { "are" },
                if found.labelled == 1 { "it" } else { "them" },
                if found.labelled == 1 { "it is" } else { "they are" },
            ),
            (_, Some((line, columns))) if is_part && found.rows > MIN_ROWS => format!(
                "{}, the last one, has no value in {}, unlike the {} above; remove it if it summarises them",
                self.shown(line),
                self.column_shown(columns[0]),
                counted(found.rows - 1, "line")
            ),
            _ => return,
        };
        self.reading.guesses.push(warning);
    }
}
