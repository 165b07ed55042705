//! A study: what is known of its runs, and what follows from it: its trials, their losses, and what is due.
//!
//! Its folder holds `config.toml` with the search, `trials/` with an ordinary run folder for each run,
//! `study.csv`, `best.toml`, `plots/` and `report.html`. What is done is read from the runs themselves,
//! so there is nothing that could contradict them. A study may have ten thousand trials: what follows from the
//! runs is worked out once after each, and anew only for the trials that it concerns.

use std::{collections::BTreeMap, fs, sync::atomic::AtomicUsize};

use serde::Serialize;

use super::folder::{best, check_trial, failure, overfit_check, trials};
use super::outline::Outline;
use super::overfit::OverfitCheck;
use super::process::{TrialCommand, refuse_within_trial};
use super::runs::{Runner, TrialRun, check_data};
use super::space::configured;
use super::stages::Agenda;
use super::statistics::mean;
use super::table;
use super::trial::{Record, Run, Trial, ranked};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{is_there, read_own, write_atomically};
use crate::training::{Lock, RUNS, RunFolder, RunPath, data_fingerprint};

/// How often a run is started again that is interrupted, by whomever, before it does a step.
const MAX_STALLED: usize = 3;

/// A study, as far as it got.
#[derive(Debug)]
pub struct Study {
    /// Its folder.
    pub folder: RunFolder,
    /// What it was to do from the beginning.
    pub outline: Outline,
    /// The trials so far, and what is due.
    pub agenda: Agenda,
    /// Each run that has come to a pause, or why it could not be trained.
    pub runs: BTreeMap<Run, Result<Record, String>>,
    /// The config of each trial's setting.
    configs: Vec<Config>,
    /// What the runs of each trial say; none where none has come to a pause.
    trials: BTreeMap<usize, Option<Trial>>,
    /// That of this process on the folder.
    lock: Option<Lock>,
}

/// What a study found, for its pictures and its page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The study's name.
    pub study: String,
    /// The searched keys, each with its section.
    pub keys: Vec<String>,
    /// The trials, best first.
    pub trials: Vec<Trial>,
    /// The loss of the optimal predictor, where it is known.
    pub floor: Option<f64>,
    /// Runs of each trial, whose losses are means; curves are those of the first.
    pub seeds: usize,
}

impl Study {
    /// Makes the folder of a new study at `target`, by one rename, and what trains its runs by `program`, up to `jobs`
    /// at once.
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

