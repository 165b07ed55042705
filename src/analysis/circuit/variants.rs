//! A pass, and variants of it that replace further activations.
//!
//! Before the first activation that it replaces, a variant computes what the pass computes. It therefore starts from the
//! recorded residual stream of the pass at that layer. Variants run as one batch, which grows: a variant joins it at its
//! first layer.

use std::collections::HashMap;

use burn::tensor::{Tensor, backend::Backend};

use super::pass::{
    Activations, Interventions, PassRecorder, Recorded, Replacements, Site, after, residual_streams,
};
use crate::Result;
use crate::attention::{KeyValueCache, Memory};
use crate::hooks::{HookPoint, HookSite, Hooks, NoHooks, ReplacedOutput, Stack};
use crate::model::{Decoder, Inputs};

/// The maximum number of tokens in a batch of several variants, of which about half are there on average. With more tokens,
/// a batch is no faster.
const MAX_BATCH_TOKENS: usize = 512;

/// Returns the maximum number of variants of a pass over `rows` sequences of `time` tokens that run as one batch.
pub(super) fn batched_variants(rows: usize, time: usize) -> usize {
    (MAX_BATCH_TOKENS / (rows * time).max(1)).max(1)
}

/// Returns the keys and values of each layer. The inputs have neither memories nor documents.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn caches<B: Backend>(model: &Decoder<B>, inputs: &Inputs<B>) -> Result<Vec<KeyValueCache<B>>> {
    let mut caches = vec![KeyValueCache::default(); model.blocks.len()];
    model.hidden_states(inputs.clone(), &[], Some(&mut caches), &mut NoHooks)?;
    Ok(caches)
}

/// A pass whose residual streams are recorded.
pub(super) struct BasePass<'a, B: Backend> {
    model: &'a Decoder<B>,
    inputs: &'a Inputs<B>,
    /// The cross-attention's keys and values, one entry per block; empty without an encoder.
    memories: &'a [Memory<B>],
    interventions: Interventions<B>,
    /// The residual stream before each block and after the last one, `[batch, time, d_model]`.
    streams: Vec<Tensor<B, 3>>,
    /// The keys and values of each layer, if variants may share the first positions.
    caches: Vec<KeyValueCache<B>>,
}

/// The variants that run as one batch, by their numbers.
pub(super) struct VariantBatch {
    /// The first layer of each variant, in ascending order.
    first_layers: Vec<usize>,
    /// The number of first positions that equal those of the base pass.
    shared: usize,
    pub numbers: Vec<usize>,
}

/// A pass of a batch of variants, which follow each other in the batch dimension.
pub(super) struct VariantPass<B: Backend> {
    recorded: HashMap<Site, (Tensor<B, 4>, usize)>,
    /// The residual stream after the last block, without shared positions, `[variants * batch, time, d_model]`.
    pub stream: Tensor<B, 3>,
}

impl<B: Backend> VariantPass<B> {
    /// Returns the activations of all heads of the layer of `site`, `[variants * batch, heads, ..]`; `None` if they are not
    /// recorded.
    pub fn all_heads(&self, site: Site) -> Option<&Tensor<B, 4>> {
        self.recorded.get(&site).map(|(heads, _)| heads)
    }
}

impl<'a, B: Backend> BasePass<'a, B> {
    /// Returns a finished pass without interventions. With `interventions` that repeat its activations, they hold in
    /// variants.
    pub fn of(
        model: &'a Decoder<B>,
        inputs: &'a Inputs<B>,
        memories: &'a [Memory<B>],
        (pass, interventions): (&Activations<B>, Interventions<B>),
    ) -> Self {
        let streams = residual_streams(model).map(|site| pass.at(site)).collect();
        Self { model, inputs, memories, interventions, streams, caches: Vec::new() }
    }

    /// Records keys and values, so that variants can share the [first positions](Self::shared). The pass has neither
    /// interventions nor documents.
    ///
    /// # Errors
    /// Same as [`run`](super::run).
    pub fn with_caches(mut self) -> Result<Self> {
        self.caches = caches(self.model, self.inputs)?;
        Ok(self)
    }

    /// Records the keys and values of an equal pass, as [`with_caches`](Self::with_caches) does.
    #[must_use]
    pub fn caching(self, caches: &[KeyValueCache<B>]) -> Self {
        Self { caches: caches.to_vec(), ..self }
    }

    /// Returns this pass with activations replaced. Its variants can share first positions at which no replacement differs.
    ///
    /// # Errors
    /// Same as [`run`](super::run).
    pub fn with(&self, replacements: &Replacements<B>) -> Result<Self> {
        let mut streams = self.streams.clone();
        let first = self.first_layer(replacements);
        let pass = self.run((&[first], 0), &[replacements], Recorded::Streams)?;
        for (depth, site) in residual_streams(self.model).enumerate().skip(first) {
            streams[depth] = pass.recorded[&site].0.clone().squeeze_dim(1);
        }
        let replace =
            |it: Interventions<B>, (site, new): &(Site, Tensor<B, 3>)| it.replace(*site, new.clone());
        let interventions = replacements.iter().fold(self.interventions.clone(), replace);
        Ok(Self { streams, interventions, caches: self.caches.clone(), ..*self })
    }

