//! The tokens at which neurons are most active.

use burn::module::Module;
use burn::tensor::backend::Backend;

use super::{HiddenRecorder, stream};
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::circuit::bench::components;
use crate::analysis::circuit::explanation::{Neuron, NeuronContext};
use crate::analysis::circuit::watch::{ExplanationStage, Watch};
use crate::analysis::view::floats;
use crate::data::Sequences;
use crate::evaluation::DeviceBatch;
use crate::model::Decoder;

/// The maximum number of contexts of a neuron.
const MAX_CONTEXTS: usize = 5;
/// The maximum number of tokens in a context.
const CONTEXT_LENGTH: usize = 6;
/// The maximum number of tokens that are searched for contexts.
const MAX_SEARCHED_TOKENS: usize = 1 << 16;
/// The maximum number of floating-point operations of this search.
const MAX_OPERATIONS: usize = 200_000_000_000;
/// The number of tokens of a batch in this search.
const BATCH_TOKENS: usize = 2_048;

/// Returns the sequences of a set in which contexts are searched: as many as computing time allows.
pub fn context_samples<B: Backend>(model: &Decoder<B>, set: &Sequences) -> Vec<Sample> {
    // A pass has two operations per weight and token.
    let tokens = (MAX_OPERATIONS / (2 * model.num_params()).max(1)).min(MAX_SEARCHED_TOKENS);
    let length = Sample::max_length(components(model).count()).min(set.time());
    let samples = Sample::first(set, (tokens / length.max(1)).max(2));
    samples.into_iter().map(|sample| sample.truncated(length)).collect()
}

/// Adds to each neuron the contexts in which it is most active in `samples`. Equal contexts count once. Returns `None` if
/// the stage ends early.
pub(super) fn with_contexts<B: Backend>(
    model: &Decoder<B>,
    mut neurons: Vec<Neuron>,
    samples: &[Sample],
    watch: &dyn Watch,
    device: &B::Device,
) -> Result<Option<Vec<Neuron>>> {
    let longest = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(1);
    for samples in samples.chunks((BATCH_TOKENS / longest).max(1)) {
        if watch.ends(ExplanationStage::Neurons) {
            return Ok(None);
        }
        let mut recorder = HiddenRecorder(Vec::new());
        stream(model, DeviceBatch::new(&Sample::batch_of(samples), device).inputs, &mut recorder)?;
        for Neuron { layer, neuron, contexts, .. } in &mut neurons {
            let [_, time, _] = recorder.0[*layer].dims();
            let activations = floats(recorder.0[*layer].clone().narrow(2, *neuron, 1));
            for (sample, row) in samples.iter().zip(activations.chunks(time)) {
                for (position, &activation) in row[..sample.inputs.len()].iter().enumerate() {
                    keep(contexts, sample, position, activation.into());
                }
            }
        }
    }
    Ok(Some(neurons))
}

/// Adds the context of a position to the contexts of a neuron, if it is among those with the largest activations.
pub(super) fn keep(contexts: &mut Vec<NeuronContext>, sample: &Sample, position: usize, activation: f64) {
    let is_larger = |it: &NeuronContext| it.activation.abs() >= activation.abs();
    let rank = contexts.partition_point(is_larger);
    if rank == MAX_CONTEXTS {
        return;
    }
    let is_same_document =
        |at: &usize| sample.documents.as_ref().is_none_or(|documents| documents[*at] == documents[position]);
    let first = (position.saturating_sub(CONTEXT_LENGTH - 1)..position).find(is_same_document);
    let tokens = sample.inputs[first.unwrap_or(position)..=position].to_vec();
    if contexts[..rank].iter().any(|it| it.tokens == tokens) {
        return;
    }
    contexts.retain(|it| it.tokens != tokens);
    contexts.insert(rank, NeuronContext { tokens, activation });
    contexts.truncate(MAX_CONTEXTS);
}
