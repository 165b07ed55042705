//! The exact replay of a run, from its nearest checkpoint before the first phase, or from step 0, whose weights follow
//! from the seed. It trains in a hidden folder of the run, so that it can pause and continue, and leaves the run as it is.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::tensor::backend::AutodiffBackend;

use super::PhaseSearch;
use super::found::{MeasuredStep, Phases, Replayed};
use super::located::locate;
use super::meter::{Agreement, PhaseMeter, deadline, progress, weights_at};
use crate::analysis::StepLog;
use crate::analysis::phases::CircuitSizes;
use crate::backend::{self, Job, compute};
use crate::config::{Config, NOTHING, differing};
use crate::data::Dataset;
use crate::error::{Error, Result, ensure};
use crate::files::{create, hash, read_own, sha256, write_atomically};
use crate::numbers::clock;
use crate::terminal::ProgressKind;
use crate::training::checkpoint::{self, Checkpoint, provenance_of};
use crate::training::control::Control;
use crate::training::launch::check_precision;
use crate::training::metrics::{Split, read as read_metrics};
use crate::training::provenance::{Provenance, training_keys};
use crate::training::resume::Opening;
use crate::training::run_folder::{LOCK, RunFolder};
use crate::training::start::{initial_weights, sizes_of};
use crate::training::state::{RunState, RunTime};
use crate::training::stopping::Ended;
use crate::training::summary::Summary;
use crate::training::trainer::Trainer;
use crate::weights::file::WeightsFile;
use crate::weights::native::{Description, load_model};

/// The folder of the replay in that of the run. It exists only while a replay is paused or running.
const FOLDER: &str = ".replay";
/// The measurements, in the folder of the replay.
const MEASURED: &str = "measured.jsonl";
/// The hash of what is replayed, in the folder of the replay.
const KEY: &str = "replay_of";
/// The minimum default budget in seconds; that of a longer run is its time.
const MIN_BUDGET_SECONDS: f64 = 60.0;
/// The time of measuring the model after a step, in steps.
const STEPS_PER_MEASUREMENT: f64 = 3.0;

/// The end of a replay.
pub struct ReplayEnd {
    /// The number of the signal that paused it.
    pub signal: Option<usize>,
}

/// Replays the run through its phases and locates them.
///
/// # Errors
/// If the run cannot be replayed exactly, or the budget is too small for the first phase.
pub fn replay(
    search: &PhaseSearch<'_>,
    summary: &Summary,
    phases: &mut Phases,
    dataset: &Dataset,
) -> Result<ReplayEnd> {
    let PhaseSearch { folder: run, config, control, .. } = search;
    check_precision(&config.training, &control.device)?;
    let brackets: Vec<[usize; 2]> = phases.phases.iter().map(|phase| phase.between).collect();
    let (Some(first), Some(until)) = (brackets.first().copied(), brackets.iter().map(|it| it[1]).max())
    else {
        return Ok(ReplayEnd { signal: None });
    };
    let begun = beginning(run, config, dataset, first[0])?;
    let from = begun.state.step;
    check_budget(search.budget, summary, from, first)?;
    let folder = RunFolder::at(run.path().join(FOLDER));
    create(folder.path())?;
    let lock = folder.lock()?;
    let is_paused = prepare(&folder, run, &format!("{brackets:?} {from}"), from)?;
    // Steps after the checkpoint are repeated.
    let last = checkpoint::steps(&folder).ok().and_then(|steps| steps.last().copied()).unwrap_or(from);
    let agreement = Arc::new(Agreement::default());
    let recorded = read_metrics(&run.metrics())?.into_iter().filter(|row| row.split == Split::Train);
    let meter = PhaseMeter {
        run: (*run).clone(),
        recorded: recorded.collect(),
        checkpoints: checkpoint::steps(run)?,
        brackets,
        log: StepLog::open(&folder.path().join(MEASURED), last)?,
        agreement: agreement.clone(),
        deadline: deadline(budget(search.budget, summary)),
        progress: progress(control.progress, until - from),
        from,
    };
    let opening = Opening {
        folder: folder.clone(),
        dataset: dataset.clone(),
        checkpoint: (!is_paused).then_some(begun),
        observers: vec![Box::new(meter)],
    };
    control.signal.defer();
    let control = Control { until: Some(until), progress: ProgressKind::None, ..(*control).clone() };
    let replaying = Replaying { config: &replayed_config(config, summary), opening, control: &control };
    let (ended, step, seconds) = backend::run(&control.device, replaying)?;
    let signal = control.signal.stop_deferring();
    let measured: Vec<MeasuredStep> = StepLog::open(&folder.path().join(MEASURED), usize::MAX)?.all;
    locate(phases, &measured);
    backend::run(&control.device, MeasureCircuits { folder: &folder, phases })?;
    let [equal_rows, checkpoint] =
        [&agreement.rows, &agreement.checkpoint].map(|count| count.load(Ordering::Relaxed));
    let equal_checkpoint = (checkpoint > 0).then_some(checkpoint);
    let is_complete = ended != Ended::Interrupted;
    phases.replay = Some(Replayed { from, until: step, is_complete, equal_rows, equal_checkpoint, seconds });
    drop(lock);
    if is_complete {
        fs::remove_dir_all(folder.path()).map_err(|error| Error::io("remove", folder.path(), error))?;
    }
    Ok(ReplayEnd { signal })
}

