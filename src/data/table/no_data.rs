//! Checks for CSV lines that are not data, such as titles and repeated headers, and for values that CSV cannot keep
//! distinct. Such lines are refused with their number, or reported as a guess.

use std::collections::{HashMap, HashSet};

use csv::StringRecord;

use super::comments::unquoted_lines;
use super::header::{self, ValueKind, kind};
use super::{Table, TableRow, delimiter, enclosed};
use crate::data::config::Header;
use crate::data::excerpt::excerpt;
use crate::data::reading::{Gaps, TableReading};
use crate::error::{Error, Result};
use crate::files::BYTE_ORDER_MARK;
use crate::numbers::counted;

/// The minimum number of rows per repeated header in joined files.
const MIN_ROWS_PER_HEADER: usize = 20;

/// The names in the first line of a table, to which each row is compared.
pub(super) struct HeaderNames<'a> {
    pub(super) first: &'a TableRow,
    pub(super) names: &'a [&'a str],
    /// True if every row that contains one of the names repeats all of them.
    pub(super) recur_together: bool,
}

/// The form in which a row repeats the names of the first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepeatedHeader {
    /// The same names, except for the case of letters.
    Same,
    /// The names in another order, or among others.
    Changed,
    /// The names directly after the values of a line that lacks its line break.
    Appended,
}

impl RepeatedHeader {
    /// Returns the form in which a row repeats these names. Names that are not all words are never repeated.
    fn of(row: &StringRecord, names: &[&str]) -> Option<Self> {
        let is_one = names.len() == 1;
        let is_same = |value: &str, name: &str| value == name || !is_one && value.eq_ignore_ascii_case(name);
        let before = row.len().checked_sub(names.len())?;
        let are_words = || names.iter().all(|name| kind(name) == ValueKind::Word);
        let are_last =
            || row.iter().skip(before + 1).zip(&names[1..]).all(|(value, name)| is_same(value, name));
        let begins = row.get(before).zip(names.first());
        let repeat = match begins {
            Some((value, name)) if before == 0 && is_same(value, name) && are_last() => RepeatedHeader::Same,
            _ if is_one => return None,
            _ if names.iter().all(|name| row.iter().any(|value| is_same(value, name))) => {
                RepeatedHeader::Changed
            }
            Some((value, name)) if value.ends_with(name) && are_last() => RepeatedHeader::Appended,
            _ => return None,
        };
        are_words().then_some(repeat)
    }
}

/// Returns true if every row that contains one of the names repeats all of them.
pub(super) fn names_recur_together(names: &[&str], below: &[&TableRow]) -> bool {
    let lower: HashSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let has_one = |row: &TableRow| row.1.iter().any(|value| lower.contains(&value.to_ascii_lowercase()));
    names.iter().all(|name| kind(name) == ValueKind::Word)
        && below.iter().all(|row| !has_one(row) || RepeatedHeader::of(&row.1, names).is_some())
}

