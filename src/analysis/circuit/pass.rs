//! A forward pass that records every activation and may replace it.
//!
//! The stream of a pre-norm decoder is a sum: what the embedding, each head and each feed-forward layer write. So an
//! intervention can replace what one of them writes for all that read it (*activation patching*; *ablation* where
//! the replacement is zero or a mean), or for one reader alone (*path patching*, Wang et al., 2022, arXiv 2211.00593;
//! Goldowsky-Dill et al., 2023, arXiv 2304.05969).

use std::collections::HashMap;
use std::fmt;

use burn::tensor::{Int, Tensor, backend::Backend};

use crate::attention::Memory;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, Stack};
use crate::model::{Decoder, Model, NormPlacement};
use crate::{Error, Result};

/// A place of a decoder where an activation is recorded and can be replaced. Layers and heads count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The stream before the first block, `[batch, time, d_model]`.
    Embedding,
    /// The stream before a block, likewise.
    Stream(usize),
    /// The queries of a head, before positions turn them, `[batch, time, d_head]`; as a reader, what they are made of.
    Query(usize, usize),
    /// Its keys, likewise. Heads that share keys have each their own here.
    Key(usize, usize),
    /// Its values, likewise.
    Value(usize, usize),
    /// Its attention weights, `[batch, query_time, key_time]`.
    Pattern(usize, usize),
    /// What it writes, without the bias of the output projection, `[batch, time, d_model]`.
    Head(usize, usize),
    /// What a head of the cross-attention writes, likewise.
    Cross(usize, usize),
    /// Its queries, `[batch, time, d_head]`; as a reader, what they are made of. Keys and values are the encoder's.
    CrossQuery(usize, usize),
    /// Its attention weights, `[batch, time, source_time]`.
    CrossPattern(usize, usize),
    /// What a feed-forward layer writes, `[batch, time, d_model]`; as a reader, its input.
    FeedForward(usize),
    /// The stream behind the last block, which only reads: what the logits are made of.
    Logits,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Site::Embedding => write!(f, "embedding"),
            Site::Stream(layer) => write!(f, "stream before layer {layer}"),
            Site::Query(layer, head) => write!(f, "queries of layer {layer} head {head}"),
            Site::Key(layer, head) => write!(f, "keys of layer {layer} head {head}"),
            Site::Value(layer, head) => write!(f, "values of layer {layer} head {head}"),
            Site::Pattern(layer, head) => write!(f, "attention of layer {layer} head {head}"),
            Site::Head(layer, head) => write!(f, "layer {layer} head {head}"),
            Site::Cross(layer, head) => write!(f, "layer {layer} cross-attention head {head}"),
            Site::CrossQuery(layer, head) => {
                write!(f, "queries of layer {layer} cross-attention head {head}")
            }
            Site::CrossPattern(layer, head) => write!(f, "cross-attention of layer {layer} head {head}"),
            Site::FeedForward(layer) => write!(f, "layer {layer} feed-forward"),
            Site::Logits => write!(f, "logits"),
        }
    }
}

/// What a pass replaces. A replacement that has one sequence, or one place in time, stands for all.
#[derive(Debug, Clone, Default)]
pub struct Interventions<B: Backend> {
    replaced: HashMap<Site, Tensor<B, 3>>,
    paths: Vec<(Site, Site, Tensor<B, 3>)>,
}

impl<B: Backend> Interventions<B> {
    /// Replaces the activation at `site`, for all that read it.
    #[must_use]
    pub fn replace(mut self, site: Site, activation: Tensor<B, 3>) -> Self {
        self.replaced.insert(site, activation);
        self
    }

    /// Replaces what `from` (embedding, head or feed-forward layer) writes for one reader alone: the query, key or
    /// value of a head, a feed-forward layer, or the logits.
    #[must_use]
    pub fn reroute(mut self, from: Site, reader: Site, activation: Tensor<B, 3>) -> Self {
        self.paths.push((from, reader, activation));
        self
    }
}

impl Site {
    /// The site of a head, or the one site of all heads where the activation is not one of heads.
    fn of(HookSite { stack, layer, point }: HookSite, head: usize) -> Option<Self> {
        use AttentionPoint::{Key, Output, Pattern, Query, Value};
        use HookPoint::{CrossAttention, SelfAttention};
        if stack == Stack::Encoder {
            return None;
        }
        Some(match point {
            HookPoint::Embedding => Site::Embedding,
            HookPoint::ResidualPre => Site::Stream(layer),
            SelfAttention(Query) => Site::Query(layer, head),
            SelfAttention(Key) => Site::Key(layer, head),
            SelfAttention(Value) => Site::Value(layer, head),
            SelfAttention(Pattern) => Site::Pattern(layer, head),
            SelfAttention(Output) => Site::Head(layer, head),
            CrossAttention(Query) => Site::CrossQuery(layer, head),
            CrossAttention(Pattern) => Site::CrossPattern(layer, head),
            CrossAttention(Output) => Site::Cross(layer, head),
            HookPoint::FeedForwardOutput => Site::FeedForward(layer),
            HookPoint::Final => Site::Logits,
            SelfAttention(AttentionPoint::Scores)
            | CrossAttention(Key | Value | AttentionPoint::Scores)
            | HookPoint::ResidualMid
            | HookPoint::FeedForwardHidden
            | HookPoint::ResidualPost => return None,
        })
    }

