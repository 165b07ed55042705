//! Numbers as tokens: bins of a series, differences, and the notations of a column.
//!
//! A number becomes the index of its bin. The edges between bins are quantiles or equal distances of the training set,
//! so the validation set does not influence them.

use crate::data::config::Binning;

/// The notation of the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    /// `1234.5`
    Plain,
    /// `1234,5` or `1.234,5`
    DecimalComma,
    /// `1,234.5`
    ThousandsComma,
}

impl Notation {
    /// Returns the notation that all values have; plain numbers are preferred. `None` if some value is not a number.
    pub fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Option<Self> {
        let fits = |notation: &Self| values.clone().all(|value| notation.parse(value).is_some());
        [Self::Plain, Self::ThousandsComma, Self::DecimalComma].into_iter().find(fits)
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

    /// Returns the name of the notation for a notice.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain numbers",
            Self::DecimalComma => "numbers with a decimal comma",
            Self::ThousandsComma => "numbers with commas between thousands",
        }
    }
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
    let is_whole = !has_groups || first.len() <= 3 && groups.all(|group| group.len() == 3);
    let is_number = !first.is_empty() && !fraction.is_some_and(|fraction| fraction.contains(separator));
    (is_whole && is_number).then(|| {
        let integer: String = integer.chars().filter(|&character| character != separator).collect();
        fraction.map_or(integer.clone(), |fraction| format!("{integer}{decimal}{fraction}"))
    })
}

/// Returns up to `bins - 1` distinct edges between the bins of the `numbers` of a training set, in ascending order.
pub(super) fn edges(numbers: &mut [f64], bins: usize, binning: Binning) -> Vec<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (numbers.first(), numbers.last()) else { return Vec::new() };
    let mut edges: Vec<f64> = match binning {
        Binning::Uniform => (1..bins).map(|bin| min + (max - min) * bin as f64 / bins as f64).collect(),
        Binning::Quantile => {
            let at = |bin: usize| numbers[(numbers.len() * bin / bins).min(numbers.len() - 1)];
            (1..bins).filter_map(|bin| between(numbers, at(bin))).collect()
        }
    };
    edges.retain(|&edge| edge > min && edge <= max);
    edges.dedup();
    edges
}

/// Returns the middle between a number and the next smaller one, or the next larger one if it is the smallest, so that
/// equal numbers share a bin.
fn between(numbers: &[f64], number: f64) -> Option<f64> {
    let below = numbers[..numbers.partition_point(|&other| other < number)].last();
    let above = numbers.get(numbers.partition_point(|&other| other <= number));
    below.or(above).map(|other| 0.5 * (other + number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notation_must_fit_all_values() {
        let of = |values: &[&'static str]| Notation::of(values.iter().copied());
        assert_eq!(of(&["1", "2.5", "-3e4"]), Some(Notation::Plain));
        assert_eq!(of(&["1,234.5", "12", "1,234,567"]), Some(Notation::ThousandsComma));
        assert_eq!(of(&["1,5", "1.234,25", "-7"]), Some(Notation::DecimalComma));
        assert_eq!(of(&["1,5", "1.5"]), None, "the two readings contradict each other");
        assert_eq!(of(&["1", "n/a"]), None);
        let parse = |notation: Notation, value| notation.parse(value);
        assert_eq!(parse(Notation::DecimalComma, "1.234,25"), Some(1_234.25));
        assert_eq!(parse(Notation::ThousandsComma, "-1,234,567.5"), Some(-1_234_567.5));
        assert_eq!(parse(Notation::ThousandsComma, "12,34"), None);
    }

    #[test]
    fn edges_divide_the_training_set() {
        let numbers = [5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 100.0];
        assert_eq!(edges(&mut numbers.to_vec(), 4, Binning::Quantile), [2.5, 4.5, 6.5]);
        assert_eq!(edges(&mut numbers.to_vec(), 4, Binning::Uniform), [25.75, 50.5, 75.25]);
        // Frequent numbers take several quantiles, which become one edge.
        assert_eq!(edges(&mut [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 3, Binning::Quantile), [0.5]);
        assert!(edges(&mut [2.0, 2.0], 3, Binning::Quantile).is_empty());
    }
}
