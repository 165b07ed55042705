//! Times as plain digits: dates without separators, and times since 1970.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::civil::Date;

/// The digits of times since 1970 in seconds, milliseconds, microseconds and nanoseconds.
const TIME_DIGITS: [usize; 4] = [10, 13, 16, 19];
/// The minimum number of dates with two digits for the year. Fewer may be other numbers.
const MIN_SHORT_DATES: usize = 8;
/// The maximum number of digits of an exact number.
const MAX_DIGITS: usize = 36;

/// Rejects times as plain digits whose numbers are not in the order of time: with units that differ, or as dates that do not
/// begin with the year.
///
/// # Errors
/// Returns the problem, with the values that cause it as `shown` returns them for an index.
pub(super) fn check_digits(values: &[&str], shown: impl Fn(usize) -> String) -> Result<(), String> {
    if values.len() < 2 || !values.iter().all(|value| is_digits(value)) {
        return Ok(());
    }
    let lengths: BTreeMap<usize, usize> =
        values.iter().enumerate().rev().map(|(index, value)| (value.len(), index)).collect();
    if let (Some(shortest), Some(longest)) = (lengths.first_key_value(), lengths.last_key_value())
        && shortest != longest
    {
        let are_times = lengths.keys().all(|length| TIME_DIGITS.contains(length));
        let are_dates = lengths.keys().all(|length| [8, 10, 12, 14].contains(length))
            && values.iter().all(|value| is_date(value, &[0..4, 4..6, 6..8]));
        return match are_times || are_dates {
            true => Err(format!(
                "has times of {} and of {} digits, such as {} and {}, whose numbers are not in the order of time; write all \
                 of them alike",
                shortest.0,
                longest.0,
                shown(*shortest.1),
                shown(*longest.1)
            )),
            false => Ok(()),
        };
    }
    check_dates(values, values[0].len(), shown)
}

/// Rejects dates of equally many digits that do not begin with the year. A time may follow.
fn check_dates(values: &[&str], length: usize, shown: impl Fn(usize) -> String) -> Result<(), String> {
    type Parts = [Range<usize>; 3];
    let (first, others): (Parts, [(&str, Parts); 2]) = match length {
        8 | 12 | 14 => {
            ([0..4, 4..6, 6..8], [("DDMMYYYY", [4..8, 2..4, 0..2]), ("MMDDYYYY", [4..8, 0..2, 2..4])])
        }
        6 | 10 if values.len() >= MIN_SHORT_DATES => {
            ([0..2, 2..4, 4..6], [("DDMMYY", [4..6, 2..4, 0..2]), ("MMDDYY", [4..6, 0..2, 2..4])])
        }
        _ => return Ok(()),
    };
    let start = if [6, 10].contains(&length) { 6 } else { 8 };
    let are_dates =
        |parts: &Parts| values.iter().all(|value| is_date(value, parts) && is_time(&value[start..]));
    // The order of the numbers is that of the dates that begin with the year.
    let is_in_order = |parts: &Parts| {
        let key =
            |value: &str| (parts.clone().map(|part| value[part].to_string()), value[start..].to_string());
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.is_sorted_by_key(|value| key(value))
    };
    let Some((format, _)) = others.iter().find(|(_, parts)| are_dates(parts) && !is_in_order(parts)) else {
        return Ok(());
    };
    let example = shown(0);
    Err(match are_dates(&first) {
        true => format!(
            "has dates, such as {example}, that begin with the year or are {format}, in different orders; write them as \
             2024-12-31"
        ),
        false => format!(
            "has dates as {format}, such as {example}, whose numbers are not in the order of time; write them as 2024-12-31"
        ),
    })
}

