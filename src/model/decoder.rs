//! The stacked decoder: token and position embeddings, blocks of causal attention and
//! feed-forward layers, a last norm, a head (Radford et al., 2019, "Language Models are
//! Unsupervised Multitask Learners", with pre-norm blocks and learned positions).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Int, Tensor, backend::Backend};

use super::block::Block;
use super::embedding::Embeddings;
use crate::Result;
use crate::attention::Mask;
use crate::ops::{self, LayerNorm, ScorePosition};
use crate::position::Position;

/// A stack of causal blocks over embeddings.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// Tokens into the stream.
    pub embedding: Embeddings<B>,
    /// Where the tokens stand.
    pub position: Option<Position<B>>,
    /// Attention and feed-forward layers.
    pub blocks: Vec<Block<B>>,
    /// Ends a pre-norm stack.
    pub norm: Option<LayerNorm<B>>,
    /// `d_model` to `vocab`; absent where the token embedding serves as head.
    pub head: Option<Linear<B>>,
}

impl<B: ops::Backend> Decoder<B> {
    /// Whether the positions reach over `time` tokens.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] naming both lengths.
    pub fn check(&self, time: usize) -> Result<()> {
        self.position.as_ref().map_or(Ok(()), |position| position.check(0, time))
    }

    /// The logits of the token that follows each token; each block's attention weights are added
    /// to `maps` where asked for.
    ///
    /// # Shapes
    /// `tokens` `[batch, time]`; the result is `[batch, time, vocab]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the positions end before the tokens do.
    pub fn forward(
        &self,
        tokens: Tensor<B, 2, Int>,
        mut maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        let [_, time] = tokens.dims();
        let (added, position) = places(self.position.as_ref(), 0, time)?;
        let mask = Mask::causal();

        let mut x = self.embedding.forward(tokens, added)?; // [batch, time, d_model]
        for block in &self.blocks {
            x = block.forward(x, &mask, &position, maps.as_deref_mut())?;
        }
        Ok(self.logits(x))
    }

    /// What the end of the stack makes of the stream: `[batch, time, d_model]` to
    /// `[batch, time, vocab]`.
    pub(super) fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        logits(self.norm.as_ref(), self.head.as_ref(), &self.embedding, x)
    }
}

/// What the end of a stack makes of its stream: the norm, where there is one, then the head, or the embedding
/// where they are tied.
pub(super) fn logits<B: ops::Backend>(
    norm: Option<&LayerNorm<B>>,
    head: Option<&Linear<B>>,
    embedding: &Embeddings<B>,
    x: Tensor<B, 3>,
) -> Tensor<B, 3> {
    let x = match norm {
        Some(norm) => norm.forward(x),
        None => x,
    };
    match head {
        Some(head) => ops::linear(head, x),
        None => ops::tied_linear(&embedding.token, x),
    }
}

/// What the positions of the `time` places from `start` on add to their embeddings, and to their
/// scores over all places up to the last.
///
/// # Errors
/// [`crate::Error::Shape`] where the positions end before the tokens do.
pub(super) fn places<B: Backend>(
    position: Option<&Position<B>>,
    start: usize,
    time: usize,
) -> Result<(Option<Tensor<B, 2>>, ScorePosition<B>)> {
    match position {
        None => Ok((None, ScorePosition::None)),
        Some(position) => Ok((position.embedding(start, time)?, position.scores(time, start + time))),
    }
}
