//! A test of whether validation rows differ from training rows by more than chance, as in a sorted table.
//!
//! This is a permutation test: the rows of both splits are pooled and divided at random [`DIVISIONS`] times, and the
//! actual split is compared with these divisions. The statistics are the mean length and the total variation distance
//! `½ Σ |p(x) - q(x)|` of all tokens, of the last token of each row, and of the tokens at each of the first
//! [`MAX_POSITIONS`] positions.

use std::collections::HashMap;

use rand::seq::SliceRandom;

use crate::data::seed::{Purpose, generator};
use crate::data::sequences::Sequences;

/// The number of random divisions.
const DIVISIONS: usize = 19;

/// The maximum number of positions at the beginning of a row that are compared separately.
const MAX_POSITIONS: usize = 8;

/// The maximum number of evenly spaced rows of a split that are compared.
const MAX_ROWS: usize = 2048;

/// The minimum number of windows into which the validation part of a stream is cut.
const MIN_WINDOWS: usize = 32;

/// The maximum number of tokens of a row that are compared.
const MAX_TOKENS: usize = 128;

/// The minimum ratio of a distance to the largest random distance that counts as a difference.
const MIN_RATIO: f64 = 1.5;

/// The minimum distance that counts as a difference in a table: a total variation, or a fraction of the mean length.
pub(super) const MIN_DISTANCE: f64 = 0.1;

/// The minimum distance in a text or an array. Their tokens differ more, because the subjects of a text change.
pub(super) const MIN_DISTANCE_OF_TEXTS: f64 = 0.3;

/// The statistic that differs most, with its distance and the largest distance among the random divisions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SplitDifference {
    pub statistic: String,
    pub distance: f64,
    pub random: f64,
}

/// Returns the largest difference between the rows of the two splits, if one is at least `min_distance`. The windows of
/// a stream are compared only by the distribution of their tokens.
pub(super) fn difference(train: &Sequences, valid: &Sequences, min_distance: f64) -> Option<SplitDifference> {
    let is_stream = valid.stream().is_some();
    let length = valid.time().min(valid.targets() / MIN_WINDOWS).max(1);
    let [train, valid] =
        [train, valid].map(|split| split.in_windows_of(length).unwrap_or_else(|| split.clone()));
    let (train, valid) = (&train, &valid);
    let mut rows: Vec<Vec<u32>> = [train, valid].into_iter().flat_map(compared_rows).collect();
    let train_rows = train.len().min(MAX_ROWS);
    if rows.len() - train_rows < 2 {
        return None;
    }
    let observed = distances(&rows[..train_rows], &rows[train_rows..]);
    if observed.iter().all(|&distance| distance < min_distance) {
        return None;
    }
    let mut random = vec![0f64; observed.len()];
    for division in 0..DIVISIONS {
        rows.shuffle(&mut generator(0, Purpose::Split, [1, division as u64]));
        let drawn = distances(&rows[..train_rows], &rows[train_rows..]);
        random.iter_mut().zip(drawn).for_each(|(largest, distance)| *largest = largest.max(distance));
    }
    let differing = observed
        .into_iter()
        .zip(random)
        .enumerate()
        .filter(|(index, _)| !is_stream || *index == 1)
        .filter(|(_, (distance, random))| *distance >= min_distance && *distance > MIN_RATIO * random);
    let (index, (distance, random)) = differing.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let statistic = match index {
        0 => "the mean length".to_string(),
        1 => "the tokens".to_string(),
        2 => "the last token".to_string(),
        _ => format!("token {}", index - 2),
    };
    Some(SplitDifference { statistic, distance, random })
}

fn compared_rows(split: &Sequences) -> impl Iterator<Item = Vec<u32>> {
    let count = split.len().min(MAX_ROWS);
    (0..count).map(move |row| split.sample(row * split.len() / count).1)
}

