//! The results of a trial from its runs: the losses at the rungs, and at the end the scores and the stability.

use std::borrow::Cow;

use causal_attention_report::study::TrialEnd;
use serde::Serialize;

use super::space::Setting;
use super::stages::Proposed;
use super::statistics::{deviation, last_spread, mean, spikes};
use crate::error::Result;
use crate::training::{Ended, Row, RunFolder, Split, Summary, read_metrics};

/// A run: the indices of its trial and of its seed, both counted from 0.
pub type Run = (usize, usize);

/// The rows and the summary of a run folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The rows of `metrics.csv`.
    pub rows: Vec<Row>,
    /// The progress or the outcome of the run.
    pub summary: Summary,
}

/// A trial. Losses are in nats per token; with several seeds, they are means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// The number, counted from 0.
    pub trial: usize,
    /// The stage of the recipe that proposed the trial.
    pub stage: Option<&'static str>,
    /// The values of the searched keys.
    pub setting: Setting,
    /// The outcome.
    pub ended: TrialEnd,
    /// The validation scores.
    #[serde(flatten)]
    pub score: TrialScore,
    /// The stability of the training loss.
    #[serde(flatten)]
    pub stability: Stability,
    /// The cost of the training.
    #[serde(flatten)]
    pub cost: TrialCost,
    /// The validation loss by number of trained tokens, of the run with the first seed.
    pub curve: Vec<(f64, f64)>,
}

/// The validation scores of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TrialScore {
    /// The lowest validation loss.
    pub loss: Option<f64>,
    /// The standard deviation of the lowest loss over the seeds; `None` for a single seed.
    pub loss_spread: Option<f64>,
    /// The loss of the optimal predictor, if known.
    pub floor: Option<f64>,
    /// The loss above the floor.
    pub gap: Option<f64>,
    /// The fraction of validation targets predicted correctly at the lowest loss.
    pub accuracy: Option<f64>,
}

/// The stability of the training loss of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stability {
    /// The standard deviation of the training loss around its trend, over the last fifth of the logged steps.
    pub train_spread: Option<f64>,
    /// The number of logged steps whose training loss is far above that of the preceding steps; `None` if the log is
    /// too short.
    pub spikes: Option<usize>,
}

/// The training cost of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TrialCost {
    /// The number of trainable parameters; 0 if the trial failed before its model was built.
    pub parameters: usize,
    /// The number of steps of all its runs.
    pub steps: usize,
    /// The number of targets on which all its runs were trained.
    pub tokens: u64,
    /// The training time of all its runs in seconds, without checkpoints.
    pub seconds: f64,
    /// The number of floating-point operations in training, estimated as six per parameter and token (Kaplan et al.,
    /// 2020).
    pub operations: f64,
}

impl TrialCost {
    /// Returns the cost of a trial with these runs.
    fn of(runs: &[&Record]) -> Self {
        let parameters = runs.first().map_or(0, |run| run.summary.work.parameters);
        let tokens = runs.iter().map(|run| run.summary.work.tokens).sum::<u64>();
        Self {
            parameters,
            steps: runs.iter().map(|run| run.summary.work.steps).sum(),
            tokens,
            // The sum of no values would be -0.
            seconds: runs.iter().fold(0.0, |sum, run| sum + run.summary.work.seconds),
            operations: 6.0 * parameters as f64 * tokens as f64,
        }
    }
}

impl Record {
    /// Reads a run; `None` if it does not exist yet, or has neither paused nor ended.
    ///
    /// # Errors
    /// If the folder holds an invalid file.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        if !folder.summary().exists() {
            return Ok(None);
        }
        Ok(Some(Self { rows: read_metrics(&folder.metrics())?, summary: Summary::read(folder)? }))
    }

    /// Returns the state of the run after `step` steps, even if `train` has continued it since.
    pub fn until(&self, step: usize) -> Cow<'_, Self> {
        if self.summary.work.steps <= step {
            return Cow::Borrowed(self);
        }
        let rows = self.rows.iter().filter(|row| row.step <= step).cloned().collect::<Vec<_>>();
        let mut summary = Summary { ended: Ended::Paused, ..self.summary.clone() };
        summary.work.steps = step;
        if let Some(last) = rows.last() {
            (summary.work.tokens, summary.work.seconds) = (last.tokens, last.seconds);
        }
        Cow::Owned(Self { rows, summary })
    }

    /// Returns true if the run has ended and cannot be resumed.
    fn is_over(&self) -> bool {
        matches!(self.summary.ended, Ended::Completed | Ended::EarlyStopped | Ended::Diverged)
    }

    /// Returns the lowest validation loss up to `step`, regardless of later steps; infinite if the run had diverged by
    /// then, `None` if it has not reached that step.
    pub fn loss_at(&self, step: usize) -> Option<f64> {
        match self.summary.work.steps {
            // A divergence detected at the rung itself happened before it.
            steps if steps <= step && self.summary.ended == Ended::Diverged => Some(f64::INFINITY),
            steps if steps < step && !self.is_over() => None,
            _ => Some(self.best(step).map_or(f64::INFINITY, |row| row.loss)),
        }
    }

    /// Returns the best validation up to `step`.
    fn best(&self, step: usize) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.split == Split::Valid && row.step <= step);
        rows.min_by(|a, b| a.loss.total_cmp(&b.loss))
    }

    fn train_losses(&self) -> Vec<f64> {
        self.rows.iter().filter(|row| row.split == Split::Train).map(|row| row.loss).collect()
    }
}

