//! `evaluate --length`: length extrapolation, the loss at lengths that the model may not have been trained on.

use std::{fmt::Display, path::Path};

use burn::tensor::backend::Backend;
use causal_attention_report::Style;

use super::super::input::OpenedRun;
use crate::backend::{Device, MemoryEstimate, free_memory};
use crate::config::Config;
use crate::data::{DataConfig, Dataset, Sequences, Source, load_at_length};
use crate::error::{Error, Result};
use crate::evaluation::{AtLength, Protocol, at_length, sequences_at_length};
use crate::files::write_output;
use crate::model::{Architecture, Model, Sizes};
use crate::numbers::{Bytes, counted, thousands};
use crate::reporting::{lengths_picture, save_all};
use crate::terminal::{PieceProgress, say};
use crate::training::Split;
use crate::weights::{file::WeightsFile, native};

/// The number of bytes stored per generated target: its token, its role and its entropy floor.
const BYTES_PER_TARGET: f64 = 16.0;

/// The split at each requested length, with the entropy floor at each position.
pub struct Sets {
    sets: Vec<(Sequences, Vec<f64>)>,
    /// The length of the longest training sequence.
    pub trained: usize,
    /// The maximum number of tokens per batch, the same as in the run, unless a single window is longer.
    max_tokens: usize,
}

/// Creates an error about one of the lengths.
fn error(length: usize, problem: &dyn Display) -> Error {
    Error::Input(format!("--length {length}: {problem}"))
}

/// Checks that a model can read all lengths, and that they are in ascending order.
fn check_lengths(lengths: &[usize], description: &native::Description) -> Result<()> {
    let native::Description { model, sizes } = description;
    let max_length = match model.architecture {
        Architecture::Decoder => model.position.max_positions(sizes.context, model.largest_position),
        Architecture::OneLayer | Architecture::EncoderDecoder => None,
    };
    for (index, &length) in lengths.iter().enumerate() {
        let problem = match max_length {
            _ if model.architecture == Architecture::EncoderDecoder => {
                "not available for an encoder-decoder, whose source has its own length; omit it".to_string()
            }
            _ if length < 2 => "must be at least 2".to_string(),
            _ if index > 0 && length <= lengths[index - 1] => {
                "lengths must be unique and in ascending order, e.g. 64,128,256".to_string()
            }
            Some(max_length) if length > max_length => format!(
                "the model has {} positions, which end at {max_length}; use a length of at most {max_length}, or train \
                 with another `model.position`",
                model.position
            ),
            _ => continue,
        };
        return Err(error(length, &problem));
    }
    Ok(())
}

/// Checks that the data can be generated at all lengths, and fits into the free memory. `generated` contains the config
/// of generated data and the number of its samples; a batch has up to `max_tokens` tokens.
fn check_memory(
    lengths: &[usize],
    native::Description { model, sizes }: &native::Description,
    generated: Option<(&DataConfig, usize)>,
    max_tokens: usize,
) -> Result<()> {
    // Generated data of all lengths is kept. A batch needs memory for the tensors of one block and of the head.
    let generated_bytes = generated.map_or(0.0, |(_, samples)| BYTES_PER_TARGET * samples as f64);
    let widths = 4 * model.d_model + model.qkv_width() + model.up_width() + model.inner_width();
    let bytes_per_token = 4.0 * (widths + 3 * sizes.vocab) as f64;
    let (free, mut kept) = (free_memory(), 0.0);
    for &length in lengths {
        if let Some((data, _)) = generated {
            data.at_length(length).check().map_err(|problem| error(length, &problem))?;
        }
        kept += generated_bytes * length as f64;
        let needed = kept + bytes_per_token * max_tokens.max(length) as f64;
        if needed > free {
            let (needed, free) = (Bytes(needed), Bytes(free));
            let problem = format!(
                "sequences of this length need about {needed} of memory, but only {free} is free; use shorter \
                 lengths, or fewer sequences with --set data.valid_samples=N"
            );
            return Err(error(length, &problem));
        }
    }
    Ok(())
}

/// Generates or cuts a split at one length, and returns it with the entropy floor at each position.
fn load_split(
    split: Split,
    length: usize,
    data: &DataConfig,
    seed: u64,
    dataset: &Dataset,
) -> Result<(Sequences, Vec<f64>)> {
    let loaded = load_at_length(data, seed, dataset, length);
    let loaded = loaded.map_err(|problem| error(length, &problem))?;
    let (set, floor) = match split {
        Split::Valid => (loaded.valid, loaded.floor_by_position),
        Split::Train => (loaded.train, Vec::new()),
    };
    let time = set.time();
    let problem = match data.source() {
        _ if time == length => return Ok((set, floor)),
        Source::Sequences => {
            format!("the longest sequences of `{}` that fit have {time} targets; use {time}", data.task)
        }
        Source::Text | Source::Table | Source::Array | Source::Memory => {
            let targets = counted(time, "target");
            format!("the split has only {targets}; use a shorter length or more data")
        }
    };
    Err(error(length, &problem))
}

