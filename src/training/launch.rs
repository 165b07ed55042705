//! Starting a run in a new folder, or resuming it from its newest checkpoint, on the backend of its device.

use std::path::Path;
use std::time::Duration;

use burn::tensor::backend::AutodiffBackend;

use super::checkpoint::{self, Checkpoint, CheckpointContents};
use super::control::Control;
use super::ending::Outcome;
use super::new_folder::RunPath;
use super::observers::Observer;
use super::provenance::Provenance;
use super::resume::Opening;
use super::run_folder::{Lock, RunFolder};
use super::start::{check_schedule, dataset, dataset_of, initial_weights, sizes_of};
use super::state::RunState;
use super::trainer::Trainer;
use crate::analysis::Sample;
use crate::backend::{self, Device, Job, MemoryEstimate, choose, compute};
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::files::{with_remedy, write_atomically};
use crate::numbers::counted;
use crate::ops::Precision;
use crate::weights::companions::Companions;
use crate::weights::native::Description;
use crate::workers::{Identity, Presence, Shards, Workers, remove_left_behind};

/// The remedy for a full disk. Only the steps since the last checkpoint are lost.
const RESUME_REMEDY: &str = "free some space, then resume the run";

/// The choice between a new run and a resumed one.
#[derive(Debug)]
pub enum Mode {
    /// A new run at this path, trained from the beginning.
    New(RunPath),
    /// The run in this folder, resumed from its newest checkpoint.
    Resume(RunFolder),
}

/// The inputs that a program passes to a run, in addition to its config.
#[derive(Default)]
pub struct RunInputs {
    /// The data, instead of the data that the section `[data]` names.
    pub dataset: Option<Dataset>,
    /// Observers in addition to those of every run, called after them.
    pub observers: Vec<Box<dyn Observer>>,
}

/// Trains on data from memory, on the device that the config selects, and writes a run folder. The config in that folder
/// records that the data was in memory, so commands that need the data ask for a file.
///
/// # Errors
/// As [`launch`].
pub fn train(
    config: &Config,
    dataset: Dataset,
    observers: Vec<Box<dyn Observer>>,
    folder: RunPath,
) -> Result<Outcome> {
    let device = choose(config.training.backend, config.training.device.as_ref())?;
    let given = RunInputs { dataset: Some(dataset), observers };
    launch_with(config, Mode::New(folder), &Control::unwatched(device), given)
}

/// Trains on the device that `control` names, with the threads, kernels and precision of the config.
///
/// # Errors
/// If the data cannot be read, the run does not fit into memory, the backend cannot start, or the run diverges. A new
/// run also fails if its folder exists or cannot be written; a resumed run if its folder is in use or has no intact
/// checkpoint. A diverged run leaves its best weights in its folder.
pub fn launch(config: &Config, mode: Mode, control: &Control) -> Result<Outcome> {
    launch_with(config, mode, control, RunInputs::default())
}

/// Like [`launch`], with data and observers from the calling program.
///
/// # Errors
/// As [`launch`].
pub fn launch_with(config: &Config, mode: Mode, control: &Control, given: RunInputs) -> Result<Outcome> {
    let check = |training: &TrainingConfig| check_precision(training, &control.device);
    let config = &agreed_config(config, (&mode, &given), &control.workers, check)?;
    backend::run(&control.device, Train { config, mode, control, given }).map_err(|error| match error {
        Error::DeviceFailed { .. } => {
            Error::Failed(format!("{error}; if the run has started, resume it with train --resume RUN"))
        }
        error => error,
    })
}

/// Trains on any backend with autodiff, for example one of another crate, whose operations are Burn's own. Otherwise
/// like [`launch_with`], in this process only.
///
/// # Errors
/// As [`launch`].
pub fn train_on<B: AutodiffBackend>(
    config: &Config,
    mode: Mode,
    given: RunInputs,
    device: B::Device,
) -> Result<Outcome> {
    let control = &Control::unwatched(Device::of_backend::<B>(&device));
    let supported = supported_precisions::<B>(&device);
    let check = |training: &TrainingConfig| check_supported(training, &control.device, &supported);
    let config = &agreed_config(config, (&mode, &given), &control.workers, check)?;
    Train { config, mode, control, given }.run::<B>(device)
}

