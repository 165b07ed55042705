//! Incremental inference: a model reads tokens step by step and caches the keys and values of the positions it has
//! read.
//!
//! [`Model::start`] and [`Model::read`] give the same logits as [`Model::forward`], at the cost of one step per token.

use burn::tensor::{Int, Tensor, backend::Backend};

use super::{Model, Source, check_tokens};
use crate::Result;
use crate::attention::{KeyValueCache, Memory};
use crate::hooks::NoHooks;

/// The keys and values of each layer of a model, for the positions read.
#[derive(Debug, Clone)]
pub struct ModelCache<B: Backend> {
    /// The caches of self-attention, one per layer.
    layers: Vec<KeyValueCache<B>>,
    /// The memories of cross-attention, one per layer; empty in a model without a source.
    memories: Vec<Memory<B>>,
}

impl<B: Backend> ModelCache<B> {
    /// Returns the number of positions read.
    pub fn time(&self) -> usize {
        self.layers.first().map_or(0, KeyValueCache::time)
    }

    /// Clears the positions read, but keeps the source.
    pub fn clear(&mut self) {
        self.layers.fill_with(KeyValueCache::default);
    }
}

impl<B: Backend> Model<B> {
    /// Creates a cache without positions; for an encoder-decoder, it contains the encoded source.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if a source is missing, has the wrong shape, or is given to a model that takes none.
    pub fn start(&self, source: Option<Source<B>>) -> Result<ModelCache<B>> {
        let layers = match self {
            Model::OneLayer(_) => 1,
            Model::Decoder(model) => model.blocks.len(),
        };
        let memories = self.project_memory(source, &mut NoHooks)?;
        Ok(ModelCache { layers: vec![KeyValueCache::default(); layers], memories })
    }

    /// Reads the next tokens of each row, and returns the logits of the token after the last one.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, vocab]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if `tokens` is empty, if the sequence extends beyond the last position, or if the batch
    /// size differs from that of earlier calls.
    pub fn read(&self, tokens: Tensor<B, 2, Int>, cache: &mut ModelCache<B>) -> Result<Tensor<B, 2>> {
        let [_, time] = tokens.dims();
        check_tokens("tokens are", tokens.dims())?;
        let x = self.stream(tokens, &cache.memories, Some(&mut cache.layers), &mut NoHooks)?;
        Ok(self.logits(x.narrow(1, time - 1, 1)).squeeze_dim(1))
    }
}

#[cfg(test)]
mod tests;
