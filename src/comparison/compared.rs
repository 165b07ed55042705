//! One of the runs that are compared: all that its folder says of it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::listing::{data, model};
use super::losses::Losses;
use crate::analysis::{Analysis, HeadScores};
use crate::config::Config;
use crate::data::Source;
use crate::error::{Error, Result};
use crate::files::serialize_path;
use crate::training::{Ended, Row, RunFolder, Split, Summary, data_fingerprint, read_metrics};

/// A run among others. Losses are in nats per token; what is not known is none.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedRun {
    /// The name of its folder, or its path where two have the same name.
    pub name: String,
    /// The folder.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// The number of its setting.
    pub setting: usize,
    /// Its data, model and seed.
    #[serde(flatten)]
    pub experiment: Experiment,
    /// Its losses.
    #[serde(flatten)]
    pub losses: Losses,
    /// Share of the validation targets that are predicted.
    pub accuracy: Option<f64>,
    /// The cost of its training.
    #[serde(flatten)]
    pub cost: RunCost,
    /// How it ended; "unfinished" while it has no summary.
    pub ended: String,
    /// Whether its config was edited after it had ended.
    pub config_changed: bool,
    /// The scores of its heads, `[layer][head]`; empty where they were not measured.
    pub heads: Vec<Vec<HeadScores>>,
    /// Its validations.
    #[serde(skip)]
    pub curve: Vec<Row>,
    /// The inputs of its training.
    #[serde(skip)]
    pub(super) provenance: Provenance,
}

/// The data, model and seed of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Experiment {
    /// The task that it learned, or the name of a file.
    pub data: Option<String>,
    /// The architecture, the number of its layers and their width.
    pub model: Option<String>,
    /// The seed.
    pub seed: u64,
}

/// The training cost of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunCost {
    /// Number of trained parameters.
    pub parameters: Option<usize>,
    /// Steps done.
    pub steps: usize,
    /// Targets trained on.
    pub tokens: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Targets trained on in a second.
    pub tokens_per_second: Option<f64>,
}

impl RunCost {
    /// The cost that the summary of a run names, or else the last row of its metrics.
    fn new(summary: Option<&Summary>, last: Option<&Row>) -> Self {
        match summary {
            Some(summary) => Self {
                parameters: Some(summary.parameters),
                steps: summary.steps,
                tokens: summary.tokens,
                seconds: summary.seconds,
                tokens_per_second: Some(summary.tokens_per_second),
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

/// The inputs of a training run, which tell it from others.
#[derive(Debug, Clone)]
pub(super) struct Provenance {
    /// Every key with its value.
    pub(super) config: Config,
    /// The changes of the section `training` with which it was resumed.
    pub(super) changes: Vec<String>,
    /// Tells the contents of its files from others; none of data that is drawn.
    pub(super) contents: Option<u64>,
}

impl ComparedRun {
    /// Reads the run in a folder.
    ///
    /// # Errors
    /// If it was not trained here, or its files cannot be understood.
    pub fn read(path: &Path) -> Result<Self> {
        let folder = RunFolder::open(path)?;
        let config = Config::load_own(&folder.config())?;
        if folder.is_imported() {
            return Err(Error::file(path, "was not trained here, so it has no curves to compare"));
        }
        let rows = read_metrics(&folder.metrics())?;
        let summary = folder.summary().exists().then(|| Summary::read(&folder)).transpose()?;
        let heads = Analysis::read(&folder.analysis())?.map_or_else(Vec::new, |analysis| analysis.heads);
        let curve: Vec<Row> = rows.iter().filter(|row| row.split == Split::Valid).cloned().collect();
        let losses = curve.iter().map(|row| row.loss).filter(|loss| loss.is_finite());
        let known = summary.as_ref();
        let best = match known {
            Some(summary) => summary.best_valid_loss,
            None => losses.min_by(f64::total_cmp),
        };
        let changes = known.into_iter().flat_map(|summary| &summary.warnings);
        let changes = changes.filter(|it| it.starts_with("resumed after step")).cloned().collect();
        let contents = data_fingerprint(&folder).filter(|_| config.data.source() != Source::Sequences);
        let table = toml::Table::try_from(&config).unwrap_or_default();
        Ok(Self {
            name: folder.name(),
            path: path.to_path_buf(),
            setting: 0,
            experiment: Experiment { data: data(&table), model: model(&table), seed: config.run.seed },
            losses: Losses::new(best, known.and_then(|summary| summary.floor)),
            accuracy: known.and_then(|summary| summary.accuracy),
            cost: RunCost::new(known, rows.last()),
            ended: known.map_or("unfinished".to_string(), |summary| ended(summary.ended)),
            config_changed: folder.has_changed_config(),
            heads,
            curve,
            provenance: Provenance { config, changes, contents },
        })
    }
}

impl ComparedRun {
    /// Returns whether the run was trained to an end of its own, so that its best loss can be compared.
    pub(super) fn has_ended(&self) -> bool {
        [Ended::Completed, Ended::EarlyStopped, Ended::TimeLimit]
            .into_iter()
            .any(|it| ended(it) == self.ended)
    }
}

/// How a run ended, as its summary writes it.
fn ended(ended: Ended) -> String {
    serde_json::to_value(ended).ok().and_then(|name| Some(name.as_str()?.to_string())).unwrap_or_default()
}
