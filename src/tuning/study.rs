//! A study: its folder, its trials and what they amount to.
//!
//! The folder holds `config.toml` with the search, `trials/` with an ordinary run folder for each run,
//! `study.csv`, `best.toml`, `plots/` and `report.html`. What is done is read from the runs themselves,
//! so there is nothing that could contradict them.

use std::fs;
use std::sync::atomic::AtomicUsize;

use serde::Serialize;

use super::folder::StudyFolder;
use super::outline::Outline;
use super::overfit::OverfitCheck;
use super::proposal::Due;
use super::results::{Results, Run};
use super::runs::{Runner, TrialRun, check_data};
use super::table;
use super::trial::{Record, Trial, ranked};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::training::{Lock, RUNS, RunFolder, Target, data_fingerprint};

/// A study that this process has locked.
#[derive(Debug)]
pub struct Study {
    folder: StudyFolder,
    results: Results,
    _lock: Lock,
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
    /// The loss of the best possible predictor, where it is known.
    pub floor: Option<f64>,
    /// Runs of each trial, whose losses are means; curves are those of the first.
    pub seeds: usize,
}

impl Study {
    /// Makes the folder of a new study at `target`, by one rename, and what trains up to `jobs` of its runs at
    /// once.
    ///
    /// # Errors
    /// If the folder exists or cannot be written.
    pub fn create(config: &Config, outline: Outline, target: &Target, jobs: usize) -> Result<(Self, Runner)> {
        let (folder, lock) = RunFolder::create(target, |folder| {
            let folder = StudyFolder::at(folder.clone());
            let trials = folder.trials();
            fs::create_dir(&trials).map_err(|error| Error::io("create", &trials, error))?;
            write_atomically(&folder.config(), config.to_toml().as_bytes())
        })?;
        Self::open(outline, StudyFolder::at(folder), lock, jobs)
    }

    /// Opens the study in `folder`, once the runs of a process that was killed have ended.
    ///
    /// # Errors
    /// If another process works in it, its runs were not made by it, or its data has changed.
    pub fn resume(outline: Outline, folder: StudyFolder, jobs: usize) -> Result<(Self, Runner)> {
        let lock = folder.lock()?;
        Self::open(outline, folder, lock, jobs)
    }

    fn open(outline: Outline, folder: StudyFolder, lock: Lock, jobs: usize) -> Result<(Self, Runner)> {
        let runner = Runner::new(&folder.trials(), jobs)?;
        let mut study = Self { folder, results: Results::new(outline)?, _lock: lock };
        study.read()?;
        Ok((study, runner))
    }

    /// Writes what the overfit check found, which is then not made again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_overfit_check(&self, found: &OverfitCheck) -> Result<()> {
        let json = serde_json::to_vec_pretty(found).expect("an overfit check holds plain values");
        write_atomically(&self.folder.overfit_check(), &json)
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

    /// Reads what is done.
    fn read(&mut self) -> Result<()> {
        loop {
            let mut found = false;
            for trial in 0..self.results.agenda().trials.len() {
                for seed in 0..self.outline().seeds() {
                    found |= !self.results.knows((trial, seed)) && self.read_run((trial, seed))?;
                }
            }
            if !found {
                return Ok(());
            }
            // What is done now may bring further trials.
            self.results.work_out()?;
        }
    }

    /// Reads how far a run is, and why it could not be trained; whether anything is known of it.
    fn read_run(&mut self, run: Run) -> Result<bool> {
        let (trial, seed) = run;
        let folder = self.run_folder(trial, seed);
        let failure = StudyFolder::failure(&folder);
        let read = || fs::read_to_string(&failure).map_err(|error| Error::io("read", &failure, error));
        let why = failure.exists().then(read).transpose()?.map(|why| why.trim().to_string());
        let mut record = None;
        if folder.config().exists() {
            let expected = self.outline().trial_config(self.results.config(trial), seed);
            StudyFolder::check_trial(&folder, &expected)?;
            check_data(self.outline().data, data_fingerprint(&folder))?;
            record = Record::read(&folder)?;
        }
        let is_known = record.is_some() || why.is_some();
        self.results.record(run, record, why);
        Ok(is_known)
    }

