//! The embeddings: token embedding, position, norm, dropout.

use burn::module::{Initializer, Module, ParamId};
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig};
use burn::tensor::{Int, Tensor, backend::Backend};

use super::config::ModelConfig;
use crate::display::display_tree;
use crate::ops::{self, Norm};
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// Creates a token embedding from N(0, 0.02), as in GPT-2. Burn's default N(0, 1) would dominate the outputs of the
/// first layers, and make the initial logits very large with a tied output layer.
pub fn token_embedding<B: Backend>(vocab: usize, d_model: usize, device: &B::Device) -> Embedding<B> {
    EmbeddingConfig::new(vocab, d_model)
        .with_initializer(Initializer::Normal { mean: 0.0, std: 0.02 })
        .init(device)
}

/// Token embeddings with positions, an optional norm, and dropout.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Embeddings<B: Backend> {
    /// The token embedding, `[vocab, d_model]`, one row per token.
    pub token: Embedding<B>,
    /// The norm after the sum of token and position, as in BERT.
    pub norm: Option<Norm<B>>,
    /// The dropout of the result.
    pub dropout: Dropout,
    /// The factor that scales the token embeddings.
    pub scale: f64,
}

display_tree!(Embeddings);

impl<B: Backend> ParamRoles for Embeddings<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { token, norm, dropout: _, scale: _ } = self;
        token.visit_roles(visit);
        norm.visit_roles(visit);
    }
}

impl<B: Backend> Embeddings<B> {
    /// Creates the embeddings of `vocab` tokens.
    pub fn new(config: &ModelConfig, vocab: usize, device: &B::Device) -> Self {
        let norm = || config.norm_of(config.embedding_norm_epsilon, true, device);
        Self {
            token: token_embedding(vocab, config.d_model, device),
            norm: config.embedding_norm.then(norm),
            dropout: DropoutConfig::new(config.dropout).init(),
            scale: config.embedding_scale,
        }
    }

    /// Embeds tokens and adds the position vectors.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; `position` `[time, d_model]` for all sequences, or `[batch * time, d_model]` for the
    /// tokens of one sequence after another; the result is `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the positions differ from the tokens in number or width.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>, position: Option<Tensor<B, 2>>) -> Result<Tensor<B, 3>> {
        let ([batch, time], [_, d_model]) = (tokens.dims(), self.token.weight.shape().dims());
        let positions = position.as_ref().map_or([time, d_model], Tensor::dims);
        if batch > 1 && positions == [batch * time, d_model] {
            // As one long sequence, every token has its own row of positions.
            let embedded = self.forward(tokens.reshape([1, batch * time]), position)?;
            return Ok(embedded.reshape([batch, time, d_model]));
        }
        ensure(positions == [time, d_model], Error::Shape, || {
            format!("the positions are {positions:?}, but the tokens require [{time}, {d_model}]")
        })?;
        let embedded = match self.scale {
            1.0 => ops::embedding(&self.token, tokens, position),
            scale => {
                let embedded = ops::embedding(&self.token, tokens, None) * scale;
                match position {
                    Some(position) => embedded + position.unsqueeze(),
                    None => embedded,
                }
            }
        };
        let embedded = match &self.norm {
            Some(norm) => norm.forward(embedded),
            None => embedded,
        };
        Ok(ops::dropout(&self.dropout, embedded))
    }
}
