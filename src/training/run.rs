//! A run under way, from the checkpoint at which it is opened.

use std::fs::{self, File};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use burn::tensor::backend::AutodiffBackend;
use burn::train::{Learner, LearningComponentsMarker};

use super::checkpoint::{self, Best, Checkpoint, State};
use super::control::Control;
use super::gradients::{Exchange, together};
use super::history::History;
use super::metrics::{Row, Split};
use super::opening::check_model;
use super::optimizer::Optimizer;
use super::run_folder::RunFolder;
use super::schedule::{Schedule, Scheduler};
use super::side_by_side::at_once;
use super::start::{trainee_of, warnings};
use super::step::{StepOutput, Trainee};
use super::stopping::Ended;
use super::summary::Summary;
use super::tensorboard::EventFile;
use crate::analysis::{HeadHistory, Sample, Snapshots, watched};
use crate::backend::DeviceWatch;
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::{Error, Result, ensure};
use crate::files::{is_there, open_own_to_write, read_own, write_atomically};
use crate::numbers::{counted, part_of};
use crate::role::ParamRoles;
use crate::terminal::{Progress, RunStatus};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description};
use crate::workers::Shards;

/// A run under way.
pub struct Run<B: AutodiffBackend> {
    /// Its config.
    pub config: Config,
    /// How it is watched and stopped.
    pub control: Control,
    /// Where it is written down.
    pub folder: RunFolder,
    /// What it learns from, and is judged by.
    pub dataset: Dataset,
    /// The model's config and sizes, which go with its weights.
    pub description: Description,
    /// The model's parameters in visiting order.
    pub parameter_names: Vec<String>,
    /// Steps per epoch.
    pub steps_per_epoch: usize,
    /// Steps of the whole run.
    pub total: usize,
    /// What a person should know of its data and keys.
    pub warnings: Vec<String>,
    /// How far it has got: what a checkpoint keeps.
    pub state: State,
    /// The rows of `metrics.csv`.
    pub history: History,
    /// The scores of heads along the run.
    pub heads: HeadHistory,
    /// What it does with one sequence along the run, and that sequence; none where there is no validation.
    pub snapshots: (Snapshots, Option<Sample>),
    /// What steps left on the device that was not read yet.
    pub unread: Vec<StepOutput<B::InnerBackend>>,
    /// The last training loss that was read.
    pub train_loss: Option<f64>,
    /// When this part of the run began, and the state then: a resumed run has earlier parts.
    pub begun: (Instant, State),
    /// The step of the last checkpoint.
    pub saved: usize,
    /// The checkpoint that is being written beside the steps.
    pub writing: Option<JoinHandle<Result<()>>>,
    /// What a person sees.
    pub progress: Progress,
    /// The parts of its steps, and those that this worker computes.
    pub shards: Shards,
    /// How many of those it computes at once.
    pub at_once: usize,
    /// What adds up the gradients of all workers.
    pub exchange: Exchange,
    /// The signal that asks all workers to end; 0: none.
    pub signal: usize,
    /// Whether the time is over.
    pub is_late: bool,
    /// Whether a loss is to be shown.
    pub shows_loss: bool,
    /// What tells that the device has failed, before anything that it computed is written down.
    pub watch: DeviceWatch,
    /// The model with its optimizer and schedule.
    pub learner: Learner<LearningComponentsMarker<B, Scheduler, Trainee<B>, Optimizer<B>>>,
    /// The learner's optimizer, by its shared handle.
    pub optimizer: Optimizer<B>,
    /// Burn's name for what computes.
    pub device: B::Device,
}

