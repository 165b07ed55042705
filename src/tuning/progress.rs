//! What a person sees of a study: a bar over all the sequences it trains on, and a line for each run that
//! ends or pauses.

use super::study::{DueRun, Study};
use super::table::setting_shown;
use crate::terminal::{Bar, ProgressKind, to_the_floor};
use crate::training::Ended;

/// Shows how a study gets on.
#[derive(Debug)]
pub struct StudyProgress {
    kind: ProgressKind,
    bar: Bar,
}

impl StudyProgress {
    /// Progress of `study`.
    pub fn new(kind: ProgressKind, study: &Study) -> Self {
        let bar = Bar::new(kind, 0, "sequences");
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
            let gap = summary.floor.map(|floor| format!(" ({})", to_the_floor(loss, floor)));
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
        if self.kind != ProgressKind::None {
            self.bar.say(line);
        }
    }

    fn advance(&mut self, study: &Study) {
        let done = study.sequences();
        let (expected, _) = study.outline().study_sequences();
        self.bar.set_total(expected.max(done) as u64);
        self.bar.set(done as u64);
        self.bar.set_message(&format!("{} trials", study.count()));
    }

    /// The study is over or interrupted: the bar gives its line back.
    pub fn finish(&self) {
        self.bar.finish();
    }
}
