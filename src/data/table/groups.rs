//! Rows that together form a sequence, such as the events of a case, in the order of a column.

use std::cmp::Ordering;
use std::collections::HashMap;

use jiff::civil::DateTime;
use jiff::{Timestamp, fmt::strtime};

use super::digits::{check_digits, exact_decimals};
use super::fields::{FieldForm, Fields};
use super::lists::are_lists;
use super::texts::TextSample;
use super::{Line, Table, TableRow};
use crate::data::config::Values;
use crate::data::excerpt::excerpt;
use crate::data::vocabulary::NumberFormat;
use crate::error::{Error, Result};

/// The formats of dates that are tried, in addition to ISO 8601, and of the times that may follow.
const DATES: [&str; 10] = [
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%b %d, %Y",
];
const TIMES: [&str; 6] = ["", " %H:%M:%S%.f", " %H:%M", " %I:%M:%S %p", " %I:%M %p", "T%H:%M:%S%.f"];

/// The rows of each group, by the first occurrence of the group.
#[derive(Debug, Default)]
pub(super) struct Groups {
    indices: HashMap<String, usize>,
    groups: Vec<Vec<GroupEntry>>,
}

/// A row of a group.
#[derive(Debug)]
struct GroupEntry {
    /// The value of the column that orders the rows.
    order: Option<String>,
    row: TableRow,
}

impl Groups {
    pub fn add(&mut self, key: String, order: Option<String>, row: TableRow) {
        let next = self.groups.len();
        let index = *self.indices.entry(key).or_insert(next);
        if index == next {
            self.groups.push(Vec::new());
        }
        self.groups[index].push(GroupEntry { order, row });
    }
}

impl Table<'_> {
    /// Adds the sequence of each group.
    pub(super) fn push_groups(&mut self) -> Result<()> {
        let Some(fields) = self.chosen.fields.clone() else { return Ok(()) };
        let Groups { indices, groups } = std::mem::take(&mut self.chosen.groups);
        if let (Some(column), Some([one, other])) = (fields.group, spelled_twice(indices.keys())) {
            let column = self.column_shown(column);
            self.reading.guesses.push(format!(
                "{column} has `{}` and `{}`, which are one number but two groups; write them alike if they are one",
                excerpt(one),
                excerpt(other)
            ));
        }
        self.reading.groups = fields.group.map(|_| indices.into_keys().collect());
        let groups = match fields.order {
            Some(_) => self.ordered(groups, &fields)?,
            None => groups,
        };
        for group in groups {
            let line = group.first().map_or(self.line(1), |entry| entry.row.0);
            if fields.form == FieldForm::Texts {
                let texts = group.iter().map(|entry| TextSample::of_text(entry.row.0, &entry.row.1[0]));
                self.chosen.texts.extend(texts);
            } else if fields.form == FieldForm::Stream {
                self.refuse_ordered_lists(&group, &fields)?;
                group.iter().try_for_each(|entry| self.push(&entry.row, Some(0)))?;
            } else {
                let start = self.ids.len();
                // Each row is added by itself, so that an error names its line.
                for GroupEntry { row, .. } in &group {
                    self.push(row, None)?;
                }
                self.join_rows(line, start);
            }
        }
        Ok(())
    }

    /// Returns an error if each ordered cell holds a sequence of integers.
    fn refuse_ordered_lists(&self, group: &[GroupEntry], fields: &Fields) -> Result<()> {
        let cells = || group.iter().filter_map(|entry| entry.row.1.get(0));
        let is_possible = self.config.values != Values::Symbols && self.config.bins == 0;
        if !is_possible || !are_lists(cells) {
            return Ok(());
        }
        let column = self.column_shown(fields.values[0]);
        let problem = format!(
            "orders single values, but each cell of {column}, such as `{}`, is a sequence of integers; sort the rows of the \
             file and omit it, or set `data.values` = \"symbols\" to make each cell a token",
            excerpt(cells().next().unwrap_or_default())
        );
        Err(Error::key("data.order_by", self.column_shown(fields.order.unwrap_or_default()), problem))
    }

    /// Joins the rows from the id `start` on into one.
    fn join_rows(&mut self, line: Line, start: usize) {
        let first = self.rows.partition_point(|(_, ids)| ids.start < start);
        self.rows.truncate(first);
        self.rows.push((line, start..self.ids.len()));
    }

    /// Orders the rows of each group; rows with equal values keep their order.
    fn ordered(&mut self, groups: Vec<Vec<GroupEntry>>, fields: &Fields) -> Result<Vec<Vec<GroupEntry>>> {
        let entries: Vec<&GroupEntry> = groups.iter().flatten().collect();
        let values: Vec<&str> = entries.iter().filter_map(|entry| entry.order.as_deref()).collect();
        let place =
            |index: usize| format!("`{}` in {}", excerpt(values[index]), self.shown(entries[index].row.0));
        let column = self.column_shown(fields.order.unwrap_or_default());
        let points = NumberFormat::of_thousands(values.iter().copied());
        let moments =
            moments(&values, place).map_err(|problem| Error::key("data.order_by", &column, problem))?;
        self.reading.guesses.extend(points.map(|value| points_of_thousands(&column, value)));
        self.reading.guesses.extend(version(&values).map(|value| {
            format!(
                "{column} may have version numbers, but `{}` is read as the number {}; write them with two digits after the \
                 point, or as integers, if they are",
                excerpt(value),
                value.trim_end_matches('0')
            )
        }));
        let mut ranks = moments.ranks().into_iter();
        let sorted = groups.into_iter().map(|group| {
            let mut keyed: Vec<(usize, GroupEntry)> =
                group.into_iter().map(|entry| (ranks.next().unwrap_or_default(), entry)).collect();
            keyed.sort_by_key(|(rank, _)| *rank);
            keyed.into_iter().map(|(_, entry)| entry).collect()
        });
        Ok(sorted.collect())
    }
}

