//! The starting point of a run: its data, and either fresh weights or the best weights of another run (fine-tuning).

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burn::tensor::backend::Backend;
use burn_flex::Flex;

use super::checkpoint::data_fingerprint;
use super::{run_folder::RunFolder, step::Trainee};
use crate::backend::{Device, MemoryEstimate};
use crate::config::Config;
use crate::data::{self, Dataset, Source, Vocabulary};
use crate::error::{Error, Result, ensure};
use crate::model::{Architecture, Sizes};
use crate::numbers::counted;
use crate::weights::native::{self, Description, Tensors};

/// Returns the sizes of the model of `config` for this data. A run that starts from another run has the sizes of its
/// weights, with the longer of the two contexts if the position scheme allows any length.
///
/// # Errors
/// If the weights cannot be read, or with [`Error::Key`] if the data has longer sequences than the weights have
/// positions.
pub fn sizes_of(config: &Config, dataset: &Dataset) -> Result<Sizes> {
    let requested = config.sizes(dataset);
    let Some(from) = config.run.start() else { return Ok(requested) };
    let Description { sizes, .. } = native::description(&RunFolder::at(from).unverified_weights()?)?;
    let is_longer = requested.context > sizes.context || requested.source_context > sizes.source_context;
    if config.model.position.ends_with_context() && is_longer {
        let problem = format!(
            "makes sequences of {}, but the weights of `{}` have a context of {}",
            counted(requested.context.max(requested.source_context.unwrap_or(0)), "token"),
            from.display(),
            sizes.context.min(sizes.source_context.unwrap_or(usize::MAX))
        );
        let has_rows =
            matches!(config.data.source(), Source::Table | Source::Array) && dataset.train.stream().is_none();
        return Err(match has_rows {
            true => {
                Error::key("data.path", &config.data.path, problem + "; remove or shorten the longer rows")
            }
            false => Error::key("data.length", config.data.length, problem + "; lower it"),
        });
    }
    Ok(Sizes {
        vocab: sizes.vocab,
        context: requested.context.max(sizes.context),
        source_context: requested.source_context.max(sizes.source_context),
    })
}

/// Returns the weights of the first step: the best weights of the run that `config` starts from, or fresh ones. Fresh
/// weights are drawn on the host from the seed alone, so they are the same on every backend.
///
/// # Errors
/// If the model cannot be built, or the weights do not fit it.
pub fn initial_weights(config: &Config, sizes: Sizes) -> Result<Tensors> {
    /// Serialises the draws: the host has one generator for all threads.
    static GENERATOR: Mutex<()> = Mutex::new(());
    let _lock = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Default::default();
    Flex::seed(&host, config.run.seed);
    let model = config.model.init::<Flex>(sizes, &host)?;
    native::collect(&match config.run.start() {
        None => model,
        Some(from) => {
            let folder = RunFolder::at(from);
            native::apply(model, native::read(&folder.weights()?)?.0, &folder.model())?
        }
    })
}

/// Returns the model of `config` with these weights, which were read from the file `origin`.
///
/// # Errors
/// If the model cannot be built, or the weights do not fit it.
pub(super) fn trainee_of<B: Backend>(
    config: &Config,
    sizes: Sizes,
    weights: Tensors,
    origin: &Path,
    device: &B::Device,
) -> Result<Trainee<B>> {
    let model = native::apply(config.model.init(sizes, device)?, weights, origin)?;
    Ok(Trainee::new(model, &config.training))
}

/// Returns the model of `config` before its first step, after checking that its training fits into the memory of the
/// device `on`.
///
/// # Errors
/// If the model cannot be built, or its training does not fit into memory.
pub(super) fn initial_trainee<B: Backend>(
    config: &Config,
    dataset: &Dataset,
    on: &Device,
    device: &B::Device,
) -> Result<Trainee<B>> {
    let sizes = sizes_of(config, dataset)?;
    MemoryEstimate::of(config, dataset, on).check(config, sizes, on)?;
    let weights = initial_weights(config, sizes)?;
    trainee_of(config, sizes, weights, Path::new("the initial weights"), device)
}

/// Reads or draws the data of `config`, in the form that its architecture takes. If the run starts from another run,
/// the data is encoded with the vocabulary of that run.
///
/// # Errors
/// If the data cannot be read.
pub fn dataset(config: &Config) -> Result<Dataset> {
    match (config.run.start(), config.model.architecture) {
        (Some(from), _) => dataset_of(config, &RunFolder::open(from)?),
        (None, Architecture::EncoderDecoder) => data::load_pairs(&config.data, config.run.seed),
        (None, _) => data::load(&config.data, config.run.seed),
    }
}

/// Returns the data of `config`, encoded with the vocabulary of the run in `folder`, which belongs to its weights.
///
/// # Errors
/// If the data cannot be read, or no longer fits that vocabulary.
pub fn dataset_of(config: &Config, folder: &RunFolder) -> Result<Dataset> {
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let dataset = match config.model.architecture {
        Architecture::EncoderDecoder => {
            data::load_pairs_with(&config.data, config.run.seed, Some(&vocabulary))?
        }
        _ => data::load_with(&config.data, config.run.seed, &vocabulary)?,
    };
    ensure(dataset.vocabulary == vocabulary, Error::Input, || {
        let run = folder.path().display();
        format!("the data no longer has the vocabulary of the run `{run}`; restore the data")
    })?;
    Ok(dataset)
}

/// Returns true if the data differs from the data of the run in `folder`, as far as its checkpoints record it.
pub fn has_different_data(folder: &RunFolder, dataset: &Dataset) -> bool {
    data_fingerprint(folder).is_some_and(|fingerprint| fingerprint != dataset.fingerprint())
}

/// Checks that the phases of the schedule fit into the run of `config` on this data.
///
/// # Errors
/// As [`TrainingConfig::check_schedule`](crate::config::TrainingConfig::check_schedule).
pub fn check_schedule(config: &Config, dataset: &Dataset) -> Result<()> {
    let batches = dataset.train.len().div_ceil(config.training.batch_size);
    config.training.check_schedule(config.training.total_steps(batches))
}
