//! Causal attention with one head: no token attends to a later one. Two equivalent maskings:
//!
//! ```text
//! weights times a triangle:  softmax(s), zeros above the diagonal, each row divided by its sum
//! scores to -inf:            softmax(s + mask), mask = -inf above the diagonal
//! ```
//!
//! They agree because `exp(-inf) = 0`: the softmax itself divides by the sum of the remaining exponentials. The second
//! form saves a pass, and hidden keys do not influence any number.
//!
//! In training, dropout sets weights to zero with probability `p` and scales the others by `1 / (1 - p)`. So no token
//! can rely on a single other token.

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Bool, Tensor, backend::Backend};

use super::check_dropout;
use super::mask::causal_mask;
use super::score::{self, AttentionOutput};
use super::trainable::{TrainableAttention, TrainableAttentionConfig};
use crate::display::display_line;
use crate::error::ensure;
use crate::{Error, Result, ops};

/// The method of hiding the future; both variants give the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// Sets scores above the diagonal to -inf before the softmax.
    Scores,
    /// Sets weights above the diagonal to zero after the softmax, and renormalises the rows. If a hidden score exceeds
    /// all others of its row by more than about 100, the visible weights underflow to zero. Nothing is then left to
    /// renormalise, so `Scores` is the usual choice.
    Weights,
}

/// Replaces scores by -inf where `hidden` is `true`.
///
/// # Shapes
/// `scores` `[.., query_time, key_time]`, `hidden` `[query_time, key_time]`.
///
/// # Errors
/// [`Error::Shape`] if the mask does not match the last two axes.
pub fn mask_scores<B: Backend, const D: usize>(
    scores: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
) -> Result<Tensor<B, D>> {
    fill(scores, hidden, f32::NEG_INFINITY)
}

/// Replaces weights by zeros where `hidden` is `true`; rows no longer sum to one.
///
/// # Shapes
/// Same as [`mask_scores`].
///
/// # Errors
/// Same as [`mask_scores`].
pub fn mask_weights<B: Backend, const D: usize>(
    weights: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
) -> Result<Tensor<B, D>> {
    fill(weights, hidden, 0.0)
}

/// Writes `value` where `hidden` is `true`, broadcast over the axes before the last two.
fn fill<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    hidden: Tensor<B, 2, Bool>,
    value: f32,
) -> Result<Tensor<B, D>> {
    let (dims, mask_dims) = (tensor.dims(), hidden.dims());
    ensure(D >= 2 && dims[D - 2..] == mask_dims, Error::Shape, || {
        format!(
            "the mask is {mask_dims:?}, but must match the last two axes of {dims:?}, [.., query_time, key_time]"
        )
    })?;
    Ok(tensor.mask_fill(hidden.unsqueeze::<D>().expand(dims), value))
}

/// Divides weights by the sum of their row, which must not be zero.
///
/// # Shapes
/// `[.., query_time, key_time]`, in and out.
pub fn renormalise<B: Backend, const D: usize>(weights: Tensor<B, D>) -> Tensor<B, D> {
    weights.clone() / weights.sum_dim(D - 1)
}

/// The configuration of a [`CausalAttention`].
#[derive(Config, Debug)]
pub struct CausalAttentionConfig {
    /// The width of the input.
    pub d_in: usize,
    /// The width of queries, keys, values and context.
    pub d_out: usize,
    /// The length of the longest sequence.
    pub context: usize,
    /// The probability of dropping an attention weight in training.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// True if the projections have biases.
    #[config(default = false)]
    pub bias: bool,
}

/// One head of causal self-attention.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct CausalAttention<B: Backend> {
    /// The projections to queries, keys and values.
    pub projection: TrainableAttention<B>,
    /// The dropout of the attention weights.
    pub dropout: Dropout,
    /// The causal mask, `[context, context]`: not a parameter, but it moves to other devices with the module.
    pub hidden: Tensor<B, 2, Bool>,
}

display_line!(CausalAttention, self => {
    d_in: self.projection.query.weight.lazy_shape().dims::<2>()[0],
    d_out: self.projection.query.weight.lazy_shape().dims::<2>()[1],
    context: self.hidden.dims()[0],
    bias: self.projection.query.bias.is_some(),
    dropout: self.dropout.prob,
});

impl CausalAttentionConfig {
    /// Returns the module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is zero or the dropout is outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<CausalAttention<B>> {
        check_dropout(self.dropout)?;
        Error::check(self.context > 0, "context", self.context, "must be at least 1")?;
        let projection = TrainableAttentionConfig::new(self.d_in, self.d_out).with_bias(self.bias);
        Ok(CausalAttention {
            projection: projection.init(device)?,
            dropout: DropoutConfig::new(self.dropout).init(),
            hidden: causal_mask(self.context, device),
        })
    }
}

impl<B: Backend> CausalAttention<B> {
    /// Lets each token attend to itself and the tokens before it. With [`Masking::Scores`], the returned scores are
    /// masked. The returned weights are those applied to the values.
    ///
    /// # Shapes
    /// `x` `[batch, time, d_in]` with `time` up to the context; scores and weights are
    /// `[batch, time, time]`, the context `[batch, time, d_out]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the input is not `d_in` wide or is longer than the context.
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
    fn both_maskings_agree() {
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
    fn future_keys_have_exactly_zero_weight() {
        for masking in [Masking::Scores, Masking::Weights] {
            let weights = attention::<NdArray>(0.0).forward(input(), masking).unwrap().weights;
            let future = causal_mask(7, &Default::default()).unsqueeze::<3>().expand([2, 7, 7]);
            let of_future = weights.mask_fill(future.bool_not(), 0.0);
            assert_eq!(of_future.into_data(), TensorData::zeros::<f32, _>([2, 7, 7]), "{masking:?}");
        }
    }

    #[test]
    fn dropout_is_active_only_in_training() {
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
    fn dropout_scales_the_kept_values() {
        type B = Autodiff<NdArray>;
        let ones = Tensor::<B, 2>::ones([101, 103], &Default::default());
        let dropout = DropoutConfig::new(0.2).init();
        let values = ops::dropout(&dropout, ones).into_data().to_vec::<f32>().unwrap();
        assert!(values.iter().all(|&x| x == 0.0 || (x - 1.25).abs() < 1e-6));
        let kept = values.iter().filter(|&&x| x > 0.0).count() as f64 / values.len() as f64;
        // Six standard deviations of a binomial proportion over 10,403 draws.
        assert!((kept - 0.8).abs() < 6.0 * (0.8f64 * 0.2 / 10_403.0).sqrt(), "{kept}");
    }

    #[test]
    fn mask_is_not_a_parameter() {
        let attention = attention::<NdArray>(0.0);
        assert_eq!(attention.num_params(), 3 * 5 * 3);
        assert_eq!(attention.hidden.dims(), [11, 11]);
    }

    #[test]
    fn mask_size_mismatch_reports_both_shapes() {
        let scores = Tensor::<NdArray, 3>::zeros([2, 5, 5], &Default::default());
        for masked in [mask_scores, mask_weights] {
            let error = masked(scores.clone(), causal_mask(7, &Default::default())).unwrap_err().to_string();
            assert!(error.contains("[7, 7]") && error.contains("[2, 5, 5]"), "{error}");
        }
    }

    #[test]
    fn too_long_sequence_reports_both_lengths() {
        let x = Tensor::<NdArray, 3>::zeros([2, 13, 5], &Default::default());
        let error = attention(0.0).forward(x, Masking::Scores).unwrap_err().to_string();
        assert_eq!(error, "a sequence of 13 tokens is longer than the context of 11");
    }
}