/// Returns two keys that are the same number, such as 100 and 100.0, which programs write if a column has gaps.
fn spelled_twice<'k>(keys: impl Iterator<Item = &'k String>) -> Option<[&'k str; 2]> {
    let mut numbers: Vec<(f64, &str)> =
        keys.filter_map(|key| Some((key.parse().ok()?, key.as_str()))).collect();
    numbers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let equal = numbers.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].0.is_finite());
    equal.map(|pair| [pair[0].1, pair[1].1])
}

/// Returns a value such as 1.10 among values such as 1.9: numbers of a program would have equally many digits after the
/// point, or none that are zero at the end.
fn version<'v>(values: &[&'v str]) -> Option<&'v str> {
    let after_point = |value: &str, is_read: fn(&str) -> bool| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let parts = value.split_once('.').filter(|(whole, part)| is_number(whole) && is_number(part));
        parts.is_some_and(|(_, part)| is_read(part))
    };
    let is_short = values.iter().any(|value| after_point(value, |part| part.len() == 1));
    let is_long = |value: &&&str| after_point(value, |part| part.len() == 2 && part.ends_with('0'));
    values.iter().find(is_long).copied().filter(|_| is_short)
}

/// Returns the warning about points that may be between thousands; `what` has such numbers.
pub(super) fn points_of_thousands(what: &str, value: &str) -> String {
    format!(
        "{what} may have points between thousands, but `{}` is read as a number with decimals; if it is not, remove the \
         points from the file",
        excerpt(value)
    )
}

/// The values of the column that orders the rows.
#[derive(Debug)]
enum Moments {
    /// Decimal numbers in units of the last digit, or the nanoseconds of timestamps.
    Exact(Vec<i128>),
    Numbers(Vec<f64>),
}

impl Moments {
    /// Returns the rank of each value; equal values have the same rank.
    fn ranks(&self) -> Vec<usize> {
        match self {
            Self::Exact(values) => ranks(values, i128::cmp),
            Self::Numbers(values) => ranks(values, f64::total_cmp),
        }
    }
}

