//! The encoder-decoder: a source is read in both directions, its answer written token by token
//! (Vaswani et al., 2017, arXiv 1706.03762). In training the decoder reads the true answer,
//! shifted by one (teacher forcing).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Int, Tensor, backend::Backend};

use super::cross_block::CrossBlock;
use super::decoder::places;
use super::embedding::Embeddings;
use super::encoder::Encoder;
use super::{AttentionMaps, Source};
use crate::attention::Mask;
use crate::ops::{self, LayerNorm};
use crate::position::Position;
use crate::{Error, Result};

/// An encoder, and a decoder that attends to its memory.
#[derive(Module, Debug)]
pub struct EncoderDecoder<B: Backend> {
    /// Reads the source.
    pub encoder: Encoder<B>,
    /// The answer's tokens into the stream.
    pub embedding: Embeddings<B>,
    /// Where the answer's tokens stand.
    pub position: Option<Position<B>>,
    /// Self-attention, cross-attention and feed-forward layers.
    pub blocks: Vec<CrossBlock<B>>,
    /// Ends a pre-norm stack.
    pub norm: Option<LayerNorm<B>>,
    /// `d_model` to `vocab`; absent where the answer's embedding serves as head.
    pub head: Option<Linear<B>>,
}

impl<B: ops::Backend> EncoderDecoder<B> {
    /// Whether the model can read this source and this much of an answer.
    ///
    /// # Errors
    /// [`Error::Shape`] naming what does not fit.
    pub fn check(&self, source: &Source<B>, batch: usize, time: usize) -> Result<()> {
        self.encoder.check(source)?;
        let [sources, _] = source.tokens.dims();
        if sources != batch {
            return Err(Error::Shape(format!("there are {sources} sources, but {batch} answers")));
        }
        self.position.as_ref().map_or(Ok(()), |position| position.check(0, time))
    }

    /// The logits of the token that follows each token of the answer; the weights of every
    /// attention are added to `maps` where asked for.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, time, vocab]`.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn forward(
        &self,
        tokens: Tensor<B, 2, Int>,
        source: Source<B>,
        mut maps: Option<&mut AttentionMaps<B>>,
    ) -> Result<Tensor<B, 3>> {
        // The answer's padding stands at its end, where the causal mask hides it from all tokens.
        let mask = Mask::causal();
        let memory_mask = Mask::none().hide_keys(source.padding.clone());
        let memory = self.encoder.forward(source, maps.as_mut().map(|maps| &mut maps.encoder))?;
        let [_, time] = tokens.dims();
        let (added, position) = places(self.position.as_ref(), 0, time)?;

        let mut x = self.embedding.forward(tokens, added)?; // [batch, time, d_model]
        for block in &self.blocks {
            x = block.forward(x, memory.clone(), &mask, &memory_mask, &position, maps.as_deref_mut())?;
        }
        Ok(self.logits(x))
    }

    /// What the end of the stack makes of the stream: `[batch, time, d_model]` to
    /// `[batch, time, vocab]`.
    pub(super) fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        super::decoder::logits(self.norm.as_ref(), self.head.as_ref(), &self.embedding, x)
    }
}