impl<B: AutodiffBackend> Run<B> {
    /// Opens the run in `folder`, which worker 0 has taken, at its newest whole checkpoint. All of it is read and
    /// checked before any of it is changed, by worker 0 alone.
    ///
    /// # Errors
    /// If there is no such checkpoint, it has nothing left to do, its data is not `dataset`, or its history cannot
    /// be read. Nothing has been changed then.
    pub fn open(
        config: &Config,
        folder: RunFolder,
        dataset: Dataset,
        device: &B::Device,
        control: &Control,
    ) -> Result<Self> {
        let (training, workers) = (&config.training, &control.workers);
        let shards = Shards::new(training, workers)?;
        let batches = dataset.train.len().div_ceil(training.batch_size);
        let (steps_per_epoch, total) = (training.steps_per_epoch(batches), training.total_steps(batches));
        let opened = workers.agree(checkpoint::newest(&folder))?;
        let (Checkpoint { path, weights, description, moments, mut state }, damaged) = opened;
        let sizes = description.sizes;
        check_model(&folder, config, &description)?;
        ensure(state.data_fingerprint == dataset.fingerprint(), Error::Input, || {
            let path = folder.path().display();
            format!(
                "the data has changed since the run `{path}` began: restore the file, `run.seed` and the section [data] that \
                     it was made with"
            )
        })?;
        let read = || {
            let logs = Logs::open(&folder, &state, workers.is_first())?;
            refuse_done(&folder, &state, &logs.history.rows, training, total)?;
            Ok((logs, trainee_of::<B>(config, sizes, weights, &path, device)?))
        };
        let (mut logs, trainee) = workers.agree(read())?;
        workers.on_first(|| {
            let from = path.display();
            damaged.iter().for_each(|problem| log::warn!("{problem}; going on from {from}"));
            rewind(&folder, config, &mut state, &mut logs)
        })?;
        // Best weights that are lost are known to worker 0.
        let state = workers.from_first(state)?;

        let schedule = Schedule::new(training, total);
        let warnings = warnings(config, &dataset, total, &control.device);
        if state.step == 0 {
            warnings.iter().for_each(|warning| log::warn!("{warning}"));
        } else if let Some(last) = logs.history.last(Split::Train) {
            let changes = changes(last, &schedule, steps_per_epoch);
            changes.iter().for_each(|change| log::info!("{change}"));
        }
        let parameter_names = native::names(&trainee.model);
        let optimizer = Optimizer::<B>::new(training, trainee.model.roles());
        if !optimizer.restore(state.updates, moments, &parameter_names, device) {
            log::info!("training.optimizer has changed, so the optimizer starts without its moments");
        }
        let scheduler = Scheduler { schedule, next: state.step };
        let floor = dataset.floor.map(|floor| floor.valid);
        let at_once = at_once::<B>(shards.own.len(), together(&trainee));
        let shown = Sample::first(&dataset.valid, config.analysis.sample + 1).pop();
        let shown = shown.and_then(|sample| watched(sample, config.model.layers * config.model.heads));
        Ok(Self {
            config: config.clone(),
            control: control.clone(),
            folder,
            dataset,
            description: Description { model: config.model.clone(), sizes },
            parameter_names,
            steps_per_epoch,
            total,
            warnings,
            history: logs.history,
            heads: logs.heads,
            snapshots: (logs.snapshots, shown),
            unread: Vec::new(),
            train_loss: None,
            begun: (Instant::now(), state.clone()),
            saved: state.step,
            writing: None,
            progress: Progress::new(control.progress, state.step, total, floor),
            shards,
            at_once,
            exchange: Exchange::default(),
            signal: 0,
            is_late: false,
            shows_loss: false,
            watch: DeviceWatch::begin(&control.device, device),
            state,
            learner: Learner::new(trainee, optimizer.clone(), scheduler),
            optimizer,
            device: device.clone(),
        })
    }

    /// Whether all steps are done.
    pub fn is_last(&self) -> bool {
        self.state.step == self.total
    }

    /// The epoch of the last step, counted from 1. A run that resumes with longer epochs counts none of them twice.
    pub fn epoch(&self) -> usize {
        let before = self.history.rows.last().map_or(1, |row| row.epoch);
        self.state.step.div_ceil(self.steps_per_epoch).max(before)
    }

    /// The schedule of the whole run.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(&self.config.training, self.total)
    }

    /// The learning rate of the last step, or before it that of the first.
    pub fn learning_rate(&self) -> f64 {
        self.schedule().at(self.state.step.saturating_sub(1))
    }

    /// Returns the error of a run that diverged at its last step because of `what`. Whose weights are kept is known at
    /// its end.
    pub fn diverged(&self, what: String) -> Error {
        let (kept, weights, advice) = (self.folder.model(), String::new(), self.config.training.calmer());
        Error::Diverged { step: self.state.step, what, advice, kept, weights }
    }

    /// What a person sees of the run.
    pub fn status(&self) -> RunStatus {
        let Self { state, begun: (begun, before), total, .. } = self;
        let seconds_per_step = begun.elapsed().as_secs_f64() / (state.step - before.step).max(1) as f64;
        RunStatus {
            step: state.step,
            epoch: self.epoch(),
            train_loss: self.train_loss,
            learning_rate: self.learning_rate(),
            tokens_per_second: (state.tokens - before.tokens) as f64
                / (state.seconds - before.seconds).max(1e-9),
            // With all that happens between steps.
            seconds_left: seconds_per_step * (total - state.step) as f64,
        }
    }
}

/// The files of a run that grow with its steps.
struct Logs {
    history: History,
    heads: HeadHistory,
    snapshots: Snapshots,
}

impl Logs {
    /// Opens them as far as a checkpoint's state. Worker 0 alone writes them.
    fn open(folder: &RunFolder, state: &State, is_first: bool) -> Result<Self> {
        let (metrics, written) = (folder.metrics(), state.metrics_sha256.as_deref());
        let logs = Self {
            history: History::open(&metrics, state.metrics_bytes, written, !is_first)?,
            heads: HeadHistory::open(&folder.head_scores(), state.step)?,
            snapshots: Snapshots::open(&folder.snapshots(), state.step)?,
        };
        if is_first {
            check_growing(folder)?;
        }
        Ok(logs)
    }
}

