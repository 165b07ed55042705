//! A study: its folder, its trials and what they amount to.
//!
//! The folder holds `config.toml` with the search, `trials/` with an ordinary run folder for each run,
//! `study.csv`, `best.toml`, `plots/` and `report.html`. What is done is read from the runs themselves,
//! so there is nothing that could contradict them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::AtomicUsize;

use super::baseline::{Baseline, Candidate};
use super::errand::{data_has_changed, follow};
use super::folder::StudyFolder;
use super::outline::Outline;
use super::progress::StudyProgress;
use super::proposal::{Agenda, Due, Proposed, Standing};
use super::record::{Record, Trial, ranked, standing};
use super::space::Setting;
use super::table;
use super::worker::{Happened, Workers};
use crate::config::{Config, Difference};
use crate::error::{Error, Result};
use crate::training::{Lock, RUNS, RunFolder, Target, data_fingerprint, write_atomically};

/// A study that this process has taken.
#[derive(Debug)]
pub struct Study {
    folder: StudyFolder,
    outline: Outline,
    records: BTreeMap<(usize, usize), Record>,
    /// Why runs could not be trained.
    failures: BTreeMap<(usize, usize), String>,
    _lock: Lock,
}

/// A run that is to be trained to a rung.
#[derive(Debug, Clone, PartialEq)]
pub struct DueRun {
    /// Its trial.
    pub trial: usize,
    /// Which of the trial's seeds, counted from 0.
    pub seed: usize,
    /// Its folder.
    pub folder: RunFolder,
    /// Its config.
    pub config: Config,
    /// Steps after which it pauses; none where it runs to its end.
    pub pause_at: Option<usize>,
    /// The fingerprint of the data that it must have; none where that is drawn.
    pub data: Option<u64>,
}

impl Study {
    /// Makes the folder of a new study at `target`, by one rename.
    ///
    /// # Errors
    /// If the folder exists or cannot be written.
    pub fn create(config: &Config, outline: Outline, target: &Target) -> Result<Self> {
        let (folder, lock) = RunFolder::create(target, |folder| {
            let folder = StudyFolder::at(folder.clone());
            let trials = folder.trials();
            fs::create_dir(&trials).map_err(|error| Error::io("create", &trials, error))?;
            write_atomically(&folder.config(), config.to_toml().as_bytes())
        })?;
        Self::with(StudyFolder::at(folder), outline, lock)
    }

    /// Takes up the study in `folder`, once the runs of a process that was killed have stopped.
    ///
    /// # Errors
    /// If another process works in it, it was made with another config, its runs were not made by it, or its
    /// data has changed.
    pub fn resume(outline: Outline, folder: StudyFolder) -> Result<Self> {
        let lock = folder.lock()?;
        follow(&folder)?;
        Self::with(folder, outline, lock)
    }

    /// The trials of which the check before the first one learns a few sequences, and the rates of the search.
    ///
    /// # Errors
    /// Where a setting makes no config.
    pub fn baseline(&self) -> Result<(Vec<Candidate>, Vec<f64>)> {
        self.outline.baseline()
    }

