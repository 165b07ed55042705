//! The smallest decoder that attends: embedding, causal attention, linear head. No positions, no
//! residual, no feed-forward layer.

use burn::module::{Module, ParamId};
use burn::nn::{Embedding, Linear};
use burn::tensor::{Int, Tensor, backend::Backend};

use crate::Result;
use crate::attention::{KeyValueCache, Mask, MultiHeadAttention};
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
    /// What the attention makes of each token; with a cache, of tokens that follow those that were read
    /// before. Its weights are added to `maps` where asked for.
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
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        let embedded = ops::embedding(&self.embedding, tokens, None); // [batch, time, d_model]
        let (mask, position) = (Mask::causal(), ScorePosition::None);
        // Nothing is added to what the attention makes: the model has no residual connection.
        self.attention.forward_residual(None, embedded, &mask, &position, cache, maps)
    }
}
