//! The unigram and bigram entropy of a split.

use std::collections::HashMap;

use crate::data::sequences::Sequences;

/// The maximum vocabulary whose pairs are counted in a dense table: 128 MB.
const MAX_DENSE_VOCABULARY: usize = 1 << 12;

/// The maximum number of targets that are counted for a larger vocabulary: their pairs need up to 1 GB.
const MAX_TARGETS: usize = 1 << 25;

/// Returns the entropies of the counted targets in nats per token: unigram `H(x)`, and bigram `H(x_t | x_{t-1})`. For a
/// large vocabulary, evenly spaced samples with up to [`MAX_TARGETS`] targets are counted.
pub(super) fn of_targets(split: &Sequences, vocab: usize) -> [f64; 2] {
    let (mut targets, mut inputs) = (vec![0u64; vocab], vec![0u64; vocab]);
    let mut dense = vec![0u64; if vocab <= MAX_DENSE_VOCABULARY { vocab * vocab } else { 0 }];
    let mut sparse: HashMap<usize, u64> = HashMap::new();
    let every = if dense.is_empty() { split.targets().div_ceil(MAX_TARGETS).max(1) } else { 1 };
    for sample in (0..split.len()).step_by(every) {
        let is_counted = split.is_counted(sample).into_iter().skip(1);
        for (pair, _) in
            split.sample(sample).1.windows(2).zip(is_counted).filter(|(_, is_counted)| *is_counted)
        {
            let [input, target] = [pair[0] as usize, pair[1] as usize];
            inputs[input] += 1;
            targets[target] += 1;
            let pair = input * vocab + target;
            *dense.get_mut(pair).unwrap_or_else(|| sparse.entry(pair).or_default()) += 1;
        }
    }
    let all = targets.iter().sum::<u64>() as f64;
    let unigram = targets.iter().map(|&count| cost(count, all)).sum::<f64>();
    let pairs = dense.into_iter().enumerate().filter(|&(_, count)| count > 0).chain(sparse);
    let mut costs: Vec<f64> = pairs.map(|(pair, count)| cost(count, inputs[pair / vocab] as f64)).collect();
    // Sorting makes the float sum independent of the order of the hash map.
    costs.sort_unstable_by(f64::total_cmp);
    [unigram / all, costs.iter().sum::<f64>() / all]
}

/// Returns the total loss of `count` targets of probability `count / total`, in nats.
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
    fn uncounted_targets_do_not_change_entropies() {
        use crate::data::Role::{Padding, Unknown};
        let mut masked = Rows::default();
        // The targets 1 1 0 0 and 0 count.
        masked.push_with_roles(
            &[0, 4, 1, 3, 1, 0, 0],
            [Padding, Unknown, Padding, Unknown, Unknown, Unknown].into_iter(),
        );
        masked.push_with_roles(&[0, 2, 0], [Padding, Unknown].into_iter());
        let masked = Sequences::rows(masked);
        assert_eq!(masked.targets(), 5);
        let [unigram, bigram] = of_targets(&masked, 5);
        let expected = (2.0 * 2.5f64.ln() + 3.0 * (5.0f64 / 3.0).ln()) / 5.0;
        assert!((unigram - expected).abs() < 1e-12, "{unigram} {expected}");
        // Each input is followed by one counted token only.
        assert_eq!(bigram, 0.0);
    }

    #[test]
    fn entropies_match_hand_computed_counts() {
        // Targets 1 1 0 0 0 0; pairs 0-1 0-1 1-0 1-0 0-0 0-0.
        let split = split(&[&[0, 1, 0], &[0, 1, 0, 0, 0]]);
        let expected_unigram = (2.0 * 3f64.ln() + 4.0 * 1.5f64.ln()) / 6.0;
        // After 0, both tokens are equally likely; after 1, always 0.
        let expected_bigram = 4.0 * 2f64.ln() / 6.0;
        // The pairs of small and large vocabularies are stored in different tables.
        for vocab in [2, MAX_DENSE_VOCABULARY + 1] {
            let [unigram, bigram] = of_targets(&split, vocab);
            assert!((unigram - expected_unigram).abs() < 1e-12);
            assert!((bigram - expected_bigram).abs() < 1e-12);
        }
    }
}
