//! Validation sequences that also occur in training, and validation tokens that do not.

use std::{collections::HashMap, ops::Range};

use crate::data::{dataset::Dataset, ids::Ids, sequences::Sequences};

/// Returns the tokens that occur in validation but never in training.
pub(super) fn unseen(dataset: &Dataset) -> Vec<u32> {
    let vocab = dataset.vocabulary.size();
    let [train, valid] = [&dataset.train, &dataset.valid].map(|split| {
        let mut occurs = vec![false; vocab];
        split.ids().for_each(|id| occurs[id as usize] = true);
        occurs
    });
    (0..vocab as u32).filter(|&id| valid[id as usize] && !train[id as usize]).collect()
}

/// Returns the number of validation samples that also occur in training. Rows must be equal, including the source;
/// windows of a stream may occur anywhere in the training part.
pub fn leaked(train: &Sequences, valid: &Sequences) -> usize {
    match (train.stream(), valid.stream()) {
        (Some(train), Some(part)) => leaked_windows(train, part, valid.time()),
        _ => leaked_rows(train, valid),
    }
}

fn leaked_rows(train: &Sequences, valid: &Sequences) -> usize {
    // Counts each validation row, and removes the count when training has the row.
    let mut rows = HashMap::new();
    for sample in 0..valid.len() {
        *rows.entry(valid.sample(sample)).or_default() += 1;
    }
    (0..train.len()).map(|sample| rows.remove(&train.sample(sample)).unwrap_or(0)).sum()
}

/// Searches for the windows of one part of a stream in another part with a rolling hash (Karp & Rabin 1987), in one
/// pass. Each match is verified token by token.
fn leaked_windows(
    (ids, train): (&Ids, Range<usize>),
    (wanted_ids, valid): (&Ids, Range<usize>),
    length: usize,
) -> usize {
    let tokens = length + 1;
    let window = |start: usize| wanted_ids.iter(start..start + tokens);
    // For each distinct validation window: its hash, its first start, and its number of occurrences.
    let starts = (valid.start..).step_by(length).take_while(|start| start + tokens <= valid.end);
    let mut wanted: Vec<_> = starts.map(|start| (window(start).fold(0, step), start, 1)).collect();
    wanted.sort_unstable();
    wanted.dedup_by(|next, first| {
        let is_same = next.0 == first.0 && window(next.1).eq(window(first.1));
        first.2 += if is_same { next.2 } else { 0 };
        is_same
    });
    if wanted.is_empty() || train.len() < tokens {
        return 0;
    }
    // Most hashes do not match: a bit table rejects them faster than a binary search.
    let bits = (16 * wanted.len()).next_power_of_two();
    let bit = |hash: u64| (hash >> 32) as usize & (bits - 1);
    let mut may_be_wanted = vec![false; bits];
    wanted.iter().for_each(|&(hash, ..)| may_be_wanted[bit(hash)] = true);
    // The factor of a window's oldest token in its hash.
    let oldest = (1..tokens).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = ids.iter(train.start..train.start + length).fold(0, step);
    let mut leaked = 0;
    for start in train.start..train.end - length {
        hash = step(hash, ids.get(start + length));
        if may_be_wanted[bit(hash)] {
            let first = wanted.partition_point(|&(other, ..)| other < hash);
            for (_, valid, count) in wanted[first..].iter_mut().take_while(|(other, ..)| *other == hash) {
                if *count > 0 && window(*valid).eq(ids.iter(start..start + tokens)) {
                    leaked += std::mem::take(count);
                }
            }
        }
        hash = hash.wrapping_sub(oldest.wrapping_mul(digit(ids.get(start))));
    }
    leaked
}

/// Odd and without a pattern, so that the upper bits of a hash depend on every token.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

fn digit(id: u32) -> u64 {
    u64::from(id) + 1
}

fn step(hash: u64, id: u32) -> u64 {
    hash.wrapping_mul(BASE).wrapping_add(digit(id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::data::{Vocabulary, sequences::Rows};

    fn rows(rows: &[&[u32]]) -> Rows {
        let mut all = Rows::default();
        rows.iter().for_each(|row| all.push(row));
        all
    }

    #[test]
    fn rows_leak_when_training_has_exactly_the_same() {
        let train = Sequences::rows(rows(&[&[1, 2, 3], &[4, 5], &[4, 5], &[0, 0]]));
        let valid = Sequences::rows(rows(&[&[4, 5], &[1, 2], &[1, 2, 3], &[4, 5], &[0, 0, 0]]));
        assert_eq!(leaked(&train, &valid), 3);
    }

    #[test]
    fn pairs_leak_only_if_source_and_answer_match() {
        let train = Sequences::pairs(rows(&[&[1, 2], &[3]]), rows(&[&[9, 2, 9], &[9, 3, 9]]));
        let valid = Sequences::pairs(rows(&[&[2], &[3]]), rows(&[&[9, 2, 9], &[9, 3, 9]]));
        assert_eq!(leaked(&train, &valid), 1);
    }

    #[test]
    fn unseen_tokens_include_first_tokens_and_sources() {
        let (train, valid) =
            (Sequences::rows(rows(&[&[1, 2, 1]])), Sequences::rows(rows(&[&[4, 1], &[2, 3]])));
        let vocabulary = Vocabulary::integers(7, &[]);
        let dataset = Dataset::of_file(vocabulary, (train, valid));
        assert_eq!(unseen(&dataset), [3, 4]);
        let valid = Sequences::pairs(rows(&[&[6, 1]]), rows(&[&[1, 2]]));
        assert_eq!(unseen(&Dataset { valid, ..dataset }), [6]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn windows_leak_when_they_occur_in_training(
            stream in proptest::collection::vec(0u32..2, 13..60),
            length in 1usize..7,
            cut in 0.2..0.8,
        ) {
            let cut = ((stream.len() as f64 * cut) as usize).max(3);
            let ids = Arc::new(rows(&[&stream]));
            // The first token belongs to neither part.
            let train = Sequences::windows(ids.clone(), 1..cut, length);
            let valid = Sequences::windows(ids, cut..stream.len(), length);
            let size = valid.time() + 1;
            let windows = (cut..).step_by(size - 1).take_while(|start| start + size <= stream.len());
            let right = windows
                .filter(|&start| stream[1..cut].windows(size).any(|other| *other == stream[start..start + size]))
                .count();
            prop_assert_eq!(leaked(&train, &valid), right);
        }
    }
}
