//! Training: the story of a run, driven by Burn's learner.
//!
//! [`train`] makes a run folder with a checkpoint of step 0 and goes on from it; [`resume`] goes
//! on from whatever checkpoint is the newest. So a run that was killed and resumed does what the
//! undisturbed one does, by construction.

mod checkpoint;
mod checkpoint_writer;
mod history;
mod launch;
mod loader;
mod new_folder;
mod optimizer;
mod pace;
mod plan;
mod reopened;
mod run;
mod run_folder;
mod schedule;
mod silent;
mod start;
mod step;
mod stopping;
mod strategy;
mod summary;

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use burn::prelude::*;
use burn::train::{Learner, SupervisedTraining, TrainingStrategy};

pub use checkpoint::{Best, State, data_fingerprint};
pub use history::{Row, Split, read as read_metrics};
pub use launch::{Place, launch};
pub use loader::{TrainSteps, ValidBatches};
pub use new_folder::{PREPARED, RUNS, Target};
pub use optimizer::{Hyper, Optimizer};
pub use plan::Plan;
pub use run_folder::{Lock, RunFolder, write_atomically};
pub use schedule::{Schedule, Scheduler};
pub use start::{Start, dataset, dataset_of, fresh_trainee};
pub use step::{StepBatches, StepOutput, Trainee};
pub use stopping::{EarlyStopping, Ended};
pub use summary::Summary;

use crate::analysis::{self, Analysis, Examined, Sample};
use crate::backend::{Device, DeviceWatch, Memory, compute};
use crate::config::{Config, TrainingConfig};
use crate::data::{Dataset, Loader, Order};
use crate::error::{Error, Result};
pub use crate::evaluation::DeviceBatch;
use crate::files::with_remedy;
use crate::model::Sizes;
use crate::ops::{self, Precision};
use crate::terminal::{Progress, ProgressKind, warn};
use crate::weights::native::{self, Description};
use checkpoint_writer::CheckpointWriter;
use pace::Pace;
use reopened::Reopened;
use run::Run;
use strategy::StepStrategy;
use summary::RunFacts;

/// How a run is watched and stopped.
#[derive(Debug, Clone)]
pub struct Control {
    /// How progress is shown.
    pub progress: ProgressKind,
    /// Set to a signal's number, stops the run after the step under way; 0: go on.
    pub signal: Arc<AtomicUsize>,
    /// What computes.
    pub device: Device,
    /// The step after which the run pauses, though its schedule spans more: a rung of a study. None: it goes on
    /// to its end.
    pub until: Option<usize>,
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// Its folder.
    pub folder: RunFolder,
    /// How it ended.
    pub summary: Summary,
    /// The folder stays taken until the outcome is dropped.
    pub lock: Lock,
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
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.vocabulary(), &vocabulary_json(&dataset))?;
        let samples = Sample::first(&dataset.valid, config.analysis.samples);
        write_atomically(
            &folder.samples(),
            &serde_json::to_vec(&samples).expect("samples hold plain values"),
        )?;
        history::History::create(&folder.metrics())?;
        let metrics_bytes =
            folder.metrics().metadata().map_err(|error| Error::io("read", folder.metrics(), error))?.len();
        let state = State { metrics_bytes, data_fingerprint: dataset.fingerprint(), ..State::default() };
        let weights = native::collect(&trainee.model)?;
        watch.check()?;
        checkpoint::write(folder, (&weights, &description(config, sizes)), &Vec::new(), &state)
    })?;
    let found = checkpoint::newest(&folder)?;
    compute(&config.training, || go_on(config, dataset, trainee, found, folder, lock, device, control))
        .map_err(|error| with_remedy(error, RESUME))
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
    compute(&config.training, || go_on(config, dataset, trainee, found, folder, lock, device, control))
        .map_err(|error| with_remedy(error, RESUME))
}

/// What to do when the disk is full: all but the steps since the last checkpoint is kept.
const RESUME: &str = "free some, then resume the run";

