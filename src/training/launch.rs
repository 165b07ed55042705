//! A run is begun in a new folder, or resumed from its newest checkpoint, on whichever backend its device has.

use super::checkpoint::{self, State};
use super::conduct::{Opened, Outcome, conduct};
use super::history::History;
use super::new_folder::Target;
use super::run::Control;
use super::run_folder::RunFolder;
use super::start::{Start, dataset, dataset_of, fresh_trainee};
use crate::analysis::Sample;
use crate::backend::{self, Device, DeviceWatch, Job, Memory, smaller_batch};
use crate::config::{Config, TrainingConfig};
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::ops::{self, Precision};
use crate::weights::native::{self, Description};

/// Whether a run is begun or resumed.
#[derive(Debug)]
pub enum Mode {
    /// A new run at this target, trained from the beginning.
    New(Target),
    /// The run in this folder, from its newest checkpoint.
    Resume(RunFolder),
}

/// Trains on the device that `control` names.
///
/// # Errors
/// Those of [`train`] and [`resume`], and if the backend cannot start.
pub fn launch(config: &Config, mode: Mode, control: &Control) -> Result<Outcome> {
    struct Train<'a>(&'a Config, Mode, &'a Control);

    impl Job for Train<'_> {
        type Output = Outcome;

        fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Outcome> {
            let Train(config, mode, control) = self;
            match mode {
                Mode::New(target) => train::<B>(config, &target, &device, control),
                Mode::Resume(folder) => resume::<B>(config, folder, &device, control),
            }
        }
    }

    backend::run(&control.device, Train(config, mode, control)).map_err(|error| match error {
        Error::DeviceMemory { .. } => smaller_batch(error, &config.training, rows(config, control)),
        Error::DeviceFailed { .. } => {
            Error::Failed(format!("{error}. A run that has begun goes on with train --resume RUN"))
        }
        error => error,
    })
}

/// Rows of the largest batch. Files are read once more for it.
fn rows(config: &Config, control: &Control) -> usize {
    let foreseen = Memory::foreseen(config, &control.device).map(|(memory, _)| memory.rows);
    let read = || dataset(config).ok().map(|data| Memory::of(config, &data, &control.device).rows);
    foreseen.or_else(read).unwrap_or(config.training.batch_size)
}

/// Trains a model from the beginning, in a new folder at `target`.
///
/// # Errors
/// If the data cannot be read, the run does not fit into memory, the folder exists or cannot be
/// written, or the run diverges; in the last case the folder holds the last good weights.
pub fn train<B: ops::AutodiffBackend>(
    config: &Config,
    target: &Target,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    target.check()?;
    let watch = DeviceWatch::begin(&control.device, device);
    check_precision::<B>(&config.training, &control.device, device)?;
    let start = Start::of(config)?;
    if let Some((memory, sizes)) = Memory::foreseen(config, &control.device) {
        memory.check(config, sizes, &control.device)?;
    }
    let dataset = dataset(config)?;
    let sizes = start.sizes(config, &dataset)?;
    Memory::of(config, &dataset, &control.device).check(config, sizes, &control.device)?;
    let trainee = start.trainee::<B>(config, sizes, device)?;
    let (folder, lock) = RunFolder::create(target, |folder| {
        let vocabulary = serde_json::to_vec_pretty(&dataset.vocabulary).expect("plain values");
        let samples = Sample::first(&dataset.valid, config.analysis.samples);
        let samples = serde_json::to_vec(&samples).expect("plain values");
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.vocabulary(), &vocabulary)?;
        write_atomically(&folder.samples(), &samples)?;
        let metrics_bytes = History::create(&folder.metrics())?;
        let state = State { metrics_bytes, data_fingerprint: dataset.fingerprint(), ..State::default() };
        let weights = native::collect(&trainee.model)?;
        watch.check()?;
        let description = Description { model: config.model.clone(), sizes };
        checkpoint::write(folder, (&weights, &description), &Vec::new(), &state)
    })?;
    let found = checkpoint::newest(&folder)?;
    conduct(config, Opened { folder, lock, dataset, trainee, found }, device, control)
}

/// Goes on with the run in `folder` from its newest whole checkpoint.
///
/// # Errors
/// If the run is complete or in use, or has no whole checkpoint; and those of [`train`].
pub fn resume<B: ops::AutodiffBackend>(
    config: &Config,
    folder: RunFolder,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    check_precision::<B>(&config.training, &control.device, device)?;
    checkpoint::check_any(&folder)?;
    let lock = folder.lock()?;
    let dataset = dataset_of(config, &folder)?;
    let found = checkpoint::newest(&folder)?;
    let memory = Memory::of(config, &dataset, &control.device);
    memory.check(config, found.checkpoint.sizes, &control.device)?;
    let trainee = fresh_trainee::<B>(config, found.checkpoint.sizes, device)?;
    conduct(config, Opened { folder, lock, dataset, trainee, found }, device, control)
}

/// Whether the device `on` computes in the precision that is asked for.
///
/// # Errors
/// [`Error::Key`] naming what it knows.
pub fn check_precision<B: ops::AutodiffBackend>(
    training: &TrainingConfig,
    on: &Device,
    device: &B::Device,
) -> Result<()> {
    let is_served = |precision: &Precision| precision.is_served::<B>(device);
    if is_served(&training.precision) {
        return Ok(());
    }
    let served = Precision::ALL.into_iter().filter(is_served).map(Precision::name).collect::<Vec<_>>();
    let problem = format!(
        "is not computed by {on}, which knows {}: use --set training.precision=f32",
        served.join(", ")
    );
    Err(Error::key("training.precision", training.precision.name(), problem))
}
