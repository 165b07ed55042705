//! What a person sees of a study: a bar over all the sequences it trains on, and a line for each run that
//! ends or pauses.

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::{ProgressKind, say};
use crate::training::Ended;
use crate::tuning::{Study, TrialRun, setting_shown};

/// Shows how a study gets on.
#[derive(Debug)]
pub(super) struct StudyProgress {
    kind: ProgressKind,
    bar: Option<ProgressBar>,
}

impl StudyProgress {
    /// Progress of `study`.
    pub(super) fn new(kind: ProgressKind, study: &Study) -> Self {
        let bar = (kind == ProgressKind::Bar).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{wide_bar:.cyan/dim} {human_pos}/{human_len} sequences  {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        let progress = Self { kind, bar };
        progress.advance(study);
        progress
    }

    /// A run has ended or pauses.
    pub(super) fn ended(&mut self, study: &Study, run: &TrialRun) {
        self.print(&line(study, run));
        self.advance(study);
    }

    fn print(&self, line: &str) {
        match (self.kind, &self.bar) {
            (ProgressKind::None, _) => {}
            (_, Some(bar)) => bar.suspend(|| {
                let _ = writeln!(std::io::stderr(), "{line}");
            }),
            (_, None) => say(line),
        }
    }

    fn advance(&self, study: &Study) {
        let Some(bar) = &self.bar else { return };
        let done = study.results().sequences();
        let (expected, _) = study.outline().study_sequences();
        bar.set_length(expected.max(done) as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{} trials", study.results().trials().count()));
    }

    /// The study is over or interrupted: the bar gives its line back.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
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
        summary.floor.map_or_else(String::new, |floor| format!(" ({:+.4} to the floor)", loss - floor))
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
