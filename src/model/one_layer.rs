//! The smallest decoder that attends: embedding, causal attention, linear head. No positions, no
//! residual, no feed-forward layer.

use burn::module::Module;
use burn::nn::{Embedding, Linear};
use burn::tensor::{Int, Tensor, backend::Backend};

use crate::Result;
use crate::attention::{Mask, MultiHeadAttention};
use crate::ops::{self, ScorePosition};

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

impl<B: ops::Backend> OneLayerDecoder<B> {
    /// The logits of the token that follows each token; the attention's weights are added to
    /// `maps` where asked for.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, time, vocab]`.
    ///
    /// # Errors
    /// Those of [`MultiHeadAttention::forward`], which a well-built model never gives.
    pub fn forward(
        &self,
        tokens: Tensor<B, 2, Int>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        let embedded = ops::embedding(&self.embedding, tokens, None); // [batch, time, d_model]
        let (mask, position) = (Mask::causal(), ScorePosition::None);
        let attended = match maps {
            None => self.attention.forward(embedded, &mask, &position)?,
            Some(maps) => {
                let (attended, weights) = self.attention.forward_with_weights(embedded, &mask, &position)?;
                maps.push(weights);
                attended
            }
        };
        Ok(ops::linear(&self.head, attended))
    }
}
