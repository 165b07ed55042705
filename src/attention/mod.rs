//! Attention, to be read from top to bottom.
//!
//! | file | what it adds |
//! |---|---|
//! | [`score`] | queries meet keys: scores, weights, context, as pure functions |
//! | [`mask`] | which keys a query may not see |
//! | [`multi_head`] | several heads side by side |

pub mod mask;
pub mod multi_head;
pub mod score;

pub use mask::Mask;
pub use multi_head::{MultiHeadAttention, MultiHeadAttentionConfig};
