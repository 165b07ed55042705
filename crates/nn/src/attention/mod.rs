//! Attention, to be read from top to bottom.
//!
//! | file | what it adds |
//! |---|---|
//! | [`score`] | queries meet keys: scores, weights, context, as pure functions |
//! | [`mask`] | which keys a query may not see |
//! | [`simple`] | tokens attend to each other as they are, without anything to learn |
//! | [`trainable`] | learned queries, keys and values |
//! | [`causal`] | no looking ahead, in two ways, and dropout |
//! | [`multi_head`] | several heads side by side: stacked, split, fused |
//! | [`cross`] | queries of one sequence, keys and values of another |
//! | [`hooked`] | what both kinds of attention share, with hooks |
//! | [`cache`] | keys and values kept, so that the next token costs one step |
//!
//! Models use [`MultiHeadAttention`], and [`SplitHeads`] over a [`Memory`]; the others are the way there, each
//! shown equal to the next. All weights are returned on request and never kept.

pub mod cache;
pub mod causal;
pub mod cross;
pub mod hooked;
pub mod mask;
pub mod multi_head;
#[cfg(test)]
mod properties;
pub mod score;
pub mod simple;
pub mod trainable;

pub use cache::KeyValueCache;
pub use causal::{CausalAttention, CausalAttentionConfig, Masking};
pub use cross::Memory;
pub use hooked::{AttentionHooks, HeadInput};
pub use mask::{KeyRange, Mask};
pub use multi_head::{
    AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig, SplitHeads, SplitHeadsConfig, StackedHeads,
    StackedHeadsConfig,
};
pub use score::AttentionOutput;
pub use trainable::{TrainableAttention, TrainableAttentionConfig};

use burn::tensor::{Tensor, backend::Backend};

use crate::{Error, Result, error::ensure, range};

/// Whether the last axis of `what` has the width that a module takes.
pub(crate) fn check_width<const D: usize>(what: &str, dims: [usize; D], width: usize) -> Result<()> {
    ensure(dims[D - 1] == width, Error::Shape, || {
        format!("the {what} is {dims:?}, but its last axis must be {width}")
    })
}

/// Whether a residual, where there is one, has the shape of what is added to it.
pub(crate) fn check_residual<B: Backend>(residual: Option<&Tensor<B, 3>>, output: [usize; 3]) -> Result<()> {
    let residual = residual.map_or(output, Tensor::dims);
    ensure(residual == output, Error::Shape, || {
        format!("the residual is {residual:?}, but what is added to it is {output:?}")
    })
}

/// Whether a dropout lies in [0, 1).
pub(crate) fn check_dropout(dropout: f64) -> Result<()> {
    range::check("dropout", dropout.into(), range::Range::FRACTION)
}
