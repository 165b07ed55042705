//! A decoder on the sequences that it is explained on, with any of its components ablated.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use super::pass::{Activations, Interventions, Recorded, Replacements, Site, run};
use super::question::{Quantity, Question};
use super::variants::{BasePass, caches};
use super::watch::{Unwatched, Watch};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::attention::{KeyValueCache, Memory};
use crate::data::Role;
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::hooks::ResidualWriter;
use crate::model::Decoder;
use crate::ops;

/// Returns the components of a decoder that write to its residual stream, in model order.
pub(super) fn components<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Site> {
    ResidualWriter::of_decoder(model).map(Site::from)
}

/// Returns for each target of a batch, in `[batch * time]`, whether it is not padding.
pub(super) fn is_target<B: Backend>(batch: &DeviceBatch<B>) -> Vec<bool> {
    match &batch.hidden {
        Some(hidden) => hidden.clone().bool_not().into_data().iter().collect(),
        None => vec![true; batch.targets.shape().num_elements()],
    }
}

/// Returns the loss of each non-padding target of a batch.
pub(super) fn losses_of<B: Backend>(logits: Tensor<B, 3>, batch: &DeviceBatch<B>) -> Vec<f64> {
    let losses = floats(ops::token_scores(logits, batch.targets.clone(), batch.hidden.clone()).losses);
    let losses = losses.into_iter().zip(is_target(batch)).filter(|(_, is_target)| *is_target);
    losses.map(|(loss, _)| f64::from(loss)).collect()
}

/// A component, with the quantity at each target when it is ablated.
#[derive(Debug, Clone)]
pub(super) struct Ablated {
    pub site: Site,
    pub values: Vec<f64>,
}

impl Ablated {
    pub fn mean(&self) -> f64 {
        mean(&self.values)
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Selects positions of residual streams by their indices in `[batch * time]`, the same number for each of the `variants`.
///
/// # Shapes
/// `stream` `[batch, time, d_model]`; the result is `[variants, positions, d_model]`.
pub(super) fn select_positions<B: Backend>(
    stream: Tensor<B, 3>,
    indices: Tensor<B, 1, Int>,
    variants: usize,
) -> Tensor<B, 3> {
    let ([rows, time, d_model], [count]) = (stream.dims(), indices.dims());
    let selected = stream.reshape([rows * time, d_model]).select(0, indices);
    selected.reshape([variants, count / variants, d_model])
}

/// A decoder and the sequences that it is explained on.
pub(super) struct Bench<'a, B: Backend> {
    pub model: &'a Decoder<B>,
    pub batch: DeviceBatch<B>,
    /// The cross-attention's keys and values, one entry per block; empty without an encoder.
    pub memories: Vec<Memory<B>>,
    /// The activations of the full model.
    pub full: Activations<B>,
    /// The activations on the corrupted sequences, if the question has them.
    pub corrupted: Option<Activations<B>>,
    /// The replacement of the output of each head and feed-forward layer for an ablation.
    pub replacements: Vec<(Site, Tensor<B, 3>)>,
    pub quantity: Quantity,
    /// The tokens whose logits are subtracted from those of the targets, `[batch, time]`.
    pub against: Option<Tensor<B, 2, Int>>,
    /// The indices of the targets that count, in `[batch * time]`.
    counted: Vec<usize>,
    /// 1 for inputs and 0 for the padding after them, `[batch, time, 1]`.
    input_mask: Tensor<B, 3>,
    /// The number of first positions that no ablation changes, with the keys and values of each layer there.
    unaltered: (usize, Vec<KeyValueCache<B>>),
    /// Follows the search, and may end it early.
    pub watch: &'a dyn Watch,
}

impl<'a, B: Backend> Bench<'a, B> {
    pub fn new(
        model: &'a Decoder<B>,
        samples: &[Sample],
        question: &Question,
        device: &B::Device,
    ) -> Result<Self> {
        let collated = Sample::batch_of(samples);
        let [rows, time] = [collated.rows, collated.time];
        let counted = collated.roles.iter().enumerate().filter(|(_, role)| **role != Role::Padding);
        let counted: Vec<usize> = counted.map(|(index, _)| index).collect();
        let is_input =
            |sample: &Sample| (0..time).map(|at| f32::from(at < sample.inputs.len())).collect::<Vec<_>>();
        let input_mask: Vec<f32> = samples.iter().flat_map(is_input).collect();
        let input_mask = Tensor::from_data(TensorData::new(input_mask, [rows, time, 1]), device);
        let against = (!question.against.is_empty()).then(|| {
            let tokens =
                question.against.iter().flat_map(|&token| std::iter::repeat_n(i64::from(token), time));
            Tensor::from_data(TensorData::new(tokens.collect(), [rows, time]), device)
        });
        let batch = DeviceBatch::<B>::new(&collated, device);
        let memories = model.project_memory(batch.inputs.source.clone(), &mut NoHooks)?;
        let pass = |inputs| run(model, inputs, &memories, &Interventions::default());
        let full = pass(batch.inputs.clone())?;
        let corrupted = (!question.corrupted.is_empty()).then(|| {
            let samples = question.corrupted_samples(samples);
            pass(DeviceBatch::new(&Sample::batch_of(&samples), device).inputs)
        });
        let corrupted = corrupted.transpose()?;
        let unaltered = match question.first_difference(samples).min(counted.iter().map(|it| it % time).min())
        {
            Some(first) if first > 0 && memories.is_empty() && batch.inputs.documents.is_none() => {
                (first, caches(model, &batch.inputs)?)
            }
            _ => (0, Vec::new()),
        };
        let (quantity, replacements) = (question.quantity(), Vec::new());
        let mut bench = Self {
            model,
            batch,
            memories,
            full,
            corrupted,
            replacements,
            quantity,
            against,
            counted,
            input_mask,
            unaltered,
            watch: &Unwatched,
        };
        bench.replacements = components(model).map(|site| (site, bench.contrast(site))).collect();
        Ok(bench)
    }

