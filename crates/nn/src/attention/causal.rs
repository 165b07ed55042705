//! Causal attention with one head: no token sees a later one, in two ways that agree.
//!
//! ```text
//! weights times a triangle:  softmax(s), zeros above the diagonal, each row divided by its sum
//! scores to -inf:            softmax(s + mask), mask = -inf above the diagonal
//! ```
//!
//! They agree since `exp(-inf) = 0`: dividing by the sum of what is left is what the softmax does
//! itself. The second needs one pass less, and never lets a hidden key touch a number.
//!
//! While training, dropout sets weights to zero with probability `p` and scales the others by
//! `1 / (1 - p)`, so that no token can rely on one other alone.

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Bool, Tensor, backend::Backend};

use super::check_dropout;
use super::mask::future;
use super::score::{self, AttentionOutput};
use super::trainable::{TrainableAttention, TrainableAttentionConfig};
use crate::error::ensure;
use crate::{Error, Result, ops};

/// How the future is hidden; both give the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// Scores above the diagonal become -inf before the softmax.
    Scores,
    /// Weights above the diagonal become zero after the softmax, and rows are renormalised. Where a hidden score
    /// is above all others of its row by more than about 100, these are zero before that, and nothing is left to
    /// renormalise: hence the other way is the usual one.
    Weights,
}

/// Scores with -inf where `hidden` is `true`.
///
/// # Shapes
/// `scores` `[.., query_time, key_time]`, `hidden` the last two axes of it.
///
/// # Errors
/// [`Error::Shape`] where the mask has other sizes.
pub fn mask_scores<B: Backend, const D: usize>(
    scores: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
) -> Result<Tensor<B, D>> {
    fill(scores, hidden, f32::NEG_INFINITY)
}

/// Weights with zeros where `hidden` is `true`; rows no longer sum to one.
///
/// # Shapes
/// As [`mask_scores`].
///
/// # Errors
/// As [`mask_scores`].
pub fn mask_weights<B: Backend, const D: usize>(
    weights: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
) -> Result<Tensor<B, D>> {
    fill(weights, hidden, 0.0)
}

/// `value` where `hidden`, the same for whatever stands before the last two axes.
fn fill<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
    value: f32,
) -> Result<Tensor<B, D>> {
    let (dims, of_mask) = (tensor.dims(), hidden.dims());
    ensure(D >= 2 && dims[D - 2..] == of_mask, Error::Shape, || {
        format!("a mask of {of_mask:?} must have the last two axes of {dims:?}, [.., query_time, key_time]")
    })?;
    Ok(tensor.mask_fill(hidden.unsqueeze::<D>().expand(dims), value))
}

/// Weights divided by the sum of their row, which must not be zero.
///
/// # Shapes
/// `[.., query_time, key_time]`, in and out.
pub fn renormalise<B: Backend, const D: usize>(weights: Tensor<B, D>) -> Tensor<B, D> {
    weights.clone() / weights.sum_dim(D - 1)
}

/// What a [`CausalAttention`] is built from.
#[derive(Config, Debug)]
pub struct CausalAttentionConfig {
    /// Width of the input.
    pub d_in: usize,
    /// Width of queries, keys, values and context.
    pub d_out: usize,
    /// Longest sequence.
    pub context: usize,
    /// Probability of dropping a weight while training.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the projections have biases.
    #[config(default = false)]
    pub bias: bool,
}

/// One head of causal self-attention.
#[derive(Module, Debug)]
pub struct CausalAttention<B: Backend> {
    /// Queries, keys and values.
    pub projection: TrainableAttention<B>,
    /// On the weights.
    pub dropout: Dropout,
    /// The future, `[context, context]`: no parameter, but it follows the module to its device.
    pub hidden: Tensor<B, 2, Bool>,
}

impl CausalAttentionConfig {
    /// The module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Shape`] where a size is zero, [`Error::Argument`] where the dropout lies outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<CausalAttention<B>> {
        check_dropout(self.dropout)?;
        ensure(self.context > 0, Error::Shape, || "the context is 0, but must be at least 1".into())?;
        let projection = TrainableAttentionConfig::new(self.d_in, self.d_out).with_bias(self.bias);
        Ok(CausalAttention {
            projection: projection.init(device)?,
            dropout: DropoutConfig::new(self.dropout).init(),
            hidden: future(self.context, device),
        })
    }
}

