//! The result of a study, read from its table of trials.

use std::path::Path;

use causal_attention_report::study::TrialEnd;
use serde::Deserialize;

use super::losses::RunLosses;
use crate::error::{Error, Result};
use crate::files::{has_entry, read_own};

/// The result of a study.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct StudyResult {
    /// The number of trials with a result.
    pub trials: usize,
    /// The losses of the best trial, means over its seeds.
    pub losses: RunLosses,
}

/// The columns of `study.csv` that a list needs.
#[derive(Debug, Deserialize)]
struct TrialRow {
    ended: String,
    loss: Option<f64>,
    floor: Option<f64>,
}

impl TrialRow {
    fn is_finished(&self) -> bool {
        TrialEnd::NAMED.iter().any(|(end, name)| *name == self.ended && end.is_finished())
    }
}

impl StudyResult {
    /// Reads the table of the study at `path`. A study without a table has no trials yet.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let table = path.join("study.csv");
        if !has_entry(&table) {
            return Ok(Self::default());
        }
        let text = read_own(&table)?;
        let rows =
            csv::Reader::from_reader(&text[..]).into_deserialize().collect::<Result<Vec<TrialRow>, _>>();
        let rows = rows.map_err(|error| {
            let problem =
                format!("is not a valid table of trials: {error}; regenerate it with `tune --resume`");
            Error::file(&table, problem.replace('\n', " "))
        })?;
        // Finished trials rank before others, as in the study.
        let ranked = rows.iter().filter_map(|row| Some((!row.is_finished(), row.loss?, row.floor)));
        let best = ranked.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let losses =
            best.map_or_else(RunLosses::default, |(_, loss, floor)| RunLosses::new(Some(loss), floor));
        Ok(Self { trials: rows.len(), losses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &str) -> Result<StudyResult> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("study.csv"), table).unwrap();
        StudyResult::read(dir.path())
    }

    #[test]
    fn the_best_finished_trial_is_the_result() {
        let table = "trial,ended,loss,loss_spread,floor\n0,completed,1.75,0.5,1.25\n1,pruned,1.5,0.5,1.25\n\
                     2,early_stopped,2.0,0.5,1.25\n3,diverged,,,\n4,failed,,,\n";
        let losses = RunLosses::new(Some(1.75), Some(1.25));
        assert_eq!(read(table).unwrap(), StudyResult { trials: 5, losses });
        let racing = "trial,ended,loss,loss_spread,floor\n0,unfinished,1.75,,\n1,unfinished,1.5,,\n";
        let losses = RunLosses::new(Some(1.5), None);
        assert_eq!(read(racing).unwrap(), StudyResult { trials: 2, losses });
    }

    #[test]
    fn a_study_without_results_has_no_trials() {
        assert_eq!(StudyResult::read(Path::new("nowhere")).unwrap(), StudyResult::default());
        assert_eq!(read("trial,ended,loss,floor\n").unwrap(), StudyResult::default());
    }

    #[test]
    fn damaged_tables_are_reported_with_a_remedy() {
        for table in
            ["trial,loss\n0,1.5\n", "trial,ended,loss,floor\n0,completed,low,\n", "ended,loss,floor\n1\n"]
        {
            let message = read(table).unwrap_err().to_string();
            assert!(message.contains("study.csv") && message.contains("`tune --resume`"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}
