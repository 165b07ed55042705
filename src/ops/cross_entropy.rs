//! Cross-entropy in nats, summed over the targets that count.

use burn::tensor::activation::log_softmax;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Bool, Int, Tensor, backend};

use super::{Backend, IntoFloat, float};

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
    let hidden = hidden.map(|hidden| hidden.into_primitive());
    float(B::token_cross_entropy(logits.into_float(), targets.into_primitive(), hidden, smoothing))
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
    let hidden = hidden.map(|hidden| hidden.into_primitive());
    let (losses, likeliest) = B::token_scores(logits.into_float(), targets.into_primitive(), hidden);
    TokenScores { losses: float(losses), likeliest: Tensor::from_primitive(likeliest) }
}

pub(super) fn composed_scores<B: Backend>(
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

pub(super) fn composed<B: Backend>(
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
