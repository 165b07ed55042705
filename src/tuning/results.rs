//! What is known of a study's runs, and what follows from it: its trials, their losses, and what is due.
//!
//! A study may have ten thousand trials. So what follows is worked out once after each run, and anew only for
//! the trials that it concerns.

use std::collections::BTreeMap;

use super::outline::Outline;
use super::proposal::{Agenda, Due};
use super::statistics::mean;
use super::trial::{Record, Trial};
use crate::config::Config;
use crate::error::Result;

/// A run: the number of its trial, and which of the trial's seeds it has, both counted from 0.
pub type Run = (usize, usize);

/// What is known of a study's runs.
#[derive(Debug)]
pub struct Results {
    outline: Outline,
    records: BTreeMap<Run, Record>,
    /// Why runs could not be trained.
    failures: BTreeMap<Run, String>,
    agenda: Agenda,
    /// The config of each trial's setting.
    configs: Vec<Config>,
    trials: BTreeMap<usize, Known>,
}

/// A trial as it is known at a rung.
#[derive(Debug)]
struct Known {
    rung: usize,
    given_up: bool,
    /// None where no run of it has come to a pause.
    trial: Option<Trial>,
}

impl Results {
    /// Those of a study that is still to begin.
    ///
    /// # Errors
    /// As [`Self::work_out`].
    pub fn new(outline: Outline) -> Result<Self> {
        let agenda = outline.first();
        let (records, failures, configs, trials) = Default::default();
        let mut results = Self { outline, records, failures, agenda, configs, trials };
        results.work_out()?;
        Ok(results)
    }

    /// What the study was to do from the beginning.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The trials so far, and what is due.
    pub fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    /// The config of a trial's setting.
    pub fn config(&self, trial: usize) -> &Config {
        &self.configs[trial]
    }

    /// Whether anything is known of a run.
    pub fn knows(&self, run: Run) -> bool {
        self.records.contains_key(&run) || self.failures.contains_key(&run)
    }

    /// The record of a run, as far as it got.
    pub fn run(&self, run: Run) -> Option<&Record> {
        self.records.get(&run)
    }

    /// Why a run could not be trained.
    pub fn failure(&self, run: Run) -> Option<&str> {
        self.failures.get(&run).map(String::as_str)
    }

    /// Why the first of those that failed did.
    pub fn first_failure(&self) -> Option<&str> {
        self.failures.values().next().map(String::as_str)
    }