/// The training of a run on the backend of its device.
struct Train<'a> {
    config: &'a Config,
    mode: Mode,
    control: &'a Control,
    given: RunInputs,
}

impl Job for Train<'_> {
    type Output = Outcome;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Outcome> {
        let Train { config, mode, control, given: RunInputs { dataset, observers } } = self;
        let (run, lock) = match mode {
            Mode::New(target) => begin(config, &target, control, dataset)?,
            Mode::Resume(folder) => resume(config, folder, control, dataset)?,
        };
        let run = Opening { observers, ..run };
        let train = || Trainer::<B>::open(config, run, &device, control)?.run_to_end(lock);
        let training = TrainingConfig {
            threads: config.training.threads.or(control.workers.threads()),
            ..config.training.clone()
        };
        compute(&training, train).map_err(|error| with_remedy(error, RESUME_REMEDY))
    }
}

/// Returns the config that all workers train with, if it passes `check` on each of them.
fn agreed_config(
    config: &Config,
    (mode, given): (&Mode, &RunInputs),
    workers: &Workers,
    check: impl FnOnce(&TrainingConfig) -> Result<()>,
) -> Result<Config> {
    let config = match &given.dataset {
        Some(_) => config.with_data_from_memory(),
        None => config.clone(),
    };
    let shared = match mode {
        Mode::New(_) => shared_config(&config, workers),
        Mode::Resume(_) => check_shared(config, workers),
    };
    workers.agree(shared.and_then(|shared| check(&shared.training).map(|()| shared)))
}

/// Returns the config of a new run that `workers` share. If the config does not set the number of shards, each worker
/// gets one.
///
/// # Errors
/// [`Error::Key`] if the workers cannot share the run.
pub fn shared_config(config: &Config, workers: &Workers) -> Result<Config> {
    let mut config = config.clone();
    if workers.count() > 1 {
        config.training.shards.get_or_insert(workers.count());
    }
    check_shared(config, workers)
}

fn check_shared(config: Config, workers: &Workers) -> Result<Config> {
    config.training.check()?;
    Shards::new(&config.training, workers)?;
    Ok(config)
}

/// A run whose folder worker 0 has locked.
type LockedRun = (Opening, Option<Lock>);

/// Creates the folder of a new run, with a checkpoint of step 0.
fn begin(config: &Config, target: &RunPath, control: &Control, given: Option<Dataset>) -> Result<LockedRun> {
    let (on, workers) = (&control.device, &control.workers);
    let read = || {
        if let Some((memory, sizes)) = MemoryEstimate::from_config(config, on) {
            memory.check(config, sizes, on)?;
        }
        let dataset = given.map_or_else(|| dataset(config), Ok)?;
        let sizes = sizes_of(config, &dataset)?;
        check_schedule(config, &dataset)?;
        MemoryEstimate::of(config, &dataset, on).check(config, sizes, on)?;
        Ok((dataset, sizes))
    };
    let (dataset, sizes) = workers.agree(read())?;
    check_workers(config, &dataset, control, &target.first())?;
    control.signal.defer();
    let make = || {
        let weights = initial_weights(config, sizes)?;
        let companions = match config.run.start() {
            Some(from) => Companions::read(&RunFolder::at(from).transformers())?.to_json(),
            None => None,
        };
        let description = Description { model: config.model.clone(), sizes };
        let provenance = Provenance::new(config, &dataset);
        let state = RunState { provenance, ..RunState::default() };
        let moments = Vec::new();
        let written = CheckpointContents { step: 0, weights, description, moments, state: state.to_json() };
        let made = RunFolder::create(target, |folder| {
            let vocabulary = serde_json::to_vec_pretty(&dataset.vocabulary).expect("plain values");
            let samples = Sample::first(&dataset.valid, config.analysis.samples);
            let samples = serde_json::to_vec(&samples).expect("plain values");
            write_atomically(&folder.config(), config.to_toml().as_bytes())?;
            write_atomically(&folder.vocabulary(), &vocabulary)?;
            write_atomically(&folder.samples(), &samples)?;
            if let Some(companions) = &companions {
                write_atomically(&folder.transformers(), companions)?;
            }
            checkpoint::write(folder, &written)
        })?;
        let path = checkpoint::checkpoint_path(&made.0, 0);
        let CheckpointContents { weights, description, moments, .. } = written;
        Ok((made, Checkpoint { path, weights, description, moments, state }))
    };
    let (locked, checkpoint) = workers.on_first(make)?.unzip();
    share(locked, dataset, checkpoint, workers)
}

