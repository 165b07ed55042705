//! Cross-entropy in nats, summed over the mark_hidden targets.

use burn::tensor::{Bool, Int, Tensor, TensorData, activation::log_softmax, backend::Backend};

use super::fused::{fused, input};
use super::host::{self, Floats};
use super::operation::{Input, One, Operation, gradients};
use super::primitive;
use crate::kernels::loss as kernel;
use crate::kernels::pool::{self, Buffer};

/// Returns the sum of `-log p(target)` over the targets that are not hidden, in nats.
///
/// With `smoothing` e above 0, the target distribution has `1 - e` on the true token, and `e` is spread uniformly over
/// the vocabulary (Szegedy et al., 2016, arXiv 1512.00567).
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]`; `true` in `hidden` excludes a target,
/// whatever its id. The result is `[1]`.
pub fn cross_entropy<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    smoothing: f64,
) -> Tensor<B, 1> {
    let output = fused(One { input: input(&logits) }, |_| {
        Some(Fused { targets: mark_hidden(&targets, &hidden)?, kernel: settings(smoothing) })
    });
    output.unwrap_or_else(|| reference(logits, targets, hidden, smoothing).sum())
}

/// The loss and the prediction at each target.
#[derive(Debug, Clone)]
pub struct TokenScores<B: Backend> {
    /// The loss `-log p(target)` in nats, zero at hidden targets, `[batch, time]`.
    pub losses: Tensor<B, 2>,
    /// The argmax token, the first one in case of ties, `[batch, time]`.
    pub argmax: Tensor<B, 2, Int>,
}

/// Returns the loss and the argmax token at each position, without a gradient.
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]`; see [`cross_entropy`].
pub fn token_scores<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
) -> TokenScores<B> {
    let shape = targets.dims();
    let readable = Floats::new::<B>(&primitive(logits.clone()));
    let Some((values, targets)) = readable.zip(mark_hidden(&targets, &hidden)) else {
        let argmax = logits.clone().argmax(2).squeeze_dim(2);
        return TokenScores { losses: reference(logits, targets, hidden, 0.0).reshape(shape), argmax };
    };
    let (mut losses, mut argmax) = (pool::take(targets.len()), vec![0; targets.len()]);
    kernel::score(&settings(0.0), values.slice(), &targets, &mut losses, &mut argmax);
    let device = logits.device();
    TokenScores {
        losses: Tensor::from_data(TensorData::new(losses.into_vec(), shape), &device),
        argmax: Tensor::from_data(TensorData::new(argmax, shape), &device),
    }
}

/// Returns the loss of each target, `[batch * time, 1]`.
fn reference<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    smoothing: f64,
) -> Tensor<B, 2> {
    let [batch, time, vocab] = logits.dims();
    let rows = batch * time;
    let (targets, hidden) = (targets.reshape([rows, 1]), hidden.map(|hidden| hidden.reshape([rows, 1])));

    // The id of a hidden target may be outside the vocabulary, such as a padding id of -1.
    let targets = match &hidden {
        Some(hidden) => targets.mask_fill(hidden.clone(), 0),
        None => targets,
    };
    let log_probabilities = log_softmax(logits.reshape([rows, vocab]), 1); // [rows, vocab]
    let mut losses = log_probabilities.clone().gather(1, targets).neg(); // [rows, 1]
    if smoothing > 0.0 {
        losses = losses * (1.0 - smoothing) - log_probabilities.mean_dim(1) * smoothing;
    }
    match hidden {
        Some(hidden) => losses.mask_fill(hidden, 0.0),
        None => losses,
    }
}

/// The id that marks a hidden target for the kernels; not a token.
const HIDDEN: i64 = i64::MIN;

fn settings(smoothing: f64) -> kernel::CrossEntropy {
    kernel::CrossEntropy { ignored: Some(HIDDEN), smoothing: smoothing as f32 }
}

/// Returns the targets with hidden ones replaced by [`HIDDEN`]; `None` if the kernels cannot read them.
fn mark_hidden<B: Backend>(
    targets: &Tensor<B, 2, Int>,
    hidden: &Option<Tensor<B, 2, Bool>>,
) -> Option<Vec<i64>> {
    let mut targets = host::integers::<B>(targets.clone().into_primitive())?;
    if let Some(hidden) = hidden {
        for (target, hidden) in targets.iter_mut().zip(host::bools::<B>(hidden.clone().into_primitive())?) {
            if hidden != 0 {
                *target = HIDDEN;
            }
        }
    }
    Some(targets)
}

