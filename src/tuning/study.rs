//! A study: its trials, their results, and the trials still to run.
//!
//! Its folder holds `config.toml` with the search, `trials/` with an ordinary run folder for each run, `study.csv`,
//! `best.toml`, `plots/` and `report.html`. The state is read from the runs themselves, so no file can contradict them.
//! A study may have ten thousand trials, so its state is updated once after each run, and only for the trials that
//! changed.

use std::{collections::BTreeMap, fs};

use serde::Serialize;

use super::folder::{best, check_trial, failure, overfit_check, trials};
use super::outline::Outline;
use super::overfit::OverfitCheck;
use super::process::{TrialCommand, refuse_within_trial};
use super::runs::{Runner, TrialRun, check_data};
use super::stages::Agenda;
use super::statistics::mean;
use super::table;
use super::trial::{Record, Run, Trial, ranked};
use crate::config::Config;
use crate::error::{Error, Result, ensure};
use crate::files::{has_entry, read_own, sha256, write_atomically};
use crate::training::{Lock, RUNS, RunFolder, RunPath, StopSignal, data_fingerprint, start_sha256};

/// The maximum number of interruptions of a run without a step in between, after which the run counts as failed.
const MAX_STALLS: usize = 3;

/// The state of a study.
#[derive(Debug)]
pub struct Study {
    /// The study's folder.
    pub folder: RunFolder,
    /// The plan of the study.
    pub outline: Outline,
    /// The trials until now, and those that are due.
    pub agenda: Agenda,
    /// The records of runs that have paused or ended, or the reasons why runs could not be trained.
    pub runs: BTreeMap<Run, Result<Record, String>>,
    /// The config of each trial's setting.
    configs: Vec<Config>,
    /// The results of each trial; `None` if none of its runs has paused or ended.
    trials: BTreeMap<usize, Option<Trial>>,
    /// The lock of this process on the folder.
    lock: Option<Lock>,
}

/// The results of a study for its pictures and its page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The study's name.
    pub study: String,
    /// The searched keys, with their sections.
    pub keys: Vec<String>,
    /// The trials, best first.
    pub trials: Vec<Trial>,
    /// The loss of the optimal predictor, if known.
    pub floor: Option<f64>,
    /// The number of runs per trial. Losses are means over them; curves are of the first run.
    pub seeds: usize,
}

impl Study {
    /// Creates the folder of a new study at `target` atomically, and a runner for its runs. The runner trains up to
    /// `jobs` runs at the same time with `program`.
    ///
    /// # Errors
    /// If the folder exists or cannot be written.
    pub fn create(
        config: &Config,
        outline: Outline,
        target: &RunPath,
        (program, jobs): (TrialCommand, usize),
    ) -> Result<(Self, Runner)> {
        refuse_within_trial()?;
        let (folder, lock) = RunFolder::create(target, |folder| {
            let trials = trials(folder);
            fs::create_dir(&trials).map_err(|error| Error::io("create", &trials, error))?;
            write_atomically(&folder.config(), config.to_toml().as_bytes())
        })?;
        Self::open(outline, folder, lock, (program, jobs))
    }

    /// Opens the study in `folder`, after the runs of a killed process have ended.
    ///
    /// # Errors
    /// If another process uses the folder, its runs belong to another study, or the data has changed.
    pub fn resume(
        outline: Outline,
        folder: RunFolder,
        (program, jobs): (TrialCommand, usize),
    ) -> Result<(Self, Runner)> {
        let lock = folder.lock()?;
        Self::open(outline, folder, lock, (program, jobs))
    }

    fn open(
        outline: Outline,
        folder: RunFolder,
        lock: Lock,
        (program, jobs): (TrialCommand, usize),
    ) -> Result<(Self, Runner)> {
        let runner = Runner::new(&trials(&folder), program, jobs)?;
        let mut study = Self::new(outline, folder, Some(lock))?;
        let mut read = 0;
        // The results can lead to further trials.
        while read < study.agenda.trials.len() {
            for trial in std::mem::replace(&mut read, study.agenda.trials.len())..study.agenda.trials.len() {
                (0..study.outline.tune.seeds).try_for_each(|seed| study.read_run((trial, seed)))?;
            }
            study.update()?;
        }
        Ok((study, runner))
    }

    /// Creates a study without any results.
    fn new(outline: Outline, folder: RunFolder, lock: Option<Lock>) -> Result<Self> {
        let (agenda, runs, configs, trials) = Default::default();
        let mut study = Self { folder, outline, agenda, runs, configs, trials, lock };
        study.update()?;
        Ok(study)
    }