    /// Returns an activation on the corrupted sequences or, without them, its mean.
    fn contrast(&self, site: Site) -> Tensor<B, 3> {
        match &self.corrupted {
            Some(corrupted) => corrupted.at(site),
            None => self.mean(self.full.at(site)),
        }
    }

    /// Returns the embedding, and its change to the embedding of the corrupted sequences or, without them, to the mean.
    pub fn embedding_and_change(&self) -> [Tensor<B, 3>; 2] {
        let clean = self.full.at(Site::Embedding);
        let change = self.contrast(Site::Embedding).expand(clean.shape()) - clean.clone();
        [clean, change]
    }

    /// Averages an activation at each position over the sequences, or over all positions of a single sequence or of
    /// prompts.
    pub fn mean(&self, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let mask = &self.input_mask;
        let dims: &[usize] = match (self.quantity, self.batch.inputs.tokens.dims()) {
            (Quantity::Loss, [1, _]) => &[1],
            (Quantity::Loss, _) => &[0],
            _ => &[0, 1],
        };
        let count = mask.clone().sum_dims(dims).clamp_min(1.0);
        (activation * mask.clone()).sum_dims(dims) / count
    }

    /// Returns the token whose logit is explained at each position, `[batch, time]`: the target or, of a question about
    /// answers, the answer at all positions of its prompt.
    pub fn answers(&self) -> Tensor<B, 2, Int> {
        let targets = self.batch.targets.clone();
        if self.quantity == Quantity::Loss {
            return targets;
        }
        let [rows, time] = targets.dims();
        let tokens: Vec<i64> = targets.to_data().iter().collect();
        let answer = |row: usize| self.counted.iter().find(|&&index| index / time == row);
        let of_row = |row: usize| match answer(row) {
            Some(&index) => vec![tokens[index]; time],
            None => tokens[row * time..][..time].to_vec(),
        };
        let answers: Vec<i64> = (0..rows).flat_map(of_row).collect();
        Tensor::from_data(TensorData::new(answers, [rows, time]), &targets.device())
    }

    /// Returns what replaces the output of a component when it is ablated.
    pub fn replacement(&self, site: Site) -> Tensor<B, 3> {
        let found = self.replacements.iter().find(|(component, _)| *component == site);
        found.map(|(_, output)| output.clone()).expect("all components have a replacement")
    }

    /// Returns the loss on each target that counts.
    pub fn losses(&self, logits: Tensor<B, 3>) -> Vec<f64> {
        let scores = ops::token_scores(logits, self.batch.targets.clone(), self.batch.hidden.clone());
        let losses = floats(scores.losses);
        self.counted.iter().map(|&index| f64::from(losses[index])).collect()
    }

    /// Returns true if each target that counts is the most likely token of the full model.
    pub fn predicts_all(&self) -> bool {
        let most_likely: Vec<i64> = self.full.logits.clone().argmax(2).into_data().iter().collect();
        let targets: Vec<i64> = self.batch.targets.to_data().iter().collect();
        self.counted.iter().all(|&index| most_likely[index] == targets[index])
    }

    /// Returns the quantity at each target that counts, in a pass without variants.
    pub fn values(&self, pass: &Activations<B>) -> Vec<f64> {
        self.values_after(pass.at(Site::Logits), 0).concat()
    }

    /// Returns the replacements that ablate components.
    pub fn ablation(&self, components: &[Site]) -> Replacements<B> {
        components.iter().map(|&site| (site, self.replacement(site))).collect()
    }

    /// Returns the pass of the full model, to run variants of it.
    pub fn full_pass(&self) -> BasePass<'_, B> {
        self.full_pass_with(Interventions::default())
    }

