//! Which trial comes next: a pure function of the config, the seed and the results so far.
//!
//! A method is a story that is told from the beginning each time. Where it needs a result that is not
//! there yet, it breaks off with the trials that are due; when they are done, it is told again and gets
//! further. So a study that was killed proposes what it would have proposed, and how many trials run at
//! once changes nothing: what is due together depends only on what was due before.
//!
//! Trials race in rungs (successive halving: Jamieson and Talwalkar, 2016). All of them run to the
//! first rung, the better ones go on to the next, which is `eta` times as far; the last rung is the end.

use super::config::{Method, TuneConfig};
use super::recipe::{self, Stage};
use super::space::{Setting, Space};
use crate::config::Config;
use crate::error::Result;

/// The first rung of a race has at least so many steps: before, a loss says nothing.
const FEWEST_STEPS: usize = 20;

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

/// How a trial stands at a rung.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// Its validation loss in nats a token.
    Loss(f64),
    /// A loss or gradient was not finite.
    Diverged,
}

/// What a study proposes, as far as results go.
#[derive(Debug, Clone, PartialEq)]
pub struct Agenda {
    /// Every trial so far, by its number.
    pub trials: Vec<Proposed>,
    /// What is to run now; empty where the study is complete.
    pub due: Vec<Due>,
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

    /// Trials that the study will have, as far as that is known; for the recipe at most.
    pub fn trials(&self) -> usize {
        match &self.candidates {
            Candidates::Settings(settings) => settings.len(),
            Candidates::Stages { stages, .. } => {
                1 + stages.iter().map(|stage| stage.choices.len()).sum::<usize>()
            }
        }
    }

    /// Tells the story as far as the results go. `standing` is how a trial stands at a rung; none where
    /// that is not known yet.
    pub fn agenda(&self, standing: impl Fn(&[Proposed], Due) -> Option<Standing>) -> Agenda {
        let mut race = Race { rungs: self.rungs, eta: self.eta, standing: &standing, trials: Vec::new() };
        let told = match &self.candidates {
            Candidates::Settings(settings) => race.run(settings.clone(), None).map(drop),
            Candidates::Stages { base, start, stages } => stages
                .iter()
                .try_fold(start.clone(), |best, stage| {
                    let settings = stage.settings(base, &best);
                    Ok(race.run(settings, Some(stage.name))?.unwrap_or(best))
                })
                .map(drop),
        };
        Agenda { due: told.err().unwrap_or_default(), trials: race.trials }
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

/// A story being told.
struct Race<'a> {
    rungs: usize,
    eta: usize,
    standing: &'a dyn Fn(&[Proposed], Due) -> Option<Standing>,
    trials: Vec<Proposed>,
}

impl Race<'_> {
    /// Lets settings race, and returns the best at the end: none where all diverged.
    ///
    /// # Errors
    /// What is due, where a result is missing.
    fn run(
        &mut self,
        settings: Vec<Setting>,
        stage: Option<&'static str>,
    ) -> Result<Option<Setting>, Vec<Due>> {
        let mut racing = settings.into_iter().map(|setting| self.number(setting, stage)).collect::<Vec<_>>();
        for rung in 0..self.rungs {
            let mut ranked = self.losses(&racing, rung)?;
            ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            let places = match rung + 1 == self.rungs {
                true => 1,
                false => racing.len().div_ceil(self.eta),
            };
            racing = ranked.into_iter().take(places).map(|(trial, _)| trial).collect();
            racing.sort_unstable();
        }
        Ok(racing.first().map(|&best| self.trials[best].setting.clone()))
    }

    /// The number of the trial of a setting, which is never tried twice.
    fn number(&mut self, setting: Setting, stage: Option<&'static str>) -> usize {
        let known = self.trials.iter().position(|trial| trial.setting == setting);
        known.unwrap_or_else(|| {
            self.trials.push(Proposed { setting, stage });
            self.trials.len() - 1
        })
    }