    /// Returns the first layer that computes something else than this pass does.
    fn first_layer(&self, variant: &Replacements<B>) -> usize {
        let layers = self.model.blocks.len();
        variant.iter().map(|(site, _)| site.layer(layers)).min().unwrap_or(layers)
    }

    /// Groups variants, in the order of their first layers, into batches that a pass can hold.
    pub fn batches(&self, variants: &[Replacements<B>]) -> Vec<VariantBatch> {
        self.batches_from(variants, 0)
    }

    /// Groups variants into batches whose first positions, up to `shared`, equal those of this pass. Only the others are
    /// computed, so this pass needs [caches](Self::with_caches) unless `shared` is 0.
    pub fn batches_from(&self, variants: &[Replacements<B>], shared: usize) -> Vec<VariantBatch> {
        let first_layer = |(number, variant)| (self.first_layer(variant), number);
        let mut ordered: Vec<(usize, usize)> = variants.iter().enumerate().map(first_layer).collect();
        ordered.sort_unstable();
        let [rows, time, _] = self.streams[0].dims();
        // Documents and memories belong to single sequences.
        let is_single = self.inputs.documents.is_some() || !self.memories.is_empty();
        let size = if is_single { 1 } else { batched_variants(rows, time - shared) };
        let batch = |ordered: &[(usize, usize)]| {
            let (first_layers, numbers) = ordered.iter().copied().unzip();
            VariantBatch { first_layers, shared, numbers }
        };
        ordered.chunks(size).map(batch).collect()
    }

    /// Runs a batch of the variants.
    ///
    /// # Errors
    /// Same as [`run`](super::run).
    pub fn run_batch(
        &self,
        batch: &VariantBatch,
        variants: &[Replacements<B>],
        keep: Recorded,
    ) -> Result<VariantPass<B>> {
        let replaced = |&number: &usize| {
            let replaced = variants[number].iter();
            replaced.map(|(site, new)| (*site, after(new.clone(), batch.shared))).collect::<Replacements<B>>()
        };
        let replaced: Vec<_> = batch.numbers.iter().map(replaced).collect();
        self.run((&batch.first_layers, batch.shared), &replaced.iter().collect::<Vec<_>>(), keep)
    }

    /// Runs variants in the order of their first layers.
    fn run(
        &self,
        (first_layers, shared): (&[usize], usize),
        variants: &[&Replacements<B>],
        keep: Recorded,
    ) -> Result<VariantPass<B>> {
        let interventions = self.interventions.after(shared);
        let mut batch = GrowingBatch {
            recorder: PassRecorder::new(&interventions, keep),
            variants,
            first_layers,
            streams: &self.streams,
            shared,
        };
        let cache = |(layer, cache): (usize, &KeyValueCache<B>)| cache.prefix(shared, batch.size(layer));
        let mut caches: Vec<_> = match shared {
            0 => Vec::new(),
            _ => self.caches.iter().enumerate().map(cache).collect(),
        };
        let caches = (shared > 0).then_some(&mut caches[..]);
        let first = first_layers[0];
        let x = batch.joined(first, None);
        let inputs = (self.inputs, self.memories);
        let stream = self.model.hidden_states_from((first, x), inputs, caches, &mut batch)?;
        Ok(VariantPass { recorded: batch.recorder.recorded, stream })
    }
}

/// A batch that variants join at their first layers.
struct GrowingBatch<'a, B: Backend> {
    /// Replaces the activations of the variants in the batch.
    recorder: PassRecorder<'a, B>,
    variants: &'a [&'a Replacements<B>],
    first_layers: &'a [usize],
    /// The residual stream of the pass before each block and after the last one.
    streams: &'a [Tensor<B, 3>],
    /// The number of first positions that are not computed.
    shared: usize,
}

impl<B: Backend> GrowingBatch<'_, B> {
    /// Returns the number of variants in the batch before a block, or after the last one.
    fn size(&self, depth: usize) -> usize {
        self.first_layers.partition_point(|&first| first <= depth)
    }

    /// Returns the residual stream of the batch `x` and of the variants that join it at `depth`.
    fn joined(&mut self, depth: usize, x: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        let (size, joining) = (self.size(depth), self.size(depth) - self.recorder.variants.len());
        self.recorder.variants = &self.variants[..size];
        let stream = (joining > 0).then(|| after(self.streams[depth].clone(), self.shared));
        let joining = stream.map(|it| if joining > 1 { it.repeat_dim(0, joining) } else { it });
        let mut parts: Vec<Tensor<B, 3>> = x.into_iter().chain(joining).collect();
        if parts.len() > 1 { Tensor::cat(parts, 0) } else { parts.pop().expect("a batch has a variant") }
    }

    /// Returns the depth of a residual stream.
    fn depth(&self, site: HookSite) -> Option<usize> {
        match site.point {
            _ if site.stack == Stack::Encoder => None,
            HookPoint::ResidualPre => Some(site.layer),
            HookPoint::Final => Some(self.streams.len() - 1),
            _ => None,
        }
    }
}

