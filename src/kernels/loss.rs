//! Cross-entropy of logits `x` against target tokens `t`, in nats, with ignored targets and label smoothing.
//!
//! For each row, with `lse = ln(sum of e^x)` and smoothing `s` over `vocab` tokens:
//! `loss = (1 - s) (lse - x_t) + s (lse - mean(x))`, and its gradient is
//! `softmax(x) - (1 - s) [token = t] - s / vocab`. Rows whose target is to be ignored count for nothing.

use super::matrix::Tiles;
use super::parallel::{for_each_item, for_each_piece, rows_in_a_piece};
use super::vector::{map_into, max, sum_map, vectorized};

/// How targets are compared with logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    /// The target (padding) whose rows do not count.
    pub ignored: Option<i64>,
    /// The share of probability that is spread over all tokens, in [0, 1).
    pub smoothing: f32,
}

/// The loss of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The sum over the rows that count, in nats.
    pub sum: f64,
    /// How many rows count.
    pub rows: usize,
}

/// The loss of `logits`; `losses` receives each row's (zero for an ignored one) and `log_sum_exp` what the
/// backward pass needs.
///
/// # Shapes
/// `logits` `[rows, vocab]`; `targets`, `losses`, `log_sum_exp` `[rows]`.
///
/// # Panics
/// If the lengths do not fit each other, or a target that is not ignored is no token.
pub fn forward<T: Copy + Into<i64> + Sync>(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[T],
    losses: &mut [f32],
    log_sum_exp: &mut [f32],
) -> Loss {
    let (rows, vocab) = shape(logits, targets);
    assert!(losses.len() == rows && log_sum_exp.len() == rows, "losses of [{rows}]");
    let piece_rows = rows_in_a_piece(rows, 2 * vocab);
    let losses_of_pieces = Tiles::rows(losses, 1, piece_rows);
    let log_sum_exp = Tiles::rows(log_sum_exp, 1, piece_rows);
    for_each_piece(log_sum_exp.count(), piece_rows * vocab * 3, |piece| {
        let rows = log_sum_exp.place(piece).0;
        let logits = &logits[rows.start * vocab..rows.end * vocab];
        let (mut losses, mut log_sum_exp) = (losses_of_pieces.take(piece), log_sum_exp.take(piece));
        let (losses, log_sum_exp) = (losses.contiguous(), log_sum_exp.contiguous());
        log_sum_exp_rows(logits, vocab, log_sum_exp);
        for (row, target) in targets[rows].iter().enumerate() {
            losses[row] = row_loss(kind, &logits[row * vocab..][..vocab], *target, log_sum_exp[row]);
        }
    });
    drop(losses_of_pieces);
    Loss {
        sum: losses.iter().copied().map(f64::from).sum(),
        rows: targets.iter().filter(|target| token(kind, **target, vocab).is_some()).count(),
    }
}

/// `scale` times the gradient of the summed loss; for the mean loss `scale` is the mean's gradient over
/// [`Loss::rows`].
///
/// # Shapes
/// `logits` and `logits_gradient` `[rows, vocab]`; `targets` and `log_sum_exp` `[rows]`.
///
/// # Panics
/// If the lengths do not fit each other, or a target that is not ignored is no token.
pub fn backward<T: Copy + Into<i64> + Sync>(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[T],
    log_sum_exp: &[f32],
    scale: f32,
    logits_gradient: &mut [f32],
) {
    let (rows, vocab) = shape(logits, targets);
    assert_eq!(log_sum_exp.len(), rows, "log-sum-exp of [{rows}]");
    assert_eq!(logits_gradient.len(), logits.len(), "logits and gradient");
    let piece_rows = rows_in_a_piece(rows, 2 * vocab);
    let gradient = Tiles::rows(logits_gradient, vocab, piece_rows);
    let spread = kind.smoothing / vocab as f32;
    for_each_piece(gradient.count(), piece_rows * vocab * 3, |piece| {
        let rows = gradient.place(piece).0;
        let mut tile = gradient.take(piece);
        let tile = tile.contiguous();
        softmax_rows(
            &logits[rows.start * vocab..rows.end * vocab],
            &log_sum_exp[rows.clone()],
            spread,
            scale,
            tile,
        );
        for (target, gradient) in targets[rows].iter().zip(tile.chunks_exact_mut(vocab)) {
            match token(kind, *target, vocab) {
                None => gradient.fill(0.0),
                Some(target) => gradient[target] -= (1.0 - kind.smoothing) * scale,
            }
        }
    });
}

