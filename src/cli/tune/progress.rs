//! Progress of a study on the terminal: a bar over all training sequences, and a line for each run that ends or pauses.

use indicatif::ProgressBar;

use crate::numbers::{counted, floor_gap};
use crate::terminal::{ProgressKind, bar, say, warn};
use crate::training::Ended;
use crate::tuning::{Study, TrialRun, setting_shown};

/// The progress display of a study.
#[derive(Debug)]
pub(super) struct StudyProgress {
    kind: ProgressKind,
    pub(super) bar: ProgressBar,
}

impl StudyProgress {
    /// Creates the display of `study`.
    pub(super) fn new(kind: ProgressKind, study: &Study) -> Self {
        let bar = bar(kind, 0, "{wide_bar:.cyan/dim} {human_pos}/{human_len} sequences  {msg}");
        let progress = Self { kind, bar };
        progress.advance(study);
        progress
    }

    /// Updates the display after a run has ended or paused.
    pub(super) fn ended(&self, study: &Study, run: &TrialRun) {
        match self.kind {
            ProgressKind::Bar => self.bar.suspend(|| warn(&line(study, run))),
            ProgressKind::Plain => say(&line(study, run)),
            ProgressKind::None => {}
        }
        self.advance(study);
    }

    fn advance(&self, study: &Study) {
        let done = study.sequences();
        let (expected, _) = study.outline.study_sequences;
        self.bar.set_length(expected.max(done) as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(counted(study.trials().count(), "trial"));
    }
}

/// Formats the result of a run.
fn line(study: &Study, run: &TrialRun) -> String {
    let setting = &study.agenda.trials[run.run.0].setting;
    let title = format!("trial {}  {}", run.folder.name(), setting_shown(setting));
    let record = match study.runs.get(&run.run) {
        None => return format!("{title}  interrupted"),
        Some(Err(why)) => return format!("{title}  failed: {why}"),
        Some(Ok(record)) => record,
    };
    let summary = &record.summary;
    let gap = summary.losses.best_valid_loss.zip(summary.losses.floor);
    let gap = gap.map_or_else(String::new, |(loss, floor)| format!(" ({})", floor_gap(loss, floor, 4)));
    let loss = summary.losses.best_valid_loss.map_or_else(String::new, |loss| format!("loss {loss:.4}{gap}"));
    let end = match summary.ended {
        Ended::Completed => "completed",
        Ended::EarlyStopped => "stopped early",
        Ended::Imported => "imported",
        Ended::Diverged => "diverged",
        Ended::Paused => "paused at a rung",
        Ended::Interrupted | Ended::TimeLimit => "interrupted",
    };
    format!("{title}  step {}  {loss}  {end}", summary.work.steps)
}
