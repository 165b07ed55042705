//! `head_scores.csv`: the scores of all heads over a run, which show the step at which a head forms.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use serde::Serialize;

use super::score::{HeadScores, Score};
use super::step_log::{AtStep, StepLog};
use crate::error::{Error, Result};

/// The columns before the scores.
const INDEX_COLUMNS: [&str; 3] = ["step", "layer", "head"];

/// The scores of all heads at one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredStep {
    /// The number of completed steps.
    pub step: usize,
    /// Scores per head, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
}

/// The scores of all heads over a run.
pub type HeadHistory = StepLog<ScoredStep>;

impl AtStep for ScoredStep {
    fn step(&self) -> usize {
        self.step
    }

    fn header() -> Vec<u8> {
        let names = INDEX_COLUMNS.into_iter().chain(columns().map(|score| score.about().key));
        (names.collect::<Vec<_>>().join(",") + "\n").into_bytes()
    }

    /// Formats one line per head.
    fn lines(&self) -> Vec<u8> {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        for (layer, heads) in self.heads.iter().enumerate() {
            for (head, scores) in heads.iter().enumerate() {
                let values = columns().map(|score| scores[score]).collect::<Vec<_>>();
                writer.serialize((self.step, layer, head, values)).expect("a row holds plain values");
            }
        }
        writer.into_inner().expect("a table fits into memory")
    }

    fn read(lines: &[u8], path: &Path) -> Result<Vec<Self>> {
        let mut steps: Vec<Self> = Vec::new();
        for (index, row) in csv::Reader::from_reader(lines).deserialize().enumerate() {
            let damaged = |problem: &dyn Display| {
                let problem = format!(
                    "is not a valid table of head scores: {problem}; remove the file to omit the scores"
                );
                Error::in_file(path, Some(index + 2), None, problem)
            };
            let row: HashMap<String, Option<f64>> = row.map_err(|error: csv::Error| damaged(&error))?;
            let number = |column: &str| row.get(column).copied().flatten().map(|number| number as usize);
            let [Some(step), Some(layer), Some(head)] = INDEX_COLUMNS.map(number) else {
                return Err(damaged(&"a row lacks its step, layer or head"));
            };
            if steps.last().is_none_or(|last| last.step != step) {
                steps.push(Self { step, heads: Vec::new() });
            }
            let layers = &mut steps.last_mut().expect("a step was pushed").heads;
            if layer == layers.len() {
                layers.push(Vec::new());
            }
            let is_last = layer + 1 == layers.len();
            match layers.last_mut().filter(|heads| is_last && heads.len() == head) {
                Some(heads) => heads.push(row.into()),
                None => return Err(damaged(&format!("layer {layer}, head {head} is out of order"))),
            }
        }
        Ok(steps)
    }
}

/// Returns the scores recorded over a run: all but the ablation score, which is too expensive during training.
fn columns() -> impl Iterator<Item = Score> {
    Score::ALL.into_iter().filter(|&score| score != Score::Ablation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopening_restores_entries_and_drops_later_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head_scores.csv");
        let mut history = HeadHistory::open(&path, 0).unwrap();
        let scores = |value| {
            let scores = HeadScores::new(|score| match score {
                Score::Entropy => Some(value),
                Score::Induction => Some(0.1),
                _ => None,
            });
            vec![vec![scores; 3], vec![HeadScores::default(); 3]]
        };
        let at = |step| ScoredStep { step, heads: scores(step as f64 / 3.0) };
        for step in [0, 10, 20] {
            history.push(at(step)).unwrap();
        }
        let all = std::fs::read_to_string(&path).unwrap();
        let header = "step,layer,head,entropy,distance,self,previous,first,induction,duplicate\n";
        assert!(all.starts_with(&format!("{header}0,0,0,0.0,,,,,0.1,\n")), "{all}");
        // Simulates a crash while a line was being written.
        std::fs::write(&path, format!("{all}30,0,0,0.1")).unwrap();
        let mut reopened = HeadHistory::open(&path, 10).unwrap();
        assert!(reopened.ends_at(10) && !reopened.ends_at(20));
        assert_eq!(reopened.all, [at(0), at(10)]);
        reopened.rewrite().unwrap();
        assert_eq!(HeadHistory::open(&path, 30).unwrap().all, reopened.all, "later steps are dropped");
        reopened.push(at(20)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), all);
        std::fs::write(&path, "step,layer\n1,x\n").unwrap();
        let error = HeadHistory::open(&path, 10).unwrap_err().to_string();
        assert!(error.contains("head_scores.csv:2") && error.contains("head scores"), "{error}");
        std::fs::write(&path, "step,layer,head,entropy\n0,0,0,1.0\n0,2,0,1.0\n").unwrap();
        let error = HeadHistory::open(&path, 10).unwrap_err().to_string();
        assert!(error.contains("head_scores.csv:3") && error.contains("layer 2, head 0"), "{error}");
    }

    #[test]
    fn files_with_older_columns_are_upgraded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head_scores.csv");
        std::fs::write(&path, "step,layer,head,entropy\n0,0,0,1.0\n").unwrap();
        let mut history = HeadHistory::open(&path, 0).unwrap();
        let heads = vec![vec![HeadScores::new(|score| (score == Score::Induction).then_some(0.5))]];
        history.push(ScoredStep { step: 10, heads: heads.clone() }).unwrap();
        let steps = HeadHistory::open(&path, 10).unwrap().all;
        assert_eq!(steps[0].heads[0][0][Score::Entropy], Some(1.0));
        assert_eq!(steps[1], ScoredStep { step: 10, heads });
    }
}
