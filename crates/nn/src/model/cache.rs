//! Reading token by token: what a model keeps of the places it has read.
//!
//! [`Model::start`] and [`Model::read`] give the logits of [`Model::forward`], for a step's worth
//! of work a token.

use burn::tensor::{Int, Tensor, backend::Backend};

use super::{Model, Source, check_tokens};
use crate::Result;
use crate::attention::{KeyValueCache, Memory};
use crate::hooks::NoHooks;

/// The keys and values that each layer of a model has computed so far.
#[derive(Debug, Clone)]
pub struct ModelCache<B: Backend> {
    /// Self-attention, a cache a layer.
    layers: Vec<KeyValueCache<B>>,
    /// Cross-attention, a memory a layer; empty in a model that reads no source.
    memories: Vec<Memory<B>>,
}

impl<B: Backend> ModelCache<B> {
    /// How many places were read.
    pub fn time(&self) -> usize {
        self.layers.first().map_or(0, KeyValueCache::time)
    }

    /// Forgets the places that were read, not the source.
    pub fn clear(&mut self) {
        self.layers.fill_with(KeyValueCache::default);
    }
}

impl<B: Backend> Model<B> {
    /// An empty cache; for an encoder-decoder one that holds its reading of the source.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where a source is missing, does not fit, or is not taken.
    pub fn start(&self, source: Option<Source<B>>) -> Result<ModelCache<B>> {
        let layers = match self {
            Model::OneLayer(_) => 1,
            Model::Decoder(model) => model.blocks.len(),
        };
        let memories = self.project_memory(source, &mut NoHooks)?;
        Ok(ModelCache { layers: vec![KeyValueCache::default(); layers], memories })
    }

    /// Reads the next tokens of each row; the logits of the token that follows the last of them.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, vocab]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where there is nothing to read, the positions end before the tokens do, or the batch is
    /// another than before.
    pub fn read(&self, tokens: Tensor<B, 2, Int>, cache: &mut ModelCache<B>) -> Result<Tensor<B, 2>> {
        let [_, time] = tokens.dims();
        check_tokens("tokens are", tokens.dims())?;
        let x = self.stream(tokens, &cache.memories, Some(&mut cache.layers), &mut NoHooks)?;
        Ok(self.logits(x.narrow(1, time - 1, 1)).squeeze_dim(1))
    }
}

#[cfg(test)]
mod tests;
