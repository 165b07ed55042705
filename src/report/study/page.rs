//! `report.html` of a study: its table, to be sorted, and its trials as curves and dots that light up
//! together.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StudyResult;
use crate::error::{Error, Result};
use crate::report::color::CONTROL_POINTS;
use crate::report::page::{filled, harmless};

/// What `report.html` shows of a study.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyPage {
    /// The trials.
    pub result: StudyResult,
    /// How the study went, as names and values to be shown as they are.
    pub summary: Vec<(String, String)>,
    /// The study's `config.toml`.
    pub config: String,
    /// The best setting, as `best.toml`.
    pub best: String,
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
    /// If no trial has a loss, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.html()?).map_err(|source| Error::io("write", path, source))
    }

    pub(super) fn html(&self) -> Result<String> {
        self.result.check()?;
        let colors = CONTROL_POINTS.map(|point| format!("#{point:06x}")).to_vec();
        let json = serde_json::to_string(&Data { page: self, colors })
            .map_err(|error| Error::Failed(format!("cannot write the data of the page: {error}")))?;
        Ok(filled(TEMPLATE, &self.result.study, harmless(json), SCRIPTS.join("\n")))
    }
}
