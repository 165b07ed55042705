//! An estimate of the memory that an explanation needs. It is checked up front because a failed allocation ends the
//! process.

use burn::tensor::backend::Backend;

use super::bench::components;
use super::pass::Site;
use super::variants::batched_variants;
use crate::analysis::Sample;
use crate::data::Sequences;
use crate::model::Decoder;
use crate::numbers::{Bytes, counted, thousands};
use crate::{Error, Result};

/// The maximum number of floating-point operations of an explanation.
const MAX_OPERATIONS: usize = 600_000_000_000;
/// The maximum number of tokens of an explanation.
const MAX_TOKENS: usize = 2_048;
/// The number of passes whose activations are held at the same time: the full model, gradients or the inputs of selected
/// connections, and the pass in progress.
const HELD_PASSES: f64 = 3.0;
/// The measured size of a block's intermediate results, as a multiple of its activations.
const INTERMEDIATE_FACTOR: f64 = 5.0;

/// Estimates the bytes needed to explain a decoder on `rows` sequences of `time` tokens, with sources of `source`
/// tokens.
fn estimate<B: Backend>(model: &Decoder<B>, rows: usize, time: usize, source: usize) -> f64 {
    let [vocab, d_model] = model.embedding.token.weight.dims();
    let (tokens, time, source) = (time, time as f64, source as f64);
    let component_size = |component: Site| {
        let d_head = |layer: usize| model.blocks[layer].attention.d_head as f64;
        match component {
            // Attention weights, queries, keys and values, and the output.
            Site::Head(layer, _) => time * (time + 3.0 * d_head(layer) + d_model as f64),
            Site::Cross(layer, _) => time * (source + d_head(layer) + d_model as f64),
            _ => 2.0 * time * d_model as f64,
        }
    };
    let activations = components(model).map(component_size).sum::<f64>() + 2.0 * time * vocab as f64;
    let intermediate =
        INTERMEDIATE_FACTOR / model.blocks.len() as f64 * batched_variants(rows, tokens) as f64;
    4.0 * (HELD_PASSES + intermediate) * rows as f64 * activations
}

/// Checks that explaining a decoder on `samples` fits into `free` bytes of memory.
///
/// # Errors
/// Returns [`Error::Input`] with the required and the free memory if the explanation does not fit.
pub fn check_memory<B: Backend>(model: &Decoder<B>, samples: &[Sample], free: f64) -> Result<()> {
    let time = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(0);
    let source = samples.iter().map(|sample| sample.source.as_ref().map_or(0, Vec::len)).max().unwrap_or(0);
    let required = estimate(model, samples.len(), time, source);
    if required <= free {
        return Ok(());
    }
    Err(Error::Input(format!(
        "explaining {} of {} needs about {} of memory, but only {} is free; shorten the input",
        counted(samples.len(), "sequence"),
        counted(time, "token"),
        Bytes(required),
        Bytes(free)
    )))
}

/// Returns the sequences of a set that a model is explained on, and a note if they are truncated. Computing time limits
/// the number of sequences, which is at least two; `free` bytes of memory limit their length.
pub fn affordable_samples<B: Backend>(
    model: &Decoder<B>,
    set: &Sequences,
    free: f64,
) -> (Vec<Sample>, Option<String>) {
    use burn::module::Module;
    let count = components(model).count();
    // Each component is ablated about four times, with two operations per weight and token.
    let tokens = MAX_OPERATIONS / (8 * count * model.num_params()).max(1);
    let first = Sample::first(set, 2);
    let source = first.iter().map(|sample| sample.source.as_ref().map_or(0, Vec::len)).max().unwrap_or(0);
    let mut length = Sample::max_length(count).min(set.time());
    while length > 1 && estimate(model, 2, length, source) > free {
        length /= 2;
    }
    let is_truncated = length < set.time();
    let mut rows = (tokens.min(MAX_TOKENS) / length.max(1)).max(2);
    while rows > 2 && estimate(model, rows, length, source) > free {
        rows /= 2;
    }
    let samples = Sample::first(set, rows).into_iter().map(|sample| sample.truncated(length)).collect();
    let note = || {
        format!(
            "only the first {} of {} of each sequence are explained, without activation patching by the \
             task's rule: the attention weights of all heads over full sequences take too much memory",
            thousands(length as f64),
            counted(set.time(), "token")
        )
    };
    (samples, is_truncated.then(note))
}

/// Returns the reason why the tuned lens is skipped; `None` if the training sequences are short enough for it.
pub fn tuned_lens_skip_reason<B: Backend>(model: &Decoder<B>, train: &Sequences) -> Option<String> {
    let max_length = Sample::max_length(components(model).count());
    (train.time() > max_length).then(|| {
        format!(
            "the tuned lens is skipped: the training sequences have {}, but it is trained on at most {}",
            counted(train.time(), "token"),
            thousands(max_length as f64)
        )
    })
}