    /// Opens the study in `folder`, once the runs of a process that was killed have ended.
    ///
    /// # Errors
    /// If another process works in it, its runs were not made by it, or its data has changed.
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
        // What is done may bring further trials.
        while read < study.agenda.trials.len() {
            for trial in std::mem::replace(&mut read, study.agenda.trials.len())..study.agenda.trials.len() {
                (0..study.outline.tune.seeds).try_for_each(|seed| study.read_run((trial, seed)))?;
            }
            study.work_out()?;
        }
        Ok((study, runner))
    }

    /// A study of which no run is known.
    fn new(outline: Outline, folder: RunFolder, lock: Option<Lock>) -> Result<Self> {
        let (agenda, runs, configs, trials) = Default::default();
        let mut study = Self { folder, outline, agenda, runs, configs, trials, lock };
        study.work_out()?;
        Ok(study)
    }

    /// Reads how far a run is, or why it could not be trained; [`Self::work_out`] is to be called then.
    fn read_run(&mut self, run: Run) -> Result<()> {
        let folder = self.run_folder(run);
        let failure = failure(&folder);
        if is_there(&failure) {
            let why = String::from_utf8_lossy(&read_own(&failure)?).trim().to_string();
            self.record(run, Some(Err(why)));
            return Ok(());
        }
        let mut record = None;
        if is_there(folder.path()) {
            check_trial(&folder, &self.outline.trial_config(&self.configs[run.0], run.1))?;
            check_data(self.outline.data, data_fingerprint(&folder))?;
            record = Record::read(&folder)?.map(Ok);
        }
        self.record(run, record);
        Ok(())
    }

    fn record(&mut self, run: Run, record: Option<Result<Record, String>>) {
        self.trials.remove(&run.0);
        self.runs.extend(record.map(|record| (run, record)));
    }

    /// Works out what follows from what was recorded.
    ///
    /// # Errors
    /// If a proposed setting cannot be used, which the search has ruled out.
    fn work_out(&mut self) -> Result<()> {
        let agenda = self.outline.stages.agenda(|trial, rung| self.loss(trial, rung));
        for proposed in agenda.trials.iter().skip(self.configs.len()) {
            self.configs.push(configured(&self.outline.base, &proposed.setting)?);
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

    /// The loss of a trial at a rung, the mean of its runs there: infinite where one of them diverged or could
    /// not be trained.
    fn loss(&self, trial: usize, rung: usize) -> Option<f64> {
        // Of a trial that was never proposed before, nothing is known.
        let step = self.outline.budget.rung(self.configs.get(trial)?, rung);
        let losses = (0..self.outline.tune.seeds).map(|seed| match self.runs.get(&(trial, seed))? {
            Ok(record) => record.loss_at(step),
            Err(_) => Some(f64::INFINITY),
        });
        losses.collect::<Option<Vec<_>>>().map(|losses| mean(&losses))
    }

    /// The trials that have come to a pause, by their numbers.
    pub fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values().flatten()
    }

    /// Why the first of the runs that failed did.
    pub fn first_failure(&self) -> Option<&str> {
        self.runs.values().find_map(|run| run.as_ref().err()).map(String::as_str)
    }

    /// Training sequences that all runs have seen.
    pub fn sequences(&self) -> usize {
        let records = self.runs.iter().filter_map(|(&(trial, _), run)| Some((trial, run.as_ref().ok()?)));
        let seen = |(trial, record): (usize, &Record)| {
            self.outline.budget.sequences(&self.configs[trial], record.summary.steps)
        };
        records.map(seen).sum()
    }

    /// What it found so far; none where no trial has a loss.
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

    /// Writes what the overfit check found, which is then not made again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_overfit_check(&self, found: &OverfitCheck) -> Result<()> {
        let json = serde_json::to_vec_pretty(found).expect("an overfit check holds plain values");
        write_atomically(&overfit_check(&self.folder), &json)
    }

    /// Removes the folder of a study that tried nothing.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn discard(mut self) -> Result<()> {
        drop(self.lock.take());
        let path = self.folder.path();
        fs::remove_dir_all(path).map_err(|error| Error::io("remove", path, error))?;
        // The place of runs without a name is the program's own: it goes too, unless others lie there.
        let _ = path.parent().filter(|place| place.ends_with(RUNS)).map(fs::remove_dir);
        Ok(())
    }

    /// The runs that are due now; none where the study is complete.
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

    /// The steps that a run of a proposed trial is to reach.
    fn due_step(&self, run: Run) -> usize {
        self.outline.budget.rung(&self.configs[run.0], self.agenda.trials[run.0].rung)
    }

    /// Whether a run of a proposed trial has yet to reach them.
    fn is_due(&self, run: Run) -> bool {
        match self.runs.get(&run) {
            Some(Ok(record)) => record.loss_at(self.due_step(run)).is_none(),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Trains whatever is due until nothing is, or the signal asks for the end: then it returns false. The
    /// tables are written after each run, and `after` is called.
    ///
    /// # Errors
    /// If a file cannot be written, or the system fails: what is done stays done.
    pub fn conduct(
        &mut self,
        mut runner: Runner,
        signal: &AtomicUsize,
        mut after: impl FnMut(&Self, &TrialRun),
    ) -> Result<bool> {
        self.write()?;
        // Interruptions of each run since it last did a step.
        let mut stalled: BTreeMap<Run, (usize, usize)> = BTreeMap::new();
        loop {
            let mut due = self.due().collect();
            while let Some((run, why)) = runner.next(&mut due, signal)? {
                self.end_run(&run, why)?;
                if self.is_due(run.run) && !runner.is_stopping {
                    let steps = self.steps(run.run);
                    let (at, times) = stalled.entry(run.run).or_insert((steps, 0));
                    (*at, *times) = if *at == steps { (steps, *times + 1) } else { (steps, 1) };
                    if *times == MAX_STALLED {
                        let why = format!("its process was interrupted {times} times before it did a step");
                        self.end_run(&run, Some(why))?;
                    }
                }
                self.work_out()?;
                self.write()?;
                after(self, &run);
            }
            if runner.is_stopping || self.due().next().is_none() {
                return Ok(!runner.is_stopping);
            }
        }
    }

    /// Reads what a run has come to, or writes down why it could not be trained.
    fn end_run(&mut self, run: &TrialRun, why: Option<String>) -> Result<()> {
        if let Some(why) = why {
            write_atomically(&failure(&run.folder), format!("{why}\n").as_bytes())?;
        }
        self.read_run(run.run)
    }

    /// The steps that a run has done.
    fn steps(&self, run: Run) -> usize {
        self.runs.get(&run).and_then(|run| run.as_ref().ok()).map_or(0, |record| record.summary.steps)
    }

    /// Writes `study.csv` and, where a trial has come far enough to be one, `best.toml`.
    fn write(&self) -> Result<()> {
        let table = table::csv(&self.outline.stages.keys(), self.trials());
        write_atomically(&self.folder.path().join("study.csv"), &table)?;
        let ranked = ranked(self.trials());
        let Some(first) = ranked.first().filter(|first| first.score.loss.is_some()) else { return Ok(()) };
        let config = self.outline.whole_config(&self.configs[first.trial]);
        write_atomically(&best(&self.folder), config.to_toml().as_bytes())
    }

    /// The page of a trial's run, relative to the study's folder; of several seeds that of the first. None where
    /// it is not there: a run that only paused has none.
    pub fn page(&self, trial: &Trial) -> Option<String> {
        let run = self.run_folder((trial.trial, 0));
        run.report().exists().then(|| format!("trials/{}/report.html", run.name()))
    }

    /// The folder of a run, whether it is there or not.
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