/// The loss and the likeliest token of each row, in one pass: what an evaluation counts. `losses` are those
/// of [`forward`]; of equally likely tokens the first is taken.
///
/// # Shapes
/// `logits` `[rows, vocab]`; `targets`, `losses`, `likeliest` `[rows]`.
///
/// # Panics
/// If the lengths do not fit each other, or a target that is not ignored is no token.
pub fn score<T: Copy + Into<i64> + Sync>(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[T],
    losses: &mut [f32],
    likeliest: &mut [i64],
) {
    let (rows, vocab) = shape(logits, targets);
    assert!(losses.len() == rows && likeliest.len() == rows, "losses and tokens of [{rows}]");
    let piece_rows = rows_in_a_piece(rows, 2 * vocab);
    let pieces = (logits.chunks(piece_rows * vocab).zip(targets.chunks(piece_rows)))
        .zip(losses.chunks_mut(piece_rows).zip(likeliest.chunks_mut(piece_rows)))
        .collect();
    for_each_item(pieces, piece_rows * vocab * 4, |((logits, targets), (losses, likeliest))| {
        log_sum_exp_rows(logits, vocab, losses);
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            losses[row] = row_loss(kind, logits, targets[row], losses[row]);
            likeliest[row] = first_largest(logits) as i64;
        }
    });
}

/// The loss of a row whose `log_sum_exp` is known.
fn row_loss<T: Into<i64>>(kind: &CrossEntropy, logits: &[f32], target: T, log_sum_exp: f32) -> f32 {
    let Some(target) = token(kind, target, logits.len()) else { return 0.0 };
    let hit = log_sum_exp - logits[target];
    if kind.smoothing == 0.0 {
        return hit;
    }
    let spread = log_sum_exp - sum(logits) / logits.len() as f32;
    (1.0 - kind.smoothing) * hit + kind.smoothing * spread
}

/// Where the largest number stands first; 0 where there is none.
fn first_largest(row: &[f32]) -> usize {
    let largest = largest(row);
    row.iter().position(|&x| x == largest).unwrap_or(0)
}

fn shape<T>(logits: &[f32], targets: &[T]) -> (usize, usize) {
    let rows = targets.len();
    let vocab = logits.len().checked_div(rows).unwrap_or(1);
    assert!(vocab > 0 && rows * vocab == logits.len(), "{} logits for {rows} targets", logits.len());
    (rows, vocab)
}

/// The target as a token, `None` where it is ignored.
#[inline]
fn token<T: Into<i64>>(kind: &CrossEntropy, target: T, vocab: usize) -> Option<usize> {
    let target: i64 = target.into();
    if kind.ignored == Some(target) {
        return None;
    }
    match usize::try_from(target) {
        Ok(token) if token < vocab => Some(token),
        _ => panic!("target {target} is no token of a vocabulary of {vocab}"),
    }
}

