//! Several heads in parallel, each with its own attention pattern.
//!
//! Three implementations of the same function, each faster than the one before:
//!
//! | module | implementation |
//! |---|---|
//! | [`StackedHeads`] | a list of single heads, computed one after another |
//! | [`SplitHeads`] | one matrix each for queries, keys and values, whose outputs are split into heads |
//! | [`MultiHeadAttention`] | one matrix for all three |
//!
//! Conversions between the three keep the outputs equal.

mod convert;
mod fused;
mod gate;
mod qk_norm;
mod score_function;
mod split;
mod stacked;

pub use fused::{AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};
pub use gate::AttentionGate;
pub use qk_norm::QkNormConfig;
pub use score_function::{ScoreConfig, ScoreFunction, Sinks};
pub use split::{SplitHeads, SplitHeadsConfig};
pub use stacked::{StackedHeads, StackedHeadsConfig};

use crate::{Error, Result};

/// Returns the width of one head: `d_head`, or `d_model / heads` if absent.
///
/// # Errors
/// [`Error::Argument`] if a number is zero, or if `d_head` is absent and `heads` does not divide `d_model`.
pub(crate) fn width_of_head(d_model: usize, heads: usize, d_head: Option<usize>) -> Result<usize> {
    let given = d_head.unwrap_or(1);
    for (key, value) in [("d_model", d_model), ("heads", heads), ("d_head", given)] {
        Error::check(value > 0, key, value, "must be at least 1")?;
    }
    let divides = d_head.is_some() || d_model.is_multiple_of(heads);
    Error::check(divides, "heads", heads, format!("must divide `d_model` = {d_model}"))?;
    Ok(d_head.unwrap_or(d_model / heads))
}
