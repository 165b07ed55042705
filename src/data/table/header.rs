//! Detection of a header in the first line of a CSV table.
//!
//! 1. A word above numbers or dates is a name; a number or a date in the first line is data. If a column is selected,
//!    only this column is considered, otherwise all columns.
//! 2. Words above words: the line is data if one of its values recurs below or occurs twice in the line. Otherwise, if
//!    in some column less than [`MAX_UNIQUE`] of the values below occur only once, the line probably holds names, which
//!    is reported as a guess.
//! 3. In all other cases the line is read as data, and reported as uncertain.
//!
//! A line of data is also reported as a possible header if its words do not occur in their columns although the other
//! values of these columns recur.

mod unlike;

use std::collections::{HashMap, HashSet};

use csv::StringRecord;

use self::unlike::is_unlike;
use super::{Line, TableRow};

/// The fraction of unique values in a column below which a value of the first line is expected to recur.
const MAX_UNIQUE: f64 = 0.05;

/// The minimum number of rows below the first line for a guess.
const MIN_ROWS: usize = 20;

/// The minimum number of rows for comparing a line of numbers with the numbers below it.
const MIN_NUMERIC_ROWS: usize = 5;

/// The result of comparing the first line with the lines below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstLine {
    Names,
    ProbablyNames,
    Data,
    /// Numbers that may be column names: read as data, but uncertain.
    Numbers,
    /// Words that do not occur in their columns, although other values recur: read as data, but uncertain.
    NewWords,
    Unknown,
}

/// Compares the first line with those below it. `column` is the selected column, if there is one.
pub(super) fn judge(first: &StringRecord, below: &[&TableRow], column: Option<usize>) -> FirstLine {
    match by_rules(first, below, column) {
        FirstLine::Data | FirstLine::Numbers if has_new_words(first, below) => FirstLine::NewWords,
        judged => judged,
    }
}

/// Returns true if at least half of the first line's words are missing from their columns. Only columns in which few
/// values occur once are considered.
fn has_new_words(first: &StringRecord, below: &[&TableRow]) -> bool {
    let words = first.iter().enumerate().filter(|&(_, value)| kind(value) == ValueKind::Word);
    let recurring: Vec<(usize, &str)> =
        words.filter(|&(column, _)| is_expected_to_recur(below, column)).collect();
    let is_new = |&&(column, word): &&(usize, &str)| !values(below, column).any(|value| value == word);
    let new = recurring.iter().filter(is_new).count();
    new > 0 && 2 * new >= recurring.len()
}

fn by_rules(first: &StringRecord, below: &[&TableRow], column: Option<usize>) -> FirstLine {
    let all: Vec<usize> = (0..first.len()).collect();
    if below.is_empty() {
        return FirstLine::Data;
    }
    if let Some(judged) = by_counting(first, below, column) {
        return judged;
    }
    let by_selected = column.map_or(FirstLine::Unknown, |column| by_kind(first, below, &[column]));
    match by_selected {
        FirstLine::Unknown => {}
        FirstLine::Data if is_unlike(first, below) => return FirstLine::Numbers,
        // A number in the selected column may name it, if the other columns have names too.
        FirstLine::Data if column.is_some() => {
            return match judge(first, below, None) {
                FirstLine::Names | FirstLine::ProbablyNames | FirstLine::Numbers => FirstLine::Numbers,
                FirstLine::Data | FirstLine::NewWords | FirstLine::Unknown => FirstLine::Data,
            };
        }
        known => return known,
    }
    match (by_kind(first, below, &all), column) {
        (FirstLine::Unknown, Some(column)) => by_recurrence(first, below, &[column]),
        // Numbers recur by chance, such as the column names 1, 2 and 3 next to a word that names a column of numbers.
        (FirstLine::Unknown, None) => match by_recurrence(first, below, &all) {
            FirstLine::Data if names_numbers(first, below) => FirstLine::Unknown,
            judged => judged,
        },
        (FirstLine::Data, _) if is_unlike(first, below) => FirstLine::Numbers,
        (known, _) => known,
    }
}