/// Prepares the folder of the replay of `what` from a step. Returns true if it holds a paused replay of the same.
fn prepare(folder: &RunFolder, run: &RunFolder, what: &str, from: usize) -> Result<bool> {
    let key = hash(format!("{what} {:?}", sha256(&run.metrics())).as_bytes());
    let is_paused = read_own(&folder.path().join(KEY)).is_ok_and(|held| held == key.as_bytes())
        && checkpoint::steps(folder).is_ok_and(|steps| !steps.is_empty());
    if !is_paused {
        clear(folder)?;
        create(&folder.checkpoints())?;
        if from > 0 {
            write_atomically(&folder.metrics(), &read_own(&run.metrics())?)?;
        }
        write_atomically(&folder.path().join(KEY), key.as_bytes())?;
    }
    Ok(is_paused)
}

/// Returns the config of the replay: the same training without validations, checkpoints and recordings of its own.
fn replayed_config(config: &Config, summary: &Summary) -> Config {
    let mut config = config.clone();
    let training = &mut config.training;
    training.validate_every = summary.work.steps.max(1);
    training.validate_at.clear();
    (training.checkpoint_every, training.patience, training.max_minutes) = (0, 0, 0.0);
    training.tensorboard = false;
    (config.analysis.every, config.analysis.snapshots) = (0, 0);
    config
}

/// Returns the state from which the run is replayed, the newest one at or before a step.
fn beginning(run: &RunFolder, config: &Config, dataset: &Dataset, before: usize) -> Result<Checkpoint> {
    let shown = run.path().display();
    let Some(newest) = provenance_of(run) else {
        return Err(Error::Input(format!(
            "the run `{shown}` cannot be replayed: it lacks a checkpoint, which records its data and its settings; use \
             --no-replay"
        )));
    };
    newest.check(run, config, dataset)?;
    check_training(run, config, &newest)?;
    let steps = checkpoint::steps(run)?.into_iter().rev().filter(|step| (1..=before).contains(step));
    let has_same_keys = |checkpoint: &Checkpoint| checkpoint.state.provenance.training == newest.training;
    let mut intact = steps.filter_map(|step| checkpoint::read(run, step).ok()).filter(has_same_keys);
    if let Some(mut checkpoint) = intact.next() {
        checkpoint.state.best = None;
        checkpoint.state.time = RunTime::default();
        return Ok(checkpoint);
    }
    ensure(newest.changes.is_empty(), Error::Input, || {
        format!(
            "the run `{shown}` cannot be replayed from step 0: it was {}; use --no-replay",
            newest.changes.join(", and ")
        )
    })?;
    if let Some(start) = config.run.start() {
        let held = sha256(&RunFolder::at(start).model()).ok();
        ensure(held == newest.start_sha256, Error::Input, || {
            let start = start.display();
            format!(
                "the run `{shown}` cannot be replayed from step 0: the weights of `{start}`, from which it started, have \
                 changed; restore them, or use --no-replay"
            )
        })?;
    }
    let sizes = sizes_of(config, dataset)?;
    Ok(Checkpoint {
        path: checkpoint::checkpoint_path(run, 0),
        weights: initial_weights(config, sizes)?,
        description: Description { model: config.model.clone(), sizes },
        moments: Vec::new(),
        state: RunState { provenance: Provenance::new(config, dataset), ..RunState::default() },
    })
}

