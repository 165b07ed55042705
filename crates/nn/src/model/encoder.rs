//! The encoder: a stack whose tokens attend to each other in both directions, but not to padding (Vaswani et al., 2017,
//! arXiv 1706.03762, section 3.1).

use burn::module::{Module, ParamId};
use burn::tensor::{Int, Tensor, backend::Backend};

use super::block::{Block, BlockInput};
use super::{check_tokens, embedding::Embeddings};
use crate::attention::Mask;
use crate::display::display_tree;
use crate::hooks::{BlockHooks, HookPoint, Hooks, Stack};
use crate::ops::Norm;
use crate::position::{Position, contributions};
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// A batch of sources.
#[derive(Debug, Clone)]
pub struct Source<B: Backend> {
    /// The tokens of the sources, `[batch, source_time]`.
    pub tokens: Tensor<B, 2, Int>,
    /// The length of each source without its padding, which is hidden, `[batch]`.
    pub lengths: Vec<usize>,
}

/// A stack of bidirectional blocks.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Encoder<B: Backend> {
    /// The embeddings of the tokens.
    pub embedding: Embeddings<B>,
    /// The position scheme.
    pub position: Option<Position<B>>,
    /// The blocks.
    pub blocks: Vec<Block<B>>,
    /// The final norm of a pre-norm stack.
    pub norm: Option<Norm<B>>,
}

display_tree!(Encoder);

impl<B: Backend> ParamRoles for Encoder<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { embedding, position, blocks, norm } = self;
        embedding.visit_roles(visit);
        position.visit_roles(visit);
        blocks.visit_roles(visit);
        norm.visit_roles(visit);
    }
}

impl<B: Backend> Encoder<B> {
    /// Checks that the encoder can read a source.
    ///
    /// # Errors
    /// [`Error::Shape`] if lengths and tokens do not match, if an id is not in the vocabulary, or if the source extends
    /// beyond the last position.
    pub fn check(&self, source: &Source<B>) -> Result<()> {
        let [batch, time] = source.tokens.dims();
        check_tokens("source.tokens", &source.tokens, &self.embedding.token)?;
        let lengths = &source.lengths;
        ensure(lengths.len() == batch && lengths.iter().all(|length| *length <= time), Error::Shape, || {
            format!("`source.lengths` = {lengths:?} must be {batch} lengths of at most {time}")
        })?;
        self.position.as_ref().map_or(Ok(()), |position| position.check(time))
    }

    /// Encodes a source to one vector per token.
    ///
    /// # Shapes
    /// Source tokens `[batch, time]`; the result is `[batch, time, d_model]`, with meaningless values at padded
    /// positions.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn forward(&self, source: Source<B>, hooks: &mut dyn Hooks<B>) -> Result<Tensor<B, 3>> {
        self.check(&source)?;
        let [_, time] = source.tokens.dims();
        let (added, position) = contributions(self.position.as_ref(), 0, time)?;
        let mask = Mask::none().with_lengths(&source.lengths);
        let mut hooks = BlockHooks { hooks, stack: Stack::Encoder, layer: 0 };

        let x = self.embedding.forward(source.tokens, added)?; // [batch, time, d_model]
        let mut x = hooks.apply(HookPoint::Embedding, x);
        for (layer, block) in self.blocks.iter().enumerate() {
            hooks.layer = layer;
            let position = &block.position(&position);
            let input = BlockInput { x, memory: None, mask: &mask, position, cache: None };
            x = block.forward(input, hooks.reborrow())?;
        }
        let x = hooks.apply(HookPoint::Final, x);
        Ok(match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        })
    }
}
