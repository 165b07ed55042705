//! A forward pass that records every activation and can replace it.
//!
//! The residual stream is the sum of what the embedding, the heads and the feed-forward layers add: their outputs, or norms
//! of them. An intervention replaces an activation (*activation patching*; *ablation* if the replacement is zero or a
//! mean).

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use burn::tensor::{Tensor, backend::Backend};

use super::replaced::replaced_output;
use crate::attention::Memory;
use crate::hooks::ResidualWriter;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, ReplacedOutput, Stack};
use crate::model::{Decoder, Inputs, Model};
use crate::{Error, Result};

/// An activation of a decoder that is recorded and can be replaced. Layers and heads count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The residual stream before the first block, `[batch, time, d_model]`.
    Embedding,
    /// The residual stream before a block, `[batch, time, d_model]`.
    Stream(usize),
    /// The queries of a head, before rotary positions, `[batch, time, d_head]`.
    Query(usize, usize),
    /// The keys of a head, before rotary positions, `[batch, time, d_head]`. Heads that share keys have separate sites.
    Key(usize, usize),
    /// The values of a head, `[batch, time, d_head]`.
    Value(usize, usize),
    /// The attention weights of a head, `[batch, query_time, key_time]`.
    Pattern(usize, usize),
    /// The output of a head, without the bias of the output projection, `[batch, time, d_model]`.
    Head(usize, usize),
    /// The output of a cross-attention head, without the bias of the output projection, `[batch, time, d_model]`.
    Cross(usize, usize),
    /// The queries of a cross-attention head, `[batch, time, d_head]`. Keys and values come from the encoder.
    CrossQuery(usize, usize),
    /// The attention weights of a cross-attention head, `[batch, time, source_time]`.
    CrossPattern(usize, usize),
    /// The output of a feed-forward layer, `[batch, time, d_model]`.
    FeedForward(usize),
    /// The residual stream after the last block, from which the logits are computed.
    Logits,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Site::Embedding => write!(f, "embedding"),
            Site::Stream(layer) => write!(f, "residual stream before layer {layer}"),
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

/// The activations that a pass replaces. A replacement with a single sequence or a single position is broadcast.
#[derive(Debug, Clone, Default)]
pub struct Interventions<B: Backend> {
    replaced: HashMap<Site, Tensor<B, 3>>,
}

impl<B: Backend> Interventions<B> {
    /// Replaces the activation at `site` for all readers.
    #[must_use]
    pub fn replace(mut self, site: Site, activation: Tensor<B, 3>) -> Self {
        self.replaced.insert(site, activation);
        self
    }
}

impl<B: Backend> Interventions<B> {
    /// Returns the replacements without their first positions, up to `first`.
    pub(super) fn after(&self, first: usize) -> Self {
        let replaced = self.replaced.iter().map(|(site, new)| (*site, after(new.clone(), first)));
        Self { replaced: replaced.collect() }
    }
}

/// Returns an activation without its first positions. One that stands for all positions stays as it is.
pub(super) fn after<B: Backend>(activation: Tensor<B, 3>, first: usize) -> Tensor<B, 3> {
    match activation.dims() {
        [_, time, _] if time > first => activation.narrow(1, first, time - first),
        _ => activation,
    }
}

impl From<ResidualWriter> for Site {
    fn from(component: ResidualWriter) -> Self {
        match component {
            ResidualWriter::Head(layer, head) => Site::Head(layer, head),
            ResidualWriter::Cross(layer, head) => Site::Cross(layer, head),
            ResidualWriter::FeedForward(layer) => Site::FeedForward(layer),
        }
    }
}

