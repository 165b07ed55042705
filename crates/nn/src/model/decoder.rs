//! The stacked decoder: token and position embeddings, blocks of causal attention and feed-forward layers, a final
//! norm, and an output layer (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners", with
//! pre-norm blocks and learned positions).
//!
//! With an encoder it is an encoder-decoder (Vaswani et al., 2017, arXiv 1706.03762). The encoder reads a source in
//! both directions. The decoder generates the answer token by token, and each of its blocks attends to the output of
//! the encoder. In training the decoder reads the true answer, shifted by one (teacher forcing).

use burn::module::{Module, ParamId};
use burn::nn::Linear;
use burn::tensor::{Tensor, backend::Backend};

use super::block::{Block, BlockInput};
use super::embedding::Embeddings;
use super::encoder::{Encoder, Source};
use super::{Inputs, ModelConfig};
use crate::attention::{KeyValueCache, Mask, Memory};
use crate::display::display_tree;
use crate::hooks::{BlockHooks, HookPoint, Hooks};
use crate::ops::{self, Norm, ScorePosition};
use crate::position::{Position, contributions, document_contributions};
use crate::role::{self, ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// The effects of positions.
#[derive(Debug, Clone)]
pub struct LayerPositions<B: Backend> {
    /// The vectors added to the embeddings, `[time, d_model]`, or `[batch * time, d_model]` for packed documents.
    pub added: Option<Tensor<B, 2>>,
    /// The effect on the scores of each layer.
    pub scores: Vec<ScorePosition<B>>,
}

/// A stack of causal blocks over embeddings.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Decoder<B: Backend> {
    /// The encoder of the source, in an encoder-decoder.
    pub encoder: Option<Encoder<B>>,
    /// The embeddings of the tokens.
    pub embedding: Embeddings<B>,
    /// The position scheme.
    pub position: Option<Position<B>>,
    /// The rotary positions of local layers, if they have other frequencies.
    pub local_position: Option<Position<B>>,
    /// The blocks.
    pub blocks: Vec<Block<B>>,
    /// The final norm, except with post-norm.
    pub norm: Option<Norm<B>>,
    /// The output layer, `d_model` to `vocab`; absent if tied to the token embedding.
    pub head: Option<Linear<B>>,
    /// The config, which also determines the masks.
    #[module(skip)]
    pub config: ModelConfig,
}

display_tree!(Decoder);

impl<B: Backend> ParamRoles for Decoder<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { encoder, embedding, position, local_position, blocks, norm, head, config: _ } = self;
        encoder.visit_roles(visit);
        embedding.visit_roles(visit);
        position.visit_roles(visit);
        local_position.visit_roles(visit);
        blocks.visit_roles(visit);
        norm.visit_roles(visit);
        head.iter().for_each(|head| role::visit_linear(head, ParamRole::Head, visit));
    }
}

