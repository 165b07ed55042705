//! What the runs of a trial say: how they stand at a rung, and at the end how good and how steady they
//! were.

use std::borrow::Cow;

use serde::Serialize;

use super::proposal::Standing;
use super::space::Setting;
use super::statistics::{deviation, last_spread, mean, spikes};
use crate::error::Result;
use crate::training::{Ended, Row, RunFolder, Split, Summary, read_metrics};

/// What one run folder tells. It counts as far as its `summary.json` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The rows of its `metrics.csv`.
    pub rows: Vec<Row>,
    /// How far it is, or how it ended.
    pub summary: Summary,
}

/// How a trial ended, all its seeds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    /// Every run did all its steps.
    Completed,
    /// Every run ended, some of them because they no longer improved.
    EarlyStopped,
    /// Others were better at a rung.
    Pruned,
    /// A loss or gradient was not finite.
    Diverged,
    /// It could not be trained, as a model that no memory holds.
    Failed,
    /// Not yet.
    Unfinished,
}

impl TrialEnd {
    /// The word for it in `study.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "early_stopped",
            Self::Pruned => "pruned",
            Self::Diverged => "diverged",
            Self::Failed => "failed",
            Self::Unfinished => "unfinished",
        }
    }
}

/// A trial as `study.csv` tells of it. Losses are in nats a token; with several seeds they are means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// Its number, counted from 0.
    pub trial: usize,
    /// The stage of the recipe that asked for it.
    pub stage: Option<&'static str>,
    /// The values of the searched keys.
    pub setting: Setting,
    /// How it ended.
    pub ended: TrialEnd,
    /// The lowest validation loss.
    pub loss: Option<f64>,
    /// The standard deviation of that over the seeds; none for one seed.
    pub loss_spread: Option<f64>,
    /// The loss of the best possible predictor, where it is known.
    pub floor: Option<f64>,
    /// The loss above the floor.
    pub gap: Option<f64>,
    /// Share of the validation targets predicted, where the loss was lowest.
    pub accuracy: Option<f64>,
    /// The standard deviation of the training loss over the last fifth of the logged steps.
    pub train_spread: Option<f64>,
    /// Logged steps whose training loss stands far above those before it.
    /// None where the log is too short to tell.
    pub spikes: Option<usize>,
    /// Trained numbers in the model; 0 where it failed before there was one.
    pub parameters: usize,
    /// Steps of all its runs.
    pub steps: usize,
    /// Targets that all its runs trained on.
    pub tokens: u64,
    /// Seconds that all its runs trained, without those that checkpoints took.
    pub seconds: f64,
    /// The validation loss by tokens trained on, of the first seed.
    pub curve: Vec<(f64, f64)>,
}

impl Record {
    /// Reads a run; none where there is no run yet, or none that came to an end or a pause.
    ///
    /// # Errors
    /// If the folder holds what cannot be understood.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        if !folder.summary().exists() {
            return Ok(None);
        }
        Ok(Some(Self { rows: read_metrics(&folder.metrics())?, summary: Summary::read(folder)? }))
    }

    /// The run as it was after `step` steps, where `train` has gone on with it since.
    pub fn until(&self, step: usize) -> Cow<'_, Self> {
        if self.summary.steps <= step {
            return Cow::Borrowed(self);
        }
        let rows = self.rows.iter().filter(|row| row.step <= step).cloned().collect::<Vec<_>>();
        let mut summary = Summary { steps: step, ended: Ended::Paused, ..self.summary.clone() };
        if let Some(last) = rows.last() {
            (summary.tokens, summary.seconds) = (last.tokens, last.seconds);
        }
        Cow::Owned(Self { rows, summary })
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        match self.summary.ended {
            Ended::Completed | Ended::EarlyStopped | Ended::Diverged => true,
            Ended::Paused | Ended::Interrupted | Ended::TimeLimit => false,
        }
    }

    /// How the run stood after `step` steps, whatever it did since; none where it is not there yet.
    pub fn at(&self, step: usize) -> Option<Standing> {
        // What is found at the rung itself has happened on the way to it.
        if self.summary.steps <= step && self.summary.ended == Ended::Diverged {
            return Some(Standing::Diverged);
        }
        if self.summary.steps < step && !self.is_over() {
            return None;
        }
        Some(self.best(step).map_or(Standing::Diverged, |row| Standing::Loss(row.loss)))
    }

    /// The best validation up to `step`.
    fn best(&self, step: usize) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.split == Split::Valid && row.step <= step);
        rows.min_by(|a, b| a.loss.total_cmp(&b.loss))
    }

    fn train_losses(&self) -> Vec<f64> {
        self.rows.iter().filter(|row| row.split == Split::Train).map(|row| row.loss).collect()
    }
}

