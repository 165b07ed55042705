//! Bins of numbers as tokens.

use serde::{Deserialize, Serialize};

use super::{END, Kind, NumberFormat, Vocabulary};
use crate::error::{Error, Result};
use crate::numbers::part_of;

/// The bins of a table of numbers: bin `i` holds the numbers from `edges[i - 1]` up to, but not including, `edges[i]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Bins {
    /// The edges between the bins, in ascending order.
    pub edges: Vec<f64>,
    /// The median of the training set's numbers in each bin, which stands for the bin in generated text.
    pub centers: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    #[serde(flatten)]
    pub of_numbers: BinsOf,
}

/// The reading of the numbers of a table, before they are sorted into bins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::data) struct BinsOf {
    /// True for the changes from each number to the next.
    #[serde(default)]
    pub difference: bool,
    #[serde(default)]
    pub format: NumberFormat,
}

impl Vocabulary {
    /// Creates a vocabulary of the bins between `edges`, for the sorted `numbers` of a training set.
    ///
    /// # Errors
    /// Returns an error without any numbers.
    pub(in crate::data) fn bins(
        edges: Vec<f64>,
        numbers: &[f64],
        with_end: bool,
        of_numbers: BinsOf,
    ) -> Result<Self> {
        if numbers.is_empty() {
            return Err(Error::Input("the training set is empty; use more data".into()));
        }
        let starts = |bin: usize| match bin.checked_sub(1).map(|edge| edges[edge]) {
            Some(edge) => numbers.partition_point(|&number| number < edge),
            None => 0,
        };
        let median = |bin: usize| {
            let end = if bin < edges.len() { starts(bin + 1) } else { numbers.len() };
            match &numbers[starts(bin)..end] {
                // A bin of equal distances can be empty.
                [] => 0.5 * (edges[bin.saturating_sub(1)] + edges[bin.min(edges.len() - 1)]),
                numbers => numbers[numbers.len() / 2],
            }
        };
        let centers = (0..=edges.len()).map(median).collect();
        let special = if with_end { vec![END.to_string()] } else { Vec::new() };
        Ok(Kind::Bins(Bins { edges, centers, special, columns: Vec::new(), of_numbers }).into())
    }
}

/// Numbers outside the inner bins: their count and the first of them, with the first and the last edge.
pub(in crate::data) struct Outliers {
    pub count: usize,
    pub example: f64,
    pub inner: [f64; 2],
}

impl Vocabulary {
    /// Returns the numbers that are farther outside the inner bins than `factor` times the width of these bins together.
    pub(in crate::data) fn outliers(&self, numbers: &[f64], factor: f64) -> Option<Outliers> {
        let inner @ [first, last] = self.inner_bins()?;
        let width = factor * (last - first);
        let is_far = |number: &&f64| **number < first - width || **number > last + width;
        let example = *numbers.iter().find(is_far)?;
        Some(Outliers { count: numbers.iter().filter(is_far).count(), example, inner })
    }

    /// Returns a warning of numbers that are farther outside the bins than these are wide together, such as numbers in
    /// another unit.
    pub(crate) fn far_outside(&self, numbers: &[f64]) -> Option<String> {
        let Outliers { count, example, inner: [first, last] } = self.outliers(numbers, 1.0)?;
        Some(format!(
            "{} are far outside the numbers of training, such as {example} with bins from {first} to {last}, and are read as \
             the outermost bins; check the unit and the column",
            part_of(count, numbers.len(), "number")
        ))
    }
}

impl Bins {
    /// Returns the bins of a file if they are valid.
    pub fn checked(self) -> Result<Self> {
        let are_valid = self.centers.len() == self.edges.len() + 1
            && self.edges.is_sorted_by(|a, b| a < b)
            && self.edges.iter().chain(&self.centers).all(|number| number.is_finite());
        if are_valid {
            return Ok(self);
        }
        let problem = "`edges` must be finite numbers in ascending order, and `centers` must have one more number; copy \
                       the file from the run that wrote it";
        Err(Error::Input(problem.into()))
    }

    pub fn size(&self) -> usize {
        self.centers.len() + self.special.len()
    }

    pub fn end(&self) -> Option<u32> {
        let index = self.special.iter().position(|name| name == END)?;
        Some((self.centers.len() + index) as u32)
    }

    /// Returns the bin of a number.
    pub fn of(&self, number: f64) -> u32 {
        self.edges.partition_point(|&edge| edge <= number) as u32
    }

    /// Returns the id of a number or a special token.
    pub fn word(&self, word: &str) -> Option<u32> {
        match self.special.iter().position(|name| name == word) {
            Some(index) => Some((self.centers.len() + index) as u32),
            None => word.parse().ok().filter(|number: &f64| number.is_finite()).map(|number| self.of(number)),
        }
    }

