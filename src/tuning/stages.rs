//! The trials of a study and the length of each, as a pure function of the config, the seed and the available results.
//!
//! A study is a list of stages. In each stage, trials race in rungs (successive halving: Jamieson and Talwalkar, 2016).
//! All trials run to the first rung, and the better ones continue to the next, which is `eta` times as far. The last
//! rung is the end of a trial. Grid search, random search and halving have one stage. The textbook recipe has several
//! stages, each around the best setting of the previous one.
//!
//! The stages are always replayed from the beginning. Trials with a missing result are due; once these have run, the
//! stages are replayed again, further than before. A study that was killed therefore proposes the same trials as an
//! uninterrupted one, and the number of parallel runs has no effect on the proposals.

use std::iter::successors;

use super::recipe::{self, Stage};
use super::space::{Combinations, Setting, Space};
use crate::config::{Config, Method, TuneConfig};
use crate::error::Result;

/// The minimum number of steps to the first of several rungs; a loss after fewer steps is noise.
pub(super) const MIN_FIRST_RUNG: usize = 10;

/// The stages of a study.
#[derive(Debug, Clone)]
pub struct Stages {
    /// The setting from which the recipe starts, which competes in its first stage; empty for a study of one stage.
    start: Setting,
    stages: Vec<Stage>,
    /// The number of times that trials are compared; the last comparison is at their end.
    pub rungs: usize,
    /// The number of rungs that halving needs to reach one trial, if the trials are too short for it.
    pub full_rungs: Option<usize>,
    /// One in `eta` trials continues from each rung to the next.
    pub eta: usize,
}

/// A proposed trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    /// The values of the searched keys.
    pub setting: Setting,
    /// The first stage of the recipe that proposed the trial.
    pub stage: Option<&'static str>,
    /// The rung to which the trial is to run, counted from 0.
    pub rung: usize,
    /// True if the trial still competes; otherwise it is complete or pruned.
    pub is_racing: bool,
}

/// The trials that a study proposes, given the available results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agenda {
    /// All trials proposed until now, by number.
    pub trials: Vec<Proposed>,
    /// The numbers of the trials that must run to their rung now; empty if the study is complete.
    pub due: Vec<usize>,
}

impl Stages {
    /// Creates the stages of a config's `[tune]`, for trials of `steps` steps based on the config `base`.
    ///
    /// # Errors
    /// If no combination is valid, or there are too many.
    pub fn new(tune: &TuneConfig, base: &Config, steps: usize) -> Result<Self> {
        let space = Space::new(&Config { tune: Some(tune.clone()), ..base.clone() })?;
        let eta = tune.eta();
        let draw = || space.draw(tune.trials, base.run.seed);
        let (combinations, default_rungs) = match tune.method() {
            Method::Recipe => (Combinations::default(), Some(2)),
            Method::Grid => (space.grid()?, Some(1)),
            Method::Random => (draw()?, Some(1)),
            Method::Halving => (draw()?, None),
        };
        let Combinations { settings: choices, refused } = combinations;
        let needed = rungs_to_one(choices.len(), eta);
        let rungs = tune.rungs.or(default_rungs).unwrap_or_else(|| needed.min(max_rungs(steps, eta)));
        let is_short = tune.rungs.or(default_rungs).is_none() && rungs < needed;
        let (start, stages) = match tune.method() {
            Method::Recipe => (recipe::start(base), recipe::stages(base)),
            _ => (Setting::new(), vec![Stage { name: None, choices, refused }]),
        };
        Ok(Self { start, stages, rungs, full_rungs: is_short.then_some(needed), eta })
    }

    /// Returns the keys in which trials differ.
    pub fn keys(&self) -> Vec<String> {
        self.settings().into_iter().next().into_iter().flatten().map(|(key, _)| key).collect()
    }

    /// Returns all settings that may be tried, as far as they are known; for the recipe, the variants of its start.
    pub fn settings(&self) -> Vec<Setting> {
        self.stages.iter().flat_map(|stage| stage.settings(&self.start)).collect()
    }

