//! The story of a run, from its newest checkpoint to its end, inside Burn's learner.

use std::mem::take;
use std::sync::Arc;

use burn::prelude::*;
use burn::train::{Learner, SupervisedTraining, TrainingStrategy};

use super::checkpoint::{self, Found};
use super::loader::{TrainSteps, ValidBatches};
use super::optimizer::{Hyper, Optimizer};
use super::reopened::Reopened;
use super::run::{Control, Course, Outputs, Run, Settings};
use super::run_folder::{Lock, RunFolder};
use super::schedule::{Schedule, Scheduler};
use super::silent::Silent;
use super::start::warnings;
use super::step::Trainee;
use super::stopping::Ended;
use super::strategy::StepStrategy;
use super::summary::{RunFacts, Summary};
use crate::analysis::{self, Examined};
use crate::backend::compute;
use crate::config::Config;
use crate::data::{Dataset, Loader, Order};
use crate::error::{Error, Result};
use crate::files::{with_remedy, write_atomically};
use crate::ops;
use crate::terminal::warn;
use crate::weights::native::{self, Description};

/// What to do when the disk is full: all but the steps since the last checkpoint is kept.
const RESUME: &str = "free some, then resume the run";

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

/// A run whose folder this process has taken.
pub struct Opened<B: ops::AutodiffBackend> {
    /// Its folder.
    pub folder: RunFolder,
    /// What keeps others out of it.
    pub lock: Lock,
    /// Its data.
    pub dataset: Dataset,
    /// A model of its kind, whose weights those of the checkpoint replace.
    pub trainee: Trainee<B>,
    /// Its newest checkpoint.
    pub found: Found,
}

/// Trains a run to its end, with the threads, kernels and precision that its config asks for.
pub fn conduct<B: ops::AutodiffBackend>(
    config: &Config,
    opened: Opened<B>,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    compute(&config.training, || go_on(config, opened, device, control))
        .map_err(|error| with_remedy(error, RESUME))
}

fn go_on<B: ops::AutodiffBackend>(
    config: &Config,
    opened: Opened<B>,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    let Opened { folder, lock, dataset, mut trainee, found } = opened;
    let (training, seed) = (&config.training, config.run.seed);
    let batches = Loader::new(dataset.train.clone(), training.batch_size, seed, Order::Shuffled);
    let valid = Loader::new(dataset.valid.clone(), training.batch_size, seed, Order::InOrder);
    let steps_per_epoch = training.steps_per_epoch(batches.batches());
    let total = training.total_steps(batches.batches());

    // What the run has done so far.
    let mut reopened = Reopened::open(found, &folder, dataset.fingerprint(), training, total)?;
    trainee.model =
        native::apply(trainee.model, take(&mut reopened.checkpoint.weights), &reopened.checkpoint.path)?;
    reopened.begin(&folder, &config.to_toml())?;
    let Reopened { checkpoint, history, heads, .. } = reopened;
    let first = checkpoint.state.step;
    let warnings = warnings(config, &dataset, total);
    if first == 0 {
        warnings.iter().for_each(|warning| warn(&format!("warning: {warning}")));
    }
    let parameter_names = native::names(&trainee.model);
    let optimizer = Optimizer::<B>::new(Hyper::from(training));
    if !optimizer.restore(checkpoint.state.updates, checkpoint.moments, &parameter_names, device) {
        warn("notice: the run's optimizer was of another kind than training.optimizer, which so begins anew");
    }

    // The training itself, by Burn's learner.
    let facts = RunFacts {
        floor: dataset.floor.map(|floor| floor.valid),
        parameters: trainee.model.num_params(),
        steps_per_epoch,
        device: control.device.clone(),
        seed,
        warnings,
    };
    let run = Run {
        settings: Settings {
            config: config.clone(),
            description: Description { model: config.model.clone(), sizes: checkpoint.sizes },
            parameter_names,
            valid: dataset.valid.clone(),
            steps_per_epoch,
            total,
            until: control.until,
        },
        outputs: Outputs::new(folder, control, device, (first, total), facts.floor),
        course: Course::new(checkpoint.state, history, heads),
        optimizer: optimizer.clone(),
    };
    let train = TrainSteps {
        loader: Arc::new(batches),
        accumulate: training.accumulate,
        log_every: training.log_every,
        first,
        end: total,
        device: device.clone(),
    };
    let valid = ValidBatches::new(Arc::new(valid), device.clone());
    let scheduler = Scheduler::starting_at(Schedule::new(training, total), first);
    let strategy = Arc::new(StepStrategy::new(run));
    SupervisedTraining::new(std::env::temp_dir(), Arc::new(train), Arc::new(valid))
        .num_epochs(1)
        .with_application_logger(None)
        .with_metric_logger(Silent)
        .renderer(Silent)
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()))
        .launch(Learner::new(trainee, optimizer, scheduler));
    let (run, ended) =
        strategy.finish().ok_or_else(|| Error::Failed("the training ended without a result".into()))?;

    // How it ended. A run that diverged keeps its best weights, and shows them.
    let (ended, failure) = match ended {
        Ok(ended) => (ended, None),
        Err(error @ Error::Diverged { .. }) => (Ended::Diverged, Some(error)),
        Err(error) => return Err(error),
    };
    let Run { outputs: Outputs { folder, watch, .. }, course, .. } = run;
    if course.state.best.is_none() {
        // Stopped before the first validation: the newest checkpoint holds finite weights.
        let step = checkpoint::newest(&folder)?.checkpoint.state.step;
        write_atomically(&folder.model(), &checkpoint::weights(&folder, step)?)?;
    }
    let mut summary = Summary::new(&course.state, course.history.rows(), facts, ended);
    summary.weights_sha256 = Some(checkpoint::sha256_of(&folder.model())?);
    if let Some(Error::Diverged { step, .. }) = &failure {
        summary.diverged_step = Some(*step);
    }
    summary.write(&folder)?;
    // A run that only pauses is looked into when it ends.
    if let Some(best) = course.state.best.filter(|_| ended != Ended::Paused) {
        let (model, _) = native::load_model::<B::InnerBackend>(&folder.model(), device)?;
        let examined = Examined {
            step: best.step,
            loss_by_position: &best.evaluation.loss_by_position,
            trained_tokens: course.state.tokens,
            rows: training.batch_size,
        };
        let analysis = analysis::examine(&model, &dataset, &config.analysis, &examined, device)?;
        watch.check()?;
        analysis.write(&folder.analysis())?;
    }
    match failure {
        None => Ok(Outcome { folder, summary, lock }),
        Some(error) => Err(error),
    }
}
