//! Warnings before a run begins.

use causal_attention_kernels::has_bf16_instructions;

use super::lineage::trained_on;
use super::run_folder::RunFolder;
use crate::backend::Device;
use crate::config::Config;
use crate::data::{self, Dataset};
use crate::error::Error;
use crate::model::Architecture;
use crate::numbers::{counted, thousands};
use crate::ops::Precision;

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
    if config.training.precision == Precision::Bf16 && on.is_cpu() && !has_bf16_instructions() {
        warnings.push(
            "training.precision = bf16 is slower than f32 on this processor, which lacks the instructions \
            for it (AVX512-BF16 or AMX); use --set training.precision=f32"
                .into(),
        );
    }
    warnings.extend(config.without_effect(Some(dataset)).iter().map(Error::to_string));
    warnings
}