impl Sets {
    /// Loads the split at all lengths. `dataset` holds the data at the run's own length.
    ///
    /// # Errors
    /// Returns an error for a length that the model cannot read, or for which the data does not suffice.
    pub fn load(
        lengths: &[usize],
        split: Split,
        OpenedRun { config, .. }: &OpenedRun,
        dataset: &Dataset,
        weights: &WeightsFile,
    ) -> Result<Self> {
        let description = native::description(weights)?;
        check_lengths(lengths, &description)?;
        let max_tokens = config.training.batch_size * dataset.valid.time();
        // The training set is not generated unless it is scored.
        let (data, samples) = match split {
            Split::Valid => {
                (DataConfig { train_samples: 1, ..config.data.clone() }, config.data.valid_samples)
            }
            Split::Train => (config.data.clone(), config.data.train_samples),
        };
        let generated = (data.source() == Source::Sequences).then_some((&data, samples));
        check_memory(lengths, &description, generated, max_tokens)?;
        let load = |&length: &usize| load_split(split, length, &data, config.run.seed, dataset);
        Ok(Self {
            sets: lengths.iter().map(load).collect::<Result<_>>()?,
            // A length that is not drawn is not trained, even if the model has its positions.
            trained: config.data.lengths.map_or(description.sizes.context, |[_, longest]| longest),
            max_tokens,
        })
    }

    /// Checks that a device has memory for the tensors of the longest windows.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub fn check(&self, config: &Config, dataset: &Dataset, device: &Device) -> Result<()> {
        let Some((longest, _)) = self.sets.last() else { return Ok(()) };
        let rows = (self.max_tokens / longest.time()).max(1);
        let sizes = Sizes { context: longest.time(), ..config.sizes(dataset) };
        let memory = MemoryEstimate { rows, ..MemoryEstimate::of(config, dataset, device) };
        memory.check_tensors(config, sizes, device)
    }

    /// Evaluates a model at each length.
    pub fn evaluate<B: Backend>(&self, model: &Model<B>, json: bool, device: &B::Device) -> Vec<AtLength> {
        let all = self.sets.iter().map(|(set, _)| sequences_at_length(set)).sum();
        let (pieces, mut read) = (PieceProgress::new(json, all, "sequences"), 0);
        let mut done = |sequences| {
            read += sequences;
            pieces.done(read);
        };
        let scored = self
            .sets
            .iter()
            .flat_map(|(set, floor)| at_length(model, set, floor, self.max_tokens, device, &mut done));
        scored.collect()
    }
}

/// Prints a table of all lengths, for both protocols.
pub fn print(lengths: &[AtLength], trained: usize) {
    if lengths.is_empty() {
        return;
    }
    say(&format!("  by length (at most {trained} in training)"));
    for (protocol, what) in [
        (Protocol::Windows, "non-overlapping windows: all targets"),
        (
            Protocol::Sliding,
            "sliding windows, an eighth of the length apart: the last eighth of the targets of each window, and \
             the remaining targets at the end",
        ),
    ] {
        say(&format!("  {what}"));
        say("    length   targets      loss     floor       gap  accuracy  determined");
        for at in lengths.iter().filter(|at| at.protocol == protocol) {
            let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4}"));
            let share =
                |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{:.2} %", value * 100.0));
            let AtLength { length, loss, floor, gap, accuracy, determined_accuracy, tokens, .. } = at;
            let mark = if *length == trained { " (trained)" } else { "" };
            say(&format!(
                "    {length:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}{mark}",
                thousands(*tokens as f64),
                number(Some(*loss)),
                number(*floor),
                number(*gap),
                share(Some(*accuracy)),
                share(*determined_accuracy),
            ));
        }
    }
}

/// Draws the table and prints the path of the picture.
///
/// # Errors
/// Returns an error if the picture cannot be written.
pub fn draw(name: &str, lengths: &[AtLength], trained: usize, out: &Path, json: bool) -> Result<()> {
    let style = Style::default();
    let picture = lengths_picture(name, lengths, trained, style.logical_width());
    let written = write_output(out, "evaluate", |hidden| save_all(&[picture], hidden, &style))?;
    if !json {
        written.iter().for_each(|path| say(&path.display().to_string()));
    }
    Ok(())
}