    /// Writes down what that check found, which is not made again.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn keep_baseline(&self, found: &Baseline) -> Result<()> {
        let json = serde_json::to_vec_pretty(found).expect("a baseline holds plain values");
        write_atomically(&self.folder.baseline(), &json)
    }

    /// Removes the folder of a study that tried nothing.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn discard(self) -> Result<()> {
        let path = self.folder.path().to_path_buf();
        drop(self);
        fs::remove_dir_all(&path).map_err(|error| Error::io("remove", &path, error))?;
        // The place of runs without a name is the program's own: it goes too, unless others lie there.
        if let Some(place) = path.parent().filter(|place| place.ends_with(RUNS)) {
            let _ = fs::remove_dir(place);
        }
        Ok(())
    }

    fn with(folder: StudyFolder, outline: Outline, lock: Lock) -> Result<Self> {
        let mut study =
            Self { folder, outline, records: BTreeMap::new(), failures: BTreeMap::new(), _lock: lock };
        study.read()?;
        Ok(study)
    }

    /// Reads what is done.
    fn read(&mut self) -> Result<()> {
        loop {
            let trials = self.agenda().trials;
            let mut found = false;
            for (number, trial) in trials.iter().enumerate() {
                for seed in 0..self.outline.tune.seeds {
                    if self.is_read(number, seed) {
                        continue;
                    }
                    let folder = self.run_folder(number, seed);
                    let failure = StudyFolder::failure(&folder);
                    if failure.exists() {
                        let why = fs::read_to_string(&failure);
                        let why = why.map_err(|error| Error::io("read", &failure, error))?;
                        self.failures.insert((number, seed), why.trim().to_string());
                        found = true;
                    }
                    if !folder.config().exists() {
                        continue;
                    }
                    let expected = self.outline.trial_config(&trial.setting, seed)?;
                    check_made_with(&folder, &expected)?;
                    self.check_data(&folder)?;
                    if let Some(record) = Record::read(&folder)? {
                        self.records.insert((number, seed), record);
                        found = true;
                    }
                }
            }
            // What is done now may tell of further trials.
            if !found {
                return Ok(());
            }
        }
    }

    /// What a run was trained on must be what is there now: results are compared.
    fn check_data(&self, run: &RunFolder) -> Result<()> {
        match (data_fingerprint(run), self.outline.data) {
            (Some(there), Some(here)) if there != here => Err(data_has_changed()),
            _ => Ok(()),
        }
    }

    fn is_read(&self, trial: usize, seed: usize) -> bool {
        self.records.contains_key(&(trial, seed)) || self.failures.contains_key(&(trial, seed))
    }

    /// The folder of the study.
    pub fn folder(&self) -> &StudyFolder {
        &self.folder
    }

    /// The keys that trials differ in.
    pub fn keys(&self) -> Vec<String> {
        self.outline.proposer.keys()
    }

    /// What it was to do from the beginning.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The trials so far, and what is due.
    pub fn agenda(&self) -> Agenda {
        self.outline.proposer.agenda(|trials, due| self.standing(trials, due))
    }

    fn standing(&self, trials: &[Proposed], Due { trial, rung }: Due) -> Option<Standing> {
        let (step, _) = self.outline.rung(&trials[trial].setting, rung).ok()?;
        let runs =
            (0..self.outline.tune.seeds).map(|seed| match self.failures.contains_key(&(trial, seed)) {
                true => Some(Standing::Diverged),
                false => self.records.get(&(trial, seed))?.at(step),
            });
        standing(&runs.collect::<Vec<_>>())
    }

    /// The runs that are due now; none where the study is complete.
    ///
    /// # Errors
    /// If a proposed setting cannot be used, which the search has ruled out.
    pub fn due(&self) -> Result<Vec<DueRun>> {
        let Agenda { trials, due, .. } = self.agenda();
        let mut runs = Vec::new();
        for Due { trial, rung } in due {
            for seed in 0..self.outline.tune.seeds {
                let config = self.outline.trial_config(&trials[trial].setting, seed)?;
                let (step, pauses) = self.outline.rung(&trials[trial].setting, rung)?;
                let is_there =
                    self.records.get(&(trial, seed)).is_some_and(|record| record.at(step).is_some());
                if is_there || self.failures.contains_key(&(trial, seed)) {
                    continue;
                }
                let folder = self.run_folder(trial, seed);
                let pause_at = pauses.then_some(step);
                runs.push(DueRun { trial, seed, folder, config, pause_at, data: self.outline.data });
            }
        }
        Ok(runs)
    }

    /// Takes in what a run says now, or why it failed, which is kept beside its folder.
    ///
    /// # Errors
    /// If its folder holds what cannot be understood, or the disk is full.
    pub fn take_in(&mut self, run: &DueRun, failure: Option<String>) -> Result<()> {
        if let Some(why) = failure {
            write_atomically(&StudyFolder::failure(&run.folder), format!("{why}\n").as_bytes())?;
            self.failures.insert((run.trial, run.seed), why);
        }
        if let Some(record) = Record::read(&run.folder)? {
            self.records.insert((run.trial, run.seed), record);
        }
        Ok(())
    }

    /// The values of a trial.
    pub fn setting(&self, trial: usize) -> Option<Setting> {
        self.agenda().trials.into_iter().nth(trial).map(|trial| trial.setting)
    }

    /// Trains whatever is due until nothing is, or the signal asks for the end. The tables are written
    /// after each run.
    ///
    /// # Errors
    /// If a file cannot be written: what is done stays done.
    pub fn conduct(
        &mut self,
        workers: &Workers,
        signal: &AtomicUsize,
        progress: &mut StudyProgress,
    ) -> Result<Happened> {
        self.write()?;
        loop {
            let runs = self.due()?;
            if runs.is_empty() {
                return Ok(Happened::Done);
            }
            let happened = workers.train(&runs, signal, |run, failure| {
                self.take_in(run, failure)?;
                self.write()?;
                progress.done(self, run);
                Ok(())
            })?;
            if happened == Happened::Interrupted {
                return Ok(happened);
            }
        }
    }

    /// What a run says, as far as it got.
    pub fn record(&self, run: &DueRun) -> Option<&Record> {
        self.records.get(&(run.trial, run.seed))
    }

    /// Why a run could not be trained.
    pub fn failure(&self, run: &DueRun) -> Option<&str> {
        self.failures.get(&(run.trial, run.seed)).map(String::as_str)
    }

    /// Why the first of those that failed did.
    pub fn first_failure(&self) -> Option<&str> {
        self.failures.values().next().map(String::as_str)
    }

    /// The trials that have something to tell, by their numbers.
    pub fn trials(&self) -> Vec<Trial> {
        let Agenda { trials, racing, rungs, .. } = self.agenda();
        let told = trials.into_iter().enumerate().filter_map(|(number, Proposed { setting, stage })| {
            let (step, _) = self.outline.rung(&setting, rungs[number]).ok()?;
            let seeds = 0..self.outline.tune.seeds;
            let runs = seeds.clone().map(|seed| Some(self.records.get(&(number, seed))?.until(step)));
            let runs = runs.collect::<Vec<_>>();
            let runs = runs.iter().map(Option::as_deref).collect::<Vec<_>>();
            let failed = seeds.clone().any(|seed| self.failures.contains_key(&(number, seed)));
            Trial::new((number, stage, setting), &runs, failed, !racing.contains(&number))
        });
        told.collect()
    }

    /// Training sequences that all runs have seen.
    pub fn sequences(&self) -> usize {
        let trials = self.agenda().trials;
        let seen = |(&(trial, _), record): (&(usize, usize), &Record)| {
            self.outline.sequences(&trials.get(trial)?.setting, record.summary.steps).ok()
        };
        self.records.iter().filter_map(seen).sum()
    }

    /// Writes `study.csv` and, where a trial has come far enough to be one, `best.toml`.
    ///
    /// # Errors
    /// If they cannot be written; what they held before is then still there.
    pub fn write(&self) -> Result<()> {
        let trials = self.trials();
        write_atomically(&self.folder.table(), &table::csv(&self.keys(), &trials))?;
        let best = ranked(&trials).first().copied().filter(|best| best.loss.is_some()).cloned();
        match best {
            Some(best) => write_atomically(
                &self.folder.best(),
                self.outline.whole_config(&best.setting)?.to_toml().as_bytes(),
            ),
            None => Ok(()),
        }
    }

    /// The folder of a run, whether it is there or not.
    pub fn run_folder(&self, trial: usize, seed: usize) -> RunFolder {
        let name = match self.outline.tune.seeds {
            1 => format!("{trial:03}"),
            _ => format!("{trial:03}-seed-{seed}"),
        };
        RunFolder::at(self.folder.trials().join(name))
    }
}

/// A study goes on with the config that it was made with.
///
/// # Errors
/// [`Error::Key`] for the first key that differs.
pub fn check_resumes(config: &Config, made_with: &Config, folder: &StudyFolder) -> Result<()> {
    let sections = ["run", "data", "model", "training", "analysis", "tune"];
    match config.difference(made_with, &sections) {
        None => Ok(()),
        Some(Difference { key, here, there }) => {
            let problem = format!(
                "differs from the {} that the study `{}` was made with: leave that out to go on with it, or begin \
                 another with --run DIR",
                there.replace('\n', " ").trim(),
                folder.path().display()
            );
            Err(Error::key(key, here.replace('\n', " ").trim(), problem))
        }
    }
}

/// A run in the place of a trial must be that trial's.
fn check_made_with(folder: &RunFolder, expected: &Config) -> Result<()> {
    let made_with = Config::load(Some(&folder.config()), &[])?;
    match made_with.difference(expected, &["run", "data", "model", "training"]) {
        None => Ok(()),
        Some(Difference { key, here, there }) => Err(Error::Input(format!(
            "`{}` stands where the study has a trial of `{key}` = {there}, but has {here}: restore it, or remove its \
             folder to train it again",
            folder.path().display()
        ))),
    }
}