/// How a trial stands at a rung, by its runs there: their mean.
pub fn standing(runs: &[Option<Standing>]) -> Option<Standing> {
    let runs = runs.iter().copied().collect::<Option<Vec<_>>>()?;
    let losses = runs.iter().map(|run| match run {
        Standing::Loss(loss) => Some(*loss),
        Standing::Diverged => None,
    });
    let losses = losses.collect::<Option<Vec<_>>>();
    Some(losses.and_then(|losses| mean(&losses)).map_or(Standing::Diverged, Standing::Loss))
}

impl Trial {
    /// Puts together what the runs of a trial say, a run a seed; none where none has come to a pause.
    /// `failed`: whether one of them could not be trained. `given_up`: whether it is out of the race, so that
    /// a run that pauses will not go on.
    pub fn new(
        (trial, stage, setting): (usize, Option<&'static str>, Setting),
        runs: &[Option<&Record>],
        failed: bool,
        given_up: bool,
    ) -> Option<Self> {
        let known = runs.iter().flatten().copied().collect::<Vec<_>>();
        let first = known.first();
        if first.is_none() && !failed {
            return None;
        }
        let all = |ended: Ended| known.iter().all(|run| run.summary.ended == ended);
        let ended = match () {
            () if failed => TrialEnd::Failed,
            () if known.iter().any(|run| run.summary.ended == Ended::Diverged) => TrialEnd::Diverged,
            () if known.len() < runs.len() => TrialEnd::Unfinished,
            () if all(Ended::Completed) => TrialEnd::Completed,
            () if known.iter().all(|run| run.is_over()) => TrialEnd::EarlyStopped,
            () if given_up => TrialEnd::Pruned,
            () => TrialEnd::Unfinished,
        };
        let means = |value: &dyn Fn(&Record) -> Option<f64>| {
            let values = known.iter().map(|run| value(run)).collect::<Option<Vec<_>>>()?;
            Some((mean(&values)?, deviation(&values)))
        };
        let loss = match ended {
            TrialEnd::Diverged | TrialEnd::Failed => None,
            TrialEnd::Completed | TrialEnd::EarlyStopped | TrialEnd::Pruned | TrialEnd::Unfinished => {
                means(&|run| run.best(usize::MAX).map(|row| row.loss))
            }
        };
        let floor = means(&|run| run.summary.floor).map(|(mean, _)| mean);
        let rows = first.map(|run| run.rows.as_slice()).unwrap_or_default();
        let validations = rows.iter().filter(|row| row.split == Split::Valid);
        Some(Self {
            trial,
            stage,
            setting,
            ended,
            loss: loss.map(|(mean, _)| mean),
            loss_spread: loss.filter(|_| runs.len() > 1).map(|(_, spread)| spread),
            floor,
            gap: loss.zip(floor).map(|((loss, _), floor)| loss - floor),
            accuracy: loss
                .and(means(&|run| run.best(usize::MAX).map(|row| row.accuracy)))
                .map(|(mean, _)| mean),
            train_spread: means(&|run| last_spread(&run.train_losses())).map(|(mean, _)| mean),
            spikes: known
                .iter()
                .map(|run| spikes(&run.train_losses()))
                .sum::<Option<usize>>()
                .filter(|_| first.is_some()),
            parameters: first.map_or(0, |run| run.summary.parameters),
            steps: known.iter().map(|run| run.summary.steps).sum(),
            tokens: known.iter().map(|run| run.summary.tokens).sum(),
            // The sum of nothing would be -0.
            seconds: known.iter().fold(0.0, |sum, run| sum + run.summary.seconds),
            curve: validations.map(|row| (row.tokens as f64, row.loss)).collect(),
        })
    }

    /// Floating-point operations of its training, by the rule of Kaplan et al. (2020): six a parameter
    /// and token.
    pub fn operations(&self) -> f64 {
        6.0 * self.parameters as f64 * self.tokens as f64
    }

    /// The order of a table: what was trained to the end first, then by the loss, then by the number.
    pub fn rank(&self) -> (u8, f64, usize) {
        let class = match self.ended {
            TrialEnd::Completed | TrialEnd::EarlyStopped => 0,
            TrialEnd::Pruned | TrialEnd::Unfinished => 1,
            TrialEnd::Diverged | TrialEnd::Failed => 2,
        };
        (class, self.loss.unwrap_or(f64::INFINITY), self.trial)
    }
}

/// The best first.
pub fn ranked<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Vec<&'a Trial> {
    let mut ranked = trials.into_iter().collect::<Vec<_>>();
    ranked.sort_by(|a, b| {
        let (a, b) = (a.rank(), b.rank());
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    });
    ranked
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;