/// Returns the distances of the mean lengths, of all tokens, of the last tokens, and of the first tokens.
fn distances(train: &[Vec<u32>], valid: &[Vec<u32>]) -> Vec<f64> {
    let mean = |rows: &[Vec<u32>]| rows.iter().map(Vec::len).sum::<usize>() as f64 / rows.len() as f64;
    let [train_mean, valid_mean] = [mean(train), mean(valid)];
    let of_lengths = (train_mean - valid_mean).abs() / train_mean.min(valid_mean);
    // A token at the end of all rows may be an end token, so the tokens before it are compared instead.
    let is_ended = {
        let mut lasts = train.iter().chain(valid).filter_map(|row| row.last());
        let first = lasts.next();
        lasts.all(|last| Some(last) == first)
    };
    let last = |row: &[u32]| row.len().checked_sub(1 + usize::from(is_ended)).map(|at| row[at]);
    let mut distances = vec![
        of_lengths,
        total_variation(
            train.iter().flat_map(|row| row.iter().take(MAX_TOKENS).copied()),
            valid.iter().flat_map(|row| row.iter().take(MAX_TOKENS).copied()),
        ),
        total_variation(train.iter().filter_map(|row| last(row)), valid.iter().filter_map(|row| last(row))),
    ];
    let shortest = train.iter().chain(valid).map(Vec::len).min().unwrap_or(0);
    distances.extend((0..MAX_POSITIONS.min(shortest)).map(|position| {
        total_variation(train.iter().map(|row| row[position]), valid.iter().map(|row| row[position]))
    }));
    distances
}

/// Returns the total variation distance between the distributions of two sets of tokens.
fn total_variation(first: impl Iterator<Item = u32>, second: impl Iterator<Item = u32>) -> f64 {
    let mut counts: HashMap<u32, [usize; 2]> = HashMap::new();
    let mut totals = [0usize; 2];
    for (side, token) in first.map(|token| (0, token)).chain(second.map(|token| (1, token))) {
        counts.entry(token).or_default()[side] += 1;
        totals[side] += 1;
    }
    // Counts are summed as integers: the order of the map would change the last bits of a float sum, and thereby the
    // choice between equal distances.
    let [first, second] = totals.map(|total| total as u128);
    if first * second == 0 {
        return 0.0;
    }
    let difference: u128 =
        counts.values().map(|&[a, b]| (a as u128 * second).abs_diff(b as u128 * first)).sum();
    difference as f64 / (2 * first * second) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sequences::Rows;

    /// Returns the statistic by which the last tenth of the rows differs from the other rows.
    fn difference_of(rows: Vec<Vec<u32>>) -> Option<String> {
        let cut = rows.len() * 9 / 10;
        let split = |part: &[Vec<u32>]| {
            let mut rows = Rows::default();
            part.iter().for_each(|row| rows.push(row));
            Sequences::rows(rows)
        };
        difference(&split(&rows[..cut]), &split(&rows[cut..]), MIN_DISTANCE)
            .map(|difference| difference.statistic)
    }

    /// Returns a pseudo-random token below 7.
    fn noise(row: u32, position: u32) -> u32 {
        let mixed = (row + 1).wrapping_mul(2_654_435_761).rotate_left(position * 5 + 3).wrapping_mul(40_503);
        (mixed >> 8) % 7
    }

    #[test]
    fn total_variation_matches_hand_computed_counts() {
        let distance = total_variation([0, 0, 1, 2].into_iter(), [0, 3].into_iter());
        assert!((distance - 0.5).abs() < 1e-12);
    }

    #[test]
    fn sorting_by_column_or_length_is_detected() {
        let rows = |sorted: usize| -> Vec<Vec<u32>> {
            let row = |row: u32| (0..5).map(|position| noise(row, position)).collect();
            let mut rows: Vec<Vec<u32>> = (0..500).map(row).collect();
            rows.sort_by_key(|row| row.get(sorted).copied());
            rows
        };
        assert_eq!(difference_of(rows(99)), None);
        for column in [0, 2] {
            assert_eq!(difference_of(rows(column)), Some(format!("token {}", column + 1)));
        }
        // Among equal distances, the distance at a position is reported.
        assert_eq!(difference_of(rows(4)), Some("token 5".into()));
        let by_length = (0..500).map(|row| vec![3; 2 + row / 50]).collect();
        assert_eq!(difference_of(by_length), Some("the mean length".into()));
        // A counter has a new value in each row, so every division has the same distance.
        assert_eq!(difference_of((0..500).map(|row| vec![row, noise(row, 1)]).collect()), None);
    }
}
