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

/// The maximum number of validation windows of a stream that are searched for in training, for their number.
const MAX_WINDOWS: usize = 1 << 20;

/// Returns the number of validation samples that also occur in training. If a stream has more than [`MAX_WINDOWS`]
/// windows, the number is estimated from evenly spaced ones.
pub(super) fn leaked(train: &Sequences, valid: &Sequences) -> usize {
    let every = valid.len().div_ceil(MAX_WINDOWS);
    match (train.stream(), valid.stream()) {
        (Some(train), Some(part)) if every > 1 => {
            let found = leaked_windows(train, part, valid.time(), every).len();
            (found * every).min(valid.len())
        }
        _ => leaked_samples(train, valid).len(),
    }
}

/// Returns the indices of the validation samples that also occur in training, in no particular order. Rows must be
/// equal, including the source; windows of a stream may occur anywhere in the training part.
pub fn leaked_samples(train: &Sequences, valid: &Sequences) -> Vec<usize> {
    match (train.stream(), valid.stream()) {
        (Some(train), Some(part)) => leaked_windows(train, part, valid.time(), 1),
        _ => leaked_rows(train, valid),
    }
}

fn leaked_rows(train: &Sequences, valid: &Sequences) -> Vec<usize> {
    // The validation samples by the hash of the row. They are removed when the row is found in training.
    let hash = |(source, tokens): &(Vec<u32>, Vec<u32>)| {
        let of_source = source.iter().fold(source.len() as u64, |hash, &id| step(hash, id));
        tokens.iter().fold(of_source, |hash, &id| step(hash, id))
    };
    let mut rows: HashMap<u64, Vec<usize>> = HashMap::new();
    for sample in 0..valid.len() {
        rows.entry(hash(&valid.sample(sample))).or_default().push(sample);
    }
    let mut leaked = Vec::new();
    for sample in 0..train.len() {
        let row = train.sample(sample);
        if let Some(candidates) = rows.get_mut(&hash(&row)) {
            leaked.extend(candidates.extract_if(.., |candidate| valid.sample(*candidate) == row));
        }
    }
    leaked
}

/// Searches for the windows of one part of a stream in another part with a rolling hash (Karp & Rabin 1987), in one
/// pass; only one of `every` windows is searched for. Each match is verified token by token. A shorter last window is extended by the tokens before it, because a
/// few tokens can match by chance.
fn leaked_windows(
    (ids, train): (&Ids, Range<usize>),
    (wanted_ids, valid): (&Ids, Range<usize>),
    length: usize,
    every: usize,
) -> Vec<usize> {
    let tokens = length + 1;
    let window = |start: usize| wanted_ids.iter(start..start + tokens);
    // The hash and the start of each validation window.
    let last = valid.end.checked_sub(tokens).filter(|&last| last >= valid.start);
    let starts = last.into_iter().flat_map(|last| (valid.start..last).step_by(every * length).chain([last]));
    let mut windows: Vec<(u64, usize)> = starts.map(|start| (window(start).fold(0, step), start)).collect();
    windows.sort_unstable();
    if windows.is_empty() || train.len() < tokens {
        return Vec::new();
    }
    // The windows in groups of equal ones, with the hash of each group.
    let is_same =
        |first: &(u64, usize), next: &(u64, usize)| first.0 == next.0 && window(first.1).eq(window(next.1));
    let mut wanted: Vec<_> = windows.chunk_by(is_same).map(|same| (same[0].0, same)).collect();
    // Most hashes do not match, and a table rejects them faster than a binary search.
    let buckets = (16 * wanted.len()).next_power_of_two();
    let bucket = |hash: u64| (hash >> 32) as usize & (buckets - 1);
    let mut may_be_wanted = vec![false; buckets];
    wanted.iter().for_each(|&(hash, ..)| may_be_wanted[bucket(hash)] = true);
    // The factor of a window's oldest token in its hash.
    let oldest = (1..tokens).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = ids.iter(train.start..train.start + length).fold(0, step);
    let mut leaked = Vec::new();
    let ends = ids.iter(train.start..train.end - length).zip(ids.iter(train.start + length..train.end));
    for (start, (first, last)) in (train.start..).zip(ends) {
        hash = step(hash, last);
        if may_be_wanted[bucket(hash)] {
            let first = wanted.partition_point(|&(other, ..)| other < hash);
            for (_, same) in wanted[first..].iter_mut().take_while(|(other, _)| *other == hash) {
                if same.first().is_some_and(|&(_, at)| window(at).eq(ids.iter(start..start + tokens))) {
                    let found = std::mem::take(same).iter();
                    leaked.extend(found.map(|&(_, at)| (at - valid.start).div_ceil(length)));
                }
            }
        }
        hash = hash.wrapping_sub(oldest.wrapping_mul(digit(first)));
    }
    leaked
}

/// The base of the rolling hash: odd and without a pattern, so that the upper bits of a hash depend on every token.
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
    fn rows_leak_only_if_training_has_equal_rows() {
        let train = Sequences::rows(rows(&[&[1, 2, 3], &[4, 5], &[4, 5], &[0, 0]]));
        let valid = Sequences::rows(rows(&[&[4, 5], &[1, 2], &[1, 2, 3], &[4, 5], &[0, 0, 0]]));
        assert_eq!(leaked(&train, &valid), 3);
        let mut samples = leaked_samples(&train, &valid);
        samples.sort_unstable();
        assert_eq!(samples, [0, 2, 3]);
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
        let dataset = Dataset::without_floor(vocabulary, (train, valid));
        assert_eq!(unseen(&dataset), [3, 4]);
        let valid = Sequences::pairs(rows(&[&[6, 1]]), rows(&[&[1, 2]]));
        assert_eq!(unseen(&Dataset { valid, ..dataset }), [6]);
    }

    #[test]
    fn shorter_last_windows_are_extended_backwards() {
        let count = |valid: &[u32]| {
            let stream: Vec<u32> = (0..9).chain(valid.iter().copied()).collect();
            let ids = Arc::new(rows(&[&stream]));
            let train = Sequences::windows(ids.clone(), 0..9, 3);
            let valid = Sequences::windows(ids, 9..stream.len(), 3);
            [leaked(&train, &valid), valid.len()]
        };
        assert_eq!(count(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), [3, 3]);
        assert_eq!(count(&[0, 1, 2, 3, 4, 5]), [2, 2]);
        assert_eq!(count(&[0, 1, 8, 3, 4]), [0, 2]);
        assert_eq!(count(&[5, 6, 7]), [1, 1]);
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
            let occurs = |sample: &usize| {
                // A shorter last window is extended by the tokens before it.
                let start = (cut + sample * (size - 1)).min(stream.len() - size);
                stream[1..cut].windows(size).any(|other| *other == stream[start..start + size])
            };
            let mut samples = leaked_samples(&train, &valid);
            samples.sort_unstable();
            prop_assert_eq!(samples, (0..valid.len()).filter(occurs).collect::<Vec<_>>());
        }
    }
}
