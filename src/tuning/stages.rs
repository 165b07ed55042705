//! Which trials a study has, and how far each of them goes: a pure function of the config, the seed and the
//! results so far.
//!
//! A study is a list of stages. In each of them trials race in rungs (successive halving: Jamieson and
//! Talwalkar, 2016): all of them run to the first rung, the better ones go on to the next, which is `eta` times
//! as far, and the last rung is the end. A grid, a random search and a halving have one stage; the textbooks'
//! recipe has several, each around the best of the stage before.
//!
//! The stages are followed from the beginning each time. Where a result is not there yet, the trials that lack it
//! are due; when they are done, the stages are followed anew and further. So a study that was killed proposes what it
//! would have proposed, and how many trials run at once changes nothing.

use super::recipe::{self, Stage};
use super::space::{Combinations, Setting, Space};
use crate::config::{Config, Method, TuneConfig};
use crate::error::Result;

/// The first rung of a race has at least so many steps: a loss after fewer is noise.
const FEWEST_STEPS: usize = 10;

/// The stages of a study.
#[derive(Debug, Clone)]
pub struct Stages {
    /// The values that the first stage varies, which race along; empty where all settings stand in one stage.
    start: Setting,
    stages: Vec<Stage>,
    /// How often trials are compared, the last time at their end.
    pub rungs: usize,
    /// One trial in so many goes on from a rung to the next.
    pub eta: usize,
    /// Why the config's own checks refuse each combination that is left out.
    pub refused: Vec<String>,
}

/// A trial as it is proposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    /// Its values.
    pub setting: Setting,
    /// The stage of the recipe that asked for it first.
    pub stage: Option<&'static str>,
    /// The furthest rung that it is to run to, counted from 0.
    pub rung: usize,
    /// Whether it still competes: any other is done, or was beaten and is given up.
    pub is_racing: bool,
}

/// What a study proposes, as far as results go.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agenda {
    /// Every trial so far, by its number.
    pub trials: Vec<Proposed>,
    /// The numbers of the trials that are to run to their rung now; none where the study is complete.
    pub due: Vec<usize>,
}

impl Stages {
    /// The stages of a config's `[tune]`, for trials of `steps` whose config is `base`.
    ///
    /// # Errors
    /// If no combination can be tried, or there are too many.
    pub fn new(tune: &TuneConfig, base: &Config, steps: usize) -> Result<Self> {
        let space = Space::new(&Config { tune: Some(tune.clone()), ..base.clone() })?;
        let eta = tune.eta();
        let draw = || space.draw(tune.trials, base.run.seed);
        let (combinations, usual) = match tune.method() {
            Method::Recipe => (Combinations::default(), Some(2)),
            Method::Grid => (space.grid()?, Some(1)),
            Method::Random => (draw()?, Some(1)),
            Method::Halving => (draw()?, None),
        };
        let Combinations { settings, refused } = combinations;
        let rungs = tune.rungs.or(usual).unwrap_or_else(|| most_rungs(settings.len(), steps, eta));
        let (start, stages) = match tune.method() {
            Method::Recipe => (recipe::start(base), recipe::stages(base)),
            _ => (Setting::new(), vec![Stage { name: None, choices: settings }]),
        };
        Ok(Self { start, stages, rungs, eta, refused })
    }

    /// The keys that trials differ in.
    pub fn keys(&self) -> Vec<String> {
        self.settings().into_iter().next().into_iter().flatten().map(|(key, _)| key).collect()
    }

    /// All settings that may be tried, as far as that is known: of the recipe those around its start.
    pub fn settings(&self) -> Vec<Setting> {
        self.stages.iter().flat_map(|stage| stage.settings(&self.start)).collect()
    }

    /// The new trials of each stage at most. The best so far, which stands in each of several, is new in the first.
    pub fn new_trials(&self) -> Vec<usize> {
        let settings = self.stages.iter().map(|stage| stage.settings(&self.start).len());
        settings.enumerate().map(|(number, settings)| settings - usize::from(number > 0)).collect()
    }

    /// How many more than one in `eta` may go on from a rung: the best so far.
    pub fn extra_survivors(&self) -> usize {
        usize::from(!self.start.is_empty())
    }

    /// What the study proposes as far as the results go. `loss` is the validation loss of a trial, by its number, at a
    /// rung: infinite where it diverged or could not be trained, none where that is not known yet.
    pub fn agenda(&self, loss: impl Fn(usize, usize) -> Option<f64>) -> Agenda {
        let mut trials: Vec<Proposed> = Vec::new();
        let mut best = self.start.clone();
        for stage in &self.stages {
            let before = trials.len();
            let mut racing = Vec::new();
            for setting in stage.settings(&best) {
                // No setting is tried twice, and no two of a stage are alike.
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
                let places = if is_last { 1 } else { racing.len().div_ceil(self.eta) };
                let finite = |(trial, loss): (usize, Option<f64>)| {
                    Some((loss.filter(|loss| loss.is_finite())?, trial))
                };
                let mut ranked = losses.into_iter().filter_map(finite).collect::<Vec<_>>();
                ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                // The best so far goes on from every rung: what is put in its place must be better at the end.
                let goes_on = |&(place, trial): &(usize, usize)| {
                    place < places || !is_last && Some(trial) == best_so_far
                };
                let by_place = ranked.into_iter().map(|(_, trial)| trial).enumerate().filter(goes_on);
                racing = by_place.map(|(_, trial)| trial).collect();
                racing.sort_unstable();
            }
            if let Some(&winner) = racing.first() {
                best.clone_from(&trials[winner].setting);
            }
        }
        Agenda { trials, due: Vec::new() }
    }
}

/// Rungs until one trial is left, the first of them long enough to say something.
fn most_rungs(trials: usize, steps: usize, eta: usize) -> usize {
    let (mut rungs, mut left, mut first) = (1, trials, steps);
    while left > 1 && first / eta >= FEWEST_STEPS {
        (rungs, left, first) = (rungs + 1, left.div_ceil(eta), first / eta);
    }
    rungs
}

#[cfg(test)]
mod tests;
