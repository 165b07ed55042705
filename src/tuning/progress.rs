//! What a person sees of a study: a bar over all the sequences it trains on, and a line for each run that
//! ends or pauses.

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::study::{DueRun, Study};
use super::table::setting_shown;
use crate::error::{Error, Result};
use crate::training::{Ended, ProgressKind, say};

/// Shows how a study gets on.
#[derive(Debug)]
pub struct StudyProgress {
    kind: ProgressKind,
    bar: Option<ProgressBar>,
}

impl StudyProgress {
    /// Whether a study can be shown so.
    ///
    /// # Errors
    /// If a dashboard is asked for, which shows one run.
    pub fn check(kind: ProgressKind) -> Result<()> {
        match kind {
            ProgressKind::Bar | ProgressKind::Plain | ProgressKind::None => Ok(()),
            ProgressKind::Tui => {
                Err(Error::Input("--progress tui: shows one run; take bar, plain or none for a study".into()))
            }
        }
    }

    /// Progress of `study`.
    pub fn new(kind: ProgressKind, study: &Study) -> Self {
        let bar = (kind == ProgressKind::Bar).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{wide_bar:.cyan/dim} {human_pos}/{human_len} sequences  {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        let mut progress = Self { kind, bar };
        progress.advance(study);
        progress
    }

    /// A run has ended or pauses.
    pub fn done(&mut self, study: &Study, run: &DueRun) {
        let number = run.folder.name();
        let setting = study.setting(run.trial).map(setting_shown).unwrap_or_default();
        if let Some(why) = study.failure(run) {
            self.tell(&format!("trial {number}  {setting}  failed: {why}"));
            return self.advance(study);
        }
        let Some(record) = study.record(run) else { return };
        let summary = &record.summary;
        let loss = summary.best_valid_loss.map_or_else(String::new, |loss| {
            let gap = summary.floor.map(|floor| format!(" ({:+.4} to the floor)", loss - floor));
            format!("loss {loss:.4}{}", gap.unwrap_or_default())
        });
        let end = match summary.ended {
            Ended::Completed => "completed",
            Ended::EarlyStopped => "stopped early",
            Ended::Diverged => "diverged",
            Ended::Paused => "at a rung",
            Ended::Interrupted | Ended::TimeLimit => "interrupted",
        };
        self.tell(&format!("trial {number}  {setting}  step {}  {loss}  {end}", summary.steps));
        self.advance(study);
    }

    fn tell(&self, line: &str) {
        match (self.kind, &self.bar) {
            (ProgressKind::None, _) => {}
            (_, Some(bar)) => bar.suspend(|| {
                let _ = writeln!(std::io::stderr(), "{line}");
            }),
            (_, None) => say(line),
        }
    }

    fn advance(&mut self, study: &Study) {
        let Some(bar) = &self.bar else { return };
        let done = study.sequences();
        let (expected, _) = study.outline().study_sequences();
        bar.set_length(expected.max(done) as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{} trials", study.count()));
    }

    /// The study is over or interrupted: the bar gives its line back.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