/// Judges a first line that counts from 0 or 1, as pandas numbers unnamed columns. The name of an index column may
/// precede the numbers. The line is a header above an unnamed index, probably a header above words only, and possibly a
/// header above numbers that rarely count up.
fn by_counting(first: &StringRecord, below: &[&TableRow], column: Option<usize>) -> Option<FirstLine> {
    /// The minimum number of numbers. Fewer may count up by chance.
    const MIN_NUMBERS: usize = 3;
    let is_unnamed = first.get(0) == Some("");
    // `has_new_words` judges words in columns whose values recur.
    let is_new_word = |word: &str| {
        let recurs = || values(below, 0).any(|value| value == word);
        kind(word) == ValueKind::Word && !is_expected_to_recur(below, 0) && !recurs()
    };
    let skipped = usize::from(is_unnamed || first.get(0).is_some_and(is_new_word));
    let numbers: Vec<usize> =
        first.iter().skip(skipped).map(|value| value.parse().ok()).collect::<Option<_>>()?;
    let start = *numbers.first().filter(|&&start| start < 2)?;
    if numbers.len() < 2 || !numbers.iter().copied().eq(start..start + numbers.len()) {
        return None;
    }
    let are_words_below =
        || below.iter().flat_map(|row| row.1.iter()).all(|value| kind(value) == ValueKind::Word);
    let counts = |row: &StringRecord| {
        let numbers: Option<Vec<i64>> = row.iter().skip(skipped).map(|value| value.parse().ok()).collect();
        numbers.is_some_and(|numbers| numbers.windows(2).all(|pair| pair[1] - pair[0] == 1))
    };
    let is_unlike_rows = || {
        let wide = below.iter().filter(|row| row.1.len() == first.len()).count();
        let counting = below.iter().filter(|row| counts(&row.1)).count();
        let is_rare = (counting as f64) < MAX_UNIQUE * below.len() as f64;
        wide == below.len() && wide >= MIN_NUMERIC_ROWS && is_rare && !below.iter().any(|row| row.1 == *first)
    };
    match is_unnamed {
        true => (index_columns(first, below) > 0).then_some(FirstLine::Names),
        false if are_words_below() => Some(FirstLine::ProbablyNames),
        false if column.is_none() && numbers.len() >= MIN_NUMBERS && is_unlike_rows() => {
            Some(FirstLine::Numbers)
        }
        false => None,
    }
}

/// Returns true if a word of the first line is above numbers only.
pub(super) fn names_numbers(first: &StringRecord, below: &[&TableRow]) -> bool {
    (0..first.len()).any(|column| by_kind(first, below, &[column]) == FirstLine::Names)
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Missing,
    /// A number, a date or a time.
    Numeric,
    Word,
}

pub(super) fn kind(value: &str) -> ValueKind {
    let is_missing = ["", "na", "n/a", "nan", "null", "none", "?"].contains(&&*value.to_ascii_lowercase());
    let is_number = || value.parse().is_ok_and(f64::is_finite);
    let is_date = || {
        value.starts_with(|first: char| first.is_ascii_digit())
            && value.chars().all(|c| c.is_ascii_digit() || "-/:., TZ+".contains(c))
    };
    match value {
        _ if is_missing => ValueKind::Missing,
        _ if is_number() || is_date() => ValueKind::Numeric,
        _ => ValueKind::Word,
    }
}

/// Iterates over the values of a column.
fn values<'a>(below: &'a [&TableRow], column: usize) -> impl Iterator<Item = &'a str> {
    below.iter().filter_map(move |row| row.1.get(column))
}

fn by_kind(first: &StringRecord, below: &[&TableRow], columns: &[usize]) -> FirstLine {
    let (mut has_names, mut has_data, mut is_above_words) = (false, false, false);
    for &column in columns {
        let kinds: Vec<_> =
            values(below, column).map(kind).filter(|&kind| kind != ValueKind::Missing).collect();
        let are = |wanted: ValueKind| !kinds.is_empty() && kinds.iter().all(|&kind| kind == wanted);
        let is_numeric = are(ValueKind::Numeric);
        match first.get(column).map(kind) {
            Some(ValueKind::Word) => has_names |= is_numeric,
            Some(ValueKind::Numeric) if kinds.len() >= MIN_NUMERIC_ROWS && are(ValueKind::Word) => {
                is_above_words = true;
            }
            Some(ValueKind::Numeric) => has_data = true,
            Some(ValueKind::Missing) | None => {}
        }
    }
    match (has_names, has_data) {
        (false, false) if is_above_words => FirstLine::ProbablyNames,
        (true, false) => FirstLine::Names,
        (false, true) => FirstLine::Data,
        // For example a year that names a column, next to other names.
        (true, true) | (false, false) => FirstLine::Unknown,
    }
}

