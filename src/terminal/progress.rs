//! Progress of running work: a bar on a terminal, plain lines in a log.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{is_mute, is_quiet, say, warn};
use crate::error::{Error, Result};
use crate::numbers::{clock, floor_gap, thousands};

/// The ways to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressKind {
    /// A progress bar.
    Bar,
    /// A line at each validation.
    Plain,
    /// No progress.
    None,
}

impl ProgressKind {
    /// Returns the requested kind. By default: none with JSON output or in quiet mode, a bar on a terminal, plain lines
    /// elsewhere.
    ///
    /// # Errors
    /// Returns an error if plain lines are requested together with JSON, which uses the same standard output.
    pub fn chosen(requested: Option<Self>, json: bool) -> Result<Self> {
        match (requested, json) {
            (Some(Self::Plain), true) => Err(Error::Input(
                "--progress plain and --json both write to standard output; omit one of them".into(),
            )),
            (Some(requested), _) => Ok(requested),
            (None, true) => Ok(Self::None),
            (None, false) => Ok(Self::automatic()),
        }
    }

    /// Returns the kind for a command whose result goes to standard output. With JSON output no lines are printed, because
    /// its errors use standard error too.
    pub fn next_to_result(json: bool) -> Self {
        match Self::automatic() {
            Self::Plain if json => Self::None,
            kind => kind,
        }
    }

    /// Returns a bar on a terminal, plain lines elsewhere, and none in quiet mode.
    pub fn automatic() -> Self {
        match std::io::stderr().is_terminal() {
            _ if is_quiet() => Self::None,
            true => Self::Bar,
            false => Self::Plain,
        }
    }
}

/// Returns a bar over `total` units on standard error, hidden unless `kind` is a bar. It has colours on terminals that
/// support them, unless `NO_COLOR` is set.
pub fn bar(kind: ProgressKind, total: usize, template: &str) -> ProgressBar {
    let shown = kind == ProgressKind::Bar && !is_mute();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total as u64), target);
    // `console` alone would let CLICOLOR_FORCE take precedence.
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let template = if is_plain { template.replace(":.cyan/dim", "") } else { template.to_string() };
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━╸─"))
}

/// The progress of a command that does its work in units, such as batches: a bar, or occasional lines on standard
/// error, because the result goes to standard output.
#[derive(Debug)]
pub struct PieceProgress {
    kind: ProgressKind,
    bar: ProgressBar,
    unit: &'static str,
    /// The elapsed time at which the next line is due.
    due: Cell<Duration>,
}

impl PieceProgress {
    /// Starts the progress over `total` units, such as "batches"; see [`ProgressKind::next_to_result`].
    pub fn new(json: bool, total: usize, unit: &'static str) -> Self {
        Self::of(ProgressKind::next_to_result(json), total, unit)
    }

    /// Starts progress of this kind over `total` units.
    pub fn of(kind: ProgressKind, total: usize, unit: &'static str) -> Self {
        let bar = bar(kind, total, &format!("{{wide_bar:.cyan/dim}} {{human_pos}}/{{human_len}} {unit}"));
        Self { kind, bar, unit, due: Cell::new(Duration::from_secs(1)) }
    }

    /// Reports that `count` units are done.
    pub fn done(&self, count: usize) {
        self.bar.set_position(count as u64);
        let elapsed = self.bar.elapsed();
        if self.kind == ProgressKind::Plain && elapsed >= self.due.get() {
            self.due.set(elapsed + Duration::from_secs(10));
            let [count, total] =
                [Some(count as u64), self.bar.length()].map(|count| HumanCount(count.unwrap_or(0)));
            warn(&format!("{count}/{total} {}", self.unit));
        }
    }
}

