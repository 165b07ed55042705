//! Numbers that do not belong to their column: totals below it, and numbers far outside the others.

use super::Table;
use super::values::Encoder;
use crate::data::config::Binning;
use crate::data::excerpt::excerpt;
use crate::data::vocabulary::{Outliers, Vocabulary};
use crate::error::Result;
use crate::numbers::part_of;

impl Table<'_> {
    /// Returns an error for an integer that is the sum of all others, if the encoder reads integers.
    pub(super) fn refuse_total_of_integers(&self, encoder: &Encoder<'_>) -> Result<()> {
        let Encoder::AutoIntegers(ids) = encoder else { return Ok(()) };
        let mut numbers = vec![0.0; ids.len()];
        ids.iter().for_each(|(&integer, &id)| numbers[id as usize] = integer as f64);
        self.refuse_total(&numbers, |id| numbers[id as usize].to_string())
    }

    /// Returns an error for a number that is the sum of all others, such as the total below a column of a spreadsheet.
    /// `numbers` has the number of each id, and `text_of` returns its text.
    pub(super) fn refuse_total(&self, numbers: &[f64], text_of: impl Fn(u32) -> String) -> Result<()> {
        /// The minimum number of other numbers. A few may add up by chance.
        const MIN_OTHERS: usize = 10;
        let values = || self.ids.iter(0..self.ids.len()).map(|id| numbers[id as usize]);
        let sum: f64 = values().sum();
        let largest = values()
            .fold(0.0, |largest: f64, value| if value.abs() > largest.abs() { value } else { largest });
        let others = values().filter(|value| *value != 0.0).count().saturating_sub(1);
        let is_single = values().filter(|value| *value == largest).count() == 1;
        if others < MIN_OTHERS || !is_single || (2.0 * largest - sum).abs() > 1e-9 * largest.abs() {
            return Ok(());
        }
        let Some(id) = numbers.iter().position(|number| *number == largest) else { return Ok(()) };
        let line = self.seen.first_lines.get(id).copied();
        let problem = format!(
            "`{}` is the sum of all other numbers: a total, not a row; remove this line",
            excerpt(&text_of(id as u32))
        );
        Err(self.problem(line, problem))
    }

    /// Warns of numbers that are farther outside the bins of a run than these are wide together, such as numbers in
    /// another unit.
    pub(super) fn warn_of_outside(&mut self, values: &[f64], vocabulary: &Vocabulary) {
        self.reading.guesses.extend(vocabulary.far_outside(values));
    }

    /// Warns of numbers far outside the others, when the bins are computed from the sorted `training` numbers.
    pub(super) fn warn_of_outliers(&mut self, training: &[f64], validation: &[f64], vocabulary: &Vocabulary) {
        /// The distance of an outlier of the training set, in widths of the inner bins.
        const MIN_WIDTHS: f64 = 10.0;
        /// The share of numbers in one bin of equal distances from which outliers are reported.
        const MAX_SHARE: f64 = 0.9;
        if let (Binning::Uniform, [min, .., max]) = (self.config.binning, training) {
            let bins = vocabulary.size();
            let mut counts = vec![0; bins];
            training
                .iter()
                .filter_map(|&number| vocabulary.bin(number))
                .for_each(|bin| counts[bin as usize] += 1);
            let most = counts.into_iter().max().unwrap_or(0);
            if bins > 2 && most as f64 > MAX_SHARE * training.len() as f64 {
                self.reading.guesses.push(format!(
                    "{} are in one bin, because the numbers reach from {min} to {max}; check the extreme numbers, or set \
                     `data.binning` = \"quantile\"",
                    part_of(most, training.len(), "number")
                ));
            }
            return;
        }
        if let Some(Outliers { count, example, inner: [first, last] }) =
            vocabulary.outliers(training, MIN_WIDTHS)
        {
            self.reading.guesses.push(format!(
                "{} are far outside the others, such as {example} with bins from {first} to {last}; check whether they are \
                 data",
                part_of(count, training.len(), "number")
            ));
        } else if vocabulary.outliers(training, 1.0).is_none() {
            self.warn_of_outside(validation, vocabulary);
        }
    }
}
