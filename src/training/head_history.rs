//! `head_scores.csv`: the scores of all heads along a run, so that the moment a head forms can be
//! seen beside the loss.

use std::fs::OpenOptions;
use std::io::Write;
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
    /// Whether the file holds more than these rows.
    is_cut: bool,
}

impl HeadHistory {
    /// The history at `path` as far as step `last`: what comes later will be done again. Empty where
    /// there is no such file.
    ///
    /// # Errors
    /// If the file cannot be understood.
    pub fn open(path: &Path, last: usize) -> Result<Self> {
        let mut rows: Vec<HeadRow> = Vec::new();
        let mut bytes = Vec::new();
        if path.exists() {
            bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        }
        // A line that was being written when the machine stopped is none.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for row in csv::Reader::from_reader(&bytes[..whole]).deserialize::<HeadRow>() {
            let row = row.map_err(|error| damaged(path, &error))?;
            let next = rows.last().filter(|last| last.step == row.step).map_or(0, |last| last.layer + 1);
            if row.layer > next {
                let problem =
                    format!("skips to layer {}; without the file the scores are left out", row.layer);
                return Err(Error::file(path, Some(rows.len() + 2), None, problem));
            }
            rows.push(row);
        }
        let read = rows.len();
        rows.retain(|row| row.step <= last);
        let is_cut = rows.len() < read || whole < bytes.len();
        Ok(Self { path: path.to_path_buf(), rows, is_cut })
    }

    /// Brings the file to the rows that count.
    pub fn cut(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_cut) {
            write_atomically(&self.path, &table(&self.rows, true))?;
        }
        Ok(())
    }

    /// Whether the heads were scored at `step`.
    pub fn holds(&self, step: usize) -> bool {
        self.rows.last().is_some_and(|row| row.step == step)
    }

    /// Adds the scores of all heads, `[layer][head]`, to the file too.
    pub fn push(&mut self, step: usize, scores: &[Vec<HeadScores>]) -> Result<()> {
        self.cut()?;
        let first = self.rows.len();
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
        let lines = table(&self.rows[first..], first == 0);
        let file = OpenOptions::new()
            .create(true)
            .append(first > 0)
            .write(true)
            .truncate(first == 0)
            .open(&self.path);
        let written = file.and_then(|mut file| file.write_all(&lines).and_then(|()| file.sync_data()));
        written.map_err(|error| Error::io("write", &self.path, error))
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

/// Rows as lines, below the names of their columns where these are asked for.
fn table(rows: &[HeadRow], has_headers: bool) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().has_headers(has_headers).from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).expect("a row holds plain values");
    }
    writer.into_inner().expect("a table fits into memory")
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
        let all = std::fs::read_to_string(&path).unwrap();
        // The machine stopped as a line was written.
        std::fs::write(&path, format!("{all}30,0,0,0.1")).unwrap();
        let mut again = HeadHistory::open(&path, 10).unwrap();
        assert!(again.holds(10) && !again.holds(20));
        assert_eq!(again.steps(), [(0, scores(0.0)), (10, scores(10.0 / 3.0))]);
        again.cut().unwrap();
        assert_eq!(
            HeadHistory::open(&path, 30).unwrap().steps(),
            again.steps(),
            "nothing of later steps is left"
        );
        again.push(20, &scores(20.0 / 3.0)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), all);
        std::fs::write(&path, "step,layer\n1,x\n").unwrap();
        let error = HeadHistory::open(&path, 10).unwrap_err().to_string();
        assert!(error.contains("head_scores.csv:2") && error.contains("head scores"), "{error}");
    }
}
