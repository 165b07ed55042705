//! The smallest decoder with attention: embedding, causal attention, output layer, without positions, residual
//! connection and feed-forward layer.

use burn::module::{Module, ParamId};
use burn::nn::{Embedding, Linear};
use burn::tensor::{Tensor, backend::Backend};

use super::{Inputs, ModelConfig};
use crate::Result;
use crate::attention::{AttentionHooks, AttentionInput, KeyValueCache, MultiHeadAttention};
use crate::display::display_tree;
use crate::hooks::{BlockHooks, HookPoint, Hooks};
use crate::ops::{self, ScorePosition};
use crate::role::{self, ParamRole, ParamRoles};

/// A decoder that computes `head(attention(embedding(tokens)))`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct OneLayerDecoder<B: Backend> {
    /// The token embedding, `[vocab, d_model]`, one row per token.
    pub embedding: Embedding<B>,
    /// The causal self-attention.
    pub attention: MultiHeadAttention<B>,
    /// The output layer, `d_model` to `vocab`.
    pub head: Linear<B>,
    /// The config, which also determines the mask.
    #[module(skip)]
    pub config: ModelConfig,
}

display_tree!(OneLayerDecoder);

impl<B: Backend> ParamRoles for OneLayerDecoder<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { embedding, attention, head, config: _ } = self;
        embedding.visit_roles(visit);
        attention.visit_roles(visit);
        role::visit_linear(head, ParamRole::Head, visit);
    }
}

impl<B: Backend> OneLayerDecoder<B> {
    /// Returns the output of the attention for each token. With a cache, the tokens continue the sequences of earlier
    /// calls.
    ///
    /// # Shapes
    /// `inputs.tokens` `[batch, time]`; the result is `[batch, time, d_model]`.
    ///
    /// # Errors
    /// The errors of [`MultiHeadAttention::forward`], which a validly built model never returns.
    pub fn hidden_states(
        &self,
        inputs: Inputs<B>,
        cache: Option<&mut KeyValueCache<B>>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        let mut hooks = BlockHooks::standalone(hooks);
        let embedded = ops::embedding(&self.embedding, inputs.tokens, None); // [batch, time, d_model]
        let embedded = hooks.apply(HookPoint::Embedding, embedded);
        let (mask, position) = (self.config.mask(0, inputs.documents), ScorePosition::None);
        let input = AttentionInput { cache, ..AttentionInput::new(embedded, &mask, &position) };
        // Without a residual connection, the output layer reads only the output of the attention.
        let x = self.attention.forward_hooked(input, AttentionHooks::standalone(&mut *hooks.hooks))?;
        Ok(hooks.apply(HookPoint::Final, x))
    }
}