impl Trial {
    /// Combines the results of a trial's runs, one run per seed; `None` if none of them has paused or ended. `failed`
    /// is true if one of them could not be trained.
    pub fn new(
        trial: usize,
        proposed: &Proposed,
        runs: &[Option<Cow<'_, Record>>],
        failed: bool,
    ) -> Option<Self> {
        let known = runs.iter().flatten().map(Cow::as_ref).collect::<Vec<_>>();
        if known.is_empty() && !failed {
            return None;
        }
        let ended = if failed { TrialEnd::Failed } else { end_of(&known, runs.len(), proposed.is_racing) };
        // The values of all runs; `None` if one of them lacks a value.
        let values = |value: &dyn Fn(&Record) -> Option<f64>| {
            known.iter().map(|run| value(run)).collect::<Option<Vec<_>>>().filter(|values| !values.is_empty())
        };
        let best = |value: fn(&Row) -> f64| {
            values(&|run| run.best(usize::MAX).map(value)).filter(|_| !ended.is_lost())
        };
        let average = |values: Option<Vec<f64>>| values.map(|values| mean(&values));
        let losses = best(|row| row.loss);
        let loss = average(losses.clone());
        let floor = average(values(&|run| run.summary.losses.floor));
        let spikes = values(&|run| spikes(&run.train_losses()).map(|spikes| spikes as f64));
        let rows = known.first().into_iter().flat_map(|run| &run.rows);
        let validations = rows.filter(|row| row.split == Split::Valid && row.step > 0);
        Some(Self {
            trial,
            stage: proposed.stage,
            setting: proposed.setting.clone(),
            ended,
            score: TrialScore {
                loss,
                loss_spread: losses.filter(|_| runs.len() > 1).map(|losses| deviation(&losses)),
                floor,
                gap: loss.zip(floor).map(|(loss, floor)| loss - floor),
                accuracy: average(best(|row| row.accuracy)),
            },
            stability: Stability {
                train_spread: average(values(&|run| last_spread(&run.train_losses()))),
                spikes: spikes.map(|spikes| spikes.iter().sum::<f64>() as usize),
            },
            cost: TrialCost::of(&known),
            curve: validations.map(|row| (row.tokens as f64, row.loss)).collect(),
        })
    }
}

/// Returns the outcome of a trial of `runs` runs, from the `known` ones. `is_racing` is true if the trial continues at
/// the next rung.
fn end_of(known: &[&Record], runs: usize, is_racing: bool) -> TrialEnd {
    let any = |ended: Ended| known.iter().any(|run| run.summary.ended == ended);
    if any(Ended::Diverged) {
        TrialEnd::Diverged
    } else if known.len() < runs {
        TrialEnd::Unfinished
    } else if known.iter().all(|run| run.is_over()) && any(Ended::EarlyStopped) {
        TrialEnd::EarlyStopped
    } else if known.iter().all(|run| run.is_over()) {
        TrialEnd::Completed
    } else if !is_racing {
        // A paused run that no longer competes is never resumed.
        TrialEnd::Pruned
    } else {
        TrialEnd::Unfinished
    }
}

/// Ranks trials, best first: those trained to the end come first, ordered by loss and then by number.
pub fn ranked<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Vec<&'a Trial> {
    let class = |trial: &Trial| (!trial.ended.is_finished(), trial.ended.is_lost());
    let loss = |trial: &Trial| trial.score.loss.unwrap_or(f64::INFINITY);
    let mut ranked = trials.into_iter().collect::<Vec<_>>();
    ranked.sort_by(|a, b| {
        class(a).cmp(&class(b)).then(loss(a).total_cmp(&loss(b))).then(a.trial.cmp(&b.trial))
    });
    ranked
}

