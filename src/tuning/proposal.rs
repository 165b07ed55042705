//! Which trial comes next: a pure function of the config, the seed and the results so far.
//!
//! A method is followed from its beginning each time. Where it needs a result that is not there yet, it
//! stops with the trials that are due; when they are done, it is followed anew and gets further. So a study
//! that was killed proposes what it would have proposed, and how many trials run at once changes nothing:
//! what is due together depends only on what was due before.
//!
//! Trials race in rungs (successive halving: Jamieson and Talwalkar, 2016). All of them run to the
//! first rung, the better ones go on to the next, which is `eta` times as far; the last rung is the end.

use super::recipe::{self, Stage};
use super::space::{Setting, Space};
use crate::config::{Config, Method, TuneConfig};
use crate::error::Result;

/// The first rung of a race has at least so many steps: a loss after fewer is noise.
const FEWEST_STEPS: usize = 10;

/// A trial as it was proposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    /// Its values.
    pub setting: Setting,
    /// The stage of the recipe that asked for it first.
    pub stage: Option<&'static str>,
}

/// A trial that is to run to a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Its number, counted from 0.
    pub trial: usize,
    /// The rung, counted from 0.
    pub rung: usize,
}

/// What a study proposes, as far as results go.
#[derive(Debug, Clone, PartialEq)]
pub struct Agenda {
    /// Every trial so far, by its number.
    pub trials: Vec<Proposed>,
    /// What is to run now; empty where the study is complete.
    pub due: Vec<Due>,
    /// The trials that still race: any other is done, or was beaten and is given up.
    pub racing: Vec<usize>,
    /// Of each trial the furthest rung that it was to run to, counted from 0.
    pub rungs: Vec<usize>,
}

/// A method with all that it chooses from.
#[derive(Debug, Clone)]
pub struct Proposer {
    candidates: Candidates,
    /// How often trials are compared, the last time at their end.
    pub rungs: usize,
    /// One trial in so many goes on from a rung to the next.
    pub eta: usize,
    /// How many combinations the config's own checks refuse.
    pub left_out: usize,
    /// Why the first of them is.
    pub reason: Option<String>,
}

#[derive(Debug, Clone)]
enum Candidates {
    /// All at once.
    Settings(Vec<Setting>),
    /// Stage by stage, around the best so far.
    Stages { base: Box<Config>, start: Setting, stages: Vec<Stage> },
}

impl Proposer {
    /// The method of a config's `[tune]`, for trials of `steps`. `space` is around the config that the
    /// trials are made of.
    ///
    /// # Errors
    /// If no combination can be tried, or there are too many.
    pub fn new(tune: &TuneConfig, space: &Space, seed: u64, steps: usize) -> Result<Self> {
        let (combinations, usual) = match tune.method() {
            Method::Recipe => {
                let base = Box::new(space.base().clone());
                let (start, stages) = (recipe::start(&base), recipe::stages(&base));
                return Ok(Self {
                    candidates: Candidates::Stages { base, start, stages },
                    rungs: tune.rungs.unwrap_or(2),
                    eta: tune.eta(),
                    left_out: 0,
                    reason: None,
                });
            }
            Method::Grid => (space.grid()?, Some(1)),
            Method::Random => (space.draw(tune.trials, seed)?, Some(1)),
            Method::Halving => (space.draw(tune.trials, seed)?, None),
        };
        let count = combinations.settings.len();
        let rungs = tune.rungs.or(usual).unwrap_or_else(|| most_rungs(count, steps, tune.eta()));
        Ok(Self {
            candidates: Candidates::Settings(combinations.settings),
            rungs,
            eta: tune.eta(),
            left_out: combinations.left_out,
            reason: combinations.reason,
        })
    }

