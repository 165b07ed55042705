//! `metrics.csv` as plain data: one row a logged step, one a validation.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::read_own;

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// What a run learns from.
    Train,
    /// What it is judged by.
    Valid,
}

/// One row of `metrics.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Steps done.
    pub step: usize,
    /// The epoch that the step belongs to, counted from 1.
    pub epoch: usize,
    /// Training step or validation.
    pub split: Split,
    /// The mean cross-entropy in nats over the counted targets, without label smoothing.
    pub loss: f64,
    /// Share of the counted targets that were predicted.
    pub accuracy: f64,
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// The norm of all gradients together, before clipping; none at a validation.
    pub gradient_norm: Option<f64>,
    /// Targets trained on since the run's start.
    pub tokens: u64,
    /// Seconds of training since the run's start.
    pub seconds: f64,
    /// Share of the steps since the row before whose gradients were clipped; none at a validation.
    pub clip_rate: Option<f64>,
    /// The mean loss with label smoothing, which training minimises; none at a validation and without smoothing.
    #[serde(default)]
    pub objective: Option<f64>,
}

/// The columns of every run, in their order.
pub(super) const HEADER: &str =
    "step,epoch,split,loss,accuracy,learning_rate,gradient_norm,tokens,seconds,clip_rate";

/// The column behind them in a run with label smoothing.
pub(super) const OBJECTIVE: &str = "objective";

/// Reads a `metrics.csv`.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    parse(&read_own(path)?, path)
}

/// Its rows, read from `path`.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text);
    let is_known = |header: &csv::StringRecord| {
        let columns = HEADER.split(',');
        header.iter().eq(columns.clone()) || header.iter().eq(columns.chain([OBJECTIVE]))
    };
    if !reader.headers().is_ok_and(is_known) {
        return Err(Error::in_file(path, Some(1), None, format!("must begin with {HEADER}")));
    }
    let row = |row: Result<Row, csv::Error>| {
        row.map_err(|error| {
            let line = error.position().map(|position| position.line() as usize);
            // Without the place, which stands before it already.
            let problem = match error.kind() {
                csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
                _ => error.to_string(),
            };
            Error::in_file(path, line, None, format!("is no row of metrics: {problem}"))
        })
    };
    reader.deserialize().map(row).collect()
}
