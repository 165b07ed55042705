//! What a person sees of a study: a bar over all the sequences it trains on, and a line for each run that
//! ends or pauses.

use crate::terminal::{Bar, ProgressKind, to_the_floor};
use crate::training::Ended;
use crate::tuning::{Study, TrialRun, setting_shown};

/// Shows how a study gets on.
#[derive(Debug)]
pub(super) struct StudyProgress {
    kind: ProgressKind,
    bar: Bar,
}

impl StudyProgress {
    /// Progress of `study`.
    pub(super) fn new(kind: ProgressKind, study: &Study) -> Self {
        let progress = Self { kind, bar: Bar::new(kind, 0, "sequences") };
        progress.advance(study);
        progress
    }

    /// A run has ended or pauses.
    pub(super) fn ended(&self, study: &Study, run: &TrialRun) {
        if self.kind != ProgressKind::None {
            self.bar.say(&line(study, run));
        }
        self.advance(study);
    }

    fn advance(&self, study: &Study) {
        let done = study.results().sequences();
        let (expected, _) = study.outline().study_sequences();
        self.bar.set_total(expected.max(done) as u64);
        self.bar.set(done as u64);
        self.bar.set_message(&format!("{} trials", study.results().trials().count()));
    }

    /// The study is over or interrupted.
    pub(super) fn finish(&self) {
        self.bar.finish();
    }
}

/// What came of a run.
fn line(study: &Study, run: &TrialRun) -> String {
    let (results, key) = (study.results(), (run.trial, run.seed));
    let setting = &results.agenda().trials[run.trial].setting;
    let named = format!("trial {}  {}", run.folder.name(), setting_shown(setting));
    if let Some(why) = results.failure(key) {
        return format!("{named}  failed: {why}");
    }
    let Some(record) = results.run(key) else { return format!("{named}  interrupted") };
    let summary = &record.summary;
    let gap = |loss: f64| {
        summary.floor.map_or_else(String::new, |floor| format!(" ({})", to_the_floor(loss, floor)))
    };
    let loss =
        summary.best_valid_loss.map_or_else(String::new, |loss| format!("loss {loss:.4}{}", gap(loss)));
    let end = match summary.ended {
        Ended::Completed => "completed",
        Ended::EarlyStopped => "stopped early",
        Ended::Diverged => "diverged",
        Ended::Paused => "at a rung",
        Ended::Interrupted | Ended::TimeLimit => "interrupted",
    };
    format!("{named}  step {}  {loss}  {end}", summary.steps)
}
