//! The smallest decoder that attends: embedding, causal attention, linear head. No positions, no
//! residual, no feed-forward layer.

use burn::module::{Module, ParamId};
use burn::nn::{Embedding, Linear};
use burn::tensor::{Int, Tensor, backend::Backend};

use crate::Result;
use crate::attention::{AttentionHooks, AttentionInput, KeyValueCache, Mask, MultiHeadAttention};
use crate::hooks::{BlockHooks, HookPoint, Hooks};
use crate::ops::{self, ScorePosition};
use crate::role::{self, ParamRole, ParamRoles};

/// `head(attention(embedding(tokens)))`.
#[derive(Module, Debug)]
pub struct OneLayerDecoder<B: Backend> {
    /// One row a token, `[vocab, d_model]`.
    pub embedding: Embedding<B>,
    /// Looks at earlier tokens.
    pub attention: MultiHeadAttention<B>,
    /// `d_model` to `vocab`.
    pub head: Linear<B>,
}

impl<B: Backend> ParamRoles for OneLayerDecoder<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { embedding, attention, head } = self;
        embedding.visit_roles(visit);
        attention.visit_roles(visit);
        role::linear(head, ParamRole::Head, visit);
    }
}

impl<B: Backend> OneLayerDecoder<B> {
    /// Returns the output of the attention for each token; with a cache, of tokens that follow those of earlier calls.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, time, d_model]`.
    ///
    /// # Errors
    /// Those of [`MultiHeadAttention::forward`], which a well-built model never gives.
    pub fn stream(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: Option<&mut KeyValueCache<B>>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        let mut hooks = BlockHooks::alone(hooks);
        let embedded = ops::embedding(&self.embedding, tokens, None); // [batch, time, d_model]
        let embedded = hooks.apply(HookPoint::Embedding, embedded);
        let (mask, position) = (self.mask(), ScorePosition::None);
        let input = AttentionInput { cache, ..AttentionInput::new(embedded, &mask, &position) };
        // The model has no residual connection: the output of the attention is all that the head reads.
        let x = self.attention.forward_hooked(input, AttentionHooks::alone(&mut *hooks.hooks))?;
        Ok(hooks.apply(HookPoint::Final, x))
    }

    /// Returns the mask of the attention.
    pub fn mask(&self) -> Mask<B> {
        Mask::causal()
    }
}
