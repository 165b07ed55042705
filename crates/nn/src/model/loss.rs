//! The loss: cross-entropy in nats.
//!
//! `-log p(target)`, summed over the counted targets. The caller divides by their number, so that batches of different
//! sizes, or parts of a batch, are weighted by their tokens. Padding is never counted, whereas Burn's own mean loss
//! includes padding in the divisor (tracel-ai/burn issue 5568).

use burn::tensor::{Bool, Int, Tensor, backend::Backend};

use crate::{Error, Result, error::ensure, ops, range};

/// Returns the summed cross-entropy of the counted targets, in nats.
///
/// With `smoothing` e in [0, 1), the target distribution has `1 - e` on the true token, and `e` is spread uniformly
/// over the vocabulary (Szegedy et al., 2016, arXiv 1512.00567).
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]`; `true` in `hidden` excludes a target,
/// whatever its id. The result is `[1]`.
///
/// # Errors
/// [`Error::Shape`] with both shapes if they do not match, or with the id of a counted target that has no logit; ids are
/// checked on the CPU only. [`Error::Argument`] if `smoothing` is outside [0, 1).
pub fn cross_entropy<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    smoothing: f64,
) -> Result<Tensor<B, 1>> {
    range::check("smoothing", smoothing.into(), range::Range::FRACTION)?;
    let [batch, time, vocab] = logits.dims();
    let hidden_dims = hidden.as_ref().map_or([batch, time], Tensor::dims);
    for (name, dims) in [("targets", targets.dims()), ("hidden targets", hidden_dims)] {
        ensure(dims == [batch, time], Error::Shape, || {
            let logits = [batch, time, vocab];
            format!("the {name} of the loss are {dims:?}, but logits of {logits:?} require [{batch}, {time}]")
        })?;
    }
    // A hidden target may have any id.
    let counted = |hidden: Tensor<B, 2, Bool>| targets.clone().mask_fill(hidden, 0);
    let unknown = ops::id_outside(&targets, vocab)
        .and_then(|id| hidden.clone().map_or(Some(id), |hidden| ops::id_outside(&counted(hidden), vocab)));
    ensure(unknown.is_none(), Error::Shape, || {
        let (id, last) = (unknown.unwrap_or_default(), vocab - 1);
        format!("the targets of the loss contain the id {id}, but the logits are for the ids 0 to {last}")
    })?;
    Ok(ops::cross_entropy(logits, targets, hidden, smoothing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    type B = NdArray;

    /// Logits whose softmax is 1/2, 1/4, 1/8, 1/8 at every position.
    fn logits(batch: usize, time: usize) -> Tensor<B, 3> {
        let row = [8f32.ln(), 4f32.ln(), 2f32.ln(), 2f32.ln()];
        let row = Tensor::<B, 1>::from_floats(row, &Default::default());
        row.reshape([1, 1, 4]).expand([batch, time, 4])
    }

    fn loss(targets: [[i64; 3]; 2], hidden: Option<[[bool; 3]; 2]>, smoothing: f64) -> f64 {
        let device = Default::default();
        let hidden = hidden.map(|hidden| Tensor::from_data(hidden, &device));
        let targets = Tensor::from_ints(targets, &device);
        f64::from(cross_entropy(logits(2, 3), targets, hidden, smoothing).unwrap().into_scalar())
    }

    #[test]
    fn loss_is_the_sum_of_negative_logarithms() {
        // 1 + 2 + 3 + 3 + 1 + 1 bits.
        let expected = 11.0 * std::f64::consts::LN_2;
        assert!((loss([[0, 1, 2], [3, 0, 0]], None, 0.0) - expected).abs() < 1e-5);
    }

    #[test]
    fn targets_outside_the_vocabulary_are_refused() {
        for id in [-1, 4] {
            let targets = Tensor::<B, 2, Int>::from_ints([[0, id]], &Default::default());
            let error = cross_entropy(logits(1, 2), targets, None, 0.0).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("contain the id {id}, but the logits are for the ids 0 to 3")),
                "{error}"
            );
        }
    }

    #[test]
    fn padding_ids_do_not_change_the_loss() {
        let hidden = [[false, true, false], [true, true, true]];
        let expected = 4.0 * std::f64::consts::LN_2;
        for padding in [0, -1, 99] {
            let targets = [[0, padding, 2], [padding; 3]];
            assert!((loss(targets, Some(hidden), 0.0) - expected).abs() < 1e-5, "{padding}");
        }
    }

    #[test]
    fn smoothing_mixes_in_the_mean_over_the_vocabulary() {
        // 9/10 of 11 bits, plus 1/10 of 6 times the mean (1 + 2 + 3 + 3) / 4.
        let expected = (0.9 * 11.0 + 0.1 * 6.0 * 9.0 / 4.0) * std::f64::consts::LN_2;
        assert!((loss([[0, 1, 2], [3, 0, 0]], None, 0.1) - expected).abs() < 1e-5);
    }
}