/// Returns decimal numbers as exact integers of one unit; `None` if a value is not a plain decimal number, or has too many
/// digits.
pub(super) fn exact_decimals(values: &[&str]) -> Option<Vec<i128>> {
    let after_point = |value: &str| value.split_once('.').map_or(0, |(_, part)| part.len());
    let most = values.iter().map(|value| after_point(value)).max()?;
    let exact = |value: &&str| {
        let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_plain = is_digits(whole) && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain || whole.len() + most > MAX_DIGITS {
            return None;
        }
        let size: i128 = format!("{whole}{part:0<most$}").parse().ok()?;
        Some(if value.starts_with('-') { -size } else { size })
    };
    values.iter().map(exact).collect()
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if the digits at these places, of year, month and day, are a date of the years from 1900 to 2099.
fn is_date(value: &str, [year, month, day]: &[Range<usize>; 3]) -> bool {
    let number = |range: &Range<usize>| value.get(range.clone())?.parse::<i16>().ok();
    let century = if year.len() == 2 { 2000 } else { 0 };
    let date = (|| Date::new(century + number(year)?, number(month)? as i8, number(day)? as i8).ok())();
    date.is_some_and(|date| (1900..2100).contains(&date.year()))
}

/// Returns true for nothing, or for hours, minutes and perhaps seconds.
fn is_time(digits: &str) -> bool {
    let pair = |at: usize| digits.get(at..at + 2).and_then(|pair| pair.parse::<u8>().ok());
    let is_below = |at: usize, end: u8| pair(at).is_none_or(|number| number < end);
    [0, 4, 6].contains(&digits.len()) && is_below(0, 24) && is_below(2, 60) && is_below(4, 61)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(values: &[&str]) -> Result<(), String> {
        check_digits(values, |index| format!("`{}`", values[index]))
    }

    #[test]
    fn dates_of_digits_begin_with_the_year() {
        for (values, format) in [
            (vec!["31122023", "02012024"], "DDMMYYYY"),
            (vec!["150120240900", "010220240900"], "DDMMYYYY"),
            (vec!["15012024090000", "01022024090000"], "DDMMYYYY"),
            (["151299", "161298", "010298", "310197"].repeat(2), "DDMMYY"),
            (["123123", "010124", "020124", "123024"].repeat(2), "MMDDYY"),
        ] {
            let problem = checked(&values).unwrap_err();
            assert!(
                problem.starts_with(&format!("has dates as {format}, such as `{}`", values[0])),
                "{problem}"
            );
        }
        let problem = checked(&["150124", "160124", "010224", "310124"].repeat(2)).unwrap_err();
        assert!(problem.contains("begin with the year or are DDMMYY, in different orders"), "{problem}");
        for values in [
            vec!["20231231", "20240102"],
            vec!["202401151030", "202401161030"],
            vec!["1705312800", "1705312860"],
            ["240115", "240116"].repeat(4),
            // Other numbers.
            vec!["12345678", "31122023"],
            vec!["150124", "160124"],
            ["100001", "100002"].repeat(4),
        ] {
            assert_eq!(checked(&values), Ok(()), "{values:?}");
        }
    }

    #[test]
    fn different_units_are_refused() {
        for values in [["1705312800000", "1705312860"], ["202401151030", "20240116"]] {
            let problem = checked(&values).unwrap_err();
            assert!(problem.contains(values[0]) && problem.contains("write all of them alike"), "{problem}");
        }
        assert_eq!(checked(&["9", "10", "11111111"]), Ok(()));
        assert_eq!(checked(&["12345678", "1234567890"]), Ok(()));
    }

    #[test]
    fn decimals_are_exact() {
        let times = ["1705312800.123456719", "1705312800.123456720", "-3", "+2.5"];
        let found = exact_decimals(&times).unwrap();
        assert_eq!(found[1] - found[0], 1);
        assert_eq!([found[2], found[3]], [-3_000_000_000, 2_500_000_000]);
        assert_eq!(
            [exact_decimals(&["1e3"]), exact_decimals(&["."]), exact_decimals(&["1.2.3"])],
            [None, None, None]
        );
    }
}
