//! How often tokens and pairs of tokens stand in a split.

use std::collections::HashMap;

use crate::data::batch::{Batch, Role};
use crate::data::loader::{Loader, Order};
use crate::data::sequences::Sequences;

/// The largest vocabulary whose pairs are counted in a table of all of them: 128 MB.
const DENSE: usize = 1 << 12;

/// Counts over the targets of a split.
#[derive(Debug)]
pub(super) struct Counts {
    /// Targets, and how many of them are determined.
    pub targets: u64,
    pub determined: u64,
    /// Of each token, how often it is a target.
    as_target: Vec<u64>,
    pairs: Pairs,
}

/// How often a token follows another one.
#[derive(Debug)]
enum Pairs {
    /// `[vocab, vocab]`
    Dense(Vec<u64>),
    Sparse(HashMap<(u32, u32), u64>),
}

impl Counts {
    pub fn of(split: &Sequences, vocab: usize) -> Self {
        let pairs =
            if vocab <= DENSE { Pairs::Dense(vec![0; vocab * vocab]) } else { Pairs::Sparse(HashMap::new()) };
        let mut counts = Counts { targets: 0, determined: 0, as_target: vec![0; vocab], pairs };
        let loader = Loader::new(split.clone(), 64, 0, Order::InOrder);
        let mut batch = Batch::default();
        for index in 0..loader.batches() {
            loader.batch(0, index, &mut batch);
            counts.add(&batch, vocab);
        }
        counts
    }

    fn add(&mut self, batch: &Batch, vocab: usize) {
        let targets = batch.inputs.iter().zip(&batch.targets).zip(&batch.roles);
        for ((&input, &target), &role) in targets.filter(|(_, role)| **role != Role::Padding) {
            self.targets += 1;
            self.determined += u64::from(role == Role::Determined);
            self.as_target[target as usize] += 1;
            match &mut self.pairs {
                Pairs::Dense(pairs) => pairs[input as usize * vocab + target as usize] += 1,
                Pairs::Sparse(pairs) => *pairs.entry((input, target)).or_default() += 1,
            }
        }
    }

    /// `H(x)`: what a predictor pays here that knows how frequent each token is, in nats a target.
    pub fn unigram_entropy(&self) -> f64 {
        let total = self.targets as f64;
        self.as_target.iter().map(|&count| cost(count, total)).sum::<f64>() / total
    }

    /// `H(x_t | x_{t-1})`: what a predictor pays here that also knows the token before.
    pub fn bigram_entropy(&self) -> f64 {
        let vocab = self.as_target.len();
        let nats: f64 = match &self.pairs {
            Pairs::Dense(pairs) => pairs
                .chunks(vocab)
                .map(|row| {
                    let total = row.iter().sum::<u64>() as f64;
                    row.iter().map(|&count| cost(count, total)).sum::<f64>()
                })
                .sum(),
            Pairs::Sparse(pairs) => {
                let mut totals = vec![0u64; vocab];
                pairs.iter().for_each(|((before, _), count)| totals[*before as usize] += count);
                // A hash map has no order, and a sum of floats depends on it in its last digit.
                let mut costs: Vec<f64> = pairs
                    .iter()
                    .map(|((before, _), &count)| cost(count, totals[*before as usize] as f64))
                    .collect();
                costs.sort_unstable_by(f64::total_cmp);
                costs.iter().sum()
            }
        };
        nats / self.targets as f64
    }
}

/// What `count` targets of probability `count / total` cost together, in nats.
fn cost(count: u64, total: f64) -> f64 {
    if count == 0 { 0.0 } else { count as f64 * (total / count as f64).ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sequences::Rows;

    fn split(rows: &[&[u32]]) -> Sequences {
        let mut all = Rows::default();
        rows.iter().for_each(|row| all.push(row));
        Sequences::rows(all)
    }

    #[test]
    fn entropies_are_those_of_counts_made_by_hand() {
        // Targets 1 1 0 0 0 0; pairs 0-1 0-1 1-0 1-0 0-0 0-0.
        let split = split(&[&[0, 1, 0], &[0, 1, 0, 0, 0]]);
        let right = (2.0 * 3f64.ln() + 4.0 * 1.5f64.ln()) / 6.0;
        // After 0 half and half, after 1 always 0.
        let right_pairs = 4.0 * 2f64.ln() / 6.0;
        // A small and a large vocabulary are counted in different ways.
        for vocab in [2, DENSE + 1] {
            let counts = Counts::of(&split, vocab);
            assert_eq!((counts.targets, counts.determined), (6, 0));
            assert!((counts.unigram_entropy() - right).abs() < 1e-12);
            assert!((counts.bigram_entropy() - right_pairs).abs() < 1e-12);
        }
    }
}