fn by_recurrence(first: &StringRecord, below: &[&TableRow], columns: &[usize]) -> FirstLine {
    let mut unique = HashSet::new();
    if recurs_below(first, below, columns) || filled(first, columns).any(|name| !unique.insert(name)) {
        return FirstLine::Data;
    }
    match columns.iter().any(|&column| is_expected_to_recur(below, column)) {
        true => FirstLine::ProbablyNames,
        false => FirstLine::Unknown,
    }
}

/// Iterates over the values of a line in these columns, without empty ones.
fn filled<'l>(line: &'l StringRecord, columns: &'l [usize]) -> impl Iterator<Item = &'l str> {
    columns.iter().filter_map(|&column| line.get(column)).filter(|value| !value.is_empty())
}

/// Returns true if a value of a line recurs in another line: in the same column if only one is considered, or else
/// anywhere.
fn recurs_below(line: &StringRecord, below: &[&TableRow], columns: &[usize]) -> bool {
    let recurs = |name: &str| {
        below.iter().any(|row| match columns {
            &[column] => row.1.get(column) == Some(name),
            _ => row.1.iter().any(|value| value == name),
        })
    };
    filled(line, columns).any(recurs)
}

/// Returns true if the line below a header may hold units or further names: its values recur in no other line, although
/// the other values of its columns recur or are numbers. Names may recur within the line.
pub(super) fn may_be_names(line: &StringRecord, below: &[&TableRow], column: Option<usize>) -> bool {
    let columns: Vec<usize> = column.map_or((0..line.len()).collect(), |column| vec![column]);
    let is_unlike_others = || match by_kind(line, below, &columns) {
        FirstLine::Names => below.len() >= MIN_NUMERIC_ROWS,
        FirstLine::ProbablyNames => true,
        FirstLine::Unknown => columns.iter().any(|&column| is_expected_to_recur(below, column)),
        FirstLine::Data | FirstLine::Numbers | FirstLine::NewWords => false,
    };
    !recurs_below(line, below, &columns) && is_unlike_others()
}

/// Returns true if hardly any value of a column occurs only once, so that the value in the first line should recur.
pub(super) fn is_expected_to_recur(below: &[&TableRow], column: usize) -> bool {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    values(below, column).for_each(|value| *counts.entry(value).or_default() += 1);
    let all: usize = counts.values().sum();
    let once = counts.values().filter(|&&count| count == 1).count();
    all >= MIN_ROWS && (once as f64) < MAX_UNIQUE * all as f64
}

/// Returns the number of first columns that have no names and are indices as written by pandas. The values of an index are
/// unique, or count up and restart. Rows may have been shuffled, dropped or joined.
pub(super) fn index_columns(names: &StringRecord, below: &[&TableRow]) -> usize {
    let is_unnamed = |name: &str| name.is_empty() || name.starts_with("Unnamed: ");
    let is_index = |&(column, name): &(usize, &str)| {
        is_unnamed(name) && (is_index(below, column) || counts_and_restarts(below, column))
    };
    names.iter().enumerate().take_while(is_index).count().min(names.len().saturating_sub(1))
}

/// Returns true if a column counts rows. The count may restart where another table was joined.
fn counts_and_restarts(below: &[&TableRow], column: usize) -> bool {
    let numbers = values(below, column).map(|value| value.parse().ok()).collect::<Option<Vec<i64>>>();
    numbers.filter(|numbers| numbers.len() >= MIN_NUMERIC_ROWS).is_some_and(|numbers| {
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1 || pair[1] == numbers[0])
            && numbers.windows(2).any(|pair| pair[1] == pair[0] + 1)
    })
}