vectorized! {
    fn log_sum_exp_rows(simd; logits: &[f32], vocab: usize, log_sum_exp: &mut [f32]) {
        for (row, log_sum_exp) in logits.chunks_exact(vocab).zip(log_sum_exp) {
            let largest = max(simd, row);
            let total = sum_map(simd, [row], |[x]| (x - largest).exp());
            *log_sum_exp = largest + total.ln();
        }
    }

    fn sum(simd; row: &[f32]) -> f32 { sum_map(simd, [row], |[x]| x) }

    fn largest(simd; row: &[f32]) -> f32 { max(simd, row) }

    /// `gradient = scale * (softmax(logits) - spread)`.
    fn softmax_rows(
        simd; logits: &[f32], log_sum_exp: &[f32], spread: f32, scale: f32, gradient: &mut [f32],
    ) {
        let vocab = gradient.len() / log_sum_exp.len().max(1);
        let rows = logits.chunks_exact(vocab).zip(gradient.chunks_exact_mut(vocab)).zip(log_sum_exp);
        for ((logits, gradient), &log_sum_exp) in rows {
            map_into(simd, gradient, [logits], |[x]| scale * ((x - log_sum_exp).exp() - spread));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{assert_close, assert_same_on_any_number_of_threads, random, widened};
    use super::*;

    /// The mean loss in double precision.
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

    fn run(kind: &CrossEntropy, logits: &[f32], targets: &[i64]) -> (Loss, Vec<f32>, Vec<f32>) {
        let (mut losses, mut lse) = (vec![f32::NAN; targets.len()], vec![f32::NAN; targets.len()]);
        let loss = forward(kind, logits, targets, &mut losses, &mut lse);
        let mut gradient = vec![f32::NAN; logits.len()];
        backward(kind, logits, targets, &lse, 1.0 / loss.rows.max(1) as f32, &mut gradient);
        (loss, losses, gradient)
    }

    fn check(kind: &CrossEntropy, rows: usize, vocab: usize) {
        let (logits, targets) = case(rows, vocab);
        let (loss, losses, gradient) = run(kind, &logits, &targets);
        let wide = widened(&logits);
        let expected = naive(kind, &wide, &targets);
        let mean = loss.sum / loss.rows.max(1) as f64;
        assert!((mean - expected).abs() <= 1e-5 * expected.max(1.0), "{mean} not {expected}");
        assert!((losses.iter().map(|x| f64::from(*x)).sum::<f64>() - loss.sum).abs() < 1e-9);
        // Central differences; every entry, where there are few.
        let (h, stride) = (1e-4, (logits.len() / 200).max(1));
        let places = (0..logits.len()).step_by(stride);
        let differences: Vec<f64> = places
            .clone()
            .map(|place| {
                let at = |shift| {
                    let row = place / vocab * vocab..(place / vocab + 1) * vocab;
                    let mut logits = wide[row.clone()].to_vec();
                    logits[place - row.start] += shift;
                    naive(kind, &logits, &targets[place / vocab..=place / vocab]) / loss.rows.max(1) as f64
                };
                (at(h) - at(-h)) / (2.0 * h)
            })
            .collect();
        // The softmax of one token is 1 and its gradient 0, but for rounding.
        if vocab > 1 {
            assert_close("dx", &places.map(|place| gradient[place]).collect::<Vec<_>>(), &differences);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn loss_agrees_with_f64_and_gradient_with_finite_differences(
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
    fn equal_logits_cost_the_logarithm_of_the_vocabulary() {
        let (loss, losses, _) = run(&CrossEntropy::default(), &[7.0; 33], &[0, 5, 10]);
        assert!((loss.sum / 3.0 - 11_f64.ln()).abs() < 1e-6, "{loss:?}");
        assert_eq!(losses, [losses[0]; 3]);
    }

    #[test]
    fn ignored_rows_count_for_nothing() {
        let kind = CrossEntropy { ignored: Some(-100), smoothing: 0.1 };
        let (logits, mut targets) = case(7, 11);
        targets[2] = -100;
        targets[5] = -100;
        let (loss, losses, gradient) = run(&kind, &logits, &targets);
        assert_eq!((loss.rows, losses[2], losses[5]), (5, 0.0, 0.0));
        assert!(gradient[22..33].iter().chain(&gradient[55..66]).all(|g| *g == 0.0));
        let (none, _, gradient) = run(&kind, &logits, &[-100; 7]);
        assert_eq!(none, Loss { sum: 0.0, rows: 0 });
        assert!(gradient.iter().all(|g| *g == 0.0));
    }

    #[test]
    fn a_score_is_the_loss_and_the_first_of_the_largest() {
        for (rows, vocab) in [(1, 1), (7, 11), (1_009, 67), (3, 5_003)] {
            let kind = CrossEntropy { ignored: Some(3), smoothing: 0.1 };
            let (mut logits, targets) = case(rows, vocab);
            // Ties.
            logits.iter_mut().for_each(|x| *x = (8.0 * *x).round() / 8.0);
            let (_, expected, _) = run(&kind, &logits, &targets);
            let (mut losses, mut likeliest) = (vec![f32::NAN; rows], vec![-1; rows]);
            score(&kind, &logits, &targets, &mut losses, &mut likeliest);
            assert_eq!(losses, expected);
            for (row, token) in logits.chunks(vocab).zip(likeliest) {
                let (before, after) = row.split_at(token as usize);
                let best = after[0];
                assert!(before.iter().all(|x| *x < best) && after.iter().all(|x| *x <= best));
            }
        }
    }

    #[test]
    fn huge_logits_give_finite_losses() {
        let (loss, _, gradient) = run(&CrossEntropy::default(), &[1e4, -1e4, 0.0, 1e30, -1e30, 3.0], &[0, 2]);
        assert_eq!(loss.sum, f64::from(1e30_f32));
        assert_eq!(gradient, [0.0, 0.0, 0.0, 0.5, 0.0, -0.5]);
    }

    #[test]
    #[should_panic(expected = "target 11 is no token of a vocabulary of 11")]
    fn a_target_beyond_the_vocabulary_is_refused() {
        run(&CrossEntropy::default(), &[0.0; 11], &[11]);
    }

    #[test]
    fn results_have_the_same_bits_on_any_number_of_threads() {
        let (logits, targets) = case(5_003, 67);
        assert_same_on_any_number_of_threads(|| {
            let (loss, losses, gradient) =
                run(&CrossEntropy { ignored: Some(3), smoothing: 0.1 }, &logits, &targets);
            vec![vec![loss.sum as f32], losses, gradient]
        });
    }
}
