//! Cross-entropy, compared with double precision and finite differences.

use proptest::prelude::*;

use super::*;
use crate::testing::{assert_close, assert_same_on_any_number_of_threads, random, widened};

/// Computes the mean loss in double precision.
fn naive(kind: &CrossEntropy, logits: &[f64], targets: &[i64]) -> f64 {
    let vocab = logits.len() / targets.len();
    let (mut sum, mut count) = (0.0, 0.0);
    for (row, target) in logits.chunks(vocab).zip(targets) {
        if kind.ignored == Some(*target) {
            continue;
        }
        let lse = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let smoothing = f64::from(kind.smoothing);
        sum += (1.0 - smoothing) * (lse - row[*target as usize]);
        sum += smoothing * row.iter().map(|x| lse - x).sum::<f64>() / vocab as f64;
        count += 1.0;
    }
    sum / f64::max(count, 1.0)
}

fn case(rows: usize, vocab: usize) -> (Vec<f32>, Vec<i64>) {
    let logits = random(1, rows * vocab).iter().map(|x| 4.0 * x).collect();
    let targets = random(2, rows).iter().map(|x| ((x + 1.0) / 2.0 * vocab as f32) as i64).collect();
    (logits, targets)
}

/// Returns the number of rows that are not ignored, at least 1.
fn counted(kind: &CrossEntropy, targets: &[i64]) -> f64 {
    targets.iter().filter(|target| kind.ignored != Some(**target)).count().max(1) as f64
}

fn run(kind: &CrossEntropy, logits: &[f32], targets: &[i64]) -> (f64, Vec<f32>, Vec<f32>) {
    let (mut losses, mut lse) = (vec![f32::NAN; targets.len()], vec![f32::NAN; targets.len()]);
    let loss = forward(kind, logits, targets, &mut losses, &mut lse);
    let mut gradient = vec![f32::NAN; logits.len()];
    backward(kind, logits, targets, &lse, 1.0 / counted(kind, targets) as f32, &mut gradient);
    (loss, losses, gradient)
}

fn check(kind: &CrossEntropy, rows: usize, vocab: usize) {
    let (logits, targets) = case(rows, vocab);
    let (loss, losses, gradient) = run(kind, &logits, &targets);
    let wide = widened(&logits);
    let expected = naive(kind, &wide, &targets);
    let mean = loss / counted(kind, &targets);
    assert!((mean - expected).abs() <= 1e-5 * expected.max(1.0), "{mean} not {expected}");
    assert!((losses.iter().map(|x| f64::from(*x)).sum::<f64>() - loss).abs() < 1e-9);
    // Central differences at every entry of a small matrix, or at about 200 entries of a large one.
    let (h, stride) = (1e-4, (logits.len() / 200).max(1));
    let indices = (0..logits.len()).step_by(stride);
    let differences: Vec<f64> = indices
        .clone()
        .map(|index| {
            let at = |shift| {
                let row = index / vocab * vocab..(index / vocab + 1) * vocab;
                let mut logits = wide[row.clone()].to_vec();
                logits[index - row.start] += shift;
                naive(kind, &logits, &targets[index / vocab..=index / vocab]) / counted(kind, &targets)
            };
            (at(h) - at(-h)) / (2.0 * h)
        })
        .collect();
    // With a single token, softmax is 1 and the gradient 0 except for rounding.
    if vocab > 1 {
        assert_close("dx", &indices.map(|index| gradient[index]).collect::<Vec<_>>(), &differences);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn loss_matches_f64_and_finite_differences(
        rows in 1_usize..60, vocab in 1_usize..90,
    ) {
        for smoothing in [0.0, 0.1] {
            for ignored in [None, Some(0)] {
                check(&CrossEntropy { ignored, smoothing }, rows, vocab);
            }
        }
    }
}

#[test]
fn loss_of_equal_logits_is_log_vocab() {
    let (loss, losses, _) = run(&CrossEntropy::default(), &[7.0; 33], &[0, 5, 10]);
    assert!((loss / 3.0 - 11_f64.ln()).abs() < 1e-6, "{loss:?}");
    assert_eq!(losses, [losses[0]; 3]);
}

#[test]
fn ignored_rows_contribute_nothing() {
    let kind = CrossEntropy { ignored: Some(-100), smoothing: 0.1 };
    let (logits, mut targets) = case(7, 11);
    targets[2] = -100;
    targets[5] = -100;
    let (_, losses, gradient) = run(&kind, &logits, &targets);
    assert!(
        losses.iter().enumerate().all(|(row, loss)| (*loss == 0.0) == [2, 5].contains(&row)),
        "{losses:?}"
    );
    assert!(gradient[22..33].iter().chain(&gradient[55..66]).all(|g| *g == 0.0));
    let (loss, _, gradient) = run(&kind, &logits, &[-100; 7]);
    assert_eq!(loss, 0.0);
    assert!(gradient.iter().all(|g| *g == 0.0));
}

#[test]
fn score_returns_losses_and_first_argmax() {
    for (rows, vocab) in [(1, 1), (7, 11), (1_009, 67), (3, 5_003)] {
        let kind = CrossEntropy { ignored: Some(3), smoothing: 0.1 };
        let (mut logits, targets) = case(rows, vocab);
        // Rounding makes ties.
        logits.iter_mut().for_each(|x| *x = (8.0 * *x).round() / 8.0);
        let (_, expected, _) = run(&kind, &logits, &targets);
        let (mut losses, mut argmax) = (vec![f32::NAN; rows], vec![-1; rows]);
        score(&kind, &logits, &targets, &mut losses, &mut argmax);
        assert_eq!(losses, expected);
        for (row, token) in logits.chunks(vocab).zip(argmax) {
            let (before, after) = row.split_at(token as usize);
            let best = after[0];
            assert!(before.iter().all(|x| *x < best) && after.iter().all(|x| *x <= best));
        }
    }
}

#[test]
fn huge_logits_give_finite_losses() {
    let (loss, _, gradient) = run(&CrossEntropy::default(), &[1e4, -1e4, 0.0, 1e30, -1e30, 3.0], &[0, 2]);
    assert_eq!(loss, f64::from(1e30_f32));
    assert_eq!(gradient, [0.0, 0.0, 0.0, 0.5, 0.0, -0.5]);
}

#[test]
#[should_panic(expected = "target 11 is not a token of a vocabulary of 11")]
fn targets_beyond_the_vocabulary_are_refused() {
    run(&CrossEntropy::default(), &[0.0; 11], &[11]);
}

#[test]
fn results_are_bitwise_equal_across_thread_counts() {
    let (logits, targets) = case(5_003, 67);
    assert_same_on_any_number_of_threads(|| {
        let (loss, losses, gradient) =
            run(&CrossEntropy { ignored: Some(3), smoothing: 0.1 }, &logits, &targets);
        vec![vec![loss as f32], losses, gradient]
    });
}