impl Drop for PieceProgress {
    /// Clears the line of the bar.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of work of unknown size: a line with the elapsed time on a terminal; in a log, a line after two
/// seconds and then every half minute.
#[derive(Debug)]
pub struct Waiting {
    bar: ProgressBar,
    lines: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    /// Shows `what` until the value is dropped.
    pub fn new(kind: ProgressKind, what: &str) -> Self {
        let bar = bar(kind, 0, "{msg}: {elapsed}").with_message(what.to_string());
        if kind == ProgressKind::Bar {
            bar.enable_steady_tick(REFRESH);
        }
        let (what, started) = (what.to_string(), Instant::now());
        let (done, is_done) = mpsc::channel::<()>();
        let lines = move || {
            let mut wait = Duration::from_secs(2);
            while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                warn(&format!("{what}: {}", clock(started.elapsed().as_secs_f64())));
                wait = Duration::from_secs(30);
            }
        };
        let thread = || std::thread::Builder::new().spawn(lines).ok();
        let lines = if kind == ProgressKind::Plain { thread().map(|thread| (done, thread)) } else { None };
        Self { bar, lines }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some((done, lines)) = self.lines.take() {
            drop(done);
            let _ = lines.join();
        }
    }
}

/// The status of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStatus {
    /// The number of completed steps.
    pub step: usize,
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The last training loss read from the device, in nats.
    pub train_loss: Option<f64>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// The number of tokens trained on per second, in this part of the run.
    pub tokens_per_second: f64,
    /// The estimated seconds until the end, at the average pace.
    pub seconds_left: f64,
}

/// The interval at which a bar shows a new loss.
const REFRESH: Duration = Duration::from_millis(500);

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    kind: ProgressKind,
    bar: ProgressBar,
    floor: Option<f64>,
    valid_loss: Option<f64>,
    /// The time at which a training loss was last requested.
    requested: Option<Instant>,
}

impl Progress {
    /// Starts the progress over `total` steps, of which `done` are completed; the entropy floor is in nats per token.
    pub fn new(kind: ProgressKind, done: usize, total: usize, floor: Option<f64>) -> Self {
        let bar = bar(kind, total, "{wide_bar:.cyan/dim} {pos}/{len}\n{msg}");
        bar.set_position(done as u64);
        Self { kind, bar, floor, valid_loss: None, requested: None }
    }

    /// Returns true if the bar is due for a new loss. Reading a loss waits for the device, so it is not done at every
    /// step.
    pub fn wants_loss(&mut self) -> bool {
        let wanted =
            self.kind == ProgressKind::Bar && self.requested.is_none_or(|time| time.elapsed() >= REFRESH);
        if wanted {
            self.requested = Some(Instant::now());
        }
        wanted
    }

    /// Reports a completed step.
    pub fn step(&mut self, status: &RunStatus) {
        if self.kind != ProgressKind::Bar {
            return;
        }
        let loss = status.train_loss.map(|loss| format!("loss {loss:.4}"));
        let valid = self.valid_loss.map(|loss| format!("valid {loss:.4}"));
        // Prefers the validation loss, because the loss of a single training step is noisy.
        let gap = self.valid_loss.or(status.train_loss).zip(self.floor);
        let gap = gap.map(|(loss, floor)| floor_gap(loss, floor, 4));
        let parts = [loss, valid, gap, Some(pace(status))];
        self.bar.set_message(parts.into_iter().flatten().collect::<Vec<_>>().join("  "));
        self.bar.set_position(status.step as u64);
    }

    /// Reports a validation with its loss in nats per token and its accuracy.
    pub fn validated(&mut self, status: &RunStatus, loss: f64, accuracy: f64) {
        self.valid_loss = Some(loss);
        match self.kind {
            ProgressKind::Bar => self.step(status),
            ProgressKind::Plain => say(&self.line(status, loss, accuracy)),
            ProgressKind::None => {}
        }
    }

    fn line(&self, status: &RunStatus, loss: f64, accuracy: f64) -> String {
        let RunStatus { step, epoch, .. } = status;
        let total = self.bar.length().unwrap_or(0);
        let train = status.train_loss.map_or_else(String::new, |loss| format!("  train loss {loss:.4}"));
        let gap = self.floor.map_or_else(String::new, |floor| format!(" ({})", floor_gap(loss, floor, 4)));
        format!(
            "step {step}/{total}  epoch {epoch}{train}  valid loss {loss:.4}{gap}  accuracy {:.1} %  {}",
            accuracy * 100.0,
            pace(status)
        )
    }

    /// Clears the bar at the end of the run.
    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn pace(status: &RunStatus) -> String {
    if status.tokens_per_second == 0.0 {
        return format!("lr {:.2e}", status.learning_rate);
    }
    format!(
        "lr {:.2e}  {} tokens/s  {} left",
        status.learning_rate,
        thousands(status.tokens_per_second),
        clock(status.seconds_left)
    )
}
