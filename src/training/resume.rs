//! Opening a run at the newest checkpoint of its folder. Everything is read and checked before any file is changed.

use std::fs::{self, File};

use burn::tensor::backend::AutodiffBackend;
use burn::train::Learner;

use super::checkpoint::{self, Checkpoint};
use super::control::Control;
use super::gradients::{Exchange, shards_per_pass};
use super::metrics::{Row, Split};
use super::observers::{self, Moment, Observer};
use super::opening::check_model;
use super::optimizer::Optimizer;
use super::provenance::training_keys;
use super::reduce::{AllReduce, Reduce, SingleProcess};
use super::run_folder::RunFolder;
use super::schedule::{Schedule, Scheduler};
use super::setup::Setup;
use super::side_by_side::at_once;
use super::start::trainee_of;
use super::state::{Best, RunState};
use super::step::Trainee;
use super::stopping::Ended;
use super::summary::Summary;
use super::trainer::{Learning, Parallel, Trainer};
use crate::backend::DeviceWatch;
use crate::config::{Config, NOTHING, differing};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::files::{has_entry, open_own_to_write, read_own, write_atomically};
use crate::numbers::{counted, part_of, thousands};
use crate::role::ParamRoles;
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Tensors};
use crate::workers::Shards;

/// The arguments of [`Trainer::open`].
pub struct Opening {
    /// The run folder, which worker 0 has locked.
    pub folder: RunFolder,
    /// The data.
    pub dataset: Dataset,
    /// The checkpoint of step 0 of a new run. If `None`, the newest checkpoint of the folder is read.
    pub checkpoint: Option<Checkpoint>,
    /// Observers in addition to those of every run.
    pub observers: Vec<Box<dyn Observer>>,
}

impl<B: AutodiffBackend> Trainer<B> {
    /// Opens a run at its newest intact checkpoint. Only worker 0 changes files.
    ///
    /// # Errors
    /// If no checkpoint is intact, the run has nothing left to do, its data has changed, or its files cannot be read.
    /// No file is changed in that case.
    pub fn open(config: &Config, run: Opening, device: &B::Device, control: &Control) -> Result<Self> {
        let Opening { folder, dataset, checkpoint, observers: own } = run;
        let (training, workers) = (&config.training, &control.workers);
        let shards = Shards::new(training, workers)?;
        let read = checkpoint.map_or_else(|| checkpoint::newest(&folder), |begun| Ok((begun, Vec::new())));
        let (Checkpoint { path, weights, description, moments, mut state }, damaged) = workers.agree(read)?;
        check_model(&folder, config, &description)?;
        state.provenance.check(&folder, config, &dataset)?;
        let setup = Setup::new(config, control, folder, dataset, description);
        let folder = &setup.folder;
        let previous = Previous::of(&state, &setup);
        let read = || {
            let mut observers = observers::default_observers(&setup, &mut state)?;
            if workers.is_first() {
                check_growing(&observers)?;
            }
            observers.extend(own);
            observers::restore(&mut observers, &state)?;
            check_unfinished(&setup, &state, &observers)?;
            let sizes = setup.description.sizes;
            Ok((observers, trainee_of::<B>(config, sizes, weights, &path, device)?))
        };
        let (mut observers, trainee) = workers.agree(read())?;
        workers.on_first(|| {
            let from = path.display();
            damaged.iter().for_each(|problem| log::warn!("{problem}; resuming from {from}"));
            state.provenance.resume(state.step, config);
            rewind(folder, config, &mut state)?;
            let moment = Moment { setup: &setup, state: &state, is_ending: false };
            observers.iter_mut().try_for_each(|observer| observer.start(&moment))
        })?;
        let rows = std::mem::take(&mut state.rows);
        // Only worker 0 knows whether the best weights are lost. A message does not include the rows.
        let state = RunState { rows, ..workers.broadcast(state)? };

        if state.step == 0 {
            setup.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        } else {
            previous.iter().for_each(|previous| previous.report(&state, &setup));
        }
        let at_once = at_once::<B>(shards.own.len(), shards_per_pass(&trainee));
        let learning = Learning::resume(trainee, moments, &state, &setup, device);
        Ok(Self {
            parallel: Parallel { shards, at_once, reduce: reduce(control) },
            observers,
            state,
            learning,
            setup,
        })
    }
}

