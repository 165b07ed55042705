//! A study: its folder, its trials and what they amount to.
//!
//! The folder holds `config.toml` with the search, `trials/` with an ordinary run folder for each run,
//! `study.csv`, `best.toml`, `plots/` and `report.html`. What is done is read from the runs themselves,
//! so there is nothing that could contradict them.

use std::fs;
use std::sync::atomic::AtomicUsize;

use super::baseline::{Baseline, Candidate};
use super::errand::follow;
use super::folder::StudyFolder;
use super::outline::Outline;
use super::progress::StudyProgress;
use super::proposal::Due;
use super::record::{Record, Trial, ranked};
use super::results::{Results, Run};
use super::resuming::{check_data, check_made_with};
use super::space::Setting;
use super::table;
use super::worker::{Happened, Workers};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::training::{Lock, RUNS, RunFolder, Target, write_atomically};

/// A study that this process has taken.
#[derive(Debug)]
pub struct Study {
    folder: StudyFolder,
    results: Results,
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
        self.outline().baseline()
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
        let mut study = Self { folder, results: Results::new(outline)?, _lock: lock };
        study.read()?;
        Ok(study)
    }

    /// Reads what is done.
    fn read(&mut self) -> Result<()> {
        loop {
            let mut found = false;
            for trial in 0..self.results.agenda().trials.len() {
                for seed in 0..self.outline().seeds() {
                    let run = (trial, seed);
                    if self.results.knows(run) {
                        continue;
                    }
                    let (record, failure) = self.read_run(run)?;
                    if record.is_some() || failure.is_some() {
                        self.results.take_in(run, record, failure);
                        found = true;
                    }
                }
            }
            if !found {
                return Ok(());
            }
            // What is done now may tell of further trials.
            self.results.work_out()?;
        }
    }

    /// Reads how far a run is, and why it could not be trained.
    fn read_run(&self, (trial, seed): Run) -> Result<(Option<Record>, Option<String>)> {
        let folder = self.run_folder(trial, seed);
        let failure = StudyFolder::failure(&folder);
        let why = match failure.exists() {
            true => {
                let why = fs::read_to_string(&failure).map_err(|error| Error::io("read", &failure, error))?;
                Some(why.trim().to_string())
            }
            false => None,
        };
        if !folder.config().exists() {
            return Ok((None, why));
        }
        check_made_with(&folder, &self.outline().trial_config(self.results.config(trial), seed))?;
        check_data(&folder, self.outline().data)?;
        Ok((Record::read(&folder)?, why))
    }

    /// The folder of the study.
    pub fn folder(&self) -> &StudyFolder {
        &self.folder
    }

    /// The keys that trials differ in.
    pub fn keys(&self) -> Vec<String> {
        self.outline().proposer.keys()
    }

    /// What it was to do from the beginning.
    pub fn outline(&self) -> &Outline {
        self.results.outline()
    }

    /// The runs that are due now; none where the study is complete.
    pub fn due(&self) -> Vec<DueRun> {
        let outline = self.outline();
        let mut runs = Vec::new();
        for &Due { trial, rung } in &self.results.agenda().due {
            let config = self.results.config(trial);
            let (step, pauses) = outline.rung(config, rung);
            for seed in 0..outline.seeds() {
                let record = self.results.record((trial, seed));
                let is_there = record.is_some_and(|record| record.at(step).is_some());
                if is_there || self.results.failure((trial, seed)).is_some() {
                    continue;
                }
                runs.push(DueRun {
                    trial,
                    seed,
                    folder: self.run_folder(trial, seed),
                    config: outline.trial_config(config, seed),
                    pause_at: pauses.then_some(step),
                    data: outline.data,
                });
            }
        }
        runs
    }

    /// Takes in what a run says now, or why it failed, which is kept beside its folder.
    ///
    /// # Errors
    /// If its folder holds what cannot be understood, or the disk is full.
    pub fn take_in(&mut self, run: &DueRun, failure: Option<String>) -> Result<()> {
        if let Some(why) = &failure {
            write_atomically(&StudyFolder::failure(&run.folder), format!("{why}\n").as_bytes())?;
        }
        self.results.take_in((run.trial, run.seed), Record::read(&run.folder)?, failure);
        self.results.work_out()
    }

    /// The values of a trial.
    pub fn setting(&self, trial: usize) -> Option<&Setting> {
        self.results.agenda().trials.get(trial).map(|trial| &trial.setting)
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
            let runs = self.due();
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
        self.results.record((run.trial, run.seed))
    }

    /// Why a run could not be trained.
    pub fn failure(&self, run: &DueRun) -> Option<&str> {
        self.results.failure((run.trial, run.seed))
    }

    /// Why the first of those that failed did.
    pub fn first_failure(&self) -> Option<&str> {
        self.results.first_failure()
    }

    /// The trials that have something to tell, by their numbers.
    pub fn trials(&self) -> Vec<Trial> {
        self.results.trials().cloned().collect()
    }

    /// How many of them there are.
    pub fn count(&self) -> usize {
        self.results.trials().count()
    }

    /// Training sequences that all runs have seen.
    pub fn sequences(&self) -> usize {
        self.results.sequences()
    }

    /// Writes `study.csv` and, where a trial has come far enough to be one, `best.toml`.
    ///
    /// # Errors
    /// If they cannot be written; what they held before is then still there.
    pub fn write(&self) -> Result<()> {
        write_atomically(&self.folder.table(), &table::csv(&self.keys(), self.results.trials()))?;
        match ranked(self.results.trials()).first() {
            Some(best) if best.loss.is_some() => {
                let config = self.outline().whole_config(self.results.config(best.trial));
                write_atomically(&self.folder.best(), config.to_toml().as_bytes())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The folder of a run, whether it is there or not.
    pub fn run_folder(&self, trial: usize, seed: usize) -> RunFolder {
        let name = match self.outline().seeds() {
            1 => format!("{trial:03}"),
            _ => format!("{trial:03}-seed-{seed}"),
        };
        RunFolder::at(self.folder.trials().join(name))
    }
}