    /// Returns the reasons why combinations are invalid.
    pub fn refused(&self) -> Vec<&str> {
        self.stages.iter().flat_map(|stage| &stage.refused).map(String::as_str).collect()
    }

    /// Returns the maximum number of new trials in each stage. The current best competes in every stage but is new only
    /// in the first.
    pub fn new_trials(&self) -> Vec<usize> {
        let settings = self.stages.iter().map(|stage| stage.settings(&self.start).len());
        settings.enumerate().map(|(number, settings)| settings - usize::from(number > 0)).collect()
    }

    /// Returns true if the study varies the keys of `[tune.search]`.
    pub fn has_search(&self) -> bool {
        self.start.is_empty()
    }

    /// Returns the number of trials that continue from a rung in addition to one in `eta`: 1 if the current best always
    /// continues.
    pub fn extra_survivors(&self) -> usize {
        usize::from(!self.start.is_empty())
    }

    /// Returns the trials that the study proposes, given the available results. `loss` returns the validation loss of a
    /// trial at a rung: infinite if it diverged or could not be trained, `None` if it is not known yet.
    pub fn agenda(&self, loss: impl Fn(usize, usize) -> Option<f64>) -> Agenda {
        let mut trials: Vec<Proposed> = Vec::new();
        let mut best = self.start.clone();
        for stage in &self.stages {
            let before = trials.len();
            let mut racing = Vec::new();
            for setting in stage.settings(&best) {
                // No setting is tried twice, and the settings of a stage are all different.
                let known = trials[..before].iter().position(|trial| trial.setting == setting);
                racing.push(known.unwrap_or(trials.len()));
                if known.is_none() {
                    trials.push(Proposed { setting, stage: stage.name, rung: 0, is_racing: false });
                }
            }
            let best_so_far = (!best.is_empty()).then(|| racing[0]);
            for rung in 0..self.rungs {
                racing.iter().for_each(|&trial| trials[trial].rung = trials[trial].rung.max(rung));
                let losses = racing.iter().map(|&trial| (trial, loss(trial, rung))).collect::<Vec<_>>();
                let missing = losses.iter().filter(|(_, loss)| loss.is_none());
                let due = missing.map(|&(trial, _)| trial).collect::<Vec<_>>();
                if !due.is_empty() {
                    racing.into_iter().for_each(|trial| trials[trial].is_racing = true);
                    return Agenda { trials, due };
                }
                let is_last = rung + 1 == self.rungs;
                let kept = if is_last { 1 } else { racing.len().div_ceil(self.eta) };
                let finite = |(trial, loss): (usize, Option<f64>)| {
                    Some((loss.filter(|loss| loss.is_finite())?, trial))
                };
                let mut ranked = losses.into_iter().filter_map(finite).collect::<Vec<_>>();
                ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                // The current best continues from every rung; a replacement must be better at the end.
                let continues =
                    |&(rank, trial): &(usize, usize)| rank < kept || !is_last && Some(trial) == best_so_far;
                let survivors = ranked.into_iter().map(|(_, trial)| trial).enumerate().filter(continues);
                racing = survivors.map(|(_, trial)| trial).collect();
                racing.sort_unstable();
            }
            if let Some(&winner) = racing.first() {
                best.clone_from(&trials[winner].setting);
            }
        }
        Agenda { trials, due: Vec::new() }
    }
}

/// Returns the number of rungs after which one trial is left.
fn rungs_to_one(trials: usize, eta: usize) -> usize {
    let survivors = |&left: &usize| (left > 1).then(|| left.div_ceil(eta));
    successors(Some(trials), survivors).count()
}

/// Returns the maximum number of rungs with a first rung that is long enough to be informative.
fn max_rungs(steps: usize, eta: usize) -> usize {
    let shorter = |&first: &usize| Some(first / eta).filter(|&first| first >= MIN_FIRST_RUNG);
    successors(Some(steps), shorter).count()
}

#[cfg(test)]
mod tests;