    /// The losses at a rung of all trials that have not diverged.
    fn losses(&self, racing: &[usize], rung: usize) -> Result<Vec<(usize, f64)>, Vec<Due>> {
        let (mut losses, mut due) = (Vec::new(), Vec::new());
        for &trial in racing {
            match (self.standing)(&self.trials, Due { trial, rung }) {
                Some(Standing::Loss(loss)) => losses.push((trial, loss)),
                Some(Standing::Diverged) => {}
                None => due.push(Due { trial, rung }),
            }
        }
        if due.is_empty() { Ok(losses) } else { Err(due) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// A study whose trials' losses are a function of their settings, and what it did.
    struct Played {
        /// Every wave of what was due together.
        waves: Vec<Vec<Due>>,
        trials: Vec<Proposed>,
    }

    fn proposer(text: &str, steps: usize) -> Proposer {
        let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
        let tune = config.tune.clone().unwrap_or_default();
        Proposer::new(&tune, &Space::new(&config).unwrap(), 5, steps).unwrap()
    }

    /// Plays a study to its end.
    fn play(proposer: &Proposer, loss: impl Fn(&Setting, usize) -> Standing) -> Played {
        let known = RefCell::new(BTreeMap::new());
        let mut waves = Vec::new();
        loop {
            let agenda = proposer.agenda(|_, due| known.borrow().get(&(due.trial, due.rung)).copied());
            if agenda.due.is_empty() {
                return Played { waves, trials: agenda.trials };
            }
            for due in &agenda.due {
                let standing = loss(&agenda.trials[due.trial].setting, due.rung);
                let before = known.borrow_mut().insert((due.trial, due.rung), standing);
                assert_eq!(before, None, "nothing is due twice");
            }
            waves.push(agenda.due);
        }
    }

    const SPACE: &str = "[tune]\ntrials = 27\n[tune.search]\n\
                         \"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n";

    /// Best at a rate of 1e-3, at every rung.
    fn bowl(setting: &Setting, _: usize) -> Standing {
        let rate = setting["training.learning_rate"].as_float().unwrap();
        Standing::Loss((rate / 1e-3).ln().powi(2))
    }

    #[test]
    fn a_race_leaves_one_in_three_at_each_rung_and_the_best_at_the_end() {
        let played = play(&proposer(SPACE, 1_000), bowl);
        assert_eq!(played.waves.iter().map(Vec::len).collect::<Vec<_>>(), [27, 9, 3, 1]);
        let loss = |trial: usize| match bowl(&played.trials[trial].setting, 0) {
            Standing::Loss(loss) => loss,
            Standing::Diverged => f64::INFINITY,
        };
        let winner = played.waves[3][0].trial;
        assert!((0..27).all(|trial| loss(trial) >= loss(winner)));
    }

    #[test]
    fn short_trials_race_in_fewer_rungs() {
        assert_eq!(proposer(SPACE, 100).rungs, 2, "33 steps to the first rung; 11 would be too few");
        assert_eq!(proposer(SPACE, 30).rungs, 1);
        assert_eq!(most_rungs(1, 1_000, 3), 1, "alone, there is nobody to race with");
    }

    #[test]
    fn what_diverges_never_goes_on_and_a_study_of_such_ends() {
        let played = play(&proposer(SPACE, 1_000), |setting, rung| match bowl(setting, rung) {
            Standing::Loss(loss) if loss > 1.0 => Standing::Diverged,
            standing => standing,
        });
        for due in played.waves[1..].iter().flatten() {
            assert_ne!(bowl(&played.trials[due.trial].setting, 0), Standing::Diverged);
        }
        let played = play(&proposer(SPACE, 1_000), |_, _| Standing::Diverged);
        assert_eq!(played.waves.len(), 1);
        let played = play(&proposer("", 1_000), |_, _| Standing::Diverged);
        assert_eq!(played.waves.len(), 4, "each stage of the recipe is tried around the config's own values");
    }

    #[test]
    fn results_in_hand_are_never_asked_for_again_whatever_else_is_known() {
        let proposer = proposer(SPACE, 1_000);
        let whole = play(&proposer, bowl);
        // Of the second wave every other trial is known: as after a kill in its middle.
        let known = |due: Due| due.rung == 0 || due.rung == 1 && due.trial.is_multiple_of(2);
        let agenda =
            proposer.agenda(|trials, due| known(due).then(|| bowl(&trials[due.trial].setting, due.rung)));
        let rest = whole.waves[1].iter().copied().filter(|due| !known(*due)).collect::<Vec<_>>();
        assert_eq!((agenda.due, agenda.trials), (rest, whole.trials));
    }

    #[test]
    fn the_recipe_keeps_the_best_of_each_stage_and_tries_no_setting_twice() {
        let loss = |setting: &Setting, _: usize| {
            let number = |key: &str| {
                let value = &setting[key];
                value.as_float().or(value.as_integer().map(|whole| whole as f64)).unwrap()
            };
            Standing::Loss(
                (number("training.batch_size") - 16.0).abs() / 16.0
                    + (number("training.learning_rate") / 5e-4).ln().abs()
                    + (number("model.d_model") - 128.0).abs() / 64.0
                    + (number("model.heads") - 8.0).abs() / 8.0
                    + (number("model.dropout") - 0.1).abs(),
            )
        };
        let played = play(&proposer("", 1_000), loss);
        let best = played.trials.iter().min_by(|a, b| match (loss(&a.setting, 0), loss(&b.setting, 0)) {
            (Standing::Loss(a), Standing::Loss(b)) => a.total_cmp(&b),
            _ => unreachable!("no trial diverges"),
        });
        let best = &best.unwrap().setting;
        let expected: toml::Table = "\"training.batch_size\" = 16\n\"training.learning_rate\" = 5e-4\n\
                                     \"model.d_model\" = 128\n\"model.heads\" = 8\n\"model.dropout\" = 0.1"
            .parse()
            .unwrap();
        assert_eq!(best.clone().into_iter().collect::<toml::Table>(), expected);
        let names = played.trials.iter().filter_map(|trial| trial.stage).collect::<Vec<_>>();
        let mut order = names.clone();
        order.dedup();
        assert_eq!(order, ["batch size", "learning rate", "heads and width", "dropout"]);
        assert_eq!(played.trials.len(), 3 + 3 + 8 + 3, "the best so far is compared, not tried again");
    }
}
