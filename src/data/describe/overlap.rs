//! Validation sequences that also occur in training, and validation tokens that do not.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
    ops::Range,
};

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

/// Returns the indices of the validation samples that also occur in training, in no particular order. Rows must equal
/// training rows, including the source; windows of a stream may occur anywhere in the training part. Rows also match
/// within a stream and windows within rows, if they have at least 8 tokens.
pub fn leaked_samples(train: &Sequences, valid: &Sequences) -> Vec<usize> {
    match (train.stream(), valid.stream()) {
        (Some(train), Some(part)) => leaked_windows(train, part, valid.time(), 1),
        (Some((ids, part)), None) if valid.source_time().is_none() => {
            samples_within(iter::once(ids.iter(part).collect()), valid)
        }
        (None, Some(_)) if train.source_time().is_none() => {
            samples_within((0..train.len()).map(|sample| train.sample(sample).1), valid)
        }
        _ => leaked_rows(train, valid),
    }
}

/// Samples with fewer tokens can occur within other sequences by chance.
const MIN_SAMPLE: usize = 8;

/// Returns the validation samples that occur anywhere within one of the training `sequences`. Rolling hashes search for
/// the first tokens of each sample, as many as the largest power of 2 within its length, and each match is verified.
fn samples_within(sequences: impl Iterator<Item = Vec<u32>>, valid: &Sequences) -> Vec<usize> {
    let samples: Vec<Vec<u32>> = (0..valid.len()).map(|sample| valid.sample(sample).1).collect();
    let mut wanted: BTreeMap<usize, HashMap<u64, Vec<usize>>> = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate().filter(|(_, sample)| sample.len() >= MIN_SAMPLE) {
        let tokens = 1 << sample.len().ilog2();
        let hash = sample[..tokens].iter().fold(0, |hash, &id| step(hash, id));
        wanted.entry(tokens).or_default().entry(hash).or_default().push(index);
    }
    let mut leaked = Vec::new();
    for sequence in sequences {
        for (&tokens, wanted) in wanted.iter_mut().filter(|(tokens, _)| **tokens <= sequence.len()) {
            let oldest = oldest_factor(tokens);
            let mut hash = sequence[..tokens - 1].iter().fold(0, |hash, &id| step(hash, id));
            for (start, window) in sequence.windows(tokens).enumerate() {
                hash = step(hash, window[tokens - 1]);
                if let Some(candidates) = wanted.get_mut(&hash) {
                    let occurs = |sample: &mut usize| sequence[start..].starts_with(&samples[*sample]);
                    leaked.extend(candidates.extract_if(.., occurs));
                }
                hash = hash.wrapping_sub(oldest.wrapping_mul(digit(window[0])));
            }
        }
    }
    leaked
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
/// pass; only one of `every` windows is searched for. Each match is verified token by token. A shorter last window is
/// extended by the tokens before it, because a few tokens can match by chance.
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
    let oldest = oldest_factor(tokens);
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

/// Returns the factor of a window's oldest token in its hash.
fn oldest_factor(tokens: usize) -> u64 {
    (1..tokens).fold(1, |power: u64, _| power.wrapping_mul(BASE))
}

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
    fn rows_leak_within_a_stream_and_windows_within_rows() {
        let stream: Vec<u32> = (0..40).collect();
        let windows = Sequences::windows(Arc::new(rows(&[&stream])), 2..40, 8);
        let other: Vec<u32> = (20..30).chain([1]).collect();
        let set = [&stream[2..12], &stream[0..12], &stream[5..12], &stream[31..40], &stream[2..12], &other];
        let set = Sequences::rows(rows(&set));
        let mut samples = leaked_samples(&windows, &set);
        samples.sort_unstable();
        assert_eq!(samples, [0, 3, 4]);
        // The windows start at 2, 10, 18 and 26, and the last one has too few tokens.
        let train = Sequences::rows(rows(&[&stream[1..20], &stream[26..40]]));
        let mut samples = leaked_samples(&train, &windows);
        samples.sort_unstable();
        assert_eq!(samples, [0, 1, 3]);
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