impl Site {
    /// Returns the site of an activation at a hook; `None` if it is not recorded. Activations that are not per head
    /// ignore `head`.
    pub(super) fn of(HookSite { stack, layer, point }: HookSite, head: usize) -> Option<Self> {
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
            SelfAttention(AttentionPoint::Scores | AttentionPoint::Parts)
            | CrossAttention(Key | Value | AttentionPoint::Scores | AttentionPoint::Parts)
            | HookPoint::ResidualMid
            | HookPoint::FeedForwardHidden
            | HookPoint::ResidualPost => return None,
        })
    }

    /// Returns the head of an activation that is per head, and 0 for others.
    pub(super) fn head(self) -> usize {
        self.place(0).1
    }

    /// Returns the first layer whose computation depends on the activation, of a decoder with `layers` layers.
    pub(super) fn layer(self, layers: usize) -> usize {
        self.place(layers).0
    }

    /// Returns [`layer`](Self::layer) and [`head`](Self::head).
    fn place(self, layers: usize) -> (usize, usize) {
        match self {
            Site::Embedding => (0, 0),
            Site::Stream(layer) | Site::FeedForward(layer) => (layer, 0),
            Site::Query(layer, head)
            | Site::Key(layer, head)
            | Site::Value(layer, head)
            | Site::Pattern(layer, head)
            | Site::Head(layer, head)
            | Site::Cross(layer, head)
            | Site::CrossQuery(layer, head)
            | Site::CrossPattern(layer, head) => (layer, head),
            Site::Logits => (layers, 0),
        }
    }

    /// Returns true for the output of a head or of a feed-forward layer.
    pub(super) fn is_component(self) -> bool {
        matches!(self, Site::Head(..) | Site::Cross(..) | Site::FeedForward(_))
    }
}

/// The activations that a pass records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// All activations with a [`Site`].
    All,
    /// The residual streams.
    Streams,
    /// The activations through which components read the residual stream: queries, keys and values of heads, and the
    /// outputs of feed-forward layers.
    Readers,
    /// None.
    Nothing,
}

impl Recorded {
    fn contains(self, site: HookSite) -> bool {
        use AttentionPoint::{Key, Query, Value};
        use HookPoint::{CrossAttention, SelfAttention};
        match self {
            Self::All => Site::of(site, 0).is_some(),
            Self::Streams => matches!(site.point, HookPoint::ResidualPre | HookPoint::Final),
            Self::Readers => matches!(
                site.point,
                SelfAttention(Query | Key | Value) | CrossAttention(Query) | HookPoint::FeedForwardOutput
            ),
            Self::Nothing => false,
        }
    }
}

/// The activations that one variant of a batch replaces.
pub(super) type Replacements<B> = Vec<(Site, Tensor<B, 3>)>;

/// Records the activations of a forward pass and applies the interventions.
pub(super) struct PassRecorder<'a, B: Backend> {
    pub interventions: &'a Interventions<B>,
    /// The variants in the batch, each of which replaces further activations; empty for a pass without variants.
    pub variants: &'a [&'a Replacements<B>],
    pub keep: Recorded,
    pub recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
}

impl<'a, B: Backend> PassRecorder<'a, B> {
    pub fn new(interventions: &'a Interventions<B>, keep: Recorded) -> Self {
        Self { interventions, variants: &[], keep, recorded: HashMap::new() }
    }

    /// Replaces the activations at the `sites` of all heads: in all variants, and then in those that replace them
    /// themselves.
    fn replaced(&self, mut heads: Tensor<B, 4>, sites: &[Site]) -> Tensor<B, 4> {
        let [rows, _, time, width] = heads.dims();
        let variants = self.variants.len().max(1);
        if sites.iter().any(|site| self.interventions.replaced.contains_key(site)) {
            let of_head = |(head, site): (usize, &Site)| {
                let Some(new) = self.interventions.replaced.get(site) else {
                    return heads.clone().narrow(1, head, 1);
                };
                let is_per_sequence = new.dims()[0] > 1 && variants > 1;
                let new = if is_per_sequence { new.clone().repeat_dim(0, variants) } else { new.clone() };
                new.expand([rows, time, width]).unsqueeze_dim(1)
            };
            heads = Tensor::cat(sites.iter().enumerate().map(of_head).collect(), 1);
        }
        let size = rows / variants;
        for (number, variant) in self.variants.iter().enumerate() {
            for (site, new) in *variant {
                if let Some(head) = sites.iter().position(|it| it == site) {
                    let new = new.clone().expand([size, time, width]).unsqueeze_dim(1);
                    let sequences = number * size..(number + 1) * size;
                    heads = heads.slice_assign([sequences, head..head + 1, 0..time, 0..width], new);
                }
            }
        }
        heads
    }
}

