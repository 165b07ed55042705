use super::*;
use crate::data::seed::{Purpose, generator};
use proptest::prelude::*;

/// Eleven distinct logits.
const LOGITS: [f32; 11] = [0.3, -1.2, 2.0, 0.9, -0.4, 1.7, -3.0, 0.1, 1.1, -0.9, 0.6];
const DRAWS: u32 = 100_000;

/// Draws a hundred thousand tokens and compares their counts with independently computed probabilities.
///
/// With the correct distribution, a chi-square above mean + 5 standard deviations occurs less than once in ten thousand
/// runs, and the seed is fixed. A distribution that deviates by 2 % exceeds this threshold.
fn assert_draws_follow(sampling: Sampling, seen: &[u32], expected: &[f64]) {
    let probabilities = sampling.probabilities(&LOGITS, seen);
    for (token, (&found, &expected)) in probabilities.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-6, "{token}: {found}, not {expected}");
    }
    let mut generator = generator(42, Purpose::Sampling, [0, 0]);
    let mut counts = [0u32; LOGITS.len()];
    for _ in 0..DRAWS {
        counts[sampling.choose(&LOGITS, seen, generator.random()) as usize] += 1;
    }
    let mut chi_square = 0.0;
    let mut possible = 0;
    for (&count, &probability) in counts.iter().zip(expected) {
        if probability == 0.0 {
            assert_eq!(count, 0, "removed tokens are never drawn");
            continue;
        }
        let mean = probability * f64::from(DRAWS);
        chi_square += (f64::from(count) - mean).powi(2) / mean;
        possible += 1;
    }
    let freedom = f64::from(possible - 1);
    let bound = freedom + 5.0 * (2.0 * freedom).sqrt();
    assert!(chi_square < bound, "chi-square {chi_square} with {freedom} degrees of freedom");
}

/// Divides the `weights` by their sum.
fn normalized(weights: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let weights: Vec<f64> = weights.into_iter().collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn exponentials() -> [f64; 11] {
    LOGITS.map(|logit| f64::from(logit).exp())
}

/// Returns the probabilities of the `kept` tokens, with zeros for all others.
fn only(kept: &[usize]) -> Vec<f64> {
    normalized(exponentials().iter().enumerate().map(|(i, &x)| if kept.contains(&i) { x } else { 0.0 }))
}

#[test]
fn unfiltered_draws_follow_the_softmax() {
    assert_draws_follow(Sampling::default(), &[], &normalized(exponentials()));
}

#[test]
fn draws_at_a_temperature_follow_the_scaled_softmax() {
    for temperature in [0.5, 2.0] {
        let expected = normalized(LOGITS.map(|logit| (f64::from(logit) / temperature).exp()));
        assert_draws_follow(Sampling { temperature, ..Sampling::default() }, &[], &expected);
    }
}

#[test]
fn draws_of_the_top_k_follow_their_share() {
    assert_draws_follow(Sampling { top_k: 4, ..Sampling::default() }, &[], &only(&[2, 5, 8, 3]));
}

#[test]
fn draws_of_the_nucleus_follow_their_share() {
    // In order 2, 5, 8, 3, ...: cumulative probabilities of 0.313, 0.545, 0.672, 0.776.
    let order = normalized(exponentials());
    assert!(order[2] + order[5] + order[8] < 0.7 && order[2] + order[5] + order[8] + order[3] > 0.7);
    assert_draws_follow(Sampling { top_p: 0.7, ..Sampling::default() }, &[], &only(&[2, 5, 8, 3]));
}

#[test]
fn draws_above_min_p_follow_their_share() {
    // e^2 * 0.3 = 2.217, so logits of at least 0.796 are kept.
    assert_draws_follow(Sampling { min_p: 0.3, ..Sampling::default() }, &[], &only(&[2, 5, 8, 3]));
}

#[test]
fn repetition_penalty_samples_the_penalized_softmax() {
    let mut penalized = LOGITS.map(f64::from);
    penalized[2] /= 1.5;
    penalized[6] *= 1.5;
    let expected = normalized(penalized.map(f64::exp));
    let sampling = Sampling { repetition_penalty: 1.5, ..Sampling::default() };
    assert_draws_follow(sampling, &[2, 6, 2], &expected);
}

#[test]
fn combined_filters_apply_in_order() {
    let sampling = Sampling { temperature: 0.7, top_k: 6, top_p: 0.93, ..Sampling::default() };
    let hot = normalized(LOGITS.map(|logit| (f64::from(logit) / 0.7).exp()));
    let six = [2, 5, 8, 3, 10, 0];
    let share = |kept: &[usize]| -> f64 { kept.iter().map(|&token| hot[token]).sum() };
    // Among the six, the first four have less than 0.93 of the probability, and the first five have more.
    assert!(share(&six[..4]) / share(&six) < 0.93 && share(&six[..5]) / share(&six) > 0.93);
    let kept = |token: usize| if six[..5].contains(&token) { hot[token] } else { 0.0 };
    assert_draws_follow(sampling, &[], &normalized((0..11).map(kept)));
}

#[test]
fn greedy_takes_the_first_argmax() {
    for sampling in [Sampling::GREEDY, Sampling { temperature: 0.0, ..Sampling::default() }] {
        assert_eq!(sampling.choose(&LOGITS, &[], 0.99), 2);
        assert_eq!(sampling.choose(&[1.0, 3.0, 3.0], &[], 0.5), 1);
    }
    assert_eq!(Sampling { repetition_penalty: 9.0, ..Sampling::GREEDY }.choose(&LOGITS, &[2], 0.0), 5);
    assert_eq!(top(&LOGITS, 3), [2, 5, 8]);
    assert_eq!(top(&[1.0, 3.0, 3.0], 9), [1, 2, 0]);
}

#[test]
fn invalid_sampling_options_are_rejected() {
    let default = Sampling::default;
    for (sampling, option) in [
        (Sampling { temperature: -0.5, ..default() }, "--temperature -0.5"),
        (Sampling { temperature: f64::NAN, ..default() }, "--temperature NaN"),
        (Sampling { top_p: 0.0, ..default() }, "--top-p 0"),
        (Sampling { top_p: 1.5, ..default() }, "--top-p 1.5"),
        (Sampling { min_p: 1.1, ..default() }, "--min-p 1.1"),
        (Sampling { repetition_penalty: 0.0, ..default() }, "--repetition-penalty 0"),
    ] {
        let error = sampling.check().unwrap_err();
        assert!(error.to_string().starts_with(option), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    assert!(default().check().is_ok() && Sampling::GREEDY.check().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn probabilities_sum_to_one_and_keep_the_argmax(
        logits in proptest::collection::vec(-1e30f32..1e30, 1..40),
        temperature in 1e-6f64..1e6,
        top_k in 0usize..50,
        top_p in 1e-9f64..=1.0,
        min_p in 0.0f64..=1.0,
        uniform in 0.0f64..1.0,
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, ..Sampling::default() };
        let probabilities = sampling.probabilities(&logits, &[]);
        let sum: f64 = probabilities.iter().sum();
        prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        prop_assert!(probabilities[argmax(&logits) as usize] > 0.0);
        prop_assert!(probabilities[sampling.choose(&logits, &[], uniform) as usize] > 0.0);
        if top_k > 0 {
            prop_assert!(probabilities.iter().filter(|&&probability| probability > 0.0).count() <= top_k);
        }
    }
}