    const COURSE: [(usize, f64); 3] = [(10, 3.0), (20, 2.0), (30, 2.5)];

    #[test]
    fn a_run_stands_at_a_rung_as_it_stood_there_whatever_it_did_since() {
        let there = |ended, steps| [10, 20, 30, 40].map(|step| run(ended, steps, &COURSE).at(step));
        let [first, second, third] = [3.0, 2.0, 2.0].map(|loss| Some(Standing::Loss(loss)));
        assert_eq!(there(Ended::Completed, 40), [first, second, third, third]);
        assert_eq!(there(Ended::Paused, 30), [first, second, third, None]);
        assert_eq!(there(Ended::Interrupted, 35), [first, second, third, None]);
        assert_eq!(there(Ended::EarlyStopped, 30), [first, second, third, third]);
        assert_eq!(there(Ended::Diverged, 35), [first, second, third, Some(Standing::Diverged)]);
        let diverged = Some(Standing::Diverged);
        assert_eq!(there(Ended::Diverged, 30), [first, second, diverged, diverged], "found at a rung");
    }

    #[test]
    fn seeds_count_by_their_mean_and_one_that_diverges_takes_the_trial_along() {
        let [low, high] = [1.0, 2.0].map(|loss| Some(Standing::Loss(loss)));
        assert_eq!(standing(&[low, high]), Some(Standing::Loss(1.5)));
        assert_eq!(standing(&[low, None]), None);
        assert_eq!(standing(&[low, Some(Standing::Diverged)]), Some(Standing::Diverged));

        let (one, two) = (run(Ended::Completed, 30, &COURSE), run(Ended::Completed, 30, &[(30, 4.0)]));
        let trial =
            |runs: &[Option<&Record>]| Trial::new((3, None, Setting::new()), runs, false, true).unwrap();
        let both = trial(&[Some(&one), Some(&two)]);
        assert_eq!((both.loss, both.gap, both.accuracy), (Some(3.0), Some(2.5), Some(0.375)));
        assert_eq!(both.loss_spread, Some(2f64.sqrt()));
        assert_eq!((both.steps, both.tokens, both.parameters), (60, 420, 11));
        assert_eq!(trial(&[Some(&one)]).loss_spread, None);
        let gone = run(Ended::Diverged, 25, &COURSE[..2]);
        let gone = trial(&[Some(&one), Some(&gone)]);
        assert_eq!((gone.ended, gone.loss), (TrialEnd::Diverged, None));
    }

    #[test]
    fn a_run_that_train_has_gone_on_with_counts_as_the_study_left_it() {
        let mut further = run(Ended::Completed, 40, &COURSE);
        further.rows[1].seconds = 0.75;
        let trial = |run: &Record| Trial::new((0, None, Setting::new()), &[Some(run)], false, true).unwrap();
        let there = trial(&further.until(20));
        assert_eq!((there.ended, there.loss, there.curve.len()), (TrialEnd::Pruned, Some(2.0), 2));
        assert_eq!((there.steps, there.tokens, there.seconds), (20, 140, 0.75));
        assert_eq!(trial(&further.until(40)), trial(&further));
    }

    #[test]
    fn a_run_that_pauses_is_pruned_only_when_it_is_given_up() {
        let run = run(Ended::Paused, 20, &COURSE[..2]);
        let ended =
            |given_up| Trial::new((0, None, Setting::new()), &[Some(&run)], false, given_up).unwrap().ended;
        assert_eq!((ended(false), ended(true)), (TrialEnd::Unfinished, TrialEnd::Pruned));
        assert_eq!(Trial::new((0, None, Setting::new()), &[None], false, true), None);
        let failed = Trial::new((0, None, Setting::new()), &[None], true, true).unwrap();
        assert_eq!((failed.ended, failed.loss, failed.spikes), (TrialEnd::Failed, None, None));
    }

    #[test]
    fn a_pruned_trial_ranks_behind_any_that_was_trained_to_its_end() {
        let trial = |number, ended, loss| {
            let run = run(ended, 10, &[(10, loss)]);
            Trial::new((number, None, Setting::new()), &[Some(&run)], false, true).unwrap()
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