/// Returns true if a column can be an index of the rows: unique names or integers.
pub(super) fn is_index(below: &[&TableRow], column: usize) -> bool {
    let mut seen = HashSet::new();
    let is_label = |value: &str| kind(value) == ValueKind::Word || value.parse::<i64>().is_ok();
    below.len() > 1
        && below
            .iter()
            .all(|row| row.1.get(column).is_some_and(|value| is_label(value) && seen.insert(value)))
}

/// A first column that does not belong to the sequences of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdColumn {
    /// It numbers or identifies the rows.
    OfRows,
    /// It identifies groups of rows.
    OfGroups,
}

/// Recognises a first column that numbers or identifies rows, or groups of rows: by its name, or by its values.
pub(super) fn ids(names: Option<&StringRecord>, below: &[&TableRow]) -> Option<IdColumn> {
    let all_have = |count: usize| below.iter().all(|row| row.1.len() >= count);
    if below.len() < MIN_NUMERIC_ROWS || !all_have(2) {
        return None;
    }
    let Some(names) = names else {
        let counts = |start: i64| values(below, 0).zip(start..).all(|(value, row)| value.parse() == Ok(row));
        let has_ids = below.len() >= MIN_ROWS && all_have(3) && (counts(0) || counts(1));
        return has_ids.then_some(IdColumn::OfRows).or_else(|| ids_by_values(below));
    };
    let name = names.get(0).unwrap_or_default().to_ascii_lowercase();
    let identifies = ["id", "idx", "index", "key", "no", "nr", "number", "row", "uid", "uuid"]
        .contains(&&*name)
        || ["_id", " id", "-id"].iter().any(|end| name.ends_with(end));
    let different = values(below, 0).collect::<HashSet<_>>().len();
    match different == below.len() {
        _ if !identifies => ids_by_values(below),
        true => all_have(3).then_some(IdColumn::OfRows),
        // Values that recur are groups if there are many of them.
        false => (different >= MIN_NUMERIC_ROWS).then_some(IdColumn::OfGroups),
    }
}

/// Recognises a first column by its values: words or dates that differ in each row, although the values of all other
/// columns recur; or values that name a block of rows each and occur in no other column.
fn ids_by_values(below: &[&TableRow]) -> Option<IdColumn> {
    let width = below.iter().map(|row| row.1.len()).min().filter(|&width| width > 2)?;
    if below.len() < MIN_ROWS || !(1..width).all(|column| is_expected_to_recur(below, column)) {
        return None;
    }
    let first: Vec<&str> = values(below, 0).collect();
    let different = first.iter().collect::<HashSet<_>>();
    if different.len() == below.len() {
        let are_numbers = first.iter().any(|value| value.parse::<f64>().is_ok());
        return (!are_numbers).then_some(IdColumn::OfRows);
    }
    let blocks = first.chunk_by(|value, next| value == next).count();
    let others: HashSet<&str> = below.iter().flat_map(|row| row.1.iter().skip(1)).collect();
    let is_apart = !different.iter().any(|value| others.contains(**value));
    (blocks == different.len() && blocks >= MIN_NUMERIC_ROWS && is_apart).then_some(IdColumn::OfGroups)
}

/// Returns the line and the first word of a row of words near the beginning, above numbers only: units, a comment or a second
/// header. Considers the given column, or all columns.
pub(super) fn words_above_numbers<'r>(
    below: &[&'r TableRow],
    column: Option<usize>,
) -> Option<(Line, &'r str)> {
    /// The maximum number of rows between a header and the data.
    const MAX_TITLES: usize = 3;
    let has_words = |row: &&&TableRow| match column {
        Some(column) => row.1.get(column).is_some_and(|value| kind(value) == ValueKind::Word),
        None => row.1.iter().any(|value| kind(value) == ValueKind::Word),
    };
    let title = below.iter().take(MAX_TITLES).rposition(|row| has_words(&row))?;
    let (found, data) = (below[title], &below[title + 1..]);
    let is_word = |value: &&str| kind(value) == ValueKind::Word;
    let word = match column {
        Some(column) => found.1.get(column),
        None => found.1.iter().find(is_word),
    };
    let are_numbers = data.len() >= MIN_NUMERIC_ROWS && !data.iter().any(|row| has_words(&row));
    word.filter(|_| are_numbers).map(|word| (found.0, word))
}

#[cfg(test)]
mod tests;
