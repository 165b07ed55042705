//! `metrics.csv` as plain data: one row per logged step and one per validation.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::{read_own, write_atomically};

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// The training split.
    Train,
    /// The validation split.
    Valid,
}

/// A row of `metrics.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The number of steps done.
    pub step: usize,
    /// The epoch of the step, counted from 1.
    pub epoch: usize,
    /// The split that the row measures: a training step or a validation.
    pub split: Split,
    /// The mean cross-entropy in nats over the counted targets, without label smoothing.
    pub loss: f64,
    /// The share of the counted targets that were predicted correctly.
    pub accuracy: f64,
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// The norm of all gradients together, before clipping. `None` for a validation.
    pub gradient_norm: Option<f64>,
    /// The targets trained on since the start of the run.
    pub tokens: u64,
    /// The seconds of training since the start of the run.
    pub seconds: f64,
    /// The share of steps with clipped gradients since the previous row. `None` for a validation.
    pub clip_rate: Option<f64>,
    /// The mean loss with label smoothing, which training minimises. `None` for a validation or without smoothing.
    #[serde(default)]
    pub objective: Option<f64>,
}

/// The columns of every run, in order.
pub(super) const HEADER: &str =
    "step,epoch,split,loss,accuracy,learning_rate,gradient_norm,tokens,seconds,clip_rate";

/// The additional last column of a run with label smoothing.
pub(super) const OBJECTIVE: &str = "objective";

/// Reads a `metrics.csv`.
///
/// # Errors
/// If the file cannot be read, or a row is damaged.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    parse(&read_own(path)?, path)
}

/// Writes a new `metrics.csv` without the column of an objective.
pub(super) fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let lines = rows.iter().flat_map(|row| row.line(false));
    let bytes: Vec<u8> = format!("{HEADER}\n").into_bytes().into_iter().chain(lines).collect();
    write_atomically(path, &bytes)
}

impl Row {
    /// Returns the line of the row. Without `has_objective`, it has no column for the objective.
    pub(super) fn line(&self, has_objective: bool) -> Vec<u8> {
        let row = Self { objective: self.objective.filter(|_| has_objective), ..self.clone() };
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.serialize(&row).expect("a row holds plain values");
        let mut line = writer.into_inner().expect("a row fits into memory");
        if !has_objective {
            line.truncate(line.len() - ",\n".len());
            line.push(b'\n');
        }
        line
    }
}

/// Parses rows that were read from `path`.
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
            // The message without its position, which the error shows already.
            let problem = match error.kind() {
                csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
                _ => error.to_string(),
            };
            Error::in_file(path, line, None, format!("is not a row of metrics: {problem}"))
        })
    };
    reader.deserialize().map(row).collect()
}