impl<B: Backend> Hooks<B> for PassRecorder<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        let is_at = |replaced: &Site| Site::of(site, replaced.head()) == Some(*replaced);
        let is_output = Site::of(site, 0).is_some_and(Site::is_component);
        if self.keep.contains(site) || is_output {
            return self.keep.contains(site);
        }
        self.interventions.replaced.keys().any(is_at)
            || self.variants.iter().any(|variant| variant.iter().any(|(replaced, _)| is_at(replaced)))
    }

    fn replaced_output(&mut self, site: HookSite, dims: [usize; 3]) -> Option<ReplacedOutput<B>> {
        let [rows, heads, time] = dims;
        let sites: Vec<Site> = (0..heads).filter_map(|head| Site::of(site, head)).collect();
        replaced_output(&self.interventions.replaced, self.variants, &sites, [rows, time])
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.hook_heads(site, activation.unsqueeze_dim(1)).squeeze_dim(1)
    }

    fn hook_heads(&mut self, site: HookSite, mut heads: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, count, ..] = heads.dims();
        let sites: Vec<Site> = (0..count).filter_map(|head| Site::of(site, head)).collect();
        if !sites.is_empty() {
            heads = self.replaced(heads, &sites);
        }
        if self.keep.contains(site) {
            let heads = sites.into_iter().enumerate().map(|(head, site)| (site, (heads.clone(), head)));
            self.recorded.extend(heads);
        }
        heads
    }
}

/// Selects one head of `[batch, heads, rows, columns]`.
fn select_head<B: Backend>((heads, head): &(Tensor<B, 4>, usize)) -> Tensor<B, 3> {
    heads.clone().narrow(1, *head, 1).squeeze_dim(1)
}

/// The recorded activations of a pass.
#[derive(Debug, Clone)]
pub struct Activations<B: Backend> {
    /// The activation at each site: the tensor of all heads, `[batch, heads, ..]`, and the head's index. An activation
    /// that is not per head has a single head.
    recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
    /// `[batch, time, vocab]`.
    pub logits: Tensor<B, 3>,
}

impl<B: Backend> Activations<B> {
    /// Returns the activation at `site`.
    ///
    /// # Panics
    /// Panics if the model lacks the layer or the head.
    pub fn at(&self, site: Site) -> Tensor<B, 3> {
        select_head(&self.recorded[&site])
    }

    /// Returns the activations of all heads of the layer of `site`, `[batch, heads, ..]`.
    ///
    /// # Panics
    /// Same as [`at`](Self::at).
    pub fn all_heads(&self, site: Site) -> Tensor<B, 4> {
        self.recorded[&site].0.clone()
    }

    /// Returns the activation at `site`, with the given positions taken from `other`.
    pub fn mixed(&self, site: Site, other: &Self, positions: Range<usize>) -> Tensor<B, 3> {
        let [activation, other] = [self, other].map(|pass| pass.at(site));
        let [batch, _, width] = activation.dims();
        let ranges = [0..batch, positions, 0..width];
        activation.slice_assign(ranges.clone(), other.slice(ranges))
    }
}

/// Returns the residual stream before each block of a decoder, and after the last one.
pub(super) fn residual_streams<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    (0..model.blocks.len()).map(Site::Stream).chain([Site::Logits])
}

/// Returns the decoder of a model whose residual stream is the sum of its components' outputs.
///
/// # Errors
/// Returns an error with the reason if the residual stream is not such a sum.
pub fn explainable<B: Backend>(model: &Model<B>) -> Result<&Decoder<B>> {
    let problem = match model {
        Model::OneLayer(_) => {
            "a one-layer decoder does not have a residual stream; explain a decoder with blocks"
        }
        Model::Decoder(model) if model.blocks.iter().any(|block| !block.placement.is_sum()) => &format!(
            "with `model.norm` = \"{}\", the residual stream is not a sum of what components add; explain a decoder with \
             another placement of norms",
            model.config.norm
        ),
        Model::Decoder(model) if model.config.differential => {
            "with `model.differential` = true, a head has two scores for each key; explain a decoder without it"
        }
        Model::Decoder(model) => return Ok(model),
    };
    Err(Error::Input(problem.to_string()))
}

/// Runs an [`explainable`] decoder on `inputs`. Its cross-attention, if any, reads `memories`, one per block, from
/// [`Decoder::project_memory`]. Without interventions the logits equal those of
/// [`Model::forward`], up to rounding.
///
/// # Errors
/// [`Error::Shape`] if there are more tokens than positions.
pub fn run<B: Backend>(
    model: &Decoder<B>,
    inputs: Inputs<B>,
    memories: &[Memory<B>],
    interventions: &Interventions<B>,
) -> Result<Activations<B>> {
    let mut recorder = PassRecorder::new(interventions, Recorded::All);
    let residual_stream = model.hidden_states(inputs, memories, None, &mut recorder)?;
    Ok(Activations { recorded: recorder.recorded, logits: model.logits(residual_stream) })
}

#[cfg(test)]
mod tests;
