//! The starting point of a run: its data, and either fresh weights or the best weights of another run (fine-tuning).

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burn::tensor::backend::Backend;
use burn_flex::Flex;
use causal_attention_kernels::has_bf16_instructions;

use super::checkpoint::data_fingerprint;
use super::lineage::trained_on;
use super::{run_folder::RunFolder, step::Trainee};
use crate::backend::{Device, MemoryEstimate};
use crate::config::Config;
use crate::data::{self, Dataset, Source, Vocabulary};
use crate::error::{Error, Result, ensure};
use crate::model::{Architecture, Sizes};
use crate::numbers::{counted, thousands};
use crate::ops::Precision;
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

/// Returns a warning if the run is counted in epochs, and an epoch of windows is not about one pass over the tokens.
fn epoch_warning(config: &Config, dataset: &Dataset) -> Option<String> {
    /// The largest deviation of an epoch from one pass that needs no warning.
    const TOLERANCE: f64 = 0.1;
    let (training, train) = (&config.training, &dataset.train);
    if training.steps.is_some() || training.epochs.is_none() {
        return None;
    }
    let (_, text) = train.stream()?;
    let batches = train.len().div_ceil(training.batch_size);
    let per_step = training.batch_size * training.accumulate;
    let [shortest, longest] = train.lengths().unwrap_or([train.time(); 2]);
    let windows = training.steps_per_epoch(batches) * per_step;
    let passes = windows as f64 * (shortest + longest) as f64 / 2.0 / (text.len() - 1) as f64;
    let reason = match train.lengths() {
        Some(_) => format!("its windows have {shortest} to {longest} tokens"),
        None => format!("the last step of an epoch is filled up to {}", counted(per_step, "window")),
    };
    ((passes - 1.0).abs() > TOLERANCE).then(|| {
        format!(
            "an epoch of {} reads the training text {passes:.1} times, because {reason}; to read it a given \
            number of times, set `training.steps` instead of `training.epochs`",
            counted(training.steps_per_epoch(batches), "step")
        )
    })
}

/// Returns a warning if validation reads learned positions that no training batch reaches.
fn untrained_positions_warning(config: &Config, dataset: &Dataset) -> Option<String> {
    let model = &config.model;
    let is_learned = model.position.ends_with_context() && model.architecture != Architecture::OneLayer;
    let [_, longest] = dataset.train.lengths().filter(|_| is_learned)?;
    let read = dataset.valid.time();
    (longest < read).then(|| {
        format!(
            "training reads at most {}, but validation {read}, and learned positions above {longest} keep their \
             initial values; set the upper limit of `data.lengths` to {read}, or another `model.position`",
            counted(longest, "position"),
        )
    })
}

/// Returns a warning if the weights that the run starts from were trained on sequences of its validation set.
fn seen_warning(config: &Config, dataset: &Dataset) -> Option<String> {
    let lineage = RunFolder::open(config.run.start()?).ok()?.lineage();
    let runs = match lineage.len() {
        1 => "the run that this run starts from",
        _ => "the run that this run starts from or a run before it",
    };
    let found = trained_on(&lineage, 0, &config.data, dataset, &dataset.valid);
    if found.sequences == 0 {
        let gaps = found.gaps(runs)?;
        return Some(format!(
            "{gaps}, so the validation set may contain sequences of the training set of {runs}"
        ));
    }
    Some(format!(
        "{} of {} were in the training set of {runs}, so the validation loss says little about new \
         sequences{}",
        thousands(found.sequences as f64),
        counted(dataset.valid.len(), "validation sequence"),
        found.uncounted(runs)
    ))
}

/// Returns the warnings before a run of `total` steps begins: about its data, and about keys that have no effect, or an
/// unexpected one on the device `on`.
pub fn warnings(config: &Config, dataset: &Dataset, total: usize, on: &Device) -> Vec<String> {
    let has_start = config.run.start().is_some();
    let mut warnings = data::warnings(&config.data, dataset, has_start);
    if !has_start {
        warnings.extend(data::vocabulary_warnings(&config.data, dataset));
    }
    warnings.extend(seen_warning(config, dataset));
    warnings.extend(config.training.warnings(total));
    warnings.extend(epoch_warning(config, dataset));
    warnings.extend(untrained_positions_warning(config, dataset));
    if config.training.precision == Precision::Bf16 && on.backend.is_cpu() && !has_bf16_instructions() {
        warnings.push(
            "training.precision = bf16 is slower than f32 on this processor, which lacks the instructions \
            for it (AVX512-BF16 or AMX); use --set training.precision=f32"
                .into(),
        );
    }
    warnings.extend(config.without_effect(Some(dataset)).iter().map(Error::to_string));
    warnings
}
