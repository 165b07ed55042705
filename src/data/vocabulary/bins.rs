//! Bins of numbers as tokens.

use serde::{Deserialize, Serialize};

use super::{END, Kind, Vocabulary};
use crate::error::{Error, Result};

use std::sync::Arc;

/// The bins of a table of numbers: bin `i` holds the numbers from `edges[i - 1]` up to, but not including, `edges[i]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bins {
    /// The edges between the bins, in ascending order.
    pub edges: Vec<f64>,
    /// The median of the training set's numbers in each bin, which stands for the bin in generated text.
    pub centers: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

impl Vocabulary {
    /// Creates a vocabulary of the bins between `edges`, for the sorted `numbers` of a training set.
    ///
    /// # Errors
    /// Returns an error without any numbers.
    pub(in crate::data) fn bins(edges: Vec<f64>, numbers: &[f64], with_end: bool) -> Result<Self> {
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
        Ok(Vocabulary(Arc::new(Kind::Bins(Bins { edges, centers, special, columns: Vec::new() }))))
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
            Some(center) => shortest(*center),
            None => self.name(id),
        }
    }

    /// Returns the range of a bin, such as `1.5–2`.
    pub fn label(&self, id: u32) -> String {
        let index = id as usize;
        let edge = |at: usize| shortest(self.edges[at]);
        match (index < self.centers.len(), self.edges.len()) {
            (false, _) => self.name(id),
            (true, 0) => self.written(id),
            (true, _) if index == 0 => format!("<{}", edge(0)),
            (true, last) if index == last => format!("≥{}", edge(last - 1)),
            (true, _) => format!("{}–{}", edge(index - 1), edge(index)),
        }
    }

    fn name(&self, id: u32) -> String {
        let name = (id as usize).checked_sub(self.centers.len()).and_then(|index| self.special.get(index));
        name.cloned().unwrap_or_else(|| char::REPLACEMENT_CHARACTER.to_string())
    }
}

/// Writes a number with up to four significant digits.
fn shortest(number: f64) -> String {
    let rounded: f64 = format!("{number:.3e}").parse().unwrap_or(number);
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
        let vocabulary = Vocabulary::bins(vec![2.5, 10.5], &numbers, true).unwrap();
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
        let written = [0.0, 1.0 / 3.0, -1_234.567, 1e9, 2.5e-9].map(shortest);
        assert_eq!(written, ["0", "0.3333", "-1235", "1e9", "2.5e-9"]);
    }
}
