//! The loss: cross-entropy in nats.
//!
//! `-log p(target)`, summed over the targets that count. The caller divides by their number, so
//! that batches of different sizes, or parts of one, are weighed by their tokens. Padding is never
//! counted: the mean of Burn's own loss divides by it too (tracel-ai/burn issue 5568).

use burn::tensor::{Bool, Int, Tensor};

use crate::ops;

/// The summed cross-entropy of the counted targets, in nats.
///
/// With `smoothing` e in [0, 1) the target is `1 - e` on the true token and `e` spread evenly
/// over the vocabulary (Szegedy et al., 2016, arXiv 1512.00567).
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]`; `true` in `hidden` is
/// a target that does not count, whatever id stands there. The result is `[1]`.
///
/// # Panics
/// Where the shapes do not fit, naming both: a programmer's error.
pub fn cross_entropy<B: ops::Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    smoothing: f64,
) -> Tensor<B, 1> {
    let [batch, time, _] = logits.dims();
    assert_eq!(targets.dims(), [batch, time], "targets and logits must share batch and time");
    if let Some(hidden) = &hidden {
        assert_eq!(hidden.dims(), [batch, time], "hidden targets and logits must share batch and time");
    }
    ops::cross_entropy(logits, targets, hidden, smoothing)
}