    /// The trials that have come to a pause, by their numbers.
    pub fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values().filter_map(|known| known.trial.as_ref())
    }

    /// Training sequences that all runs have seen.
    pub fn sequences(&self) -> usize {
        let seen = |(&(trial, _), record): (&Run, &Record)| {
            self.configs.get(trial).map(|config| self.outline.sequences(config, record.summary.steps))
        };
        self.records.iter().filter_map(seen).sum()
    }

    /// Keeps the record of a run, or why it failed; [`Self::work_out`] is to be called then.
    pub fn record(&mut self, run: Run, record: Option<Record>, failure: Option<String>) {
        self.trials.remove(&run.0);
        self.records.extend(record.map(|record| (run, record)));
        self.failures.extend(failure.map(|why| (run, why)));
    }

    /// Works out what follows from what was recorded.
    ///
    /// # Errors
    /// If a proposed setting cannot be used, which the search has ruled out.
    pub fn work_out(&mut self) -> Result<()> {
        self.agenda = self.outline.proposer.agenda(|_, due| self.loss(due));
        let Agenda { trials, racing, rungs, .. } = &self.agenda;
        for proposed in trials.iter().skip(self.configs.len()) {
            self.configs.push(self.outline.config(&proposed.setting)?);
        }
        let mut given_up = vec![true; trials.len()];
        racing.iter().for_each(|&trial| given_up[trial] = false);
        for (number, proposed) in trials.iter().enumerate() {
            let (rung, given_up) = (rungs[number], given_up[number]);
            let known = self.trials.get(&number);
            if known.is_some_and(|known| (known.rung, known.given_up) == (rung, given_up)) {
                continue;
            }
            let (step, _) = self.outline.rung(&self.configs[number], rung);
            let seeds = 0..self.outline.seeds();
            let runs = seeds.clone().map(|seed| Some(self.records.get(&(number, seed))?.until(step)));
            let runs = runs.collect::<Vec<_>>();
            let runs = runs.iter().map(Option::as_deref).collect::<Vec<_>>();
            let failed = seeds.clone().any(|seed| self.failures.contains_key(&(number, seed)));
            let named = (number, proposed.stage, proposed.setting.clone());
            let trial = Trial::new(named, &runs, failed, given_up);
            self.trials.insert(number, Known { rung, given_up, trial });
        }
        Ok(())
    }

    /// The loss of a trial at a rung, the mean of its runs there: infinite where one of them diverged or could
    /// not be trained.
    fn loss(&self, Due { trial, rung }: Due) -> Option<f64> {
        // Of a trial that was never proposed before, nothing is known.
        let (step, _) = self.outline.rung(self.configs.get(trial)?, rung);
        let losses = (0..self.outline.seeds()).map(|seed| match self.failures.contains_key(&(trial, seed)) {
            true => Some(f64::INFINITY),
            false => self.records.get(&(trial, seed))?.loss_at(step),
        });
        losses.collect::<Option<Vec<_>>>().map(|losses| mean(&losses))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::run;
    use super::*;
    use crate::training::{Ended, dataset};

    fn outline(text: &str) -> Outline {
        let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
        Outline::new(&config, &dataset(&config).unwrap()).unwrap()
    }

    const STUDY: &str = "[data]\ntrain_samples = 512\n[training]\nsteps = 300\n[tune]\ntrials = 11\nseeds = 2\n\
                         [tune.search]\n\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n\
                         \"training.batch_size\" = [8, 16]";

    /// Lets every run that is due do what is made up for it, and calls `after` each.
    fn play(results: &mut Results, after: impl Fn(&Results)) {
        loop {
            let due = results.agenda().due.clone();
            if due.is_empty() {
                return;
            }
            for Due { trial, rung } in due {
                for seed in 0..results.outline().seeds() {
                    let reached = |rung| results.outline().rung(results.config(trial), rung);
                    let (step, pauses) = reached(rung);
                    let ended = match (trial, pauses) {
                        (3, _) => Ended::Diverged,
                        (_, true) => Ended::Paused,
                        (_, false) => Ended::Completed,
                    };
                    let loss = |rung| 1.0 + (trial * 7 % 11 + seed) as f64 / (rung + 1) as f64;
                    let valid = (0..=rung).map(|rung| (reached(rung).0, loss(rung))).collect::<Vec<_>>();
                    let failure = (trial == 5).then(|| "too large".to_string());
                    results.record((trial, seed), Some(run(ended, step, &valid)), failure);
                    results.work_out().unwrap();
                    after(results);
                }
            }
        }
    }

    #[test]
    fn what_is_worked_out_run_by_run_is_what_follows_from_all_of_them_at_once() {
        let outline = outline(STUDY);
        let mut results = Results::new(outline.clone()).unwrap();
        play(&mut results, |results| {
            let mut read = Results::new(outline.clone()).unwrap();
            for (&run, record) in &results.records {
                let failure = results.failures.get(&run).cloned();
                read.record(run, Some(record.clone()), failure);
            }
            read.work_out().unwrap();
            assert_eq!(read.agenda(), results.agenda());
            assert!(read.trials().eq(results.trials()));
            assert_eq!(read.sequences(), results.sequences());
        });
        let trials = results.trials().collect::<Vec<_>>();
        assert_eq!(trials.len(), 11);
        let ended = |trial: usize| trials[trial].ended.name();
        assert_eq!((ended(3), ended(5)), ("diverged", "failed"));
        let count = |name| (0..11).filter(|&trial| ended(trial) == name).count();
        assert_eq!((count("completed"), count("unfinished")), (1, 0));
    }
}