impl<B: Backend> CausalAttention<B> {
    /// Attends to each token and those before it. The scores returned are masked if they were
    /// masked; the weights are those that were applied.
    ///
    /// # Shapes
    /// `x` `[batch, time, d_in]` with `time` up to the context; scores and weights are
    /// `[batch, time, time]`, the context `[batch, time, d_out]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the input is not `d_in` wide or longer than the context.
    pub fn forward(&self, x: Tensor<B, 3>, masking: Masking) -> Result<AttentionOutput<B, 3>> {
        let [_, time, _] = x.dims();
        let [context, _] = self.hidden.dims();
        ensure(time <= context, Error::Shape, || {
            format!("a sequence of {time} tokens is longer than the context of {context}")
        })?;
        let hidden = self.hidden.clone().slice([0..time, 0..time]);

        let [query, key, value] = self.projection.project(x)?; // [batch, time, d_out]
        let [_, _, d_out] = key.dims();
        let scores = score::scores(query, key)?; // [batch, time, time]
        let (scores, weights) = match masking {
            Masking::Scores => {
                let scores = mask_scores(scores, hidden)?;
                (scores.clone(), score::weights(scores, d_out))
            }
            Masking::Weights => {
                let weights = mask_weights(score::weights(scores.clone(), d_out), hidden)?;
                (scores, renormalise(weights))
            }
        };
        let weights = ops::dropout(&self.dropout, weights);
        let context = score::context(weights.clone(), value)?; // [batch, time, d_out]
        Ok(AttentionOutput { scores, weights, context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, TensorData, Tolerance};
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    fn attention<B: Backend>(dropout: f64) -> CausalAttention<B> {
        CausalAttentionConfig::new(5, 3, 11).with_dropout(dropout).init(&Default::default()).unwrap()
    }

    fn input<B: Backend>() -> Tensor<B, 3> {
        Tensor::random([2, 7, 5], Distribution::Default, &Default::default())
    }

    #[test]
    fn both_maskings_give_the_same() {
        let (attention, x) = (attention::<NdArray>(0.0), input());
        let by_scores = attention.forward(x.clone(), Masking::Scores).unwrap();
        let by_weights = attention.forward(x, Masking::Weights).unwrap();
        let close = |a: Tensor<NdArray, 3>, b: Tensor<NdArray, 3>| {
            a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::absolute(1e-6));
        };
        close(by_scores.weights, by_weights.weights);
        close(by_scores.context, by_weights.context);
    }

    #[test]
    fn the_future_has_a_weight_of_exactly_zero() {
        for masking in [Masking::Scores, Masking::Weights] {
            let weights = attention::<NdArray>(0.0).forward(input(), masking).unwrap().weights;
            let future = future(7, &Default::default()).unsqueeze::<3>().expand([2, 7, 7]);
            let shown = weights.mask_fill(future.bool_not(), 0.0);
            assert_eq!(shown.into_data(), TensorData::zeros::<f32, _>([2, 7, 7]), "{masking:?}");
        }
    }

    #[test]
    fn equal_inputs_differ_in_training_and_agree_in_inference() {
        type B = Autodiff<NdArray>;
        let attention = attention::<B>(0.5);
        let one = input::<B>().narrow(0, 0, 1);
        let pair = Tensor::cat(vec![one.clone(), one], 0);
        let halves = |context: TensorData| {
            let values = context.to_vec::<f32>().unwrap();
            let (first, second) = values.split_at(values.len() / 2);
            (first.to_vec(), second.to_vec())
        };

        let training = attention.forward(pair.clone(), Masking::Scores).unwrap();
        let (first, second) = halves(training.context.into_data());
        assert_ne!(first, second);

        use burn::module::AutodiffModule;
        let inference = attention.valid().forward(pair.inner(), Masking::Scores).unwrap();
        let (first, second) = halves(inference.context.into_data());
        assert_eq!(first, second);
    }

    #[test]
    fn dropout_scales_what_it_keeps() {
        type B = Autodiff<NdArray>;
        let ones = Tensor::<B, 2>::ones([101, 103], &Default::default());
        let dropout = DropoutConfig::new(0.2).init();
        let values = ops::dropout(&dropout, ones).into_data().to_vec::<f32>().unwrap();
        assert!(values.iter().all(|&x| x == 0.0 || (x - 1.25).abs() < 1e-6));
        let kept = values.iter().filter(|&&x| x > 0.0).count() as f64 / values.len() as f64;
        // Six deviations of a binomial share of 10,403 draws.
        assert!((kept - 0.8).abs() < 6.0 * (0.8f64 * 0.2 / 10_403.0).sqrt(), "{kept}");
    }

    #[test]
    fn the_mask_is_no_parameter() {
        let attention = attention::<NdArray>(0.0);
        assert_eq!(attention.num_params(), 3 * 5 * 3);
        assert_eq!(attention.hidden.dims(), [11, 11]);
    }

    #[test]
    fn a_mask_of_the_wrong_size_names_both_shapes() {
        let scores = Tensor::<NdArray, 3>::zeros([2, 5, 5], &Default::default());
        for masked in [mask_scores, mask_weights] {
            let error = masked(scores.clone(), future(7, &Default::default())).unwrap_err().to_string();
            assert!(error.contains("[7, 7]") && error.contains("[2, 5, 5]"), "{error}");
        }
    }

    #[test]
    fn a_sequence_beyond_the_context_names_both_lengths() {
        let x = Tensor::<NdArray, 3>::zeros([2, 13, 5], &Default::default());
        let error = attention(0.0).forward(x, Masking::Scores).unwrap_err().to_string();
        assert_eq!(error, "a sequence of 13 tokens is longer than the context of 11");
    }
}
