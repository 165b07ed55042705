//! The formats of numbers in tables.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The format of the numbers of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::data) enum NumberFormat {
    /// `1234.5`
    #[default]
    Plain,
    /// `1234,5` or `1.234,5`
    DecimalComma,
    /// `1,234.5`
    ThousandsComma,
}

impl NumberFormat {
    /// All formats; the first that fits is preferred.
    pub const ALL: [Self; 3] = [Self::Plain, Self::ThousandsComma, Self::DecimalComma];

    /// Returns the format that all values have; plain numbers are preferred. `None` if some value is not a number.
    pub fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Option<Self> {
        let fits = |format: &Self| values.clone().all(|value| format.parse(value).is_some());
        Self::ALL.into_iter().find(fits)
    }

    /// Parses a finite number.
    pub fn parse(self, value: &str) -> Option<f64> {
        let number = match self {
            Self::Plain => value.to_string(),
            Self::ThousandsComma => without_groups(value, ',', '.')?,
            Self::DecimalComma => without_groups(value, '.', ',')?.replace(',', "."),
        };
        number.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Returns the first of the `values` whose point may be one between thousands: all fractions have three digits, as in
    /// `2.431`, and all other numbers are integers below 1000. Such values are read as decimals.
    pub fn of_thousands<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Option<&'v str> {
        /// The minimum number of values if none is below 1000. A few decimals may have three digits by chance.
        const MIN_VALUES: usize = 5;
        let is_grouped = |value: &str| {
            let integer = Self::DecimalComma.parse(value).is_some_and(|number| number.fract() == 0.0);
            integer && value.contains('.') && !value.contains(',')
        };
        let is_small = |value: &str| value.parse().is_ok_and(|number: i64| number.abs() < 1000);
        let are_many = values.clone().any(is_small) || values.clone().take(MIN_VALUES).count() == MIN_VALUES;
        (are_many && values.clone().all(|value| is_grouped(value) || is_small(value)))
            .then(|| values.clone().find(|value| is_grouped(value)))?
    }

    /// Returns the name of the format for a notice.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain numbers",
            Self::DecimalComma => "numbers with a decimal comma (points, if any, are between thousands)",
            Self::ThousandsComma => "numbers with commas between thousands",
        }
    }
}

/// Returns the id of an integer with leading zeros or a plus sign, without which a table of integers was read. `None` if
/// other symbols than integers have ids.
pub(super) fn unpadded(ids: &HashMap<String, u32>, end: Option<u32>, word: &str) -> Option<u32> {
    let plain = |word: &str| Some(word.parse::<u64>().ok()?.to_string());
    let is_integer =
        |(symbol, id): (&String, &u32)| Some(*id) == end || plain(symbol).as_ref() == Some(symbol);
    ids.get(&plain(word)?).copied().filter(|_| ids.iter().all(is_integer))
}

/// Returns a number without the separators between its groups of three digits; `None` if a group has another size.
fn without_groups(value: &str, separator: char, decimal: char) -> Option<String> {
    let (integer, fraction) = match value.split_once(decimal) {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (value, None),
    };
    let digits = integer.trim_start_matches(['-', '+']);
    let mut groups = digits.split(separator);
    let first = groups.next()?;
    let has_groups = first.len() < digits.len();
    let is_whole =
        !has_groups || !first.starts_with('0') && first.len() <= 3 && groups.all(|group| group.len() == 3);
    let is_number = !first.is_empty() && !fraction.is_some_and(|fraction| fraction.contains(separator));
    (is_whole && is_number).then(|| {
        let integer: String = integer.chars().filter(|&character| character != separator).collect();
        fraction.map_or(integer.clone(), |fraction| format!("{integer}{decimal}{fraction}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_must_fit_all_values() {
        let of = |values: &[&'static str]| NumberFormat::of(values.iter().copied());
        assert_eq!(of(&["1", "2.5", "-3e4"]), Some(NumberFormat::Plain));
        assert_eq!(of(&["1,234.5", "12", "1,234,567"]), Some(NumberFormat::ThousandsComma));
        assert_eq!(of(&["1,5", "1.234,25", "-7"]), Some(NumberFormat::DecimalComma));
        assert_eq!(of(&["1,5", "1.5"]), None, "the two readings contradict each other");
        assert_eq!(of(&["1", "n/a"]), None);
        let of_thousands = |values: &[&'static str]| NumberFormat::of_thousands(values.iter().copied());
        assert_eq!(of_thousands(&["650", "2.431", "-12.400"]), Some("2.431"));
        assert_eq!(of_thousands(&["5.161", "42.486", "11.740", "94.520", "8.001"]), Some("5.161"));
        for plain in
            [&["650", "2.43"][..], &["0.250", "7"], &["1.250", "2.375"], &["1000", "2.431"], &["1", "2"]]
        {
            assert_eq!(of_thousands(plain), None, "{plain:?}");
        }
        assert_eq!(NumberFormat::DecimalComma.parse("0.200"), None, "no number begins with a group of zero");
        let parse = |format: NumberFormat, value| format.parse(value);
        assert_eq!(parse(NumberFormat::DecimalComma, "1.234,25"), Some(1_234.25));
        assert_eq!(parse(NumberFormat::ThousandsComma, "-1,234,567.5"), Some(-1_234_567.5));
        assert_eq!(parse(NumberFormat::ThousandsComma, "12,34"), None);
    }
}