/// Makes the folder that of a run which stands at the checkpoint of `state`. After a kill in between, the same is found
/// and done again.
fn rewind(folder: &RunFolder, config: &Config, state: &mut State, logs: &mut Logs) -> Result<()> {
    checkpoint::remove_half_written(folder);
    checkpoint::remove_newer(folder, state.step)?;
    // How the run ended before, and how it looked then, says nothing of how it will end.
    let ended = [folder.summary(), folder.analysis(), folder.circuit(), folder.report()];
    for path in ended.into_iter().filter(|path| path.exists()) {
        fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
    }
    let text = config.to_toml();
    if read_own(&folder.config()).ok().as_deref() != Some(text.as_bytes()) {
        write_atomically(&folder.config(), text.as_bytes())?;
    }
    restore_best(folder, state)?;
    logs.heads.cut()?;
    logs.snapshots.cut()?;
    logs.history.cut()?;
    if config.training.tensorboard {
        let rows = &logs.history.rows;
        logs.history.events = Some(EventFile::open(folder.events(), rows, SystemTime::now())?);
    }
    Ok(())
}

/// Refuses a run whose growing files are not its own alone, before any file is changed.
fn check_growing(folder: &RunFolder) -> Result<()> {
    let growing = [folder.head_scores(), folder.snapshots(), folder.events()];
    let mut found = growing.iter().filter(|path| is_there(path));
    found.try_for_each(|path| open_own_to_write(path, &mut File::options()).map(drop))
}

/// Writes the file of the best weights anew where it does not hold them. Best weights that are lost are forgotten
/// by the state, so that the next validation finds new ones.
fn restore_best(folder: &RunFolder, state: &mut State) -> Result<()> {
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
            log::warn!("{problem}; the next validation decides anew which weights are best");
            state.best = None;
        }
    }
    Ok(())
}

/// Returns what changes for a run that resumes behind its `last` logged step: the course of its learning rate, and how
/// its epochs are counted.
fn changes(last: &Row, schedule: &Schedule, steps_per_epoch: usize) -> Vec<String> {
    let mut changes = Vec::new();
    let rate = schedule.at(last.step.saturating_sub(1));
    if (rate - last.learning_rate).abs() > 0.01 * last.learning_rate {
        let jump = if rate > last.learning_rate { "rises" } else { "falls" };
        changes.push(format!(
            "the learning rate {jump} from {:.2e} to {rate:.2e} at step {}, for the schedule is that of a run of {}: to \
             keep it as it is, use --set training.schedule=constant --set training.learning_rate={:.2e}",
            last.learning_rate,
            last.step,
            counted(schedule.total, "step"),
            last.learning_rate
        ));
    }
    let epoch = last.step.div_ceil(steps_per_epoch);
    if epoch != last.epoch {
        changes.push(format!(
            "epochs now take {}: step {} is in epoch {epoch} by the new count, and {} by the count so far; compare \
             rows of metrics.csv by `tokens`",
            counted(steps_per_epoch, "step"),
            last.step,
            last.epoch
        ));
    }
    changes
}

/// Refuses to resume a run that has nothing left to do. One that was killed between its last checkpoint and its
/// pictures has, and so has one whose weights or analysis were removed: it ends as it would have.
fn refuse_done(
    folder: &RunFolder,
    state: &State,
    rows: &[Row],
    config: &TrainingConfig,
    total: usize,
) -> Result<()> {
    let done = state.step;
    let is_validated = rows.iter().any(|row| row.split == Split::Valid && row.step == done);
    let has_best = state.best.is_some();
    let is_whole =
        folder.report().exists() && folder.model().exists() && (folder.analysis().exists() || !has_best);
    let summary = Summary::read(folder).ok().filter(|summary| summary.steps == done);
    // A signal prevented its last validation.
    let is_cut_short = summary.as_ref().is_some_and(|summary| summary.ended == Ended::Interrupted);
    let ended = summary.filter(|_| is_whole);
    let run = format!("the run `{}`", folder.path().display());
    let steps = counted(done, "step");
    Err(match ended.map(|summary| summary.ended) {
        Some(Ended::Completed) if done == total => Error::Input(format!(
            "{run} is complete with {}: add some with --set training.steps={}",
            part_of(done, total, "step"),
            2 * total
        )),
        _ if done > total || done == total && !is_validated && !is_cut_short => {
            let problem = format!("leaves nothing to do: {run} has done {steps}; ask for more");
            match config.epochs {
                Some(epochs) => Error::key("training.epochs", epochs, problem),
                None => Error::key("training.steps", total, problem),
            }
        }
        Some(Ended::EarlyStopped) if state.stopping.is_stale(config) => Error::Input(format!(
            "{run} has stopped early after {} validations without improvement: go on with a larger --set \
             training.patience={}",
            state.stopping.stale,
            2 * config.patience
        )),
        _ => return Ok(()),
    })
}
