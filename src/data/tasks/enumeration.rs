//! A brute-force optimal predictor that enumerates all sequences of a task with their probabilities. The probability of
//! a target is a ratio of two sums over sequences. The numerator sums the sequences that agree up to and including the
//! target; the denominator sums the sequences that agree up to the token before the target.

use std::collections::HashMap;

use super::*;

/// Checks a task against all sequences that it can draw, given as (sequence, probability). A sequence may occur more
/// than once.
pub fn assert_agrees(task: &dyn SequenceTask, all: &[(Vec<u32>, f64)]) {
    let total: f64 = all.iter().map(|(_, p)| p).sum();
    assert!((total - 1.0).abs() < 1e-9, "the enumeration sums to {total}");
    let mut prefixes: HashMap<&[u32], f64> = HashMap::new();
    for (sequence, p) in all {
        assert_eq!(sequence.len(), task.tokens());
        for end in 1..=sequence.len() {
            *prefixes.entry(&sequence[..end]).or_default() += p;
        }
    }
    // The probabilities of the task must equal the enumerated ones in every sequence.
    let mut expected = 0.0;
    let mut given = vec![0.0; task.tokens() - 1];
    for (sequence, p) in all {
        task.probabilities(sequence, &mut given);
        for (time, &given) in given.iter().enumerate() {
            let exact = prefixes[&sequence[..time + 2]] / prefixes[&sequence[..=time]];
            assert!((given - exact).abs() < 1e-9, "{sequence:?} at {time}: {given}, not {exact}");
            expected -= p * exact.ln() / (task.tokens() - 1) as f64;
        }
    }
    // The expected floor must equal the enumerated expectation.
    let (floor, _) = task.expected_floor();
    assert!((floor - expected).abs() < 1e-3, "expected floor {floor}, not {expected}");
    // The drawn sequences must follow the enumerated distribution: a chi-square test over sequences, with a margin of
    // five standard deviations. No other sequence may be drawn.
    let complete: Vec<(&[u32], f64)> =
        prefixes.iter().filter(|(s, _)| s.len() == task.tokens()).map(|(s, p)| (*s, *p)).collect();
    let draws = 100 * complete.len().max(50);
    let mut counts: HashMap<Vec<u32>, f64> = HashMap::new();
    let mut random = generator(5, Purpose::TrainingSet, [0, 0]);
    let mut sample = vec![0; task.tokens()];
    for _ in 0..draws {
        task.draw(&mut random, &mut sample);
        assert!(prefixes.contains_key(&sample[..]), "{sample:?} cannot be drawn");
        *counts.entry(sample.clone()).or_default() += 1.0;
    }
    let (mut chi_square, mut degrees, mut rare, mut rare_counts) = (0.0, -1.0f64, 0.0, 0.0);
    for (sequence, p) in complete {
        let (expected, count) = (p * draws as f64, counts.get(sequence).copied().unwrap_or(0.0));
        if expected < 5.0 {
            (rare, rare_counts) = (rare + expected, rare_counts + count);
        } else {
            chi_square += (count - expected).powi(2) / expected;
            degrees += 1.0;
        }
    }
    if rare > 0.0 {
        chi_square += (rare_counts - rare).powi(2) / rare;
        degrees += 1.0;
    }
    let limit = degrees + 5.0 * (2.0 * degrees).sqrt();
    assert!(chi_square <= limit, "chi-square {chi_square} with {degrees} degrees of freedom");
    // Every id must be in the vocabulary.
    let size = task.vocabulary().size() as u32;
    assert!(all.iter().all(|(sequence, _)| sequence.iter().all(|&id| id < size)));
}

/// Returns all sequences of `length` ids below `vocab`.
pub fn all_sequences(vocab: u32, length: usize) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    for _ in 0..length {
        all = all
            .iter()
            .flat_map(|start| (0..vocab).map(move |id| [start.as_slice(), &[id]].concat()))
            .collect();
    }
    all
}
