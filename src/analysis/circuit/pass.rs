//! A forward pass that records every activation and may replace it.
//!
//! The stream of a pre-norm decoder is a sum: what the embedding, each head and each feed-forward layer write. So an
//! intervention can replace what one of them writes for all that read it (*activation patching*; *ablation* where
//! the replacement is zero or a mean), or for one reader alone (*path patching*, Wang et al., 2022, arXiv 2211.00593;
//! Goldowsky-Dill et al., 2023, arXiv 2304.05969).

use std::collections::HashMap;
use std::fmt;

use burn::nn::Linear;
use burn::tensor::{Int, Tensor, backend::Backend};

use crate::attention::Memory;
use crate::model::{Decoder, Model, NormPlacement};
use crate::ops::{self, AttentionOptions, Mask, Projections, repeat_heads, split_heads};
use crate::position::contributions;
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

/// A pass on its way.
struct Pass<'a, B: Backend> {
    interventions: &'a Interventions<B>,
    recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
}

impl<B: Backend> Pass<'_, B> {
    /// Records `activation`, or what replaces it.
    fn record(&mut self, site: Site, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.record_heads(|_| site, activation.unsqueeze_dim(1)).squeeze_dim(1)
    }

    /// The same of the heads of a layer, `[batch, heads, ..]`, each at its site.
    fn record_heads(&mut self, site: impl Fn(usize) -> Site, mut heads: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, count, ..] = heads.dims();
        for head in 0..count {
            if let Some(new) = self.interventions.replaced.get(&site(head)) {
                heads = put_head(heads, head, new.clone());
            }
        }
        self.recorded.extend((0..count).map(|head| (site(head), (heads.clone(), head))));
        heads
    }

    /// What `reader` reads where that is not the stream `x` as it is.
    fn read(&self, reader: Site, x: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let paths = self.interventions.paths.iter().filter(|(_, to, _)| *to == reader);
        let changes = paths.filter_map(|(from, _, new)| {
            let old = at(self.recorded.get(from)?);
            Some(new.clone().expand(old.shape()) - old)
        });
        changes.reduce(|sum, change| sum + change).map(|change| x.clone() + change)
    }

    /// Lets the heads of a layer attend with their queries, keys and values `[batch, heads, .., d_head]`, with their
    /// weights and what each writes, through its rows of the output projection, at these sites. Returns the sum of that
    /// with the bias.
    fn attend(
        &mut self,
        [query, key, value]: [Tensor<B, 4>; 3],
        options: AttentionOptions<B>,
        [pattern, head]: [impl Fn(usize) -> Site; 2],
        output: &Linear<B>,
    ) -> Tensor<B, 3> {
        let mut maps = Vec::with_capacity(1);
        let parts = Projections::Separate([query, key, value.clone()].map(join_heads));
        ops::attention(parts, options, Some(&mut maps));
        let pattern = self.record_heads(pattern, maps.remove(0));
        let ([d_inner, d_model], [_, heads, ..]) = (output.weight.dims(), pattern.dims());
        let weight = output.weight.val().reshape([1, heads, d_inner / heads, d_model]);
        let context = pattern.matmul(value); // [batch, heads, time, d_head]
        let outputs = self.record_heads(head, context.matmul(weight)); // [batch, heads, time, d_model]
        let sum = outputs.sum_dim(1).squeeze_dim::<3>(1);
        output.bias.as_ref().map_or(sum.clone(), |bias| sum + bias.val().unsqueeze())
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
    let [_, time] = tokens.dims();
    let (added, position) = contributions(model.position.as_ref(), 0, time)?;
    let mut pass = Pass { interventions, recorded: HashMap::new() };
    let mut x = pass.record(Site::Embedding, model.embedding.forward(tokens, added)?); // [batch, time, d_model]
    for (layer, block) in model.blocks.iter().enumerate() {
        x = pass.record(Site::Stream(layer), x);
        let (attention, heads) = (&block.attention, block.attention.heads);
        let mut options = attention.options(Mask::causal(), position.clone());
        let project = |x: Tensor<B, 3>| {
            let parts = attention.project(block.attention_norm.forward(x)).split(&options);
            let [query, key, value] = parts;
            let shared = |part| repeat_heads(split_heads(part, options.key_value_heads), heads);
            [split_heads(query, heads), shared(key), shared(value)] // [batch, heads, time, d_head]
        };
        let mut parts = project(x.clone());
        for (at, site) in [Site::Query, Site::Key, Site::Value].into_iter().enumerate() {
            for head in 0..heads {
                if let Some(x) = pass.read(site(layer, head), &x) {
                    let part = project(x)[at].clone().narrow(1, head, 1).squeeze_dim(1);
                    parts[at] = put_head(parts[at].clone(), head, part);
                }
            }
            parts[at] = pass.record_heads(|head| site(layer, head), parts[at].clone());
        }
        options.key_value_heads = heads;
        let sites = [Site::Pattern, Site::Head].map(|site| move |head| site(layer, head));
        x = x + pass.attend(parts, options, sites, &attention.output);

        if let (Some(norm), Some(attention), Some(memory)) =
            (&block.cross_attention_norm, &block.cross_attention, memories.get(layer))
        {
            let project = |x| split_heads(ops::linear(&attention.query, norm.forward(x)), heads);
            let mut query = project(x.clone());
            for head in 0..heads {
                if let Some(x) = pass.read(Site::CrossQuery(layer, head), &x) {
                    query = put_head(query, head, project(x).narrow(1, head, 1).squeeze_dim(1));
                }
            }
            let query = pass.record_heads(|head| Site::CrossQuery(layer, head), query);
            let [key, value] = [&memory.key, &memory.value].map(|part| split_heads(part.clone(), heads));
            let options = attention.options(memory.mask.clone());
            let sites = [Site::CrossPattern, Site::Cross].map(|site| move |head| site(layer, head));
            x = x + pass.attend([query, key, value], options, sites, &attention.output);
        }

        let read = pass.read(Site::FeedForward(layer), &x).unwrap_or_else(|| x.clone());
        let added =
            block.feed_forward.forward_residual(x.zeros_like(), block.feed_forward_norm.forward(read))?;
        x = x + pass.record(Site::FeedForward(layer), added);
    }
    let stream = pass.read(Site::Logits, &x).unwrap_or(x);
    let logits = model.logits(pass.record(Site::Logits, stream));
    Ok(Activations { recorded: pass.recorded, logits })
}

/// `[batch, heads, time, d_head]` to `[batch, time, heads * d_head]`.
fn join_heads<B: Backend>(part: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, time, d_head] = part.dims();
    part.swap_dims(1, 2).reshape([batch, time, heads * d_head])
}

#[cfg(test)]
mod tests;
