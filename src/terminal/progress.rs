//! What a person sees while work is under way: a bar on a terminal, plain lines in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::numbers::{clock, thousands, to_the_floor};
use super::output::{escape, say, warn};
use crate::error::{Error, Result};

/// The ways to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressKind {
    /// A bar that moves.
    Bar,
    /// A line at each validation.
    Plain,
    /// Nothing.
    None,
}

impl ProgressKind {
    /// What was asked for; else nothing beside JSON, and what is usual elsewhere.
    ///
    /// # Errors
    /// If lines are asked for beside JSON, on the same standard output.
    pub fn chosen(asked: Option<Self>, json: bool) -> Result<Self> {
        match (asked, json) {
            (Some(Self::Plain), true) => Err(Error::Input(
                "--progress plain writes its lines where --json writes: leave one of them out".into(),
            )),
            (Some(asked), _) => Ok(asked),
            (None, true) => Ok(Self::None),
            (None, false) => Ok(Self::automatic()),
        }
    }

    /// A bar on a terminal, plain lines elsewhere.
    pub fn automatic() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar } else { Self::Plain }
    }
}

/// A bar on standard error, which is nothing unless a bar is asked for.
#[derive(Debug)]
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar over `total` units, as "sequences", with room for a message behind it.
    pub fn new(kind: ProgressKind, total: u64, unit: &str) -> Self {
        Self::with_template(
            kind,
            total,
            &format!("{{wide_bar:.cyan/dim}} {{human_pos}}/{{human_len}} {unit}  {{msg}}"),
        )
    }

    fn with_template(kind: ProgressKind, total: u64, template: &str) -> Self {
        Self((kind == ProgressKind::Bar).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar
        }))
    }

    /// Whether somebody can see it.
    pub fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Units done.
    pub fn set(&self, done: u64) {
        self.0.iter().for_each(|bar| bar.set_position(done));
    }

    /// Units of all the work, where that changes.
    pub fn set_total(&self, total: u64) {
        self.0.iter().for_each(|bar| bar.set_length(total));
    }

    /// What stands behind the bar.
    pub fn set_message(&self, message: &str) {
        self.0.iter().for_each(|bar| bar.set_message(escape(message).into_owned()));
    }

    /// Says a line: above the bar, or on standard output where there is none.
    pub fn say(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| warn(line)),
            None => say(line),
        }
    }

    /// The work is over: the bar gives its lines back.
    pub fn finish(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// How far a run has got.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStatus {
    /// Steps done.
    pub step: usize,
    /// Steps of the whole run.
    pub total: usize,
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The last training loss read from the device, in nats.
    pub train_loss: Option<f64>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Tokens trained on per second, in this part of the run.
    pub tokens_per_second: f64,
    /// Seconds still to go, at the pace so far.
    pub seconds_left: f64,
}

/// How often a bar shows a new loss.
const REFRESH: Duration = Duration::from_millis(500);

/// Shows how far a run has got.
#[derive(Debug)]
pub struct Progress {
    kind: ProgressKind,
    bar: Bar,
    floor: Option<f64>,
    valid_loss: Option<f64>,
    /// When a training loss was last asked for.
    asked: Option<Instant>,
}

impl Progress {
    /// Progress over `total` steps, of which `done` are done; the floor is in nats per token.
    pub fn new(kind: ProgressKind, done: usize, total: usize, floor: Option<f64>) -> Self {
        let bar = Bar::with_template(kind, total as u64, "{wide_bar:.cyan/dim} {pos}/{len}\n{msg}");
        bar.set(done as u64);
        Self { kind, bar, floor, valid_loss: None, asked: None }
    }

    /// Whether somebody watches who has not seen a new loss for a while: reading one waits for the
    /// device, so it is not done at every step.
    pub fn wants_a_loss(&mut self) -> bool {
        let wanted = self.bar.is_shown() && self.asked.is_none_or(|asked| asked.elapsed() >= REFRESH);
        if wanted {
            self.asked = Some(Instant::now());
        }
        wanted
    }

    /// A step is done.
    pub fn step(&mut self, status: &RunStatus) {
        if !self.bar.is_shown() {
            return;
        }
        let loss = status.train_loss.map(|loss| format!("loss {loss:.4}"));
        let valid = self.valid_loss.map(|loss| format!("valid {loss:.4}"));
        // That of the validation, once there is one: a training step's own loss is noisy.
        let gap = self.valid_loss.or(status.train_loss).zip(self.floor);
        let gap = gap.map(|(loss, floor)| to_the_floor(loss, floor));
        let parts = [loss, valid, gap, Some(pace(status))];
        self.bar.set_message(&parts.into_iter().flatten().collect::<Vec<_>>().join("  "));
        self.bar.set(status.step as u64);
    }

    /// A validation is done, with this loss in nats per token and this share of right answers.
    pub fn validated(&mut self, status: &RunStatus, loss: f64, accuracy: f64) {
        self.valid_loss = Some(loss);
        match self.kind {
            ProgressKind::Bar => self.step(status),
            ProgressKind::Plain => say(&self.line(status, loss, accuracy)),
            ProgressKind::None => {}
        }
    }

    fn line(&self, status: &RunStatus, loss: f64, accuracy: f64) -> String {
        let RunStatus { step, total, epoch, .. } = status;
        let train = status.train_loss.map_or_else(String::new, |loss| format!("  train loss {loss:.4}"));
        let gap = self.floor.map_or_else(String::new, |floor| format!(" ({})", to_the_floor(loss, floor)));
        format!(
            "step {step}/{total}  epoch {epoch}{train}  valid loss {loss:.4}{gap}  accuracy {:.1} %  {}",
            accuracy * 100.0,
            pace(status)
        )
    }

    /// The run is over.
    pub fn finish(&mut self) {
        self.bar.finish();
    }
}

fn pace(status: &RunStatus) -> String {
    format!(
        "lr {:.2e}  {} tokens/s  {} left",
        status.learning_rate,
        thousands(status.tokens_per_second),
        clock(status.seconds_left)
    )
}
