//! `head_scores.csv`: the scores of all heads along a run, so that the moment a head forms can be
//! seen beside the loss.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::run_folder::write_atomically;
use crate::analysis::HeadScores;
use crate::error::{Error, Result};

/// The scores of one head at one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct HeadRow {
    step: usize,
    layer: usize,
    head: usize,
    entropy: Option<f64>,
    distance: Option<f64>,
    #[serde(rename = "self")]
    itself: Option<f64>,
    previous: Option<f64>,
    first: Option<f64>,
    induction: Option<f64>,
    duplicate: Option<f64>,
}

/// The scores of all heads along a run.
#[derive(Debug, Clone, Default)]
pub struct HeadHistory {
    path: PathBuf,
    rows: Vec<HeadRow>,
}

impl HeadHistory {
    /// The history at `path` as far as step `last`: what comes later will be done again. Empty where
    /// there is no such file.
    ///
    /// # Errors
    /// If the file cannot be understood.
    pub fn open(path: &Path, last: usize) -> Result<Self> {
        let mut rows = Vec::new();
        if path.exists() {
            let mut reader = csv::Reader::from_path(path).map_err(|error| damaged(path, &error))?;
            for row in reader.deserialize::<HeadRow>() {
                rows.push(row.map_err(|error| damaged(path, &error))?);
            }
        }
        rows.retain(|row| row.step <= last);
        Ok(Self { path: path.to_path_buf(), rows })
    }

    /// Whether the heads were scored at `step`.
    pub fn holds(&self, step: usize) -> bool {
        self.rows.last().is_some_and(|row| row.step == step)
    }

    /// Adds the scores of all heads, `[layer][head]`, and writes the file.
    pub fn push(&mut self, step: usize, scores: &[Vec<HeadScores>]) -> Result<()> {
        for (layer, heads) in scores.iter().enumerate() {
            self.rows.extend(heads.iter().enumerate().map(|(head, scores)| HeadRow {
                step,
                layer,
                head,
                entropy: scores.entropy,
                distance: scores.distance,
                itself: scores.itself,
                previous: scores.previous,
                first: scores.first,
                induction: scores.induction,
                duplicate: scores.duplicate,
            }));
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            writer.serialize(row).expect("a row holds plain values");
        }
        write_atomically(&self.path, &writer.into_inner().expect("a table fits into memory"))
    }

    /// The steps at which the heads were scored, in order, each with the scores `[layer][head]`.
    pub fn steps(&self) -> Vec<(usize, Vec<Vec<HeadScores>>)> {
        let mut steps: Vec<(usize, Vec<Vec<HeadScores>>)> = Vec::new();
        for row in &self.rows {
            if steps.last().is_none_or(|(step, _)| *step != row.step) {
                steps.push((row.step, Vec::new()));
            }
            let (_, layers) = steps.last_mut().expect("one was pushed");
            layers.resize_with(layers.len().max(row.layer + 1), Vec::new);
            layers[row.layer].push(HeadScores {
                entropy: row.entropy,
                distance: row.distance,
                itself: row.itself,
                previous: row.previous,
                first: row.first,
                induction: row.induction,
                duplicate: row.duplicate,
                ablation: None,
            });
        }
        steps
    }
}

fn damaged(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map(|position| position.line() as usize);
    let problem = format!("is no table of head scores: {error}; without the file they are left out");
    Error::file(path, line, None, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_later_steps_are_dropped() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("head_scores.csv");
        let mut history = HeadHistory::open(&path, 0).unwrap();
        let scores = |value| {
            let scores = HeadScores { entropy: Some(value), induction: Some(0.1), ..HeadScores::default() };
            vec![vec![scores; 3], vec![HeadScores::default(); 3]]
        };
        for step in [0, 10, 20] {
            history.push(step, &scores(step as f64 / 3.0)).unwrap();
        }
        let again = HeadHistory::open(&path, 10).unwrap();
        assert!(again.holds(10) && !again.holds(20));
        assert_eq!(again.steps(), [(0, scores(0.0)), (10, scores(10.0 / 3.0))]);
        std::fs::write(&path, "step,layer\n1,x\n").unwrap();
        let error = HeadHistory::open(&path, 10).unwrap_err().to_string();
        assert!(error.contains("head_scores.csv:2") && error.contains("head scores"), "{error}");
    }
}