#[derive(Debug, Clone)]
struct Fused {
    targets: Vec<i64>,
    kernel: kernel::CrossEntropy,
}

impl Operation<1> for Fused {
    type Inputs<T> = One<T>;
    /// The log-sum-exp of each row.
    type Saved = Buffer;

    const BACKWARD_INPUTS: One<bool> = One { input: true };

    fn forward(&self, One { input }: &One<Input>) -> (Floats, Buffer) {
        let [mut losses, mut log_sum_exp] = [self.targets.len(); 2].map(pool::take);
        let logits = input.slice();
        let mut sum = pool::take(1);
        sum[0] = kernel::forward(&self.kernel, logits, &self.targets, &mut losses, &mut log_sum_exp) as f32;
        (input.with_values(sum, [1]), log_sum_exp)
    }

    fn backward(&self, inputs: &One<Input>, log_sum_exp: Buffer, gradient: &Floats) -> One<Option<Floats>> {
        let (logits, scale) = (inputs.input.slice(), gradient.slice()[0]);
        gradients::<Self, 1>(inputs, |One { input }| {
            let for_logits = input.expect("logits are never absent");
            kernel::backward(&self.kernel, logits, &self.targets, &log_sum_exp, scale, for_logits);
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::{Kernels, agreement::*};

    fn cross_entropy_agrees<B: AutodiffBackend>(
        [batch, time, vocab]: [usize; 3],
        hides: bool,
        smoothing: f64,
        seed: u64,
    ) {
        check("cross-entropy", || {
            let logits = leaf::<B, 3>(seed, [batch, time, vocab]).require_grad();
            let targets = ids::<B>(seed + 1, [batch, time], vocab);
            let hidden = hides.then(|| hidden::<B, 2>(seed + 2, [batch, time]));
            // The id of a hidden target must not matter.
            let targets = match &hidden {
                Some(hidden) => targets.mask_fill(hidden.clone(), -1),
                None => targets,
            };
            let output = cross_entropy(logits.clone(), targets.clone(), hidden.clone(), smoothing);
            let inner =
                cross_entropy(logits.clone().inner(), targets.inner(), hidden.map(Tensor::inner), smoothing);
            outcome!(output, inner, [logits])
        });
    }

    fn scores_agree<B: AutodiffBackend>([batch, time, vocab]: [usize; 3], hides: bool, seed: u64) {
        let logits = || leaf::<B, 3>(seed, [batch, time, vocab]);
        let targets = ids::<B>(seed + 1, [batch, time], vocab);
        let hidden = hides.then(|| hidden::<B, 2>(seed + 2, [batch, time]));
        let targets = match &hidden {
            Some(hidden) => targets.mask_fill(hidden.clone(), -1),
            None => targets,
        };
        let run = |kernels: Kernels| kernels.run(|| token_scores(logits(), targets.clone(), hidden.clone()));
        let (fused, reference) = (run(Kernels::Fused), run(Kernels::Reference));
        for (a, b) in numbers(fused.losses).into_iter().zip(numbers(reference.losses)) {
            assert!((a - b).abs() <= 1e-5 * b.max(1.0), "{a}, not {b}");
        }
        let argmax = |scores: Tensor<B, 2, Int>| scores.into_data().convert::<i64>();
        assert_eq!(argmax(fused.argmax), argmax(reference.argmax));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn cross_entropies_agree(
            sizes in [1usize..4, 1usize..131, 2usize..70],
            hides: bool,
            smooth: bool,
            seed in 0u64..1_000,
        ) {
            let smoothing = if smooth { 0.1 } else { 0.0 };
            cross_entropy_agrees::<AutodiffNdArray>(sizes, hides, smoothing, seed);
            cross_entropy_agrees::<AutodiffFlex>(sizes, hides, smoothing, seed);
        }

        #[test]
        fn scores_of_tokens_agree(sizes in [1usize..4, 1usize..131, 1usize..70], hides: bool, seed in 0u64..1_000) {
            scores_agree::<AutodiffNdArray>(sizes, hides, seed);
            scores_agree::<AutodiffFlex>(sizes, hides, seed);
        }
    }
}