    /// Reads the state of a run, or the reason why it could not be trained. Must be followed by [`Self::update`].
    fn read_run(&mut self, run: Run) -> Result<()> {
        let folder = self.run_folder(run);
        let failure = failure(&folder);
        if has_entry(&failure) {
            let why = String::from_utf8_lossy(&read_own(&failure)?).trim().to_string();
            self.record(run, Some(Err(why)));
            return Ok(());
        }
        let mut record = None;
        if has_entry(folder.path()) {
            check_trial(&folder, &self.outline.trial_config(&self.configs[run.0], run.1))?;
            check_data(self.outline.data, data_fingerprint(&folder))?;
            self.check_start(&folder)?;
            record = Record::read(&folder)?.map(Ok);
        }
        self.record(run, record);
        Ok(())
    }

    /// Rejects a trial that started from other weights than trials start from now.
    fn check_start(&self, folder: &RunFolder) -> Result<()> {
        let Some(from) = self.outline.base.run.start() else { return Ok(()) };
        let (there, here) = (start_sha256(folder), sha256(&RunFolder::at(from).model()).ok());
        ensure(there.is_none() || here.is_none() || there == here, Error::Input, || {
            format!(
                "the weights of `{}` have changed since the study started; restore them, or start another study",
                from.display()
            )
        })
    }

    fn record(&mut self, run: Run, record: Option<Result<Record, String>>) {
        self.trials.remove(&run.0);
        self.runs.extend(record.map(|record| (run, record)));
    }

    /// Updates the agenda and the trials from the records.
    ///
    /// # Errors
    /// If a proposed setting is invalid, which the search has ruled out.
    fn update(&mut self) -> Result<()> {
        let agenda = self.outline.stages.agenda(|trial, rung| self.loss(trial, rung));
        for proposed in agenda.trials.iter().skip(self.configs.len()) {
            self.configs.push(self.outline.base.with(&proposed.setting)?);
        }
        let before = std::mem::replace(&mut self.agenda, agenda);
        for (number, proposed) in self.agenda.trials.iter().enumerate() {
            if self.trials.contains_key(&number) && before.trials.get(number) == Some(proposed) {
                continue;
            }
            let step = self.outline.budget.rung(&self.configs[number], proposed.rung);
            let runs = (0..self.outline.tune.seeds).map(|seed| self.runs.get(&(number, seed)));
            let failed = runs.clone().flatten().any(Result::is_err);
            let runs = runs.map(|run| Some(run?.as_ref().ok()?.until(step))).collect::<Vec<_>>();
            self.trials.insert(number, Trial::new(number, proposed, &runs, failed));
        }
        Ok(())
    }

    /// Returns the loss of a trial at a rung, the mean over its runs; infinite if one of them diverged or could not be
    /// trained.
    fn loss(&self, trial: usize, rung: usize) -> Option<f64> {
        // The results of a trial that was never proposed are unknown.
        let step = self.outline.budget.rung(self.configs.get(trial)?, rung);
        let losses = (0..self.outline.tune.seeds).map(|seed| match self.runs.get(&(trial, seed))? {
            Ok(record) => record.loss_at(step),
            Err(_) => Some(f64::INFINITY),
        });
        losses.collect::<Option<Vec<_>>>().map(|losses| mean(&losses))
    }