    /// The keys that trials differ in.
    pub fn keys(&self) -> Vec<String> {
        let first = match &self.candidates {
            Candidates::Settings(settings) => settings.first(),
            Candidates::Stages { start, .. } => Some(start),
        };
        first.into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    /// Trials that the study will have, as far as that is known.
    pub fn trials(&self) -> usize {
        self.races().0.iter().sum()
    }

    /// The new trials of each race at most, and how many more than one in `eta` may go on: the best so
    /// far, beside which those of a stage race.
    pub fn races(&self) -> (Vec<usize>, usize) {
        match &self.candidates {
            Candidates::Settings(settings) => (vec![settings.len()], 0),
            Candidates::Stages { base, start, stages } => {
                // The best so far is known but in the first stage. Around it a stage has as many settings as
                // around the start, whose values of the stage's own keys it still has.
                let settings = |stage: &Stage| stage.settings(base, start).len();
                let new = |(number, stage): (usize, &Stage)| settings(stage) - usize::from(number > 0);
                (stages.iter().enumerate().map(new).collect(), 1)
            }
        }
    }

    /// All settings that may be tried, as far as that is known: of the recipe those around its start.
    pub fn settings(&self) -> Vec<Setting> {
        match &self.candidates {
            Candidates::Settings(settings) => settings.clone(),
            Candidates::Stages { base, start, stages } => {
                stages.iter().flat_map(|stage| stage.settings(base, start)).collect()
            }
        }
    }

    /// What the study proposes as far as the results go. `loss` is a trial's validation loss at a rung, infinite
    /// where it diverged or could not be trained; none where that is not known yet.
    pub fn agenda(&self, loss: impl Fn(&[Proposed], Due) -> Option<f64>) -> Agenda {
        let (rungs, eta) = (self.rungs, self.eta);
        let (trials, racing, reached) = Default::default();
        let mut race = Race { rungs, eta, loss: &loss, trials, racing, reached };
        let outcome = match &self.candidates {
            Candidates::Settings(settings) => {
                // No two of them are alike.
                let racing = settings.iter().map(|setting| race.add(setting.clone(), None)).collect();
                race.run(racing, None).map(drop)
            }
            Candidates::Stages { base, start, stages } => stages
                .iter()
                .try_fold(start.clone(), |best, stage| {
                    let settings = stage.settings(base, &best).into_iter();
                    let racing = settings.map(|setting| race.number(setting, stage.name)).collect::<Vec<_>>();
                    let best_so_far = racing.first().copied();
                    let found = race.run(racing, best_so_far)?;
                    Ok(found.map_or(best, |found| race.trials[found].setting.clone()))
                })
                .map(drop),
        };
        Agenda {
            due: outcome.err().unwrap_or_default(),
            trials: race.trials,
            racing: race.racing,
            rungs: race.reached,
        }
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

/// A study followed from its beginning as far as the results go.
struct Race<'a> {
    rungs: usize,
    eta: usize,
    loss: &'a dyn Fn(&[Proposed], Due) -> Option<f64>,
    trials: Vec<Proposed>,
    /// Those that still race; none between two races.
    racing: Vec<usize>,
    /// The furthest rung of each trial.
    reached: Vec<usize>,
}

impl Race<'_> {
    /// Lets trials race, and returns the best at the end: none where all diverged. In a stage of the recipe
    /// one of them is the best so far, at first the config's own: it goes on from every rung, for what is
    /// put in its place must be better at the end.
    ///
    /// # Errors
    /// What is due, where a result is missing.
    fn run(&mut self, racing: Vec<usize>, best_so_far: Option<usize>) -> Result<Option<usize>, Vec<Due>> {
        self.racing = racing;
        for rung in 0..self.rungs {
            for &trial in &self.racing {
                self.reached[trial] = self.reached[trial].max(rung);
            }
            let mut ranked = self.losses(rung)?;
            ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            let is_last = rung + 1 == self.rungs;
            let places = if is_last { 1 } else { self.racing.len().div_ceil(self.eta) };
            let beaten = ranked.split_off(places.min(ranked.len()));
            let stays = beaten.into_iter().filter(|&(trial, _)| !is_last && Some(trial) == best_so_far);
            ranked.extend(stays);
            self.racing = ranked.into_iter().map(|(trial, _)| trial).collect();
            self.racing.sort_unstable();
        }
        Ok(std::mem::take(&mut self.racing).first().copied())
    }

    /// The number of the trial of a setting, which is never tried twice.
    fn number(&mut self, setting: Setting, stage: &'static str) -> usize {
        let known = self.trials.iter().position(|trial| trial.setting == setting);
        known.unwrap_or_else(|| self.add(setting, Some(stage)))
    }

    /// The number of the trial of a setting that was never tried.
    fn add(&mut self, setting: Setting, stage: Option<&'static str>) -> usize {
        self.trials.push(Proposed { setting, stage });
        self.reached.push(0);
        self.trials.len() - 1
    }

    /// The losses at a rung of all racing trials that have not diverged.
    fn losses(&self, rung: usize) -> Result<Vec<(usize, f64)>, Vec<Due>> {
        let (mut losses, mut due) = (Vec::new(), Vec::new());
        for &trial in &self.racing {
            match (self.loss)(&self.trials, Due { trial, rung }) {
                Some(loss) if loss.is_finite() => losses.push((trial, loss)),
                Some(_) => {}
                None => due.push(Due { trial, rung }),
            }
        }
        if due.is_empty() { Ok(losses) } else { Err(due) }
    }
}

#[cfg(test)]
mod tests;
