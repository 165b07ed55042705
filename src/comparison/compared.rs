//! A run of a comparison, as read from its folder.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::listing::{data, model};
use super::losses::RunLosses;
use crate::analysis::{Analysis, HeadScores};
use crate::config::Config;
use crate::data::Source;
use crate::error::{Error, Result};
use crate::files::serialize_path;
use crate::training::{Ended, Row, RunFolder, Split, Summary, provenance_of, read_metrics};

/// A run of a comparison. Losses are in nats per token; unknown values are `None`.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// The name of the run's folder, or its path if two folders have the same name.
    pub name: String,
    /// The run's folder.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// The index of the run's setting.
    pub setting: usize,
    /// The data, model and seed.
    #[serde(flatten)]
    pub experiment: Experiment,
    /// The losses.
    #[serde(flatten)]
    pub losses: RunLosses,
    /// The fraction of validation targets predicted correctly.
    pub accuracy: Option<f64>,
    /// The cost of the training.
    #[serde(flatten)]
    pub cost: RunCost,
    /// The outcome; "unfinished" for a run without a summary.
    pub ended: String,
    /// True if the config was edited after the run had ended.
    pub config_changed: bool,
    /// The scores of the heads, `[layer][head]`; empty if they were not measured.
    pub heads: Vec<Vec<HeadScores>>,
    /// The validations.
    #[serde(skip)]
    pub curve: Vec<Row>,
    /// The config and the data of the training.
    #[serde(skip)]
    pub(super) provenance: RunProvenance,
}

/// The data, model and seed of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Experiment {
    /// The name of the task or of the data file.
    pub data: Option<String>,
    /// The architecture, the number of layers and their width.
    pub model: Option<String>,
    /// The seed.
    pub seed: u64,
}

/// The training cost of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunCost {
    /// The number of trainable parameters.
    pub parameters: Option<usize>,
    /// The number of completed steps.
    pub steps: usize,
    /// The number of targets trained on.
    pub tokens: u64,
    /// The training time in seconds.
    pub seconds: f64,
    /// The number of targets trained on per second.
    pub tokens_per_second: Option<f64>,
}

impl RunCost {
    /// Returns the cost from the summary of a run or, if there is none, from the last row of its metrics.
    fn new(summary: Option<&Summary>, last: Option<&Row>) -> Self {
        match summary {
            Some(summary) => Self {
                parameters: Some(summary.work.parameters),
                steps: summary.work.steps,
                tokens: summary.work.tokens,
                seconds: summary.work.seconds,
                tokens_per_second: Some(summary.work.tokens_per_second),
            },
            None => Self {
                parameters: None,
                steps: last.map_or(0, |row| row.step),
                tokens: last.map_or(0, |row| row.tokens),
                seconds: last.map_or(0.0, |row| row.seconds),
                tokens_per_second: None,
            },
        }
    }
}

/// The config and the data of a training run.
#[derive(Debug, Clone)]
pub(super) struct RunProvenance {
    /// The config.
    pub(super) config: Config,
    /// The changes to the section `training` when the run was resumed.
    pub(super) changes: Vec<String>,
    /// The fingerprint of the contents of its data files; `None` for generated data.
    pub(super) contents: Option<u64>,
    /// The hash of the weights that the run started from; `None` if they were fresh.
    pub(super) start: Option<String>,
}

impl ComparedRun {
    /// Reads the run in a folder.
    ///
    /// # Errors
    /// Returns an error if the run was imported, or its files are invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let folder = RunFolder::open(path)?;
        let config = Config::load_own(&folder.config())?;
        if folder.is_imported() {
            return Err(Error::file(path, "was imported, so it lacks curves to compare"));
        }
        let rows = read_metrics(&folder.metrics())?;
        let summary = folder.summary().exists().then(|| Summary::read(&folder)).transpose()?;
        let heads = Analysis::read(&folder.analysis())?.map_or_else(Vec::new, |analysis| analysis.heads);
        let curve: Vec<Row> = rows.iter().filter(|row| row.split == Split::Valid).cloned().collect();
        let losses = curve.iter().map(|row| row.loss).filter(|loss| loss.is_finite());
        let summary = summary.as_ref();
        let best = match summary {
            Some(summary) => summary.losses.best_valid_loss,
            None => losses.min_by(f64::total_cmp),
        };
        let changes = summary.into_iter().flat_map(|summary| &summary.warnings);
        let changes = changes.filter(|it| it.starts_with("resumed after step")).cloned().collect();
        let began = provenance_of(&folder);
        let is_drawn = config.data.source() == Source::Sequences;
        let contents = began.as_ref().filter(|_| !is_drawn).map(|began| began.data_fingerprint);
        let start = began.and_then(|began| began.start_sha256);
        let table = toml::Table::try_from(&config).unwrap_or_default();
        Ok(Self {
            name: folder.name(),
            path: path.to_path_buf(),
            setting: 0,
            experiment: Experiment { data: data(&table), model: model(&table), seed: config.run.seed },
            losses: RunLosses::new(best, summary.and_then(|summary| summary.losses.floor)),
            accuracy: summary.and_then(|summary| summary.losses.accuracy),
            cost: RunCost::new(summary, rows.last()),
            ended: summary.map_or("unfinished".to_string(), |summary| ended(summary.ended)),
            config_changed: folder.has_changed_config(),
            heads,
            curve,
            provenance: RunProvenance { config, changes, contents, start },
        })
    }
}

impl ComparedRun {
    /// Returns true if the run ended regularly, so that its best loss is comparable.
    pub(super) fn has_ended(&self) -> bool {
        [Ended::Completed, Ended::EarlyStopped, Ended::TimeLimit]
            .into_iter()
            .any(|it| ended(it) == self.ended)
    }

    /// Returns the reason why a run without a comparable loss is excluded, such as "diverged".
    pub fn excluded_because(&self) -> String {
        if self.has_ended() { "never validated".to_string() } else { self.ended.replace('_', " ") }
    }
}

/// Returns the outcome of a run as written in its summary.
fn ended(ended: Ended) -> String {
    serde_json::to_value(ended).ok().and_then(|name| Some(name.as_str()?.to_string())).unwrap_or_default()
}
