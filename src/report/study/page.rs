//! `report.html` of a study: its table, to be sorted, and its trials as curves and dots that light up
//! together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::report::color::CONTROL_POINTS;
use crate::report::page::{filled, harmless};
use crate::terminal::{clock, thousands};
use crate::tuning::{Findings, TrialEnd};

/// What `report.html` shows of a study.
#[derive(Debug, Serialize)]
pub struct StudyPage {
    /// The trials.
    pub result: Findings,
    /// How the study went, as names and values to be shown as they are.
    pub summary: Vec<(String, String)>,
    /// The study's `config.toml`.
    pub config: String,
    /// The best setting, as `best.toml`.
    pub best: String,
    /// The pages of trials that have one, relative to the study's folder.
    pub pages: BTreeMap<usize, String>,
}

const TEMPLATE: &str = include_str!("../../../assets/report/study.html");
/// In the order in which they read; the first three are those of a run's page.
const SCRIPTS: [&str; 4] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/study.js"),
];

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    page: &'a StudyPage,
    colors: Vec<String>,
}

impl StudyPage {
    /// Writes the page to `path`, whose folder exists.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.html()?.as_bytes())
    }

    pub(super) fn html(&self) -> Result<String> {
        let colors = CONTROL_POINTS.map(|point| format!("#{point:06x}")).to_vec();
        let json = serde_json::to_string(&Data { page: self, colors })
            .map_err(|error| Error::Failed(format!("cannot write the data of the page: {error}")))?;
        Ok(filled(TEMPLATE, &self.result.study, harmless(json), SCRIPTS.join("\n")))
    }
}

/// How a study went.
pub fn summary(findings: &Findings) -> Vec<(String, String)> {
    let trials = &findings.trials;
    let mut lines = Vec::new();
    if let Some(best) = trials.first() {
        lines.push(("best trial", format!("{:03}", best.trial)));
        lines.extend(best.loss.map(|loss| ("its loss", format!("{loss:.4} nats"))));
        lines.extend(best.floor.map(|floor| ("floor", format!("{floor:.4} nats"))));
        lines.extend(best.accuracy.map(|accuracy| ("its accuracy", format!("{:.1} %", accuracy * 100.0))));
    }
    for ended in TrialEnd::ALL {
        let count = trials.iter().filter(|trial| trial.ended == ended).count();
        lines.extend((count > 0).then(|| (ended.name(), thousands(count as f64))));
    }
    lines.push(("steps", thousands(trials.iter().map(|trial| trial.steps).sum::<usize>() as f64)));
    lines.push(("time of training", clock(trials.iter().map(|trial| trial.seconds).sum())));
    lines.into_iter().map(|(name, value)| (name.replace('_', " "), value)).collect()
}
