//! Several heads side by side, each free to look at something else.
//!
//! Three ways to the same numbers, each faster than the one before:
//!
//! | module | how |
//! |---|---|
//! | [`StackedHeads`] | a list of single heads, run one after the other |
//! | [`SplitHeads`] | one matrix each for queries, keys and values, split into heads |
//! | [`MultiHeadAttention`] | one matrix for all three |
//!
//! `StackedHeads` = `SplitHeads` = `MultiHeadAttention`: the conversions between them keep the
//! outputs equal.

mod convert;
mod fused;
mod split;
mod stacked;

pub use fused::{AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};
pub use split::{SplitHeads, SplitHeadsConfig};
pub use stacked::{StackedHeads, StackedHeadsConfig};

use crate::{Error, Result};

/// The width of one head: `d_head`, or if absent `d_model / heads`.
///
/// # Errors
/// [`Error::Argument`] where a number is zero, or `heads` would have to divide `d_model` and does not.
pub(crate) fn width_of_head(d_model: usize, heads: usize, d_head: Option<usize>) -> Result<usize> {
    let given = d_head.unwrap_or(1);
    for (key, value) in [("d_model", d_model), ("heads", heads), ("d_head", given)] {
        Error::check(value > 0, key, value, "must be at least 1")?;
    }
    let divides = d_head.is_some() || d_model.is_multiple_of(heads);
    Error::check(divides, "heads", heads, format!("must divide `d_model` = {d_model}"))?;
    Ok(d_head.unwrap_or(d_model / heads))
}
