//! Fractions in JSON, as they are written: a parsed number keeps only the digits of a float.

use csv::StringRecord;
use serde_json::Number;

/// Returns the row with its first fraction as written in the JSON `text`, such as 1e0 for 1.0. `None` if both forms are
/// equal.
pub(super) fn as_written(row: &StringRecord, text: &str) -> Option<StringRecord> {
    let (first, value) = row.iter().enumerate().find(|(_, value)| is_fraction(value))?;
    let is_equal = |word: &&str| word.parse::<Number>().is_ok_and(|it| it.to_string() == value);
    let written = fractions(text).find(is_equal).filter(|&written| written != value)?;
    Some(row.iter().enumerate().map(|(index, value)| if index == first { written } else { value }).collect())
}

/// Returns the first fraction of the row that is written in the JSON `text` with more digits than a float keeps.
pub(super) fn rounded<'t>(row: &StringRecord, text: &'t str) -> Option<&'t str> {
    /// The number of significant digits that identify any float.
    const FLOAT_DIGITS: usize = 17;
    let digits = |word: &str| {
        let number = word.split(['e', 'E']).next().unwrap_or(word);
        let digits = number.chars().filter(char::is_ascii_digit).skip_while(|&digit| digit == '0');
        digits.collect::<String>().trim_end_matches('0').len()
    };
    let is_read =
        |word: &str| word.parse::<Number>().is_ok_and(|it| row.iter().any(|value| value == it.to_string()));
    match row.iter().any(is_fraction) {
        true => fractions(text).find(|word| digits(word) > FLOAT_DIGITS && is_read(word)),
        false => None,
    }
}

fn is_fraction(word: &str) -> bool {
    word.contains(['.', 'e', 'E']) && word.parse::<Number>().is_ok()
}

/// Iterates over the fractions of a JSON text.
fn fractions(text: &str) -> impl Iterator<Item = &str> {
    // Every second part is a string. An escaped quote can only hide a number.
    let words = text.split('"').step_by(2).flat_map(|part| {
        part.split(|character: char| !(character.is_ascii_alphanumeric() || "+-.".contains(character)))
    });
    words.filter(|word| is_fraction(word))
}