fn ranks<T>(values: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..values.len()).collect();
    indices.sort_by(|&a, &b| compare(&values[a], &values[b]));
    let mut ranks = vec![0; values.len()];
    for pair in indices.windows(2) {
        let is_equal = compare(&values[pair[0]], &values[pair[1]]) == Ordering::Equal;
        ranks[pair[1]] = ranks[pair[0]] + usize::from(!is_equal);
    }
    ranks
}

/// Reads values that increase with time: numbers if all values are numbers, or else timestamps.
///
/// # Errors
/// Returns the problem, with the values that cause it as `shown` returns them for an index.
fn moments(values: &[&str], shown: impl Fn(usize) -> String) -> Result<Moments, String> {
    let all = |parse: &dyn Fn(&str) -> Option<i128>| {
        values.iter().map(|value| parse(value)).collect::<Option<Vec<i128>>>()
    };
    check_digits(values, &shown)?;
    if let Some(numbers) = exact_decimals(values) {
        return Ok(Moments::Exact(numbers));
    }
    let numbers: Option<Vec<f64>> =
        values.iter().map(|value| value.parse().ok().filter(|number: &f64| number.is_finite())).collect();
    if let Some(numbers) = numbers {
        return Ok(Moments::Numbers(numbers));
    }
    let isos: Option<Vec<(i128, bool)>> = values.iter().map(|value| iso(value)).collect();
    if let Some(isos) = isos {
        let zoned = isos.iter().position(|(_, has_zone)| *has_zone);
        let local = isos.iter().position(|(_, has_zone)| !has_zone);
        if let (Some(zoned), Some(local)) = (zoned, local) {
            return Err(format!(
                "has times with a time zone, such as {}, and times without one, such as {}; write all of them alike",
                shown(zoned),
                shown(local)
            ));
        }
        return Ok(Moments::Exact(isos.into_iter().map(|(moment, _)| moment).collect()));
    }
    let mut found: Option<(String, Moments)> = None;
    for date in DATES {
        for time in TIMES {
            let format = format!("{date}{time}");
            let Some(moments) = all(&|value| parsed(&format, value)).map(Moments::Exact) else { continue };
            match &found {
                Some((other, others)) if others.ranks() != moments.ranks() => {
                    return Err(format!(
                        "has dates that can be read as {other} or as {format}, in different orders; write them as \
                         2024-12-31 12:00:00"
                    ));
                }
                Some(_) => {}
                None => found = Some((format, moments)),
            }
        }
    }
    found.map(|(_, moments)| moments).ok_or_else(|| {
        let formats = DATES.iter().flat_map(|date| TIMES.iter().map(move |time| format!("{date}{time}")));
        let formats: Vec<String> = formats.collect();
        let is_read = |value: &str| {
            value.parse::<f64>().is_ok()
                || iso(value).is_some()
                || formats.iter().any(|format| parsed(format, value).is_some())
        };
        let example = shown(values.iter().position(|value| !is_read(value)).unwrap_or(0));
        format!(
            "has values that are neither all numbers nor all timestamps of one format, such as {example}; write \
             them as numbers, or as 2024-12-31 12:00:00"
        )
    })
}

/// Returns the nanoseconds of a timestamp in ISO 8601, and true if it has an offset.
fn iso(value: &str) -> Option<(i128, bool)> {
    let value = value.strip_suffix(" UTC").map_or(value.to_string(), |value| format!("{value}Z"));
    let with_offset = value.parse::<Timestamp>().ok();
    let found = with_offset
        .map(|moment| (moment.as_nanosecond(), true))
        .or_else(|| Some((civil(value.parse().ok()?)?, false)));
    found.map(|(moment, has_offset)| (with_leap_second(&value, moment), has_offset))
}

/// Returns a moment that was parsed from `value`, after all others of its second if it is a leap second, which is read as
/// the second before.
fn with_leap_second(value: &str, moment: i128) -> i128 {
    const SECOND: i128 = 1_000_000_000;
    match value.split(':').nth(2).is_some_and(|seconds| seconds.starts_with("60")) {
        true => moment - moment.rem_euclid(SECOND) + SECOND - 1,
        false => moment,
    }
}