/// The story of a run, from its newest checkpoint to its end.
#[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
fn go_on<B: ops::AutodiffBackend>(
    config: &Config,
    dataset: Dataset,
    mut trainee: Trainee<B>,
    found: checkpoint::Found,
    folder: RunFolder,
    lock: Lock,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    let (training, seed) = (&config.training, config.run.seed);
    let batches = Loader::new(dataset.train.clone(), training.batch_size, seed, Order::Shuffled);
    let valid = Loader::new(dataset.valid.clone(), training.batch_size, seed, Order::InOrder);
    let steps_per_epoch = training.steps_per_epoch(batches.batches());
    let total = training.total_steps(batches.batches());

    // Where the run stands.
    let mut reopened = Reopened::open(found, &folder, dataset.fingerprint(), training, total)?;
    trainee.model =
        native::apply(trainee.model, take(&mut reopened.checkpoint.weights), &reopened.checkpoint.path)?;
    reopened.begin(&folder, &config.to_toml())?;
    let Reopened { checkpoint, history, heads, .. } = reopened;
    let state = checkpoint.state;
    let parameter_names = native::names(&trainee.model);
    let optimizer = Optimizer::<B>::new(Hyper::from(training));
    let moments = checkpoint::tensors_to_moments(checkpoint.moments, &parameter_names, device);
    if !optimizer.take_up(state.updates, moments) {
        warn("notice: the run's optimizer was of another kind than training.optimizer, which so begins anew");
    }

    // What Burn's learner is made of.
    let scheduler = Scheduler::starting_at(Schedule::new(training, total), state.step);
    let train = TrainSteps {
        loader: Arc::new(batches),
        accumulate: training.accumulate,
        log_every: training.log_every,
        first: state.step,
        end: total,
        device: device.clone(),
    };
    let valid = ValidBatches::new(Arc::new(valid), device.clone());
    let floor = dataset.floor.map(|floor| floor.valid);
    let run = Run {
        analysis: config.analysis.clone(),
        valid: dataset.valid.clone(),
        heads,
        config: training.clone(),
        seed,
        total,
        until: control.until,
        validate_every: match training.validate_every {
            0 => steps_per_epoch,
            steps => steps,
        },
        steps_per_epoch,
        history,
        optimizer: optimizer.clone(),
        parameter_names,
        description: description(config, checkpoint.sizes),
        signal: control.signal.clone(),
        watch: DeviceWatch::begin(&control.device, device),
        progress: Progress::new(control.progress, state.step, total, floor),
        unread: Vec::new(),
        train_loss: None,
        saved: Some(state.step),
        writer: CheckpointWriter::default(),
        pace: Pace::from(&state),
        state,
        folder,
    };

    // The training itself.
    let parameters = trainee.model.num_params();
    let strategy = Arc::new(StepStrategy::new(run));
    SupervisedTraining::new(std::env::temp_dir(), Arc::new(train), Arc::new(valid))
        .num_epochs(1)
        .with_application_logger(None)
        .with_metric_logger(silent::Silent)
        .renderer(silent::Silent)
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()))
        .launch(Learner::new(trainee, optimizer, scheduler));

    // How it ended.
    let (run, ended) =
        strategy.finish().ok_or_else(|| Error::Failed("the training ended without a result".into()))?;
    let facts = RunFacts {
        floor,
        parameters,
        steps_per_epoch: steps_per_epoch as f64,
        device: &control.device,
        seed,
    };
    let summarize = |ended| Summary::new(&run.state, run.history.rows(), facts, ended);
    match ended {
        Ok(ended) => {
            if run.state.best.is_none() {
                // Stopped before the first validation: the weights as they are.
                write_atomically(&run.folder.model(), &checkpoint::weights(&run.folder, run.state.step)?)?;
            }
            let summary = summarize(ended);
            summary.write(&run.folder)?;
            // A run that only pauses is looked into when it ends.
            if let Some(best) = run.state.best.as_ref().filter(|_| ended != Ended::Paused) {
                let seen =
                    look_into_best::<B>(config, &dataset, &run.folder, (best, run.state.tokens), device)?;
                run.watch.check()?;
                seen.write(&run.folder.analysis())?;
            }
            Ok(Outcome { folder: run.folder, summary, lock })
        }
        Err(error) => {
            if let Error::Diverged { .. } = error {
                if run.state.best.is_none() {
                    // Before the first validation: the newest checkpoint holds finite weights only.
                    let step = checkpoint::newest(&run.folder)?.checkpoint.state.step;
                    write_atomically(&run.folder.model(), &checkpoint::weights(&run.folder, step)?)?;
                }
                summarize(Ended::Diverged).write(&run.folder)?;
            }
            Err(error)
        }
    }
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

fn description(config: &Config, sizes: Sizes) -> Description {
    Description { model: config.model.clone(), sizes }
}

fn vocabulary_json(dataset: &Dataset) -> Vec<u8> {
    serde_json::to_vec_pretty(&dataset.vocabulary).expect("a vocabulary holds plain values")
}

/// What the best weights of a run do.
fn look_into_best<B: ops::AutodiffBackend>(
    config: &Config,
    dataset: &Dataset,
    folder: &RunFolder,
    (best, tokens): (&Best, u64),
    device: &B::Device,
) -> Result<Analysis> {
    let (model, _) = native::load_model::<B::InnerBackend>(&folder.weights()?, device)?;
    let examined = Examined {
        step: best.step,
        loss_by_position: &best.evaluation.loss_by_position,
        trained_tokens: tokens,
        rows: config.training.batch_size,
    };
    analysis::examine(&model, dataset, &config.analysis, &examined, device)
}
