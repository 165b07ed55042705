//! Incremental inference: a model reads tokens step by step and caches the keys and values of the positions it has
//! read.
//!
//! [`Model::start`] and [`Model::read`] give the same logits as [`Model::forward`], at the cost of one step per token.

use burn::tensor::{Int, Tensor, backend::Backend};

use super::{Decoder, Inputs, Model, Source, check_tokens};
use crate::attention::{KeyValueCache, Memory};
use crate::hooks::{Hooks, NoHooks};
use crate::{Error, Result, error::ensure};

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
        for layer in &mut self.layers {
            *layer = KeyValueCache::with_window(layer.window());
        }
    }
}

impl<B: Backend> Model<B> {
    /// Creates a cache without positions; for an encoder-decoder, it contains the encoded source.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if a source is missing, has the wrong shape, or is passed to a model without an encoder.
    pub fn start(&self, source: Option<Source<B>>) -> Result<ModelCache<B>> {
        let memories = self.project_memory(source, &mut NoHooks)?;
        let windows = (0..self.layers()).map(|layer| self.config().window_of(layer));
        Ok(ModelCache { layers: windows.map(KeyValueCache::with_window).collect(), memories })
    }

    /// Reads the next tokens of each row, and returns the logits of the token after the last one.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, vocab]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if `tokens` is empty or contains an id outside the vocabulary, if the sequence extends beyond
    /// the last position, or if the batch size differs from earlier calls. Also if the cache was created by a model with
    /// different layers.
    pub fn read(&self, tokens: Tensor<B, 2, Int>, cache: &mut ModelCache<B>) -> Result<Tensor<B, 2>> {
        self.read_hooked(tokens, cache, &mut NoHooks)
    }

    /// Like [`Self::read`], with hooks that read or replace activations of the new tokens.
    ///
    /// # Shapes
    /// Same as [`Self::read`].
    ///
    /// # Errors
    /// Same as [`Self::read`]. Hooks on queries, keys or values of heads that share keys are an error.
    pub fn read_hooked(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut ModelCache<B>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 2>> {
        let [_, time] = tokens.dims();
        check_tokens("tokens", &tokens, self.table())?;
        self.check_cache(cache)?;
        let inputs = Inputs::tokens(tokens);
        let x = self.hidden_states(inputs, &cache.memories, Some(&mut cache.layers), hooks)?;
        Ok(self.logits(x.narrow(1, time - 1, 1)).squeeze_dim(1))
    }

    /// Checks that a cache has the layers of this model.
    fn check_cache(&self, cache: &ModelCache<B>) -> Result<()> {
        let layers = self.layers();
        let memories = match self {
            Model::Decoder(Decoder { encoder: Some(_), .. }) => layers,
            Model::Decoder(_) | Model::OneLayer(_) => 0,
        };
        let held = [cache.layers.len(), cache.memories.len()];
        ensure(held == [layers, memories], Error::Shape, || {
            format!(
                "`cache` has {} layers and {} memories, but the model needs {layers} and {memories}; create the \
                 cache with this model",
                held[0], held[1]
            )
        })
    }
}

#[cfg(test)]
mod tests;
