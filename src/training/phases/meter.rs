//! The observer of a replay. It measures the model at each step of a phase, and compares the replay with the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::found::MeasuredStep;
use crate::analysis::phases::LossByTarget;
use crate::analysis::{AtStep, StepLog};
use crate::error::{Error, Result, ensure};
use crate::files::{hash, parse_json, write_atomically};
use crate::terminal::{PieceProgress, ProgressKind};
use crate::training::checkpoint;
use crate::training::metrics::{Row, Split};
use crate::training::observers::{ModelAccess, Moment, Observer, Requests, Stop};
use crate::training::run_folder::RunFolder;
use crate::weights::native;

/// The number in place of a signal when the budget ends the replay.
const OUT_OF_BUDGET: usize = 0;

impl AtStep for MeasuredStep {
    fn step(&self) -> usize {
        self.step
    }

    fn lines(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("measurements hold plain values");
        line.push(b'\n');
        line
    }

    fn read(lines: &[u8], path: &Path) -> Result<Vec<Self>> {
        let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| parse_json(line, path, "the measurements of a replay")).collect()
    }
}

/// The agreement of a replay with the run so far.
#[derive(Debug, Default)]
pub struct Agreement {
    /// The number of logged training steps that are equal.
    pub rows: AtomicUsize,
    /// The step of the last checkpoint with equal weights; 0 if there is none.
    pub checkpoint: AtomicUsize,
}

/// The observer of a replay.
pub struct PhaseMeter {
    /// The run.
    pub run: RunFolder,
    /// The training rows of the run.
    pub recorded: Vec<Row>,
    /// The steps of the run's checkpoints.
    pub checkpoints: Vec<usize>,
    /// The first and the last step of each phase.
    pub brackets: Vec<[usize; 2]>,
    /// The measurements.
    pub log: StepLog<MeasuredStep>,
    /// The agreement with the run.
    pub agreement: Arc<Agreement>,
    /// The time at which the replay pauses.
    pub deadline: Option<Instant>,
    /// The progress over the steps.
    pub progress: PieceProgress,
    /// The step from which the run is replayed.
    pub from: usize,
}

/// Returns the path of the weights at the first or the last step of a phase, in the folder of the replay.
pub fn weights_at(replay: &RunFolder, step: usize) -> PathBuf {
    replay.path().join(format!("weights-{step}.safetensors"))
}

/// Returns the deadline of a budget in seconds; `None` for a budget that no clock measures.
pub fn deadline(seconds: f64) -> Option<Instant> {
    Instant::now().checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Returns the progress over a number of replayed steps.
pub fn progress(kind: ProgressKind, steps: usize) -> PieceProgress {
    PieceProgress::of(kind, steps, "steps replayed")
}

impl PhaseMeter {
    fn is_measured(&self, step: usize) -> bool {
        self.brackets.iter().any(|[from, until]| (*from..=*until).contains(&step))
    }

    fn compare_weights(&self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let step = moment.state.step;
        // A checkpoint that cannot be read proves nothing.
        let Ok(written) = checkpoint::weights(&self.run, step).and_then(|file| file.sha256()) else {
            return Ok(());
        };
        let bytes = native::to_bytes(&model.weights()?, Some(&moment.setup.description))?;
        ensure(hash(&bytes) == written, Error::Input, || self.difference(step, "weights"))?;
        self.agreement.checkpoint.store(step, Ordering::Relaxed);
        Ok(())
    }

    fn difference(&self, step: usize, what: &str) -> String {
        format!(
            "the replay of `{}` differs from the run at step {step} in its {what}, so it would date other phases: the run \
             was trained by another version, on another device or with other settings; pass its --backend and --device, or \
             use --no-replay",
            self.run.path().display()
        )
    }
}

impl Observer for PhaseMeter {
    fn start(&mut self, _moment: &Moment<'_>) -> Result<()> {
        self.log.rewrite()
    }

    fn request(&mut self) -> Requests {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        Requests { stop: is_late.then_some(Stop::Signal(OUT_OF_BUDGET)), ..Requests::default() }
    }

    fn row(&mut self, rows: &[Row]) -> Result<()> {
        let Some(new) = rows.last().filter(|row| row.split == Split::Train) else { return Ok(()) };
        let Ok(at) = self.recorded.binary_search_by_key(&new.step, |row| row.step) else { return Ok(()) };
        let digits = |row: &Row| {
            [Some(row.loss), Some(row.accuracy), row.gradient_norm].map(|value| value.map(f64::to_bits))
        };
        let names = ["training loss", "training accuracy", "gradient norm"];
        let pairs = digits(new).into_iter().zip(digits(&self.recorded[at])).zip(names);
        for ((replayed, recorded), name) in pairs {
            ensure(replayed == recorded, Error::Input, || self.difference(new.step, name))?;
        }
        self.agreement.rows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn step(&mut self, moment: &Moment<'_>) {
        self.progress.done(moment.state.step.saturating_sub(self.from));
    }

    fn wants_model(&self, moment: &Moment<'_>) -> bool {
        let step = moment.state.step;
        self.is_measured(step) && !self.log.ends_at(step)
            || step > self.from && self.checkpoints.contains(&step)
    }

    fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let step = moment.state.step;
        if step > self.from && self.checkpoints.contains(&step) {
            self.compare_weights(moment, model)?;
        }
        if !self.is_measured(step) || self.log.ends_at(step) {
            return Ok(());
        }
        if self.brackets.iter().flatten().any(|end| *end == step) {
            let bytes = native::to_bytes(&model.weights()?, Some(&moment.setup.description))?;
            write_atomically(&weights_at(&moment.setup.folder, step), &bytes)?;
        }
        let loss = LossByTarget::from(&model.evaluate(moment.setup)?);
        self.log.push(MeasuredStep { step, loss, heads: model.score_heads(moment.setup)? })
    }

    fn restore(&mut self, part: &Value) -> Result<(), serde_json::Error> {
        let [rows, checkpoint] = <[usize; 2]>::deserialize(part)?;
        self.agreement.rows.store(rows, Ordering::Relaxed);
        self.agreement.checkpoint.store(checkpoint, Ordering::Relaxed);
        Ok(())
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        let Agreement { rows, checkpoint } = self.agreement.as_ref();
        Some(("phases", json!([rows, checkpoint].map(|count| count.load(Ordering::Relaxed)))))
    }
}