    /// The folder of the study.
    pub fn folder(&self) -> &StudyFolder {
        &self.folder
    }

    /// What it was to do from the beginning.
    pub fn outline(&self) -> &Outline {
        self.results.outline()
    }

    /// What its runs say.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// What it found so far; none where no trial has a loss.
    pub fn findings(&self) -> Option<Findings> {
        let trials = ranked(self.results.trials()).into_iter().cloned().collect::<Vec<_>>();
        trials.iter().any(|trial| trial.loss.is_some()).then(|| Findings {
            study: self.folder.name(),
            keys: self.outline().proposer.keys(),
            floor: trials.iter().find_map(|trial| trial.floor),
            seeds: self.outline().seeds(),
            trials,
        })
    }

    /// The runs that are due now; none where the study is complete.
    fn due(&self) -> Vec<TrialRun> {
        let outline = self.outline();
        let mut runs = Vec::new();
        for &Due { trial, rung } in &self.results.agenda().due {
            let config = self.results.config(trial);
            let (step, pauses) = outline.rung(config, rung);
            for seed in 0..outline.seeds() {
                let record = self.results.run((trial, seed));
                let is_there = record.is_some_and(|record| record.loss_at(step).is_some());
                if is_there || self.results.failure((trial, seed)).is_some() {
                    continue;
                }
                runs.push(TrialRun {
                    trial,
                    seed,
                    folder: self.run_folder(trial, seed),
                    config: outline.trial_config(config, seed),
                    until: pauses.then_some(step),
                    data: outline.data,
                });
            }
        }
        runs
    }

    /// Trains whatever is due until nothing is, or the signal asks for the end: then it returns false. The
    /// tables are written after each run, and `after` is called.
    ///
    /// # Errors
    /// If a file cannot be written, or the system fails: what is done stays done.
    pub fn conduct(
        &mut self,
        runner: &Runner,
        signal: &AtomicUsize,
        mut after: impl FnMut(&Self, &TrialRun),
    ) -> Result<bool> {
        self.write()?;
        loop {
            let runs = self.due();
            if runs.is_empty() {
                return Ok(true);
            }
            let all = runner.train(&runs, signal, |run, failure| {
                if let Some(why) = &failure {
                    write_atomically(&StudyFolder::failure(&run.folder), format!("{why}\n").as_bytes())?;
                }
                self.read_run((run.trial, run.seed))?;
                self.results.work_out()?;
                self.write()?;
                after(self, run);
                Ok(())
            })?;
            if !all {
                return Ok(false);
            }
        }
    }

    /// Writes `study.csv` and, where a trial has come far enough to be one, `best.toml`.
    fn write(&self) -> Result<()> {
        let table = table::csv(&self.outline().proposer.keys(), self.results.trials());
        write_atomically(&self.folder.table(), &table)?;
        match ranked(self.results.trials()).first() {
            Some(best) if best.loss.is_some() => {
                let config = self.outline().whole_config(self.results.config(best.trial));
                write_atomically(&self.folder.best(), config.to_toml().as_bytes())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The page of a trial's run, relative to the study's folder; of several seeds that of the first. None where
    /// it is not there: a run that only paused has none.
    pub fn page(&self, trial: &Trial) -> Option<String> {
        let run = self.run_folder(trial.trial, 0);
        run.report().exists().then(|| format!("trials/{}/report.html", run.name()))
    }

    /// The folder of a run, whether it is there or not.
    fn run_folder(&self, trial: usize, seed: usize) -> RunFolder {
        let name = match self.outline().seeds() {
            1 => format!("{trial:03}"),
            _ => format!("{trial:03}-seed-{seed}"),
        };
        RunFolder::at(self.folder.trials().join(name))
    }
}
