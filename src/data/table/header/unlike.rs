//! First lines of numbers that may be names, such as years, because they differ from the numbers below.

use csv::StringRecord;

use super::{MAX_UNIQUE, MIN_NUMERIC_ROWS, ValueKind, kind, values};
use crate::data::table::TableRow;

/// Returns true if each number of the first line is outside the range of its column, and each date is above numbers.
/// Each number must be far outside the range, or the values of its column must recur. The numbers must also rise or
/// fall like years, or be next to a word that does not recur in its column.
pub(super) fn is_unlike(first: &StringRecord, below: &[&TableRow]) -> bool {
    let of_kind = |wanted| first.iter().enumerate().filter(move |&(_, value)| kind(value) == wanted);
    let is_outside = |(column, value): (usize, &str)| {
        let filled: Vec<&str> =
            values(below, column).filter(|value| kind(value) != ValueKind::Missing).collect();
        let mut others: Vec<f64> = filled.iter().filter_map(|value| value.parse().ok()).collect();
        let Ok(number) = value.parse::<f64>() else {
            return others.len() >= MIN_NUMERIC_ROWS && others.len() == filled.len();
        };
        others.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (others.first(), others.last()) else { return false };
        let count = others.len();
        others.dedup();
        let distance = (min - number).max(number - max);
        count >= MIN_NUMERIC_ROWS && distance > 0.0 && (distance > max - min || 2 * others.len() <= count)
    };
    let recurs = |(column, word): (usize, &str)| values(below, column).any(|value| value == word);
    let (mut numbers, mut words) = (of_kind(ValueKind::Numeric), of_kind(ValueKind::Word));
    let order: Vec<f64> = of_kind(ValueKind::Numeric).filter_map(|(_, value)| value.parse().ok()).collect();
    let count = of_kind(ValueKind::Numeric).count();
    let (rises, falls) = (order.is_sorted_by(|a, b| a < b), order.is_sorted_by(|a, b| a > b));
    let are_words_new = words.clone().next().is_some() && !words.any(recurs);
    let is_far = count > 0 && (count > 1 && rises || count > 2 && falls || are_words_new);
    is_far && numbers.all(is_outside) || is_ordered_unlike_rows(first, below)
}

/// Returns true for a line whose numbers rise or fall, such as years or wavelengths, if hardly any line below has such
/// numbers in the same columns. Words next to the numbers must not recur in their columns.
fn is_ordered_unlike_rows(first: &StringRecord, below: &[&TableRow]) -> bool {
    /// The minimum number of numbers with equal distances, and of other numbers.
    const MIN_NUMBERS: [usize; 2] = [3, 4];
    let columns =
        Vec::from_iter((0..first.len()).filter(|&column| kind(&first[column]) == ValueKind::Numeric));
    let is_ordered = |line: &StringRecord| {
        let numbers: Option<Vec<f64>> =
            columns.iter().map(|&column| line.get(column)?.parse().ok()).collect();
        let steps =
            Vec::from_iter(numbers.iter().flat_map(|all| all.windows(2)).map(|pair| pair[1] - pair[0]));
        let is_even = steps.iter().all(|step| (step - steps[0]).abs() <= 1e-6 * steps[0].abs());
        let is_monotone = steps.iter().all(|step| *step > 0.0) || steps.iter().all(|step| *step < 0.0);
        is_monotone && steps.len() + 1 >= MIN_NUMBERS[usize::from(!is_even)]
    };
    let recurs = |column: usize| values(below, column).any(|other| other == &first[column]);
    let mut words = (0..first.len()).filter(|column| !columns.contains(column));
    // Among a few rows, no number may recur either.
    let are_enough = below.len() >= MIN_NUMERIC_ROWS || !columns.iter().any(|&column| recurs(column));
    are_enough
        && is_ordered(first)
        && !words.any(recurs)
        && below.iter().all(|row| row.1.len() == first.len() && row.1 != *first)
        && below.iter().filter(|row| is_ordered(&row.1)).count() as f64 <= MAX_UNIQUE * below.len() as f64
}