impl<B: AutodiffBackend> Learning<B> {
    /// Returns the model and the optimizer with its `moments`, at the step of `state`.
    fn resume(
        trainee: Trainee<B>,
        moments: Tensors,
        state: &RunState,
        setup: &Setup,
        device: &B::Device,
    ) -> Self {
        let parameter_names = native::names(&trainee.model);
        let optimizer = Optimizer::<B>::new(&setup.config.training, trainee.model.roles());
        if !optimizer.restore(state.updates, moments, &parameter_names, device) {
            log::info!("training.optimizer has changed, so the optimizer starts without its moments");
        }
        let scheduler = Scheduler { schedule: setup.schedule, next: state.step };
        Self {
            watch: DeviceWatch::begin(&setup.control.device, device),
            learner: Learner::new(trainee, optimizer.clone(), scheduler),
            optimizer,
            unread: Vec::new(),
            device: device.clone(),
        }
    }
}

/// Returns the reduction over the workers of a run.
fn reduce<B: AutodiffBackend>(control: &Control) -> Box<dyn Reduce<B>> {
    match control.workers.count() {
        1 => Box::new(SingleProcess),
        _ => Box::new(AllReduce { workers: control.workers.clone(), exchange: Exchange::default() }),
    }
}

/// Rejects a run that shares a growing file with another run, before any file is changed.
fn check_growing(observers: &[Box<dyn Observer>]) -> Result<()> {
    let growing = observers.iter().filter_map(|observer| observer.file()).filter(|path| has_entry(path));
    growing.into_iter().try_for_each(|path| open_own_to_write(&path, &mut File::options()).map(drop))
}

/// Resets the folder to the checkpoint of `state`. Can be repeated after a kill.
fn rewind(folder: &RunFolder, config: &Config, state: &mut RunState) -> Result<()> {
    checkpoint::remove_half_written(folder);
    checkpoint::remove_newer(folder, state.step)?;
    // The old summary, analyses, phases and report do not describe the resumed run.
    let ended = [
        folder.summary(),
        folder.analysis(),
        folder.circuit(),
        folder.fourier(),
        folder.phases(),
        folder.report(),
    ];
    for path in ended.into_iter().filter(|path| path.exists()) {
        fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
    }
    folder.remove_all_pictures()?;
    let text = config.to_toml();
    if read_own(&folder.config()).ok().as_deref() != Some(text.as_bytes()) {
        write_atomically(&folder.config(), text.as_bytes())?;
    }
    restore_best(folder, state)
}

/// Rewrites `model.safetensors` unless it holds the best weights. If the best weights are lost, removes them from the
/// state, so that the next validation finds new ones.
fn restore_best(folder: &RunFolder, state: &mut RunState) -> Result<()> {
    let Some(Best { step, .. }) = state.best else { return Ok(()) };
    let path = folder.model();
    let held = WeightsFile::open_own(path.clone()).and_then(|file| file.sha256()).ok();
    match checkpoint::weights(folder, step) {
        Ok(weights) if held.as_ref() == Some(&weights.sha256()?) => {}
        Ok(_) => checkpoint::keep_weights(folder, step)?,
        Err(problem) if held.is_some_and(|held| checkpoint::step_of(folder, &held) == Some(step)) => {
            log::warn!("{problem}; {} holds the same weights and is kept", path.display());
        }
        Err(problem) => {
            log::warn!("{problem}; the next validation selects the best weights again");
            state.best = None;
        }
    }
    Ok(())
}

/// The training before the run was resumed.
struct Previous {
    schedule: Schedule,
    steps_per_epoch: usize,
    /// The keys of the learning rate that have changed, with their new values.
    changed: Vec<String>,
}

/// The keys that determine the learning rate of a step.
const KEYS_OF_RATE: [&str; 7] = [
    "training.learning_rate",
    "training.min_learning_rate",
    "training.schedule",
    "training.warmup",
    "training.cooldown",
    "training.steps",
    "training.epochs",
];

/// The keys that determine the number of steps of an epoch.
const KEYS_OF_EPOCH: [&str; 2] = ["training.batch_size", "training.accumulate"];

impl Previous {
    /// Returns the training from the keys of the checkpoint; `None` if they are not recorded or were edited.
    fn of(state: &RunState, setup: &Setup) -> Option<Self> {
        let now = training_keys(&setup.config);
        if state.provenance.training.is_empty() {
            return None;
        }
        let mut config = setup.config.clone();
        // Steps and epochs exclude each other.
        (config.training.steps, config.training.epochs) = (None, None);
        let training = config.with(&state.provenance.training).ok()?.training;
        let batches = setup.dataset.train.len().div_ceil(training.batch_size);
        let has_epochs = setup.config.training.steps.is_none();
        let keys = KEYS_OF_RATE.into_iter().chain(KEYS_OF_EPOCH.into_iter().filter(|_| has_epochs));
        let changed = differing(keys, [&now, &state.provenance.training]);
        Some(Self {
            schedule: Schedule::new(&training, training.total_steps(batches)),
            steps_per_epoch: training.steps_per_epoch(batches),
            changed: changed
                .map(|(key, (value, before))| {
                    let before = if before == NOTHING { "not set" } else { before.as_str() };
                    format!("{key} = {value} (was {before})")
                })
                .collect(),
        })
    }

