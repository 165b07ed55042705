//! Cross-entropy of logits `x` with target tokens `t`, in nats, with ignored targets and label smoothing.
//!
//! For each row, with `lse = ln(sum of e^x)` and smoothing `s` over `vocab` tokens:
//! `loss = (1 - s) (lse - x_t) + s (lse - mean(x))`, and its gradient is
//! `softmax(x) - (1 - s) [token = t] - s / vocab`. Rows with an ignored target contribute nothing.

use rayon::prelude::*;

use super::parallel::{for_each, rows_per_piece};
use super::vector::{max, sum_map, update, vectorized};

/// The options of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    /// The target (padding) whose rows are ignored.
    pub ignored: Option<i64>,
    /// The label smoothing: the share of the probability that is spread over all tokens, in [0, 1).
    pub smoothing: f32,
}

/// Returns the loss of `logits` in nats, summed over the rows that are not ignored. `losses` receives the loss of each
/// row (zero if ignored), and `log_sum_exp` the log-sum-exp of each row for the backward pass.
///
/// # Shapes
/// `logits` `[rows, vocab]`; `targets`, `losses`, `log_sum_exp` `[rows]`.
///
/// # Panics
/// Panics if the lengths do not match, or if a target is neither ignored nor a token.
pub fn forward(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[i64],
    losses: &mut [f32],
    log_sum_exp: &mut [f32],
) -> f64 {
    each_row(kind, logits, targets, losses, log_sum_exp, |_, log_sum_exp| log_sum_exp);
    losses.iter().copied().map(f64::from).sum()
}

/// Computes `scale` times the gradient of the summed loss. For the mean loss, `scale` is the gradient of the mean
/// divided by the number of rows that are not ignored.
///
/// # Shapes
/// `logits` and `logits_gradient` `[rows, vocab]`; `targets` and `log_sum_exp` `[rows]`.
///
/// # Panics
/// Panics if the lengths do not match, or if a target is neither ignored nor a token.
pub fn backward(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[i64],
    log_sum_exp: &[f32],
    scale: f32,
    logits_gradient: &mut [f32],
) {
    let (rows, vocab) = shape(logits, targets);
    assert_eq!(log_sum_exp.len(), rows, "log-sum-exp of [{rows}]");
    assert_eq!(logits_gradient.len(), logits.len(), "logits and their gradient must have the same length");
    let piece_rows = rows_per_piece(rows, 2 * vocab);
    let spread = kind.smoothing / vocab as f32;
    let rows = targets.par_chunks(piece_rows).zip(log_sum_exp.par_chunks(piece_rows));
    let values =
        logits.par_chunks(piece_rows * vocab).zip(logits_gradient.par_chunks_mut(piece_rows * vocab));
    for_each(rows.zip(values), piece_rows * vocab * 3, |((targets, log_sum_exp), (logits, gradient))| {
        softmax_rows(logits, log_sum_exp, spread, scale, gradient);
        for (target, gradient) in targets.iter().zip(gradient.chunks_exact_mut(vocab)) {
            match token(kind, *target, vocab) {
                None => gradient.fill(0.0),
                Some(target) => gradient[target] -= (1.0 - kind.smoothing) * scale,
            }
        }
    });
}

/// Computes the loss and the argmax of each row in one pass, for evaluation. `losses` are the same as in [`forward`];
/// ties go to the first token.
///
/// # Shapes
/// `logits` `[rows, vocab]`; `targets`, `losses`, `argmax` `[rows]`.
///
/// # Panics
/// Panics if the lengths do not match, or if a target is neither ignored nor a token.
pub fn score(kind: &CrossEntropy, logits: &[f32], targets: &[i64], losses: &mut [f32], argmax: &mut [i64]) {
    each_row(kind, logits, targets, losses, argmax, |logits, _| first_largest(logits) as i64);
}

/// Computes the loss of each row, and the result of `other` for the row's logits and log-sum-exp.
fn each_row<T: Send>(
    kind: &CrossEntropy,
    logits: &[f32],
    targets: &[i64],
    losses: &mut [f32],
    others: &mut [T],
    other: impl Fn(&[f32], f32) -> T + Sync + Send,
) {
    let (rows, vocab) = shape(logits, targets);
    assert_eq!([losses.len(), others.len()], [rows; 2], "losses and other results of [{rows}]");
    let piece_rows = rows_per_piece(rows, 2 * vocab);
    let read = logits.par_chunks(piece_rows * vocab).zip(targets.par_chunks(piece_rows));
    let written = losses.par_chunks_mut(piece_rows).zip(others.par_chunks_mut(piece_rows));
    for_each(read.zip(written), piece_rows * vocab * 3, |((logits, targets), (losses, others))| {
        log_sum_exp_rows(logits, vocab, losses);
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            others[row] = other(logits, losses[row]);
            losses[row] = row_loss(kind, logits, targets[row], losses[row]);
        }
    });
}

/// Returns the loss of a row with a known `log_sum_exp`.
fn row_loss(kind: &CrossEntropy, logits: &[f32], target: i64, log_sum_exp: f32) -> f32 {
    let Some(target) = token(kind, target, logits.len()) else { return 0.0 };
    let target_loss = log_sum_exp - logits[target];
    if kind.smoothing == 0.0 {
        return target_loss;
    }
    let mean_loss = log_sum_exp - sum(logits) / logits.len() as f32;
    (1.0 - kind.smoothing) * target_loss + kind.smoothing * mean_loss
}

/// Returns the index of the first maximum; 0 if there is none.
fn first_largest(row: &[f32]) -> usize {
    let largest = largest(row);
    row.iter().position(|&x| x == largest).unwrap_or(0)
}

fn shape(logits: &[f32], targets: &[i64]) -> (usize, usize) {
    let rows = targets.len();
    let vocab = logits.len().checked_div(rows).unwrap_or(1);
    assert!(vocab > 0 && rows * vocab == logits.len(), "{} logits for {rows} targets", logits.len());
    (rows, vocab)
}

/// Returns the target as a token, or `None` if it is ignored.
fn token(kind: &CrossEntropy, target: i64, vocab: usize) -> Option<usize> {
    if kind.ignored == Some(target) {
        return None;
    }
    match usize::try_from(target) {
        Ok(token) if token < vocab => Some(token),
        _ => panic!("target {target} is not a token of a vocabulary of {vocab}"),
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

    /// Computes `gradient = scale * (softmax(logits) - spread)`.
    fn softmax_rows(
        simd; logits: &[f32], log_sum_exp: &[f32], spread: f32, scale: f32, gradient: &mut [f32],
    ) {
        let vocab = gradient.len() / log_sum_exp.len().max(1);
        let rows = logits.chunks_exact(vocab).zip(gradient.chunks_exact_mut(vocab)).zip(log_sum_exp);
        for ((logits, gradient), &log_sum_exp) in rows {
            update(simd, gradient, [logits], |_, [x]| scale * ((x - log_sum_exp).exp() - spread));
        }
    }
}

#[cfg(test)]
mod tests;