#[cfg(test)]
mod tests {
    use super::{super::testing::run, *};

    fn combine(trial: usize, runs: &[Option<&Record>], is_racing: bool, failed: bool) -> Option<Trial> {
        let proposed = Proposed { setting: Setting::new(), stage: None, rung: 0, is_racing };
        let runs = runs.iter().map(|run| run.map(Cow::Borrowed)).collect::<Vec<_>>();
        Trial::new(trial, &proposed, &runs, failed)
    }

    const VALIDATIONS: [(usize, f64); 3] = [(10, 3.0), (20, 2.0), (30, 2.5)];

    #[test]
    fn rung_loss_ignores_later_validations() {
        let loss = |ended, steps| [10, 20, 30, 40].map(|step| run(ended, steps, &VALIDATIONS).loss_at(step));
        let [first, second, third] = [3.0, 2.0, 2.0].map(Some);
        assert_eq!(loss(Ended::Completed, 40), [first, second, third, third]);
        assert_eq!(loss(Ended::Paused, 30), [first, second, third, None]);
        assert_eq!(loss(Ended::Interrupted, 35), [first, second, third, None]);
        assert_eq!(loss(Ended::EarlyStopped, 30), [first, second, third, third]);
        assert_eq!(loss(Ended::Diverged, 35), [first, second, third, Some(f64::INFINITY)]);
        let diverged = Some(f64::INFINITY);
        assert_eq!(loss(Ended::Diverged, 30), [first, second, diverged, diverged], "detected at a rung");
    }

    #[test]
    fn seeds_are_averaged_and_any_divergence_counts() {
        let (one, two) = (run(Ended::Completed, 30, &VALIDATIONS), run(Ended::Completed, 30, &[(30, 4.0)]));
        let trial = |runs: &[Option<&Record>]| combine(3, runs, false, false).unwrap();
        let both = trial(&[Some(&one), Some(&two)]);
        let score = both.score;
        assert_eq!((score.loss, score.gap, score.accuracy), (Some(3.0), Some(2.5), Some(0.375)));
        assert_eq!(score.loss_spread, Some(2f64.sqrt()));
        assert_eq!((both.cost.steps, both.cost.tokens, both.cost.parameters), (60, 420, 11));
        assert_eq!(trial(&[Some(&one)]).score.loss_spread, None);
        let diverged = run(Ended::Diverged, 25, &VALIDATIONS[..2]);
        let diverged = trial(&[Some(&one), Some(&diverged)]);
        assert_eq!((diverged.ended, diverged.score.loss), (TrialEnd::Diverged, None));
    }

    #[test]
    fn steps_trained_after_the_study_are_ignored() {
        let mut further = run(Ended::Completed, 40, &VALIDATIONS);
        further.rows[1].seconds = 0.75;
        let trial = |run: &Record| combine(0, &[Some(run)], false, false).unwrap();
        let at_rung = trial(&further.until(20));
        assert_eq!(
            (at_rung.ended, at_rung.score.loss, at_rung.curve.len()),
            (TrialEnd::Pruned, Some(2.0), 2)
        );
        assert_eq!((at_rung.cost.steps, at_rung.cost.tokens, at_rung.cost.seconds), (20, 140, 0.75));
        assert_eq!(trial(&further.until(40)), trial(&further));
    }

    #[test]
    fn paused_runs_are_pruned_once_not_racing() {
        let run = run(Ended::Paused, 20, &VALIDATIONS[..2]);
        let ended = |is_racing| combine(0, &[Some(&run)], is_racing, false).unwrap().ended;
        assert_eq!((ended(true), ended(false)), (TrialEnd::Unfinished, TrialEnd::Pruned));
        assert_eq!(combine(0, &[None], false, false), None);
        let failed = combine(0, &[None], false, true).unwrap();
        assert_eq!(
            (failed.ended, failed.score.loss, failed.stability.spikes),
            (TrialEnd::Failed, None, None)
        );
    }

    #[test]
    fn pruned_trials_rank_after_finished_ones() {
        let trial = |number, ended, loss| {
            let run = run(ended, 10, &[(10, loss)]);
            combine(number, &[Some(&run)], false, false).unwrap()
        };
        let trials = [
            trial(0, Ended::Diverged, 0.1),
            trial(1, Ended::Paused, 0.2),
            trial(2, Ended::Completed, 2.0),
            trial(3, Ended::EarlyStopped, 1.0),
        ];
        assert_eq!(ranked(&trials).iter().map(|trial| trial.trial).collect::<Vec<_>>(), [3, 2, 1, 0]);
    }
}
