//! Attention, best read from top to bottom:
//!
//! | file | contents |
//! |---|---|
//! | [`score`] | scores, weights and context as pure functions of queries, keys and values |
//! | [`mask`] | masks, which hide keys from queries |
//! | [`simple`] | attention between raw tokens, without parameters |
//! | [`trainable`] | learned queries, keys and values |
//! | [`causal`] | causal masking in two ways, and dropout |
//! | [`multi_head`] | several heads in parallel: stacked, split, fused |
//! | [`cross`] | queries from one sequence, keys and values from another |
//! | [`differential`] | heads that subtract two maps |
//! | [`hooked`] | the steps that self-attention and cross-attention share, with hooks |
//! | [`cache`] | the KV cache, with which each new token requires the computation of only one position |
//!
//! Models use [`MultiHeadAttention`], and [`SplitHeads`] over a [`Memory`]. The other modules lead up to these step by
//! step, and tests show that each step gives the same results as the next. Attention weights are returned on request
//! and never stored.

pub mod cache;
pub mod causal;
pub mod cross;
pub mod differential;
pub mod hooked;
pub mod mask;
pub mod multi_head;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refused;
pub mod score;
pub mod simple;
pub mod trainable;

pub use cache::KeyValueCache;
pub use causal::{CausalAttention, CausalAttentionConfig, Masking};
pub use cross::Memory;
pub use differential::{Differential, DifferentialConfig};
pub use hooked::{AttentionHooks, HeadInput};
pub use mask::{KeyRange, Mask};
pub use multi_head::{
    AttentionGate, AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig, QkNormConfig, ScoreConfig,
    ScoreFunction, Sinks, SplitHeads, SplitHeadsConfig, StackedHeads, StackedHeadsConfig,
};
pub use score::AttentionOutput;
pub use trainable::{TrainableAttention, TrainableAttentionConfig};

use burn::tensor::{Tensor, backend::Backend};

use crate::{Error, Result, error::ensure, range};

/// Checks that the last axis of `what` has the width that a module requires, and that no axis is empty.
pub(crate) fn check_width<const D: usize>(what: &str, dims: [usize; D], width: usize) -> Result<()> {
    ensure(!dims.contains(&0), Error::Shape, || format!("the {what} is {dims:?}, but no axis may be empty"))?;
    ensure(dims[D - 1] == width, Error::Shape, || {
        format!("the {what} is {dims:?}, but its last axis must be {width}")
    })
}

/// Checks that an optional residual has the shape of the output added to it.
pub(crate) fn check_residual<B: Backend>(residual: Option<&Tensor<B, 3>>, output: [usize; 3]) -> Result<()> {
    let residual = residual.map_or(output, Tensor::dims);
    ensure(residual == output, Error::Shape, || {
        format!("the residual is {residual:?}, but the output added to it is {output:?}")
    })
}

/// Checks that a dropout probability is in [0, 1).
pub(crate) fn check_dropout(dropout: f64) -> Result<()> {
    range::check("dropout", dropout.into(), range::Range::FRACTION)
}
