//! What the attentions of a model looked at.

use burn::tensor::{Tensor, backend::Backend};

/// The attention weights of a forward pass, a tensor a layer in the order of the layers.
#[derive(Debug, Clone, Default)]
pub struct AttentionMaps<B: Backend> {
    /// Causal self-attention, `[batch, heads, time, time]`.
    pub causal: Vec<Tensor<B, 4>>,
    /// The encoder's self-attention, `[batch, heads, source_time, source_time]`.
    pub encoder: Vec<Tensor<B, 4>>,
    /// The decoder's attention over the encoder's memory, `[batch, heads, time, source_time]`.
    pub cross: Vec<Tensor<B, 4>>,
}
