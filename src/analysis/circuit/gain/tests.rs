//! The significance of gains.

use super::*;

#[test]
fn few_or_uneven_targets_need_a_larger_gain() {
    let even = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.0];
    let groups: Vec<usize> = (0..8).collect();
    let steady = min_significant_gain(&even, &groups).unwrap();
    assert!((0.05..0.2).contains(&steady), "{steady}");
    let wild: Vec<f64> = even.iter().zip(0..).map(|(gain, at)| gain * f64::from(at % 2) * 2.0).collect();
    assert!(min_significant_gain(&wild, &groups).unwrap() > 1.0, "half of the targets gain nothing");
    let few = min_significant_gain(&even[..3], &groups[..3]).unwrap();
    assert!(few > 3.0 * steady, "three targets are weak evidence: {few}");
    assert_eq!(min_significant_gain(&even, &[4; 8]), None, "a single group lacks a standard error");
}

#[test]
fn equal_targets_count_as_one_group() {
    let gains = [2.0, 2.0, 2.0, 2.0, -1.0, -1.0, -1.0, -1.0];
    let apart: Vec<usize> = (0..8).collect();
    let together = [1, 1, 1, 1, 2, 2, 2, 2];
    assert!(min_significant_gain(&gains, &together) > min_significant_gain(&gains, &apart));
}

#[test]
fn the_most_likely_token_gains_by_its_selection() {
    let vocab = 49_152;
    let uniform = vec![(vocab as f64).ln()];
    // 40 times as likely as the others, as the most likely token of random weights.
    let losses = TargetLosses { model: vec![uniform[0] - 3.7], unigram: uniform.clone(), uniform };
    assert_eq!(unlikely(&losses, &[0], (None, false)), None);
    assert!(unlikely(&losses, &[0], (Some(vocab), true)).unwrap().contains("name the answers"));
    assert!(unlikely(&losses, &[0], (Some(vocab), false)).unwrap().contains("on more prompts"));
}

#[test]
fn large_gains_at_some_targets_are_evidence() {
    let gain = |second: f64| {
        let gains: Vec<f64> =
            (0..28).map(|at| if at < 14 { -5.0 } else { second + f64::from(at % 3) }).collect();
        Gain {
            model: 0.0,
            baseline: 1.0,
            baseline_of: Baseline::Uniform,
            all_ablated: 1.0,
            no_circuit: None,
            over: [gains.clone(), gains],
            groups: (0..28).collect(),
        }
    };
    assert!(gain(5.0).is_in_selection() && !gain(1.5).is_in_selection());
}
