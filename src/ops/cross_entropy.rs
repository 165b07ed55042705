//! Cross-entropy in nats, summed over the targets that count.

use burn::tensor::activation::log_softmax;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Bool, Int, Tensor, TensorData, TensorMetadata, backend};

use super::host::tensor;
use super::{Backend, Floats, HostAccess, IntoFloat, Operation, float};
use crate::kernels::loss as kernel;
use crate::kernels::pool;

/// The sum of `-log p(target)` over the targets that are not hidden, in nats.
///
/// With `smoothing` e above 0 the target is a mixture: `1 - e` on the true token and `e` spread
/// evenly over the vocabulary (Szegedy et al., 2016, arXiv 1512.00567).
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]` (`true` = not
/// counted, whatever token stands there); the result is `[1]`.
pub fn cross_entropy<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
    smoothing: f64,
) -> Tensor<B, 1> {
    let (logits, targets) = (logits.into_float(), targets.into_primitive());
    let hidden = hidden.map(Tensor::into_primitive);
    float(match Fused::<B::Host>::new(B::host(&logits), &targets, hidden.as_ref(), smoothing) {
        Some(operation) => B::run(operation, &[Some(logits)]),
        None => composed::<B>(logits, targets, hidden, smoothing),
    })
}

/// How a model does, target by target.
#[derive(Debug, Clone)]
pub struct TokenScores<B: backend::Backend> {
    /// `-log p(target)` in nats, zero where the target is hidden, `[batch, time]`.
    pub losses: Tensor<B, 2>,
    /// The likeliest token, the first of several, `[batch, time]`.
    pub likeliest: Tensor<B, 2, Int>,
}

/// The loss and the likeliest token at each place, without a gradient.
///
/// # Shapes
/// `logits` `[batch, time, vocab]`, `targets` and `hidden` `[batch, time]`; see [`cross_entropy`].
pub fn token_scores<B: Backend>(
    logits: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    hidden: Option<Tensor<B, 2, Bool>>,
) -> TokenScores<B> {
    let (logits, targets) = (logits.into_float(), targets.into_primitive());
    let hidden = hidden.map(Tensor::into_primitive);
    let logits = B::host(&logits);
    let (losses, likeliest) = fused_scores::<B::Host>(logits, &targets, hidden.as_ref())
        .unwrap_or_else(|| composed_scores::<B::Host>(logits.clone(), targets, hidden));
    TokenScores { losses: float(B::from_host(losses)), likeliest: Tensor::from_primitive(likeliest) }
}

fn composed_scores<B: HostAccess>(
    logits: FloatTensor<B>,
    targets: IntTensor<B>,
    hidden: Option<BoolTensor<B>>,
) -> (FloatTensor<B>, IntTensor<B>) {
    let logits = float::<B, 3>(logits);
    let targets = Tensor::<B, 2, Int>::from_primitive(targets);
    let hidden = hidden.map(Tensor::<B, 2, Bool>::from_primitive);
    let targets = match &hidden {
        Some(hidden) => targets.mask_fill(hidden.clone(), 0),
        None => targets,
    };
    let likeliest = logits.clone().argmax(2).squeeze_dim::<2>(2);
    let log_probabilities = log_softmax(logits, 2); // [batch, time, vocab]
    let losses = log_probabilities.gather(2, targets.unsqueeze_dim(2)).squeeze_dim::<2>(2).neg();
    let losses = match hidden {
        Some(hidden) => losses.mask_fill(hidden, 0.0),
        None => losses,
    };
    (losses.into_float(), likeliest.into_primitive())
}

fn composed<B: Backend>(
    logits: FloatTensor<B>,
    targets: IntTensor<B>,
    hidden: Option<BoolTensor<B>>,
    smoothing: f64,
) -> FloatTensor<B> {
    let logits = float::<B, 3>(logits);
    let [batch, time, vocab] = logits.dims();
    let rows = batch * time;
    let targets = Tensor::<B, 2, Int>::from_primitive(targets).reshape([rows, 1]);
    let hidden = hidden.map(|hidden| Tensor::<B, 2, Bool>::from_primitive(hidden).reshape([rows, 1]));

    // What stands at a hidden place may lie outside the vocabulary, as a padding id of -1.
    let targets = match &hidden {
        Some(hidden) => targets.mask_fill(hidden.clone(), 0),
        None => targets,
    };
    let log_probabilities = log_softmax(logits.reshape([rows, vocab]), 1); // [rows, vocab]
    let mut losses = log_probabilities.clone().gather(1, targets).neg(); // [rows, 1]
    if smoothing > 0.0 {
        losses = losses * (1.0 - smoothing) - log_probabilities.mean_dim(1) * smoothing;
    }
    if let Some(hidden) = hidden {
        losses = losses.mask_fill(hidden, 0.0);
    }
    losses.sum().into_float()
}

/// No token: what stands at a place that does not count.
const HIDDEN: i64 = i64::MIN;

#[derive(Debug, Clone)]
struct Fused<B: HostAccess> {
    logits: Floats<B>,
    targets: Vec<i64>,
    kernel: kernel::CrossEntropy,
    log_sum_exp: Option<Floats<B>>,
}

impl<B: HostAccess> Fused<B> {
    fn new(
        logits: &FloatTensor<B>,
        targets: &IntTensor<B>,
        hidden: Option<&BoolTensor<B>>,
        smoothing: f64,
    ) -> Option<Self> {
        let (logits, targets) = (Floats::new(logits)?, counted::<B>(targets, hidden)?);
        let kernel = kernel::CrossEntropy { ignored: Some(HIDDEN), smoothing: smoothing as f32 };
        Some(Self { logits, targets, kernel, log_sum_exp: None })
    }
}

impl<B: HostAccess> Operation<B> for Fused<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let rows = self.targets.len();
        let [mut losses, mut log_sum_exp] = [rows, rows].map(pool::take);
        let logits = self.logits.slice();
        let loss = kernel::forward(&self.kernel, logits, &self.targets, &mut losses, &mut log_sum_exp);
        if keep {
            self.log_sum_exp = Some(self.logits.keep(log_sum_exp, [rows]));
        }
        tensor::<B>(vec![loss.sum as f32], [1], &B::float_device(&self.logits.tensor()))
    }

    fn backward(self, gradient: &Floats<B>, _wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let log_sum_exp = self.log_sum_exp.as_ref().expect("forward has run").slice();
        let (logits, scale) = (self.logits.slice(), gradient.slice()[0]);
        let mut for_logits = pool::take(logits.len());
        kernel::backward(&self.kernel, logits, &self.targets, log_sum_exp, scale, &mut for_logits);
        let gradient = self.logits.place(for_logits, self.logits.shape());
        self.logits.recycle();
        self.log_sum_exp.into_iter().for_each(Floats::recycle);
        vec![Some(gradient)]
    }
}

fn fused_scores<B: HostAccess>(
    logits: &FloatTensor<B>,
    targets: &IntTensor<B>,
    hidden: Option<&BoolTensor<B>>,
) -> Option<(FloatTensor<B>, IntTensor<B>)> {
    let shape = targets.shape();
    let Fused { logits, targets, kernel, .. } = Fused::<B>::new(logits, targets, hidden, 0.0)?;
    let (mut losses, mut likeliest) = (pool::take(targets.len()), vec![0; targets.len()]);
    kernel::score(&kernel, logits.slice(), &targets, &mut losses, &mut likeliest);
    let device = B::float_device(&logits.tensor());
    let likeliest = Tensor::<B, 2, Int>::from_data(TensorData::new(likeliest, shape.clone()), &device);
    Some((logits.place(losses, shape), likeliest.into_primitive()))
}

/// The targets, with those that do not count marked as such.
fn counted<B: HostAccess>(targets: &IntTensor<B>, hidden: Option<&BoolTensor<B>>) -> Option<Vec<i64>> {
    let mut targets = B::integers(targets)?.widened();
    if let Some(hidden) = hidden {
        for (target, hidden) in targets.iter_mut().zip(B::bools(hidden)?) {
            if hidden != 0 {
                *target = HIDDEN;
            }
        }
    }
    Some(targets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::agreement::*;
    use crate::ops::{AutodiffBackend, Kernels};

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
            // What stands at a hidden place is no matter.
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
        let (fused, composed) = (run(Kernels::Fused), run(Kernels::Composed));
        for (a, b) in numbers(fused.losses).into_iter().zip(numbers(composed.losses)) {
            assert!((a - b).abs() <= 1e-5 * b.max(1.0), "{a}, not {b}");
        }
        let likeliest = |scores: Tensor<B, 2, Int>| scores.into_data().convert::<i64>();
        assert_eq!(likeliest(fused.likeliest), likeliest(composed.likeliest));
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
            cross_entropy_agrees::<Ndarray>(sizes, hides, smoothing, seed);
            cross_entropy_agrees::<Flexible>(sizes, hides, smoothing, seed);
        }

        #[test]
        fn scores_of_tokens_agree(sizes in [1usize..4, 1usize..131, 1usize..70], hides: bool, seed in 0u64..1_000) {
            scores_agree::<Ndarray>(sizes, hides, seed);
            scores_agree::<Flexible>(sizes, hides, seed);
        }
    }
}