/// Locks the folder of a run that resumes, and reads its data.
fn resume(
    config: &Config,
    folder: RunFolder,
    control: &Control,
    given: Option<Dataset>,
) -> Result<LockedRun> {
    let workers = &control.workers;
    let read = || {
        checkpoint::check_exists(&folder)?;
        let lock = workers.is_first().then(|| folder.lock()).transpose()?;
        let dataset = given.map_or_else(|| dataset_of(config, &folder), Ok)?;
        check_schedule(config, &dataset)?;
        let memory = MemoryEstimate::of(config, &dataset, &control.device);
        memory.check(config, config.sizes(&dataset), &control.device)?;
        Ok((lock, dataset))
    };
    let (lock, dataset) = workers.agree(read())?;
    check_workers(config, &dataset, control, folder.path())?;
    control.signal.defer();
    share(lock.map(|lock| (folder, lock)), dataset, None, workers)
}

/// Sends every worker the path of the folder that worker 0 has locked.
fn share(
    locked: Option<(RunFolder, Lock)>,
    dataset: Dataset,
    checkpoint: Option<Checkpoint>,
    workers: &Workers,
) -> Result<LockedRun> {
    let (folder, lock) = locked.unzip();
    let canonical =
        |folder: &RunFolder| folder.path().canonicalize().unwrap_or_else(|_| folder.path().into());
    let path = workers.broadcast(folder.as_ref().map(canonical))?;
    let folder = folder.or(path.map(RunFolder::at));
    let folder = folder.ok_or_else(|| Error::Failed("worker 0 lacks a run folder".into()));
    let folder = workers.agree(folder)?;
    Ok((Opening { folder, dataset, checkpoint, observers: Vec::new() }, lock))
}

/// Checks that all workers do the same work in the same folder. The workers then watch each other.
fn check_workers(config: &Config, dataset: &Dataset, control: &Control, run: &Path) -> Result<()> {
    let workers = &control.workers;
    if workers.count() == 1 {
        remove_left_behind(run);
        return Ok(());
    }
    workers.agree(Identity::new(config, dataset.fingerprint(), &control.device))?.check(workers)?;
    let limit = Duration::from_secs_f64(config.training.worker_timeout.min(1e9));
    let max_workers = config.training.shards.unwrap_or(1);
    let remedy = format!(
        "resume from the newest checkpoint with 1, 2, 4 or any other power of two up to {max_workers} workers: \
        mpirun -n N causal-attention train --resume {}",
        run.display()
    );
    workers.watch(Presence::begin(workers, run, limit, remedy)?);
    if let Some((used, share)) = workers.withheld_cores() {
        let used = counted(used, "core");
        log::info!("mpirun binds each worker to {used}; pass --bind-to none to use {share}");
    }
    Ok(())
}

/// Checks that the device `on` supports the configured precision.
///
/// # Errors
/// [`Error::Key`] with the supported precisions, or if the backend cannot start.
pub fn check_precision(training: &TrainingConfig, on: &Device) -> Result<()> {
    struct SupportedPrecisions;

    impl Job for SupportedPrecisions {
        type Output = Vec<Precision>;

        fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Vec<Precision>> {
            Ok(supported_precisions::<B>(&device))
        }
    }

    check_supported(training, on, &backend::run(on, SupportedPrecisions)?)
}

fn supported_precisions<B: AutodiffBackend>(device: &B::Device) -> Vec<Precision> {
    Precision::ALL.into_iter().filter(|precision| precision.is_supported::<B>(device)).collect()
}

fn check_supported(training: &TrainingConfig, on: &Device, supported: &[Precision]) -> Result<()> {
    let names = supported.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let problem =
        format!("is not supported by {on}, which supports {names}; use --set training.precision=f32");
    let precision = training.precision;
    Error::check_key(supported.contains(&precision), "training.precision", precision, problem)
}
