//! The story of a run, from its newest checkpoint to its end.

use std::mem::take;
use std::time::Instant;

use burn::train::Learner;

use super::checkpoint;
use super::checkpoint_writer::CheckpointWriter;
use super::loader::TrainSteps;
use super::optimizer::Optimizer;
use super::reopened::Reopened;
use super::run::{Control, Course, Outputs, Run, Settings};
use super::run_folder::{Lock, RunFolder};
use super::schedule::{Schedule, Scheduler};
use super::start::{trainee_of, warnings};
use super::stopping::Ended;
use super::summary::Summary;
use crate::analysis;
use crate::backend::DeviceWatch;
use crate::config::Config;
use crate::data::{Dataset, Loader, Order};
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::ops;
use crate::terminal::{Progress, warn};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description};

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

/// Trains the run in `folder`, which this process has taken, from its newest checkpoint to its end.
pub fn conduct<B: ops::AutodiffBackend>(
    config: &Config,
    (folder, lock): (RunFolder, Lock),
    dataset: Dataset,
    device: &B::Device,
    control: &Control,
) -> Result<Outcome> {
    let (training, seed) = (&config.training, config.run.seed);
    let loader = Loader::new(dataset.train.clone(), training.batch_size, seed, Order::Shuffled);
    let valid_loader = Loader::new(dataset.valid.clone(), training.batch_size, seed, Order::InOrder);
    let steps_per_epoch = training.steps_per_epoch(loader.batches());
    let total = training.total_steps(loader.batches());

    // What the run has done so far.
    let mut reopened = Reopened::open(&folder, dataset.fingerprint(), training, total)?;
    let (weights, sizes) = (take(&mut reopened.checkpoint.weights), reopened.checkpoint.sizes);
    let trainee = trainee_of::<B>(config, sizes, weights, &reopened.checkpoint.path, device)?;
    reopened.begin(&folder, &config.to_toml())?;
    let Reopened { checkpoint, history, heads, .. } = reopened;
    let (first, state) = (checkpoint.state.step, checkpoint.state);
    let warnings = warnings(config, &dataset, total);
    if first == 0 {
        warnings.iter().for_each(|warning| warn(&format!("warning: {warning}")));
    }
    let parameter_names = native::names(&trainee.model);
    let optimizer = Optimizer::<B>::new(training);
    if !optimizer.restore(state.updates, checkpoint.moments, &parameter_names, device) {
        warn("notice: the run's optimizer was of another kind than training.optimizer, which so begins anew");
    }

    // The training itself, by Burn's learner.
    let floor = dataset.floor.map(|floor| floor.valid);
    let (accumulate, log_every, device) = (training.accumulate, training.log_every, device.clone());
    let steps = TrainSteps { loader, accumulate, log_every, first, end: total, device: device.clone() };
    let scheduler = Scheduler { schedule: Schedule::new(training, total), next: first };
    let mut run = Run::<B> {
        settings: Settings {
            config: config.clone(),
            control: control.clone(),
            description: Description { model: config.model.clone(), sizes },
            parameter_names,
            valid: dataset.valid.clone(),
            valid_loader,
            floor,
            steps_per_epoch,
            total,
            warnings,
        },
        course: Course {
            begun: (Instant::now(), state.clone()),
            state,
            history,
            heads,
            unread: Vec::new(),
            train_loss: None,
        },
        outputs: Outputs {
            folder,
            watch: DeviceWatch::begin(&control.device, &device),
            writer: CheckpointWriter::default(),
            saved: first,
            progress: Progress::new(control.progress, first, total, floor),
        },
        learner: Learner::new(trainee, optimizer.clone(), scheduler),
        optimizer,
        device,
    };
    // A run that diverged keeps its best weights, and shows them.
    let (ended, diverged) = match run.train(&steps) {
        Ok(ended) => (ended, None),
        Err(Error::Diverged { step, what, .. }) => (Ended::Diverged, Some((step, what))),
        Err(error) => return Err(error),
    };

    // How it ended.
    let folder = run.outputs.folder.clone();
    if run.course.state.best.is_none() {
        // Stopped before the first validation: the newest checkpoint holds finite weights.
        let (newest, _) = checkpoint::newest(&folder)?;
        write_atomically(&folder.model(), &checkpoint::weights(&folder, newest.state.step)?)?;
    }
    let summary = run.summary(ended, diverged.as_ref().map(|(step, _)| *step))?;
    summary.write(&folder)?;
    // A run that only pauses is looked into when it ends.
    if let Some(best) = run.course.state.best.as_ref().filter(|_| ended != Ended::Paused) {
        let weights = WeightsFile::open(folder.model())?;
        let (model, _) = native::load_model::<B::InnerBackend>(&weights, &run.device)?;
        let (best, trained) = ((best.step, &best.evaluation), run.course.state.tokens);
        let analysis = analysis::examine(&model, &dataset, config, best, trained, &run.device)?;
        run.outputs.watch.check()?;
        analysis.write(&folder.analysis())?;
    }
    match diverged {
        None => Ok(Outcome { folder, summary, lock }),
        Some((step, what)) => Err(run.diverged(step, what)),
    }
}