impl<B: Backend> Hooks<B> for GrowingBatch<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        let grows = |depth| self.size(depth) > self.recorder.variants.len();
        self.depth(site).is_some_and(grows) || self.recorder.wants(site)
    }

    fn hook(&mut self, site: HookSite, mut activation: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Some(depth) = self.depth(site) {
            activation = self.joined(depth, Some(activation));
        }
        if self.recorder.wants(site) { self.recorder.hook(site, activation) } else { activation }
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        self.recorder.hook_heads(site, activation)
    }

    fn replaced_output(&mut self, site: HookSite, dims: [usize; 3]) -> Option<ReplacedOutput<B>> {
        self.recorder.replaced_output(site, dims)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Int, Tolerance};
    use burn_ndarray::NdArray;

    use super::*;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::analysis::circuit::{explainable, run};
    use crate::model::{Model, ModelConfig, Sizes};
    use crate::ops::NormKind;
    use crate::position::PositionScheme;

    type B = NdArray;

    fn models() -> [Model<B>; 2] {
        let plain = ModelConfig { d_model: 20, heads: 5, layers: 3, ..ModelConfig::default() };
        let (norm_kind, position) = (NormKind::Rms, PositionScheme::Rotary);
        let grouped =
            ModelConfig { heads: 4, key_value_heads: 2, norm_kind, position, d_head: 6, ..plain.clone() };
        let sizes = Sizes { vocab: 13, context: 7, source_context: None };
        [plain, grouped].map(|config| noisy_model(&config, sizes, 0.2))
    }

    /// Checks that each variant of the pass over `tokens`, with activations of the pass over `others`, gives what a full
    /// pass gives. The first positions, up to `shared`, are the same.
    fn check(
        tokens: [[i32; 7]; 2],
        others: [[i32; 7]; 2],
        variants: &[&[Site]],
        base: &[Site],
        shared: usize,
    ) {
        for model in models() {
            let model = explainable(&model).unwrap();
            let inputs = |tokens| Inputs::tokens(Tensor::<B, 2, Int>::from_ints(tokens, &Default::default()));
            let (tokens, others) = (inputs(tokens), inputs(others));
            let pass = |it: &Interventions<B>| run(model, tokens.clone(), &[], it).unwrap();
            let other = run(model, others, &[], &Interventions::default()).unwrap();
            let replaced = |sites: &[Site]| {
                sites.iter().map(|&site| (site, other.at(site))).collect::<Replacements<B>>()
            };
            let full = pass(&Interventions::default());
            let full_base = BasePass::of(model, &tokens, &[], (&full, Interventions::default()));
            let base_pass = match base {
                [] => full_base.with_caches().unwrap(),
                base => full_base.with(&replaced(base)).unwrap(),
            };
            let all: Vec<_> = variants.iter().map(|sites| replaced(sites)).collect();
            let batches = base_pass.batches_from(&all, shared);
            assert_eq!(batches.len(), 1, "the variants join one batch");
            for batch in batches {
                let stream = base_pass.run_batch(&batch, &all, Recorded::Nothing).unwrap().stream;
                for (at, &number) in batch.numbers.iter().enumerate() {
                    let replaced = replaced(&[base, variants[number]].concat()).into_iter();
                    let interventions =
                        replaced.fold(Interventions::default(), |it, (site, new)| it.replace(site, new));
                    let expected = pass(&interventions).at(Site::Logits).narrow(1, shared, 7 - shared);
                    let found = stream.clone().narrow(0, 2 * at, 2).into_data();
                    found.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
                }
            }
        }
    }

    #[test]
    fn variants_equal_full_passes() {
        let tokens = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]];
        let others = [[2, 7, 1, 8, 2, 8, 1], [8, 2, 8, 4, 5, 9, 0]];
        let variants: [&[Site]; 7] = [
            &[Site::Head(1, 3)],
            &[Site::Head(1, 0)],
            &[Site::FeedForward(1)],
            &[Site::Query(2, 2)],
            &[Site::Key(2, 1), Site::Value(2, 1)],
            &[Site::Stream(1)],
            &[Site::FeedForward(0), Site::Head(2, 1)],
        ];
        check(tokens, others, &variants, &[], 0);
        check(tokens, others, &variants, &[Site::Head(0, 1), Site::Head(1, 2), Site::FeedForward(2)], 0);
    }

    #[test]
    fn variants_share_their_first_positions() {
        let tokens = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]];
        let others = [[3, 1, 4, 8, 2, 8, 1], [6, 5, 3, 5, 8, 1, 0]];
        let variants: [&[Site]; 6] = [
            &[Site::Head(0, 3)],
            &[],
            &[Site::FeedForward(0)],
            &[Site::Head(1, 2)],
            &[Site::Stream(1)],
            &[Site::Stream(2)],
        ];
        check(tokens, others, &variants, &[], 3);
    }
}