/// Returns the nanoseconds of a date with a time, as if in UTC.
fn civil(date: DateTime) -> Option<i128> {
    date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp().as_nanosecond())
}

/// Returns the nanoseconds of a timestamp in a format.
fn parsed(format: &str, value: &str) -> Option<i128> {
    let time = strtime::parse(format, value).ok()?;
    let midnight = || time.to_date().map(|date| date.to_datetime(jiff::civil::Time::midnight()));
    // The century of a year with two digits is unknown.
    let moment = civil(time.to_datetime().or_else(|_| midnight()).ok().filter(|date| date.year() >= 1000)?)?;
    Some(with_leap_second(value, moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_number_are_found() {
        let found = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            spelled_twice(keys.iter()).map(|pair| pair.map(String::from))
        };
        assert_eq!(found(&["7", "100.0", "a", "100"]), Some(["100".to_string(), "100.0".to_string()]));
        assert_eq!(found(&["7", "8", "a", "NaN"]), None);
    }

    #[test]
    fn leap_seconds_follow_the_second_before() {
        let leap = ["2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z", "2017-01-01T00:00:00Z"];
        assert_eq!(moments(&leap, |_| String::new()).map(|it| it.ranks()), Ok(vec![1, 0, 2]));
    }

    #[test]
    fn timestamps_of_many_formats_are_ordered() {
        for values in [
            ["9", "10", "11.5"],
            ["1704186000123456789", "1704186000123456790", "1704186000123456791"],
            ["1705312800.123456719", "1705312800.12345672", "1705312800.123456721"],
            ["2024-01-09T10:00:00.000000001Z", "2024-01-09T10:00:00.000000002Z", "2024-01-09T10:00:01Z"],
            ["2024-01-09 10:00:00", "2024-01-10", "2024-01-10T00:00:00.5"],
            ["2010-10-02T09:00:00+02:00", "2010-10-02T08:00:00Z", "2010-10-02 09:00:00+00:00"],
            ["9.1.2024", "10.1.2024", "1.2.2024"],
            ["9.1.2024 10:00", "9.1.2024 11:00", "1.2.2024 09:30"],
            ["12/31/2023 9:05 PM", "1/1/2024 12:05 AM", "1/1/2024 1:00 PM"],
            ["31/12/2023 21:05:00", "01/01/2024 00:05:00", "02/01/2024 01:00:00"],
            ["09-Jan-2024", "10-Jan-2024", "01-Feb-2024"],
            ["Jan 9, 2024", "Jan 10, 2024", "Feb 1, 2024"],
        ] {
            let moments =
                moments(&values, |_| String::new()).unwrap_or_else(|problem| panic!("{values:?} {problem}"));
            assert!(moments.ranks().is_sorted_by(|a, b| a < b), "{values:?}: {moments:?}");
        }
    }

    #[test]
    fn ambiguous_and_mixed_timestamps_are_refused() {
        let problem = |values: &[&str]| moments(values, |index| format!("`{}`", values[index])).unwrap_err();
        assert!(problem(&["1/2/2024", "2/1/2024"]).contains("in different orders"));
        assert!(
            moments(&["1/2/2024", "3/4/2024"], |_| String::new()).is_ok(),
            "both readings have the same order"
        );
        assert!(problem(&["yesterday", "1"]).contains("such as `yesterday`"));
        assert!(problem(&["12:30:00 a.m.", "12:30:00 AM"]).contains("such as `12:30:00 a.m.`"));
        assert!(
            problem(&["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"]).contains("times without one"),
            "a time without a zone is not one in UTC"
        );
        assert!(problem(&["12/31/99", "1/1/00"]).contains("such as `12/31/99`"));
        assert!(problem(&["2024-01-01", "5"]).contains("neither all numbers nor all timestamps"));
    }
}