    /// Returns the pass of the full model with all heads frozen. In a variant that ablates a component, the change
    /// reaches a later component only through the residual stream and the feed-forward layers, as in the path patching of
    /// Wang et al. (2022).
    pub fn frozen_pass(&self) -> BasePass<'_, B> {
        let is_head = |site: &Site| matches!(site, Site::Head(..) | Site::Cross(..));
        let heads = self.replacements.iter().map(|(site, _)| *site).filter(is_head);
        let frozen = |it: Interventions<B>, site| it.replace(site, self.full.at(site));
        self.full_pass_with(heads.fold(Interventions::default(), frozen))
    }

    fn full_pass_with(&self, interventions: Interventions<B>) -> BasePass<'_, B> {
        let base = BasePass::of(self.model, &self.batch.inputs, &self.memories, (&self.full, interventions));
        base.caching(&self.unaltered.1)
    }

    /// Returns the quantity at each target that counts in variants of a pass. Before each batch of variants, `goes_on` is
    /// called with the number of finished variants; if it returns false, the remaining values are `None`.
    pub fn values_of_variants(
        &self,
        base: &BasePass<B>,
        variants: &[Replacements<B>],
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<Vec<Option<Vec<f64>>>> {
        let (mut found, mut done) = (vec![None; variants.len()], 0);
        // With a cache, only outputs can be replaced.
        let is_output = |(site, _): &(Site, Tensor<B, 3>)| site.is_component();
        let shared = if variants.iter().flatten().all(is_output) { self.unaltered.0 } else { 0 };
        for batch in base.batches_from(variants, shared) {
            if !goes_on(done) {
                break;
            }
            let pass = base.run_batch(&batch, variants, Recorded::Nothing)?;
            let values = self.values_after(pass.stream, shared);
            done += batch.numbers.len();
            batch.numbers.into_iter().zip(values).for_each(|(number, values)| found[number] = Some(values));
        }
        Ok(found)
    }

    /// Returns the quantity at each target that counts, for each variant in a batch, from the residual stream after the
    /// last block without its first positions, up to `shared`.
    pub fn values_after(&self, stream: Tensor<B, 3>, shared: usize) -> Vec<Vec<f64>> {
        let ([rows, ..], [batch, _]) = (stream.dims(), self.batch.targets.dims());
        let variants = rows / batch;
        let positions = self.counted_indices_after(variants, shared);
        let logits = self.model.logits(select_positions(stream, positions, variants));
        let targets = self.counted_tokens(&self.batch.targets, variants);
        let values = match (&self.against, self.quantity) {
            (Some(against), Quantity::LogitDifference) => {
                let of = |tokens: Tensor<B, 2, Int>| logits.clone().gather(2, tokens.unsqueeze_dim(2));
                floats(of(targets) - of(self.counted_tokens(against, variants)))
            }
            (_, Quantity::Loss) => floats(ops::token_scores(logits, targets, None).losses),
            _ => floats(-ops::token_scores(logits, targets, None).losses),
        };
        let of_variant = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
        values.chunks(self.counted.len()).map(of_variant).collect()
    }

    /// Returns the indices of the targets that count in a batch of variants, `[variants * counted]`.
    pub fn counted_indices(&self, variants: usize) -> Tensor<B, 1, Int> {
        self.counted_indices_after(variants, 0)
    }

    /// Returns the indices in a batch of variants without the first positions, up to `shared`.
    fn counted_indices_after(&self, variants: usize, shared: usize) -> Tensor<B, 1, Int> {
        let [batch, time] = self.batch.targets.dims();
        let of_variant = |variant: usize| {
            let index = move |index: &usize| {
                ((variant * batch + index / time) * (time - shared) + index % time - shared) as i64
            };
            self.counted.iter().map(index)
        };
        let indices: Vec<i64> = (0..variants).flat_map(of_variant).collect();
        Tensor::from_data(indices.as_slice(), &self.batch.targets.device())
    }

    /// Returns the tokens, of `[batch, time]`, at the targets that count in a batch of variants, `[variants, counted]`.
    pub fn counted_tokens(&self, tokens: &Tensor<B, 2, Int>, variants: usize) -> Tensor<B, 2, Int> {
        let [batch, time] = tokens.dims();
        let counted = tokens.clone().reshape([batch * time]).select(0, self.counted_indices(1));
        counted.reshape([1, self.counted.len()]).repeat_dim(0, variants)
    }

    /// Returns the mean quantity with the given components ablated.
    pub fn ablated(&self, components: &[Site]) -> Result<f64> {
        Ok(mean(&self.values_ablated(components)?))
    }

    /// Returns the quantity at each target that counts with the given components ablated.
    pub fn values_ablated(&self, components: &[Site]) -> Result<Vec<f64>> {
        let values = self.values_of_variants(&self.full_pass(), &[self.ablation(components)], |_| true)?;
        Ok(values.into_iter().flatten().flatten().collect())
    }

    /// Returns the mean quantity with all components ablated.
    pub fn all_ablated(&self) -> Result<f64> {
        self.ablated(&self.replacements.iter().map(|(site, _)| *site).collect::<Vec<_>>())
    }
}