impl Table<'_> {
    /// Returns an error for lines near the beginning that are not data: a rule below the header, or a repeated header.
    pub(super) fn refuse_beginning(&self, first: &TableRow, below: &[&TableRow]) -> Result<()> {
        let is_dashes = |value: &str| !value.is_empty() && value.chars().all(|it| "-+=".contains(it));
        if let Some((rule, others)) = below.split_first()
            && !rule.1.is_empty()
            && rule.1.iter().all(is_dashes)
            && !first.1.iter().chain(others.iter().flat_map(|row| row.1.iter())).any(is_dashes)
        {
            return Err(
                self.problem(Some(rule.0), "is a separator of dashes below a header; remove this line")
            );
        }
        let names: Vec<&str> = first.1.iter().collect();
        let again = || below.iter().filter_map(|row| Some((row, RepeatedHeader::of(&row.1, &names)?)));
        let is_rare = (1..=below.len() / MIN_ROWS_PER_HEADER).contains(&again().count());
        // Rare words can occur together by chance.
        let is_sure = || {
            let is_same = again().all(|(_, repeat)| repeat == RepeatedHeader::Same);
            is_same || (0..names.len()).any(|column| header::is_expected_to_recur(below, column))
        };
        if self.config.header == Header::Given(false) || self.continues_headed_files(first) {
            return Ok(());
        }
        let others: Vec<&TableRow> =
            below.iter().copied().filter(|row| RepeatedHeader::of(&row.1, &names).is_none()).collect();
        if header::names_numbers(&first.1, &others)
            && let Some((row, repeat)) = again().next()
        {
            return Err(self.repeated(row, repeat, first));
        }
        let is_data = names.len() < 2;
        if !is_data && is_rare && names_recur_together(&names, below) && is_sure() {
            return again().next().map_or(Ok(()), |(row, repeat)| Err(self.repeated(row, repeat, first)));
        }
        Ok(())
    }

    /// Returns true if an earlier file has a header and this file does not, so that its first line is data.
    fn continues_headed_files(&self, first: &TableRow) -> bool {
        let has_all =
            |names: &Vec<String>| names.iter().all(|name| first.1.iter().any(|value| value == name));
        self.reading.header.as_ref().is_some_and(|names| !has_all(names))
    }

    /// Returns an error for a title: a single value above rows that all have the same number of values.
    pub(super) fn refuse_title(&self, first: &TableRow, below: &[&TableRow]) -> Result<()> {
        /// The minimum number of rows. Fewer rows may have the same number of values by chance.
        const MIN_ROWS: usize = 5;
        let mut widths = below.iter().map(|row| row.1.len()).filter(|&width| width > 0);
        let width = widths.next().unwrap_or(0);
        let title = first.1.get(0).filter(|_| first.1.len() == 1);
        let is_title = title.is_some_and(|title| kind(title) == ValueKind::Word);
        // Numbers below a column name may contain decimal commas.
        let is_of_words =
            below.first().is_some_and(|row| row.1.iter().all(|value| kind(value) == ValueKind::Word));
        if is_title
            && is_of_words
            && width > 1
            && below.len() >= MIN_ROWS
            && widths.all(|other| other == width)
        {
            let problem = format!(
                "has 1 value, but all lines below have {width}; remove it if it is a title or a comment, or \
                 set `data.delimiter` if it is the name of a single column"
            );
            return Err(self.problem(Some(first.0), problem));
        }
        Ok(())
    }

    /// Returns an error for a row that is not data: a footer that counts rows, or the header of a joined file. If the
    /// names only recur together, that header may differ from the first line.
    pub(super) fn refuse_row(&self, row: &TableRow, width: usize, names: &HeaderNames<'_>) -> Result<()> {
        let counts_rows = |value: &str| {
            let inner = value.strip_prefix('(').and_then(|value| value.strip_suffix(')'));
            inner
                .and_then(|inner| inner.split_once(' '))
                .is_some_and(|(number, unit)| number.parse::<u64>().is_ok() && unit.starts_with("row"))
        };
        if let (1, 2..) = (row.1.len(), width)
            && row.1.get(0).is_some_and(counts_rows)
        {
            return Err(self.problem(Some(row.0), "is a row count, not a row; remove this line"));
        }
        if row.1.get(0).is_some_and(|value| value.starts_with(BYTE_ORDER_MARK)) {
            let problem = "begins with a byte order mark, as in joined files; remove the mark, and the \
                           header after it if there is one";
            return Err(self.problem(Some(row.0), problem));
        }
        let &HeaderNames { first, names, recur_together } = names;
        if self.reading.header.is_none() || self.continues_headed_files(first) {
            return Ok(());
        }
        match recur_together.then(|| RepeatedHeader::of(&row.1, names)).flatten() {
            Some(repeat) => Err(self.repeated(row, repeat, first)),
            None if self.columns.order.is_none() && row.1 == first.1 => {
                Err(self.repeated(row, RepeatedHeader::Same, first))
            }
            None => Ok(()),
        }
    }

    /// Returns an error for a row with more values than the header has names, if columns are selected: the delimiter splits
    /// one of its values, so the selected ones are others.
    pub(super) fn refuse_surplus(&self, (line, row): &TableRow, column: Option<usize>) -> Result<()> {
        let names = self.columns.names.len();
        let selected = self.chosen.fields.as_ref().map(|fields| fields.last()).or(column);
        let Some(last) = selected.filter(|_| names > 0 && row.len() > names) else { return Ok(()) };
        // A list in brackets is split too, which does not shift the columns before it.
        if enclosed::list_begin(row).is_some_and(|begin| begin > last) {
            return Ok(());
        }
        let problem = format!(
            "has {}, but the header has {}; enclose a value that contains the delimiter in double quotes, or set \
             `data.delimiter`",
            counted(row.len(), "value"),
            counted(names, "name")
        );
        Err(self.problem(Some(*line), problem))
    }

    fn repeated(&self, row: &TableRow, repeat: RepeatedHeader, first: &TableRow) -> Error {
        let line = first.0.number;
        let problem = match repeat {
            RepeatedHeader::Same => {
                format!("repeats the names of line {line}, as in joined files; remove this line")
            }
            RepeatedHeader::Changed => format!(
                "has the names of line {line} in another order or among others, as in joined files; reorder \
                 the columns below as in line {line} and remove this line, or set `data.header` = false if \
                 both are data"
            ),
            RepeatedHeader::Appended => format!(
                "ends in the names of line {line}, as in files joined without a line break; insert a line \
                 break before `{}`, and remove the names, or set `data.header` = false if both are data",
                excerpt(first.1.get(0).unwrap_or_default())
            ),
        };
        self.problem(Some(row.0), problem)
    }

    /// Warns if the first value of a single column recurs, but far more rarely than any other value: it may be the
    /// header of joined files.
    pub(super) fn warn_of_joined_column(&mut self, first: &TableRow, below: &[&TableRow]) {
        let is_auto = self.config.header == Header::Auto && self.reading.header.is_none();
        let name = first.1.get(0).filter(|name| kind(name) == ValueKind::Word);
        let Some(name) = name.filter(|_| is_auto && first.1.len() == 1) else { return };
        let mut counts: HashMap<&str, usize> = HashMap::new();
        below.iter().flat_map(|row| row.1.iter()).for_each(|value| *counts.entry(value).or_default() += 1);
        let Some(again) = counts.remove(name) else { return };
        let rarest = counts.values().min().copied().unwrap_or(0);
        if again <= below.len() / MIN_ROWS_PER_HEADER && rarest >= MIN_ROWS_PER_HEADER * again / 2 {
            let line = below.iter().find(|row| row.1 == first.1).map_or(0, |row| row.0.number);
            self.reading.guesses.push(format!(
                "{} (`{}`) is read as data, but recurs in line {line}, more rarely than any other \
                 value; remove line {line} and set `data.header` = true if it is the header of files that \
                 were joined, or set `data.header` = false if it is data",
                self.shown(first.0),
                excerpt(name)
            ));
        }
    }

    /// Warns about rows without any value, which are skipped, and about rows without values in the last columns.
    pub(super) fn warn_of_empty(&mut self) {
        let selected = self
            .chosen
            .fields
            .as_ref()
            .map(|fields| self.selected_shown(fields.values.len().saturating_sub(1)));
        let TableReading { gaps: Gaps { empty, short, .. }, header, guesses, .. } = &mut self.reading;
        let where_empty = if selected.is_some() { " in the selected columns" } else { "" };
        let last = || Some(format!("`{}`", excerpt(header.as_ref()?.last()?)));
        if let (1.., Some(last)) = (*short, selected.or_else(last)) {
            guesses.push(format!(
                "{} values in the last columns, up to {}, and {} read as {}; write a symbol for missing \
                 values if the columns have different meanings",
                if *short == 1 { "1 row lacks".into() } else { format!("{} lack", counted(*short, "row")) },
                last,
                if *short == 1 { "is" } else { "are" },
                if *short == 1 { "a shorter sequence" } else { "shorter sequences" },
            ));
        }
        match *empty {
            0 => {}
            1 => guesses.push(format!("1 row is empty{where_empty} and is skipped")),
            _ => guesses.push(format!("{} are empty{where_empty} and are skipped", counted(*empty, "row"))),
        }
    }

    /// Warns about likely misreadings: blank lines, comments, and a truncated last line. `last` is the number of values
    /// of a last line without a line break; all other lines have `min` to `max` values.
    pub(super) fn warn_of_misreadings(&mut self, text: &str, last: Option<usize>, [min, max]: [usize; 2]) {
        let header = usize::from(self.reading.header.is_some());
        let guesses = &mut self.reading.guesses;
        let text = text.trim();
        // Skipped comments are blank lines here.
        let has_comments = self.seen.has_comments;
        let lines = || unquoted_lines(text);
        let has_gaps = !has_comments && lines().any(|(_, line)| line.trim().is_empty());
        if self.is_stream == Some(true) && has_gaps {
            guesses.push(
                "blank lines are skipped, and windows run across them; if they separate sequences, write \
                 each sequence on one line"
                    .into(),
            );
        }
        let filled = |line: &str| !line.trim().is_empty();
        let gap = lines().find(|(_, line)| !filled(line)).filter(|_| !has_comments).map(|(gap, _)| gap + 1);
        if let (Some(gap), Some(false)) = (gap, self.is_stream) {
            guesses.push(format!(
                "line {gap} is blank, and the lines below it are read as more rows; remove them if they are \
                 another table"
            ));
        }
        let is_comment = |line: &&str| line.starts_with('#');
        if let (count @ 1.., true) = (
            lines().map(|(_, line)| line).skip(header).filter(is_comment).count(),
            lines().any(|(_, line)| filled(line) && !is_comment(&line)),
        ) {
            guesses.push(format!(
                "{} with `#` and {} read as data; set `data.comment` = \"#\" to skip {} if {}",
                if count == 1 { "1 line begins".into() } else { format!("{} begin", counted(count, "line")) },
                if count == 1 { "is" } else { "are" },
                if count == 1 { "it" } else { "them" },
                if count == 1 { "it is a comment" } else { "they are comments" },
            ));
        }
        if let Some(last) = last
            && self.is_stream == Some(false)
            && last < min
            && min == max
            && !text.is_empty()
        {
            self.reading.gaps.is_cut = true;
            guesses.push(format!(
                "the last line has {} and no line break, but all others have {}, so the file may be \
                 truncated; complete or remove this line",
                counted(last, "value"),
                counted(max, "value")
            ));
        }
    }

    /// Warns about values in one column that differ only in surrounding spaces, which are trimmed.
    pub(super) fn warn_of_trimmed(&mut self, text: &str, delimiter: u8) {
        let mut forms: HashMap<(usize, String), String> = HashMap::new();
        for record in delimiter::untrimmed(text, delimiter, true).take(delimiter::SAMPLE_LINES).flatten() {
            for (column, value) in record.iter().enumerate() {
                let trimmed = value.trim();
                if kind(trimmed) != ValueKind::Word {
                    continue;
                }
                let form = forms.entry((column, trimmed.to_string())).or_insert_with(|| value.to_string());
                if form != value {
                    self.reading.guesses.push(format!(
                        "values that differ only in surrounding spaces are read as one, such as `{}` and \
                         `{}`; use a .jsonl file to keep them distinct",
                        excerpt(form),
                        excerpt(value)
                    ));
                    return;
                }
            }
        }
    }
}