    /// The site of a reader of the residual stream.
    fn of_reader(reader: HookSite, head: usize) -> Option<Self> {
        match reader.point {
            HookPoint::FeedForwardHidden => Some(Site::FeedForward(reader.layer)),
            _ => Self::of(reader, head),
        }
    }
}

/// Records activations as a forward pass makes them, with what replaces them.
struct Recorder<'a, B: Backend> {
    interventions: &'a Interventions<B>,
    recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
}

impl<B: Backend> Hooks<B> for Recorder<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        Site::of(site, 0).is_some()
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.hook_heads(site, activation.unsqueeze_dim(1)).squeeze_dim(1)
    }

    fn hook_heads(&mut self, site: HookSite, mut heads: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, count, ..] = heads.dims();
        let sites: Vec<Site> = (0..count).filter_map(|head| Site::of(site, head)).collect();
        for (head, site) in sites.iter().enumerate() {
            if let Some(new) = self.interventions.replaced.get(site) {
                heads = put_head(heads, head, new.clone());
            }
        }
        self.recorded.extend(sites.into_iter().enumerate().map(|(head, site)| (site, (heads.clone(), head))));
        heads
    }

    fn input(&mut self, reader: HookSite, head: usize, residual: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let reader = Site::of_reader(reader, head)?;
        let paths = self.interventions.paths.iter().filter(|(_, to, _)| *to == reader);
        let changes = paths.filter_map(|(from, _, new)| {
            let old = at(self.recorded.get(from)?);
            Some(new.clone().expand(old.shape()) - old)
        });
        changes.reduce(|sum, change| sum + change).map(|change| residual.clone() + change)
    }
}

/// One of heads side by side.
fn at<B: Backend>((heads, head): &(Tensor<B, 4>, usize)) -> Tensor<B, 3> {
    heads.clone().narrow(1, *head, 1).squeeze_dim(1)
}

/// `heads` `[batch, heads, rows, columns]` with one of them replaced by `new`.
fn put_head<B: Backend>(heads: Tensor<B, 4>, head: usize, new: Tensor<B, 3>) -> Tensor<B, 4> {
    let [batch, _, rows, columns] = heads.dims();
    let new = new.expand([batch, rows, columns]).unsqueeze_dim(1);
    heads.slice_assign([0..batch, head..head + 1, 0..rows, 0..columns], new)
}

/// What a pass made.
#[derive(Debug, Clone)]
pub struct Activations<B: Backend> {
    /// What was at each site: one of heads side by side, `[batch, heads, ..]`, which of anything else is a single one.
    recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
    /// `[batch, time, vocab]`.
    pub logits: Tensor<B, 3>,
}

impl<B: Backend> Activations<B> {
    /// What was recorded at `site`.
    ///
    /// # Panics
    /// Where the model has no such layer or head.
    pub fn at(&self, site: Site) -> Tensor<B, 3> {
        at(&self.recorded[&site])
    }

    /// What was recorded at `site` and at the other heads of its layer, side by side.
    ///
    /// # Panics
    /// As [`at`](Self::at).
    pub fn all_heads(&self, site: Site) -> Tensor<B, 4> {
        self.recorded[&site].0.clone()
    }

    /// What was recorded at `site`, with that of `other` at the given places in time.
    pub fn mixed(&self, site: Site, other: &Self, places: std::ops::Range<usize>) -> Tensor<B, 3> {
        let [activation, other] = [self, other].map(|pass| pass.at(site));
        let [batch, _, width] = activation.dims();
        let ranges = [0..batch, places, 0..width];
        activation.slice_assign(ranges.clone(), other.slice(ranges))
    }
}

/// The decoder of a model whose stream is a sum of what its parts write.
///
/// # Errors
/// Where it is none: says what has no such stream.
pub fn explained<B: Backend>(model: &Model<B>) -> Result<&Decoder<B>> {
    let problem = match model {
        Model::OneLayer(_) => "a one-layer decoder has no residual stream",
        Model::Decoder(model) if model.blocks.iter().any(|block| block.placement == NormPlacement::Post) => {
            "the norms of a post-norm decoder stand in its residual stream, which then is no sum"
        }
        Model::Decoder(model) => return Ok(model),
    };
    Err(Error::Input(format!("{problem}: explain takes pre-norm decoders, and `inspect` shows all heads")))
}

/// Passes `tokens` `[batch, time]` through a decoder that is [`explained`], whose cross-attention, where it has one,
/// reads `memories`, one a block, as [`Decoder::project_memory`] makes them. A pass without interventions makes the
/// logits of [`Model::forward`], up to rounding.
///
/// # Errors
/// [`Error::Shape`] where the positions end before the tokens do.
pub fn run<B: Backend>(
    model: &Decoder<B>,
    tokens: Tensor<B, 2, Int>,
    memories: &[Memory<B>],
    interventions: &Interventions<B>,
) -> Result<Activations<B>> {
    let mut recorder = Recorder { interventions, recorded: HashMap::new() };
    let stream = model.stream(tokens, memories, None, &mut recorder)?;
    Ok(Activations { recorded: recorder.recorded, logits: model.logits(stream) })
}

#[cfg(test)]
mod tests;