    /// Logs what changes at the step of `state`.
    fn report(&self, state: &RunState, setup: &Setup) {
        let rate = self.change_of_rate(state.step, setup);
        let epoch =
            state.last(Split::Train).and_then(|last| self.change_of_epoch(last, setup.steps_per_epoch));
        rate.into_iter().chain(epoch).for_each(|change| log::info!("{change}"));
    }

    /// Describes the jump of the learning rate after `step` steps, with its cause and the options that prevent it.
    fn change_of_rate(&self, step: usize, setup: &Setup) -> Option<String> {
        let [before, now] =
            [&self.schedule, &setup.schedule].map(|schedule| schedule.at(step.saturating_sub(1)));
        if (now - before).abs() <= 0.01 * before {
            return None;
        }
        let jump = if now > before { "rises" } else { "falls" };
        let warmup = if step < setup.schedule.warmup { " --set training.warmup=0" } else { "" };
        Some(format!(
            "at step {step}, the learning rate {jump} from {before:.2e} to {now:.2e}, because of {}; to keep the rate, use \
             --set training.schedule=constant --set training.learning_rate={before:.2e}{warmup}",
            self.changed.join(", ")
        ))
    }

    /// Describes the change of the length of an epoch after the `last` logged step.
    fn change_of_epoch(&self, last: &Row, steps_per_epoch: usize) -> Option<String> {
        let epoch = last.step.div_ceil(steps_per_epoch);
        let steps = counted(steps_per_epoch, "step");
        if epoch != last.epoch {
            return Some(format!(
                "an epoch now takes {steps}, so step {} would be in epoch {epoch} instead of {}; `epoch` in metrics.csv \
                 increases again after step {}, so compare rows by `tokens`",
                last.step,
                last.epoch,
                thousands((last.epoch.max(epoch) * steps_per_epoch) as f64)
            ));
        }
        (steps_per_epoch != self.steps_per_epoch).then(|| {
            format!(
                "an epoch now takes {steps} instead of {}, so compare rows before and after step {} by `tokens`",
                thousands(self.steps_per_epoch as f64),
                last.step
            )
        })
    }
}

/// Rejects a run that has nothing left to do. A run without its weights, analysis or report is not done: it was killed
/// before the end, or the files were removed.
fn check_unfinished(setup: &Setup, state: &RunState, observers: &[Box<dyn Observer>]) -> Result<()> {
    let Setup { folder, total, .. } = setup;
    let (config, total, done) = (&setup.config.training, *total, state.step);
    let moment = Moment { setup, state, is_ending: false };
    let finished = || observers.iter().find_map(|observer| observer.finished(&moment));
    let is_validated = state.rows.iter().any(|row| row.split == Split::Valid && row.step == done);
    let has_best = state.best.is_some();
    let is_complete =
        folder.report().exists() && folder.model().exists() && (folder.analysis().exists() || !has_best);
    let summary = Summary::read(folder).ok().filter(|summary| summary.work.steps == done);
    // A signal prevented the last validation.
    let is_cut_short = summary.as_ref().is_some_and(|summary| summary.ended == Ended::Interrupted);
    let ended = summary.filter(|_| is_complete);
    let run = format!("the run `{}`", folder.path().display());
    let steps = counted(done, "step");
    Err(match ended.map(|summary| summary.ended) {
        Some(Ended::Completed) if done == total => Error::Input(format!(
            "{run} is complete with {}; continue it with --set training.steps={}",
            part_of(done, total, "step"),
            2 * total
        )),
        _ if done > total || done == total && !is_validated && !is_cut_short => {
            let problem = format!("leaves nothing to do: {run} has completed {steps}; raise it");
            match config.epochs {
                Some(epochs) => Error::key("training.epochs", epochs, problem),
                None => Error::key("training.steps", total, problem),
            }
        }
        // The patience of a complete run may have ended at its last validation.
        Some(Ended::EarlyStopped | Ended::Completed) => match finished() {
            Some((_, reason)) => Error::Input(format!("{run} {reason}")),
            None => return Ok(()),
        },
        _ => return Ok(()),
    })
}