    /// Returns the trials with results, by number.
    pub fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values().flatten()
    }

    /// Returns the reason of the first failed run.
    pub fn first_failure(&self) -> Option<&str> {
        self.runs.values().find_map(|run| run.as_ref().err()).map(String::as_str)
    }

    /// Returns the number of training sequences that all runs have seen.
    pub fn sequences(&self) -> usize {
        let records = self.runs.iter().filter_map(|(&(trial, _), run)| Some((trial, run.as_ref().ok()?)));
        let seen = |(trial, record): (usize, &Record)| {
            self.outline.budget.sequences(&self.configs[trial], record.summary.work.steps)
        };
        records.map(seen).sum()
    }

    /// Returns the current results; `None` if every trial lacks a loss.
    pub fn findings(&self) -> Option<Findings> {
        let trials = ranked(self.trials()).into_iter().cloned().collect::<Vec<_>>();
        trials.iter().any(|trial| trial.score.loss.is_some()).then(|| Findings {
            study: self.folder.name(),
            keys: self.outline.stages.keys(),
            floor: trials.iter().find_map(|trial| trial.score.floor),
            seeds: self.outline.tune.seeds,
            trials,
        })
    }

    /// Writes the result of the overfit check, which is then not repeated.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_overfit_check(&self, found: &OverfitCheck) -> Result<()> {
        let json = serde_json::to_vec_pretty(found).expect("an overfit check holds plain values");
        write_atomically(&overfit_check(&self.folder), &json)
    }

    /// Removes the folder of a study without trials.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn discard(mut self) -> Result<()> {
        drop(self.lock.take());
        let path = self.folder.path();
        fs::remove_dir_all(path).map_err(|error| Error::io("remove", path, error))?;
        // The folder of unnamed runs was created by the program, so it is removed too, unless it holds other runs.
        let _ = path.parent().filter(|parent| parent.ends_with(RUNS)).map(fs::remove_dir);
        Ok(())
    }

    /// Returns the runs that are due now; empty if the study is complete.
    fn due(&self) -> impl Iterator<Item = TrialRun> {
        let seeds = |&trial: &usize| (0..self.outline.tune.seeds).map(move |seed| (trial, seed));
        self.agenda.due.iter().flat_map(seeds).filter_map(|run| {
            let (step, is_due) = (self.due_step(run), self.is_due(run));
            let config = self.outline.trial_config(&self.configs[run.0], run.1);
            let until = Some(step).filter(|_| config.training.steps != Some(step));
            let folder = self.run_folder(run);
            is_due.then_some(TrialRun { run, folder, config, until, data: self.outline.data })
        })
    }

    /// Returns the step that a run of a proposed trial must reach.
    fn due_step(&self, run: Run) -> usize {
        self.outline.budget.rung(&self.configs[run.0], self.agenda.trials[run.0].rung)
    }

    /// Returns true if a run of a proposed trial has not reached its due step.
    fn is_due(&self, run: Run) -> bool {
        match self.runs.get(&run) {
            Some(Ok(record)) => record.loss_at(self.due_step(run)).is_none(),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Trains all due runs until none is left and returns true, or until a signal requests the end and returns false.
    /// After each run it writes the tables and calls `after`.
    ///
    /// # Errors
    /// If a file cannot be written, or the system fails; completed runs are kept.
    pub fn conduct(
        &mut self,
        mut runner: Runner,
        signal: &StopSignal,
        mut after: impl FnMut(&Self, &TrialRun),
    ) -> Result<bool> {
        self.write()?;
        // The step at which each run was last interrupted, and the number of interruptions there.
        let mut stalled: BTreeMap<Run, (usize, usize)> = BTreeMap::new();
        loop {
            let mut due = self.due().collect();
            while let Some((run, why)) = runner.next(&mut due, signal)? {
                self.end_run(&run, why)?;
                if self.is_due(run.run) && !runner.is_stopping {
                    let steps = self.steps(run.run);
                    let (at, times) = stalled.entry(run.run).or_insert((steps, 0));
                    (*at, *times) = if *at == steps { (steps, *times + 1) } else { (steps, 1) };
                    if *times == MAX_STALLS {
                        let why =
                            format!("its process was interrupted {times} times without completing a step");
                        self.end_run(&run, Some(why))?;
                    }
                }
                self.update()?;
                self.write()?;
                after(self, &run);
            }
            if runner.is_stopping || self.due().next().is_none() {
                return Ok(!runner.is_stopping);
            }
        }
    }

    /// Reads the result of a run, or writes the reason why it could not be trained.
    fn end_run(&mut self, run: &TrialRun, why: Option<String>) -> Result<()> {
        if let Some(why) = why {
            write_atomically(&failure(&run.folder), format!("{why}\n").as_bytes())?;
        }
        self.read_run(run.run)
    }

    /// Returns the number of steps that a run has done.
    fn steps(&self, run: Run) -> usize {
        self.runs.get(&run).and_then(|run| run.as_ref().ok()).map_or(0, |record| record.summary.work.steps)
    }

    /// Writes `study.csv` and, once a trial has a loss, `best.toml`.
    fn write(&self) -> Result<()> {
        let table = table::csv(&self.outline.stages.keys(), self.trials());
        write_atomically(&self.folder.path().join("study.csv"), &table)?;
        let ranked = ranked(self.trials());
        let Some(first) = ranked.first().filter(|first| first.score.loss.is_some()) else { return Ok(()) };
        let config = self.outline.full_config(&self.configs[first.trial]);
        write_atomically(&best(&self.folder), config.to_toml().as_bytes())
    }

    /// Returns the path of the page of a trial's run, relative to the study's folder; with several seeds, of the first
    /// run. Returns `None` for a run without a page, for example a run that has only paused.
    pub fn page(&self, trial: &Trial) -> Option<String> {
        let run = self.run_folder((trial.trial, 0));
        run.report().exists().then(|| format!("trials/{}/report.html", run.name()))
    }

    /// Returns the folder of a run, which may not exist.
    fn run_folder(&self, (trial, seed): Run) -> RunFolder {
        let name = match self.outline.tune.seeds {
            1 => format!("{trial:03}"),
            _ => format!("{trial:03}-seed-{seed}"),
        };
        RunFolder::at(trials(&self.folder).join(name))
    }
}

#[cfg(test)]
mod tests;
