//! What a person sees of a study: a bar over all the sequences it trains on, and a line for each run that
//! ends or pauses.

use crate::terminal::{Bar, ProgressKind, counted, to_the_floor};
use crate::training::Ended;
use crate::tuning::{Study, TrialRun, setting_shown};

/// Shows how a study gets on.
#[derive(Debug)]
pub(super) struct StudyProgress {
    kind: ProgressKind,
    pub(super) bar: Bar,
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
        let done = study.sequences();
        let (expected, _) = study.outline.study_sequences();
        self.bar.set_total(expected.max(done) as u64);
        self.bar.set(done as u64);
        self.bar.set_message(&counted(study.trials().count(), "trial"));
    }
}

/// What came of a run.
fn line(study: &Study, run: &TrialRun) -> String {
    let setting = &study.agenda.trials[run.run.0].setting;
    let named = format!("trial {}  {}", run.folder.name(), setting_shown(setting));
    let record = match study.runs.get(&run.run) {
        None => return format!("{named}  interrupted"),
        Some(Err(why)) => return format!("{named}  failed: {why}"),
        Some(Ok(record)) => record,
    };
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
