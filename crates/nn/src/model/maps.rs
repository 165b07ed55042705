//! The attention weights of a model.

use burn::tensor::{Tensor, backend::Backend};

use crate::attention::KeyRange;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, Stack};

/// The attention weights of a forward pass, one tensor per layer.
#[derive(Debug, Clone, Default)]
pub struct AttentionMaps<B: Backend> {
    /// The weights of causal self-attention, `[batch, heads, time, time]`.
    pub causal: Vec<Tensor<B, 4>>,
    /// The weights of the encoder's self-attention, `[batch, heads, source_time, source_time]`.
    pub encoder: Vec<Tensor<B, 4>>,
    /// The weights of cross-attention, `[batch, heads, time, source_time]`.
    pub cross: Vec<Tensor<B, 4>>,
    /// The visible keys of each query of the causal self-attention, `[layer][time]`, or `[layer][batch * time]` if
    /// several documents are packed into the sequences.
    pub visible: Vec<Vec<KeyRange>>,
}

impl<B: Backend> Hooks<B> for AttentionMaps<B> {
    fn wants(&self, site: HookSite) -> bool {
        use HookPoint::{CrossAttention, SelfAttention};
        matches!(site.point, SelfAttention(AttentionPoint::Pattern) | CrossAttention(AttentionPoint::Pattern))
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let maps = match (site.stack, site.point) {
            (Stack::Encoder, _) => &mut self.encoder,
            (Stack::Decoder, HookPoint::CrossAttention(_)) => &mut self.cross,
            (Stack::Decoder, _) => &mut self.causal,
        };
        maps.push(activation.clone());
        activation
    }
}
