//! What a person sees while a run is under way: a bar on a terminal, plain lines in a log.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use burn::train::Interrupter;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::dashboard::Dashboard;
use crate::error::{Error, Result};
use crate::evaluation::Evaluation;

/// The ways to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressKind {
    /// A bar that moves.
    Bar,
    /// A line at each validation.
    Plain,
    /// Burn's dashboard: plots on the whole terminal, and a key to stop.
    Tui,
    /// Nothing.
    None,
}

impl ProgressKind {
    /// Whether it can be shown here.
    ///
    /// # Errors
    /// If a dashboard finds no terminal.
    pub fn check(self) -> Result<()> {
        if self == Self::Tui && !std::io::stdout().is_terminal() {
            return Err(Error::Input(
                "--progress tui: needs a terminal; take plain or none where the output goes to a file".into(),
            ));
        }
        Ok(())
    }

    /// A bar on a terminal, plain lines elsewhere.
    pub fn automatic() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar } else { Self::Plain }
    }
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
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
    /// Targets trained on in a second, in this part of the run.
    pub tokens_per_second: f64,
    /// Seconds still to go, at the pace so far.
    pub seconds_left: f64,
}

/// How often a bar shows a new loss.
const REFRESH: Duration = Duration::from_millis(500);

/// Shows where a run stands.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    floor: Option<f64>,
    valid_loss: Option<f64>,
    /// When a loss was last asked for.
    asked: Option<Instant>,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Plain,
    /// None until the run begins.
    Dashboard(Option<Box<Dashboard>>),
    Nothing,
}

impl Progress {
    /// Progress over `total` steps, of which `done` are done; the floor is in nats a target.
    pub fn new(kind: ProgressKind, done: usize, total: usize, floor: Option<f64>) -> Self {
        let shown = match kind {
            ProgressKind::None => Shown::Nothing,
            ProgressKind::Plain => Shown::Plain,
            ProgressKind::Tui => Shown::Dashboard(None),
            ProgressKind::Bar => {
                let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
                let style = ProgressStyle::with_template("{wide_bar:.cyan/dim} {pos}/{len}\n{msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("━╸─");
                bar.set_style(style);
                bar.set_position(done as u64);
                Shown::Bar(bar)
            }
        };
        Self { shown, floor, valid_loss: None, asked: None }
    }

    /// The run begins; what is asked on a dashboard, `interrupter` tells.
    pub fn begin(&mut self, interrupter: &Interrupter) {
        if let Shown::Dashboard(dashboard) = &mut self.shown {
            *dashboard = Some(Box::new(Dashboard::new(interrupter.clone())));
        }
    }

    /// Whether somebody watches who has not seen a new loss for a while: reading one waits for the
    /// device, so it is not done at every step.
    pub fn wants_a_loss(&mut self) -> bool {
        let due = self.asked.is_none_or(|asked| asked.elapsed() >= REFRESH);
        let wanted = due && matches!(self.shown, Shown::Bar(_) | Shown::Dashboard(_));
        if wanted {
            self.asked = Some(Instant::now());
        }
        wanted
    }

    /// A step is done.
    pub fn step(&mut self, standing: &Standing) {
        if let Shown::Dashboard(Some(dashboard)) = &mut self.shown {
            dashboard.step(standing);
        }
        if let Shown::Bar(bar) = &self.shown {
            let loss = standing.train_loss.map(|loss| format!("loss {loss:.4}"));
            let valid = self.valid_loss.map(|loss| format!("valid {loss:.4}"));
            // That of the validation, once there is one: a training step's own loss is noisy.
            let gap = self.valid_loss.or(standing.train_loss).zip(self.floor);
            let gap = gap.map(|(loss, floor)| format!("{:+.4} to the floor", loss - floor));
            let parts = [loss, valid, gap, Some(pace(standing))];
            bar.set_message(parts.into_iter().flatten().collect::<Vec<_>>().join("  "));
            bar.set_position(standing.step as u64);
        }
    }

    /// A validation is done.
    pub fn validated(&mut self, standing: &Standing, evaluation: &Evaluation) {
        self.valid_loss = Some(evaluation.loss);
        match &mut self.shown {
            Shown::Bar(_) => self.step(standing),
            Shown::Plain => say(&self.line(standing, evaluation)),
            Shown::Dashboard(Some(dashboard)) => dashboard.validated(standing, evaluation, self.floor),
            Shown::Dashboard(None) | Shown::Nothing => {}
        }
    }

    fn line(&self, standing: &Standing, evaluation: &Evaluation) -> String {
        let Standing { step, total, epoch, .. } = standing;
        let mut line = format!("step {step}/{total}  epoch {epoch}");
        if let Some(loss) = standing.train_loss {
            line += &format!("  train loss {loss:.4}");
        }
        line += &format!("  valid loss {:.4}", evaluation.loss);
        if let Some(floor) = self.floor {
            line += &format!(" ({:+.4} to the floor)", evaluation.loss - floor);
        }
        format!("{line}  accuracy {:.1} %  {}", evaluation.accuracy * 100.0, pace(standing))
    }

    /// The run is over: the bar gives its lines back, the dashboard the terminal.
    pub fn finish(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Dashboard(dashboard) => *dashboard = None,
            Shown::Plain | Shown::Nothing => {}
        }
    }
}

/// Writes a line to standard output. Nobody may be reading any more, and a run goes on all the same.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a line to standard error, where somebody reads it: one line, whatever it quotes.
pub fn warn(line: &str) {
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    let _ = writeln!(std::io::stderr(), "{}", line.chars().map(escape).collect::<String>());
}

fn pace(standing: &Standing) -> String {
    format!(
        "lr {:.2e}  {} tokens/s  {} left",
        standing.learning_rate,
        thousands(standing.tokens_per_second),
        clock(standing.seconds_left)
    )
}

/// A count with its thousands apart: 12,345.
pub fn thousands(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Seconds as a clock shows them: 0:07, 12:34, 1:02:03.
pub fn clock(seconds: f64) -> String {
    let total = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default().as_secs();
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_clocks_read_as_people_write_them() {
        assert_eq!(
            ["7", "999", "1,000", "12,345", "1,234,567"],
            [7.0, 999.0, 1e3, 12_345.0, 1_234_567.0].map(thousands).each_ref().map(String::as_str)
        );
        assert_eq!(
            ["0:07", "12:34", "1:02:03"],
            [7.0, 754.0, 3_723.0].map(clock).each_ref().map(String::as_str)
        );
        assert_eq!(clock(f64::NAN), "0:00");
        assert_eq!(clock(f64::INFINITY), "0:00");
    }
}
