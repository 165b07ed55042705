//! An estimate of the memory that an explanation needs. It is checked up front because a failed allocation ends the
//! process.

use burn::tensor::backend::Backend;

use super::bench::parts;
use super::pass::Site;
use crate::analysis::Sample;
use crate::data::Sequences;
use crate::model::Decoder;
use crate::numbers::{Bytes, counted, thousands};
use crate::{Error, Result};

/// The maximum number of floating-point operations of an explanation, and of tokens.
const OPERATIONS: usize = 600_000_000_000;
const MAX_TOKENS: usize = 2_048;
/// The number of passes whose activations are held at the same time: the unchanged one, one with a path ablated, and
/// the one in progress.
const PASSES: f64 = 3.0;
/// Intermediate results of a block, as a measured multiple of its activations.
const INTERMEDIATE: f64 = 5.0;

/// Estimates the bytes needed to explain a decoder on `rows` sequences of `time` tokens, with sources of `source`
/// tokens.
fn estimate<B: Backend>(model: &Decoder<B>, rows: usize, time: usize, source: usize) -> f64 {
    let [vocab, d_model] = model.embedding.token.weight.dims();
    let (time, source) = (time as f64, source as f64);
    let of_part = |part: Site| {
        let d_head = |layer: usize| model.blocks[layer].attention.d_head as f64;
        match part {
            // Attention weights, queries, keys and values, and the output.
            Site::Head(layer, _) => time * (time + 3.0 * d_head(layer) + d_model as f64),
            Site::Cross(layer, _) => time * (source + d_head(layer) + d_model as f64),
            _ => 2.0 * time * d_model as f64,
        }
    };
    let activations = parts(model).map(of_part).sum::<f64>() + 2.0 * time * vocab as f64;
    4.0 * (PASSES + INTERMEDIATE / model.blocks.len() as f64) * rows as f64 * activations
}

/// Refuses to explain a decoder on sequences that do not fit into `free` bytes of memory.
///
/// # Errors
/// [`Error::Input`] naming both sizes.
pub fn check_memory<B: Backend>(model: &Decoder<B>, samples: &[Sample], free: f64) -> Result<()> {
    let time = samples.iter().map(|sample| sample.inputs.len()).max().unwrap_or(0);
    let source = samples.iter().map(|sample| sample.source.as_ref().map_or(0, Vec::len)).max().unwrap_or(0);
    let taken = estimate(model, samples.len(), time, source);
    if taken <= free {
        return Ok(());
    }
    Err(Error::Input(format!(
        "explaining {} of {} takes about {}, and {} are free here: shorten the input",
        counted(samples.len(), "sequence"),
        counted(time, "token"),
        Bytes(taken),
        Bytes(free)
    )))
}

/// Returns the sequences of a set that a model is explained on, and a note if they are truncated. There are as many as
/// time allows, at least two if the set has them, each as long as `free` bytes of memory allow.
pub fn affordable<B: Backend>(
    model: &Decoder<B>,
    set: &Sequences,
    free: f64,
) -> (Vec<Sample>, Option<String>) {
    use burn::module::Module;
    let count = parts(model).count();
    // A component is ablated four times, and each weight takes a multiplication and an addition per token.
    let tokens = OPERATIONS / (8 * count * model.num_params()).max(1);
    let first = Sample::first(set, 2);
    let source = first.iter().map(|sample| sample.source.as_ref().map_or(0, Vec::len)).max().unwrap_or(0);
    let mut longest = Sample::longest(count).min(set.time());
    while longest > 1 && estimate(model, 2, longest, source) > free {
        longest /= 2;
    }
    let is_cut = longest < set.time();
    let mut rows = (tokens.min(MAX_TOKENS) / longest.max(1)).max(2);
    while rows > 2 && estimate(model, rows, longest, source) > free {
        rows /= 2;
    }
    let samples = Sample::first(set, rows).into_iter().map(|sample| sample.beginning(longest)).collect();
    let told = || {
        format!(
            "only the first {} of {} of each sequence are explained, without activation patching by the task's rule: \
             the attention weights of all heads over whole sequences take too much memory",
            thousands(longest as f64),
            counted(set.time(), "token")
        )
    };
    (samples, is_cut.then(told))
}

/// Returns the reason why no tuned lens is trained on the whole training sequences; `None` if one is trained.
pub fn without_tuned_lens<B: Backend>(model: &Decoder<B>, train: &Sequences) -> Option<String> {
    let longest = Sample::longest(parts(model).count());
    (train.time() > longest).then(|| {
        format!(
            "the tuned lens is left out: the training sequences have {}, and it is trained on up to {}",
            counted(train.time(), "token"),
            thousands(longest as f64)
        )
    })
}