    /// Returns the number that stands for a bin.
    pub fn written(&self, id: u32) -> String {
        match self.centers.get(id as usize) {
            Some(&center) => {
                // As precise as the edges, and in the same bin when it is read again.
                let edges = [(id as usize).checked_sub(1), Some(id as usize)].into_iter().flatten();
                let digits =
                    edges.filter(|&edge| edge < self.edges.len()).map(|edge| self.digits(edge)).max();
                let is_in_bin = |text: &String| text.parse().is_ok_and(|number| self.of(number) == id);
                let texts = (digits.unwrap_or(MIN_DIGITS)..MAX_DIGITS).map(|digits| rounded(center, digits));
                texts.into_iter().find(is_in_bin).unwrap_or_else(|| rounded(center, MAX_DIGITS))
            }
            None => self.name(id),
        }
    }

    /// Returns the number of significant digits, at least four, with which an edge is written within a thousandth of the
    /// distance to its neighbours, so that its label separates the same numbers.
    fn digits(&self, at: usize) -> usize {
        let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let others: Vec<f64> = neighbours.filter_map(|other| self.edges.get(other).copied()).collect();
        let edge = self.edges[at];
        let are_enough = |&digits: &usize| {
            let error = (rounded(edge, digits).parse::<f64>().unwrap_or(f64::INFINITY) - edge).abs();
            others.iter().all(|&other| error <= MAX_LABEL_ERROR * (other - edge).abs())
        };
        (MIN_DIGITS..MAX_DIGITS).find(are_enough).unwrap_or(MAX_DIGITS)
    }

    fn edge(&self, at: usize) -> String {
        rounded(self.edges[at], self.digits(at))
    }

    /// Returns the range of a bin, such as `1.5–2`.
    pub fn label(&self, id: u32) -> String {
        let index = id as usize;
        match (index < self.centers.len(), self.edges.len()) {
            (false, _) => self.name(id),
            (true, 0) => self.written(id),
            (true, _) if index == 0 => format!("<{}", self.edge(0)),
            (true, last) if index == last => format!("≥{}", self.edge(last - 1)),
            (true, _) => format!("{}–{}", self.edge(index - 1), self.edge(index)),
        }
    }

    fn name(&self, id: u32) -> String {
        let name = (id as usize).checked_sub(self.centers.len()).and_then(|index| self.special.get(index));
        name.cloned().unwrap_or_else(|| char::REPLACEMENT_CHARACTER.to_string())
    }
}

/// The numbers of significant digits of written numbers.
const MIN_DIGITS: usize = 4;
const MAX_DIGITS: usize = 17;

/// The maximum error of a written edge, as a share of the distance to the next edge.
const MAX_LABEL_ERROR: f64 = 1e-3;

/// Writes a number with up to `digits` significant digits.
fn rounded(number: f64, digits: usize) -> String {
    let rounded: f64 = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
    match rounded.abs() {
        0.0 => "0".to_string(),
        1e-4..1e7 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bins_and_back() {
        let numbers = [1.0, 2.0, 3.0, 10.0, 11.0, 12.0];
        let vocabulary = Vocabulary::bins(vec![2.5, 10.5], &numbers, true, BinsOf::default()).unwrap();
        assert_eq!(vocabulary.encode("0 2.5 10 10.5 1e9 <end>").unwrap(), [0, 1, 1, 2, 2, 3]);
        assert_eq!(vocabulary.decode(&[0, 1, 2, 3]), "2 10 12 <end>");
        assert_eq!([0, 1, 2, 3].map(|id| vocabulary.token(id)), ["<2.5", "2.5–10.5", "≥10.5", "<end>"]);
        assert_eq!((vocabulary.size(), vocabulary.end()), (4, Some(3)));
        assert!(vocabulary.encode("many").is_err() && vocabulary.encode("nan").is_err());
        let stored = serde_json::to_string(&vocabulary).unwrap();
        assert_eq!(serde_json::from_str::<Vocabulary>(&stored).unwrap(), vocabulary);
        let damaged = stored.replace("[2.5,10.5]", "[10.5,2.5]");
        assert!(serde_json::from_str::<Vocabulary>(&damaged).is_err());
    }

    #[test]
    fn numbers_are_written_briefly() {
        let written = [0.0, 1.0 / 3.0, -1_234.567, 1e9, 2.5e-9].map(|number| rounded(number, MIN_DIGITS));
        assert_eq!(written, ["0", "0.3333", "-1235", "1e9", "2.5e-9"]);
    }

    #[test]
    fn close_numbers_are_written_with_enough_digits() {
        let numbers = [101_300.5, 101_300.75, 101_301.25, 101_302.0];
        let edges = vec![101_300.6, 101_301.0, 101_301.5];
        let vocabulary = Vocabulary::bins(edges, &numbers, false, BinsOf::default()).unwrap();
        let labels = [0, 1, 2, 3].map(|id| vocabulary.token(id));
        assert_eq!(labels, ["<101300.6", "101300.6–101301", "101301–101301.5", "≥101301.5"]);
        assert_eq!(vocabulary.encode(&vocabulary.decode(&[0, 1, 2, 3])).unwrap(), [0, 1, 2, 3]);
    }
}
