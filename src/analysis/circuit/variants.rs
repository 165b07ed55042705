//! A pass, and variants of it that replace further activations.
//!
//! Before the first activation that it replaces, a variant computes what the pass computes. It therefore starts from the
//! recorded residual stream of the pass at that layer. Variants that start at the same layer run as one batch.

use std::collections::{BTreeMap, HashMap};

use burn::tensor::{Tensor, backend::Backend};

use super::pass::{Activations, Interventions, PassRecorder, Recorded, Replacements, Site, residual_streams};
use crate::Result;
use crate::attention::{KeyValueCache, Memory};
use crate::hooks::NoHooks;
use crate::model::{Decoder, Inputs};

/// The maximum number of tokens in a batch of several variants. With more tokens, a batch is no faster.
const MAX_BATCH_TOKENS: usize = 256;

/// Returns the maximum number of variants of a pass over `rows` sequences of `time` tokens that run as one batch.
pub(super) fn batched_variants(rows: usize, time: usize) -> usize {
    (MAX_BATCH_TOKENS / (rows * time).max(1)).max(1)
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
    first_layer: usize,
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
        self.caches = vec![KeyValueCache::default(); self.model.blocks.len()];
        self.model.hidden_states(self.inputs.clone(), &[], Some(&mut self.caches), &mut NoHooks)?;
        Ok(self)
    }

    /// Returns this pass with activations replaced.
    ///
    /// # Errors
    /// Same as [`run`](super::run).
    pub fn with(&self, replacements: &Replacements<B>) -> Result<Self> {
        let mut streams = self.streams.clone();
        let batch = self.batches(std::slice::from_ref(replacements)).pop();
        let first = batch.map_or(self.model.blocks.len(), |batch| batch.first_layer);
        let pass = self.run((first, 0), &[replacements], Recorded::Streams)?;
        for (depth, site) in residual_streams(self.model).enumerate().skip(first) {
            streams[depth] = pass.recorded[&site].0.clone().squeeze_dim(1);
        }
        let replace =
            |it: Interventions<B>, (site, new): &(Site, Tensor<B, 3>)| it.replace(*site, new.clone());
        let interventions = replacements.iter().fold(self.interventions.clone(), replace);
        Ok(Self { streams, interventions, caches: Vec::new(), ..*self })
    }

    /// Groups variants by their first layer into batches that a pass can hold.
    pub fn batches(&self, variants: &[Replacements<B>]) -> Vec<VariantBatch> {
        self.batches_from(variants, 0)
    }

    /// Groups variants into batches whose first positions, up to `shared`, equal those of this pass. Only the others are
    /// computed, so this pass needs [caches](Self::with_caches) unless `shared` is 0.
    pub fn batches_from(&self, variants: &[Replacements<B>], shared: usize) -> Vec<VariantBatch> {
        let layers = self.model.blocks.len();
        let mut by_layer = BTreeMap::<usize, Vec<usize>>::new();
        for (number, variant) in variants.iter().enumerate() {
            let first = variant.iter().map(|(site, _)| site.layer(layers)).min().unwrap_or(layers);
            by_layer.entry(first).or_default().push(number);
        }
        let [rows, time, _] = self.streams[0].dims();
        // Documents and memories belong to single sequences.
        let is_single = self.inputs.documents.is_some() || !self.memories.is_empty();
        let size = if is_single { 1 } else { batched_variants(rows, time - shared) };
        let batches = by_layer.into_iter().flat_map(|(first_layer, numbers)| {
            let batch = |numbers: &[usize]| VariantBatch { first_layer, shared, numbers: numbers.to_vec() };
            numbers.chunks(size).map(batch).collect::<Vec<_>>()
        });
        batches.collect()
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
        let later = |it: Tensor<B, 3>| match it.dims() {
            [_, time, _] if time > batch.shared => it.narrow(1, batch.shared, time - batch.shared),
            // One replacement for all positions.
            _ => it,
        };
        let replaced = |&number: &usize| {
            variants[number]
                .iter()
                .map(|(site, new)| (*site, later(new.clone())))
                .collect::<Replacements<B>>()
        };
        let replaced: Vec<_> = batch.numbers.iter().map(replaced).collect();
        self.run((batch.first_layer, batch.shared), &replaced.iter().collect::<Vec<_>>(), keep)
    }

    fn run(
        &self,
        (first, shared): (usize, usize),
        variants: &[&Replacements<B>],
        keep: Recorded,
    ) -> Result<VariantPass<B>> {
        let (x, copies) = (self.streams[first].clone(), variants.len());
        let [_, time, _] = x.dims();
        let x = x.narrow(1, shared, time - shared);
        let x = if copies > 1 { x.repeat_dim(0, copies) } else { x };
        let mut caches: Vec<_> = match shared {
            0 => Vec::new(),
            _ => self.caches.iter().map(|cache| cache.prefix(shared, copies)).collect(),
        };
        let caches = (shared > 0).then_some(&mut caches[..]);
        let mut recorder = PassRecorder { variants, ..PassRecorder::new(&self.interventions, keep) };
        let inputs = (self.inputs, self.memories);
        let stream = self.model.hidden_states_from((first, x), inputs, caches, &mut recorder)?;
        Ok(VariantPass { recorded: recorder.recorded, stream })
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
        [plain, grouped].map(|config| noisy_model(&config, sizes, 0.3))
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
            assert!(batches.len() < variants.len(), "some variants run together");
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
        let variants: [&[Site]; 5] = [
            &[Site::Head(0, 3)],
            &[Site::FeedForward(0)],
            &[Site::Head(1, 2)],
            &[Site::Stream(1)],
            &[Site::Stream(2)],
        ];
        check(tokens, others, &variants, &[], 3);
    }
}