impl<B: Backend> Decoder<B> {
    /// Encodes the source and returns the memory of each block; returns an empty list without an encoder or a source.
    ///
    /// # Errors
    /// The errors of [`Encoder::check`].
    pub fn project_memory(
        &self,
        source: Option<Source<B>>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Vec<Memory<B>>> {
        let Some((encoder, source)) = self.encoder.as_ref().zip(source) else { return Ok(Vec::new()) };
        let mask = Mask::none().with_lengths(&source.lengths);
        let read = encoder.forward(source, hooks)?;
        let attentions = self.blocks.iter().filter_map(|block| block.cross_attention.as_ref());
        attentions
            .map(|attention| attention.project_memory(read.clone(), read.clone(), mask.clone()))
            .collect()
    }

    /// Returns the residual stream after the last block. The source is not read, only its `memories`. With caches, one
    /// per block, the tokens continue the sequences of earlier calls.
    ///
    /// # Shapes
    /// `inputs.tokens` `[batch, time]`; the result is `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the sequence extends beyond the last position, or if there are both documents and
    /// caches.
    pub fn hidden_states(
        &self,
        inputs: Inputs<B>,
        memories: &[Memory<B>],
        caches: Option<&mut [KeyValueCache<B>]>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        let [_, time] = inputs.tokens.dims();
        ensure(caches.is_none() || inputs.documents.is_none(), Error::Shape, || {
            "packed documents cannot be read with a cache; read each document with its own cache".to_string()
        })?;
        let start = caches.as_ref().map_or(0, |caches| caches[0].time());
        let LayerPositions { added, scores: positions } =
            self.positions(inputs.documents.as_deref(), start, time)?;
        let x = self.embedding.forward(inputs.tokens.clone(), added)?; // [batch, time, d_model]
        let x = BlockHooks::standalone(hooks).apply(HookPoint::Embedding, x);
        self.through_blocks((0, x), (&inputs, memories, &positions), caches, hooks)
    }

    /// Like [`hidden_states`](Self::hidden_states), but starts at the block `first` with the residual stream `x` before
    /// it. `inputs` gives the documents; its tokens are not read. `x` may have more sequences than `inputs`, if these are
    /// single documents without `memories`.
    ///
    /// # Shapes
    /// `x` and the result are `[batch, time, d_model]`.
    ///
    /// # Errors
    /// Same as [`hidden_states`](Self::hidden_states).
    pub fn hidden_states_from(
        &self,
        (first, x): (usize, Tensor<B, 3>),
        (inputs, memories): (&Inputs<B>, &[Memory<B>]),
        caches: Option<&mut [KeyValueCache<B>]>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        let [_, time, _] = x.dims();
        let start = caches.as_ref().map_or(0, |caches| caches[0].time());
        let positions = self.positions(inputs.documents.as_deref(), start, time)?.scores;
        self.through_blocks((first, x), (inputs, memories, &positions), caches, hooks)
    }

    /// Returns the effects of `time` positions from `start` on, on the scores over all positions up to the last one.
    /// With `documents`, positions count from 0 in each document.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the sequence extends beyond the last position.
    pub fn positions(
        &self,
        documents: Option<&[Vec<u32>]>,
        start: usize,
        time: usize,
    ) -> Result<LayerPositions<B>> {
        let (added, all) = match documents {
            None => contributions(self.position.as_ref(), start, time)?,
            Some(documents) => document_contributions(self.position.as_ref(), documents)?,
        };
        let local = self.local_position.as_ref().map(|position| position.scores(time, start + time));
        let of_layer = |(layer, block): (usize, &Block<B>)| {
            let local = local.as_ref().filter(|_| self.config.window_of(layer).is_some());
            block.position(local.unwrap_or(&all))
        };
        Ok(LayerPositions { added, scores: self.blocks.iter().enumerate().map(of_layer).collect() })
    }

    /// Passes the residual stream through the blocks from the block `first`.
    fn through_blocks(
        &self,
        (first, mut x): (usize, Tensor<B, 3>),
        (inputs, memories, positions): (&Inputs<B>, &[Memory<B>], &[ScorePosition<B>]),
        mut caches: Option<&mut [KeyValueCache<B>]>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        let mut hooks = BlockHooks::standalone(hooks);
        for (layer, block) in self.blocks.iter().enumerate().skip(first) {
            hooks.layer = layer;
            let mask = self.config.mask(layer, inputs.documents.clone());
            let cache = caches.as_mut().map(|caches| &mut caches[layer]);
            let memory = memories.get(layer);
            let input = BlockInput { x, memory, mask: &mask, position: &positions[layer], cache };
            x = block.forward(input, hooks.reborrow())?;
        }
        let read = hooks.input(HookPoint::Final, 0, &x);
        Ok(hooks.apply(HookPoint::Final, read.unwrap_or(x)))
    }

    /// Returns the logits of a residual stream, after final norm, output layer and soft cap: `[batch, time, d_model]`
    /// to `[batch, time, vocab]`.
    pub fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        let logits = match &self.head {
            Some(head) => ops::linear(head, x),
            None => ops::tied_linear(&self.embedding.token, x),
        };
        match self.config.softcap {
            0.0 => logits,
            cap => ops::softcap(logits, cap),
        }
    }
}