/// Rejects a config whose training differs from that of the run.
fn check_training(run: &RunFolder, config: &Config, newest: &Provenance) -> Result<()> {
    let now = training_keys(config);
    let keys = now.keys().chain(newest.training.keys()).map(String::as_str);
    let changed = differing(keys, [&now, &newest.training]).next();
    let Some((key, (value, before))) = changed else { return Ok(()) };
    let before = if before == NOTHING { "not set".to_string() } else { before };
    let problem = format!("differs from the run in `{}`: it was {before}; restore it", run.path().display());
    Err(Error::key(key, value, problem))
}

fn budget(given: Option<f64>, summary: &Summary) -> f64 {
    given.unwrap_or(summary.work.seconds.max(MIN_BUDGET_SECONDS))
}

/// Rejects a budget that does not suffice for the first phase at the speed of the run.
fn check_budget(given: Option<f64>, summary: &Summary, from: usize, [first, last]: [usize; 2]) -> Result<()> {
    let Some(given) = given else { return Ok(()) };
    let per_step = summary.work.seconds / summary.work.steps.max(1) as f64;
    let needed = per_step * ((last - from) as f64 + STEPS_PER_MEASUREMENT * (last - first) as f64);
    ensure(given >= needed, Error::Input, || {
        format!(
            "--budget {given}: too small for the first phase: the replay of steps {from} to {last} takes about {}; use at \
             least --budget {}",
            clock(needed),
            needed.ceil()
        )
    })
}

/// Removes the files of another replay, except the lock.
fn clear(folder: &RunFolder) -> Result<()> {
    let path = folder.path();
    let entries = fs::read_dir(path).map_err(|error| Error::io("read", path, error))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| !path.ends_with(LOCK)) {
        let is_folder = path.is_dir() && !path.is_symlink();
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| Error::io("remove", &path, error))?;
    }
    Ok(())
}

/// The job that measures the circuits of the head of each phase, from the weights that the meter wrote.
struct MeasureCircuits<'a> {
    folder: &'a RunFolder,
    phases: &'a mut Phases,
}

impl Job for MeasureCircuits<'_> {
    type Output = ();

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<()> {
        for phase in self.phases.phases.iter_mut().filter(|phase| !phase.losses.is_empty()) {
            let [first, last] = phase.between.map(|step| weights_at(self.folder, step));
            let Some(head) = phase.head().filter(|_| first.exists() && last.exists()) else { continue };
            let sizes = |path| {
                let (model, _) = load_model::<B::InnerBackend>(&WeightsFile::open_own(path)?, &device)?;
                Ok::<_, Error>(CircuitSizes::of(&model, head))
            };
            phase.circuits = sizes(first)?.zip(sizes(last)?).map(|(first, last)| [first, last]);
        }
        Ok(())
    }
}

/// The job that trains again.
struct Replaying<'a> {
    config: &'a Config,
    opening: Opening,
    control: &'a Control,
}

impl Job for Replaying<'_> {
    /// The way in which it ended, the step, and the seconds.
    type Output = (Ended, usize, f64);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self { config, opening, control } = self;
        compute(&config.training, || {
            let mut trainer = Trainer::<B>::open(config, opening, &device, control)?;
            let ended = trainer.train()?;
            Ok((ended, trainer.state.step, trainer.state.time.elapsed))
        })
    }
}
