//! Trials as ordinary runs: a study starts `train` on the folder of a trial as a user would, and resumes a survivor
//! with `train --resume`.
//!
//! Each process holds the lock on `trials/.alive`, which it inherits from the study as standard input. If a study
//! is killed, its runs continue to their next rung. A resumed study waits for the lock until they have ended. Each
//! worker started by `mpirun` has a lock file of its own and trains one run at a time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use super::folder::{LOCK_PREFIX, lock_alive, trials};
use super::process::{End, POLL_INTERVAL, Process, TrialCommand, dismiss, enlist, refuse_within_trial};
use super::trial::{Record, Run};
use crate::config::Config;
use crate::error::{Error, Result, ensure};
use crate::files::write_atomically;
use crate::training::{RunFolder, StopSignal, dataset};
use crate::workers::Workers;

/// A run of a trial that is to be trained to a rung.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRun {
    /// The indices of the trial and of the seed.
    pub run: Run,
    /// The folder of the run; an existing one is resumed.
    pub folder: RunFolder,
    /// The config of the run.
    pub config: Config,
    /// The step at which the run pauses; `None` to run to the end.
    pub until: Option<usize>,
    /// The expected fingerprint of the data; `None` if the data is generated.
    pub data: Option<u64>,
}

/// Trains runs in separate processes, several at the same time. When dropped, it makes them save and stop, and waits
/// for them.
#[derive(Debug)]
pub struct Runner {
    /// The command that trains a run.
    program: TrialCommand,
    /// The workers that train; this process is worker 0. Without other workers, it trains all runs itself.
    workers: Workers,
    /// The number of runs trained at the same time.
    jobs: usize,
    /// The locked file `trials/.alive`.
    alive: File,
    working: Vec<Working>,
    /// True if a signal has requested the end.
    pub is_stopping: bool,
}

/// A run in progress.
#[derive(Debug)]
struct Working {
    run: TrialRun,
    process: Process,
    /// The index of the job; with several workers, the rank of the worker.
    job: usize,
}

impl Runner {
    /// Creates a runner for a study with runs in the folder `trials`, each trained by `program`. Waits until no process
    /// of a killed study is active there.
    ///
    /// # Errors
    /// If the folder cannot be written, or this process itself trains a trial.
    pub fn new(trials: &Path, program: TrialCommand, jobs: usize) -> Result<Self> {
        refuse_within_trial()?;
        let alive = lock_alive(trials, 0)?;
        // The lock files of other workers of a killed study, on any machine.
        let mut others = fs::read_dir(trials).into_iter().flatten().flatten().filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix(LOCK_PREFIX)?.strip_prefix('-')?.parse().ok()
        });
        others.try_for_each(|worker| lock_alive(trials, worker).map(drop))?;
        let workers = Workers::single();
        Ok(Self { program, workers, jobs: jobs.max(1), alive, working: Vec::new(), is_stopping: false })
    }

    /// Shares the runs of a study with the other workers, each of which trains one at a time.
    ///
    /// # Errors
    /// If a worker cannot be reached, or does not see the folder.
    pub fn share(&mut self, workers: &Workers, study: &RunFolder) -> Result<()> {
        enlist(workers, study.path(), &trials(study))?;
        self.workers = workers.clone();
        Ok(())
    }

    /// Trains the runs of `waiting` until one of them ends. Returns that run, with the reason if it could not be
    /// trained, or `None` if all have ended. After `signal` has requested the end, running processes save and stop, and
    /// no other run starts.
    ///
    /// # Errors
    /// If the disk or the system fails, which would make every other trial fail too.
    pub fn next(
        &mut self,
        waiting: &mut VecDeque<TrialRun>,
        signal: &StopSignal,
    ) -> Result<Option<(TrialRun, Option<String>)>> {
        loop {
            if signal.received().is_some() {
                self.stop();
                waiting.clear();
            }
            while self.working.len() < self.jobs
                && let Some(run) = waiting.pop_front()
            {
                let is_free = |job: &usize| self.working.iter().all(|working| working.job != *job);
                let job = (0..self.jobs).find(is_free).expect("the runs outnumber the jobs");
                let process = self.start(&run, job)?;
                self.working.push(Working { run, process, job });
            }
            if self.working.is_empty() {
                return Ok(None);
            }
            for index in 0..self.working.len() {
                if let Some(end) = self.working[index].process.end()? {
                    let Working { run, .. } = self.working.swap_remove(index);
                    // A failure of a run that was asked to stop is not reported.
                    let failure = run.failure(&end).map(|why| why.filter(|_| !self.is_stopping))?;
                    return Ok(Some((run, failure)));
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks the runs in progress to save and stop.
    fn stop(&mut self) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        self.working.iter_mut().for_each(|working| working.process.stop());
    }

    /// Starts `train` on a run.
    fn start(&self, run: &TrialRun, job: usize) -> Result<Process> {
        let folder = run.folder.path();
        let path = |path: &Path| path.display().to_string();
        let mut arguments = ["train", "--progress", "none"].map(String::from).to_vec();
        match folder.exists() {
            true => arguments.extend(["--resume".into(), path(folder)]),
            false => arguments.extend([path(&run.write_config()?), "--run".into(), path(folder)]),
        }
        if let Some(step) = run.until {
            arguments.extend(["--until".into(), step.to_string()]);
        }
        let is_unset =
            run.config.training.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none();
        // Runs share the cores. The results do not depend on the number of threads.
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.workers.threads().unwrap_or((cores / self.jobs).max(1));
        let threads = is_unset.then_some(threads);
        match self.workers.count() > 1 && job > 0 {
            true => Process::start_remote(&self.workers, job, arguments, threads),
            false => Process::start(&self.program, &arguments, threads, &self.alive),
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
        for working in &mut self.working {
            let _ = working.process.wait();
            working.run.remove_config();
        }
        dismiss(&self.workers);
    }
}

impl TrialRun {
    /// Writes the config of a new run to a file next to its folder, for `train` to read.
    ///
    /// # Errors
    /// If the data has changed since the other trials, or the file cannot be written.
    fn write_config(&self) -> Result<PathBuf> {
        if self.data.is_some() {
            check_data(self.data, Some(dataset(&self.config)?.fingerprint()))?;
        }
        write_atomically(&self.config_file(), self.config.to_toml().as_bytes())?;
        Ok(self.config_file())
    }

    fn config_file(&self) -> PathBuf {
        self.folder.path().with_extension("toml")
    }

    /// Removes the file of [`Self::write_config`], which is never read again, whatever the outcome of the run.
    fn remove_config(&self) {
        let _ = fs::remove_file(self.config_file());
    }

    /// Returns the reason why the run could not be trained, from the exit of its process. Returns `None` if the run
    /// ended, paused, diverged or was interrupted.
    ///
    /// # Errors
    /// If the cause of the failure is not specific to the trial.
    fn failure(&self, end: &End) -> Result<Option<String>> {
        self.remove_config();
        // Interrupted by Ctrl-C, a closed terminal or a shutdown.
        let is_interrupted =
            matches!((end.code, end.signal), (Some(129 | 130 | 143), _) | (_, Some(1 | 2 | 15)));
        if is_interrupted || self.has_reached_target() {
            return Ok(None);
        }
        if end.code == Some(0) {
            return Ok(Some("its process reported success but left no result in its folder".into()));
        }
        let problem = end.said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        // The location in the config is removed, because that file no longer exists.
        let file = format!("{}:", self.config_file().display());
        let problem = problem.map(|problem| {
            let located = problem.strip_prefix(&file).and_then(|rest| rest.split_once(": "));
            located.map_or(problem, |(_, problem)| problem)
        });
        let problem =
            problem.map_or_else(|| format!("its process ended with {}", end.describe()), str::to_string);
        let is_key_error = problem.strip_prefix('`').is_some_and(|rest| rest.contains("` = "));
        match end.code {
            // Killed by a signal, possibly by the system because memory ran out.
            None => Ok(Some(format!("{problem}; it may have run out of memory"))),
            // Any error other than an invalid value in the config would occur in the next trial too, such as a full
            // disk or a run in use by another process.
            Some(2) if !is_key_error => Err(Error::Input(format!("trial {}: {problem}", self.folder.name()))),
            Some(_) => Ok(Some(problem)),
        }
    }

    /// Returns true if the run has reached its target step.
    fn has_reached_target(&self) -> bool {
        let record = Record::read(&self.folder).ok().flatten();
        record.is_some_and(|record| record.loss_at(self.until.unwrap_or(usize::MAX)).is_some())
    }
}

/// Checks that two fingerprints are equal if both are known, because the trials of a study are compared on one
/// validation set.
///
/// # Errors
/// If the fingerprints differ.
pub fn check_data(here: Option<u64>, there: Option<u64>) -> Result<()> {
    ensure(here.zip(there).is_none_or(|(here, there)| here == there), Error::Input, || {
        "the data has changed since the study started; restore the original data, or start another study"
            .into()
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Trains runs with a program whose `train` executes `script` in the folder of the trials. Returns the outcome, and
    /// for each run the reason if it failed.
    fn train(script: &str, runs: usize, jobs: usize) -> (Result<()>, Vec<(usize, Option<String>)>) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", dir.path().display());
        // A separate process writes the file, because a program still open for writing in this process cannot be
        // started.
        let writes = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"", "sh"])
            .args([text.as_str(), program.to_str().unwrap()])
            .status();
        assert!(writes.unwrap().success());
        let mut runner = Runner::new(dir.path(), TrialCommand::new(program), jobs).unwrap();
        let run = |trial: usize| TrialRun {
            run: (trial, 0),
            folder: RunFolder::at(dir.path().join(trial.to_string())),
            config: Config::default(),
            until: Some(7),
            data: None,
        };
        let mut runs = (0..runs).map(run).collect::<VecDeque<_>>();
        let mut ended = Vec::new();
        let outcome = loop {
            match runner.next(&mut runs, &StopSignal::default()) {
                Ok(Some((run, why))) => ended.push((run.run.0, why)),
                outcome => break outcome.map(drop),
            }
        };
        ended.sort();
        (outcome, ended)
    }

    #[test]
    fn trials_run_through_the_train_command() {
        let (_, ended) = train(
            "echo \"error: $(echo \"$@\" | sed 's/\\S*\\.toml/CONFIG/; s/\\S*\\/0/DIR/')\" >&2; exit 1",
            1,
            1,
        );
        let arguments = "train --progress none CONFIG --run DIR --until 7";
        assert_eq!(ended, [(0, Some(arguments.to_string()))]);
    }

    #[test]
    fn only_system_errors_end_the_study() {
        let (outcome, ended) = train("echo 'error: `model.d_model` = 7 is too large' >&2; exit 2", 3, 2);
        assert!(outcome.is_ok() && ended.len() == 3);
        assert_eq!(ended[0].1.as_deref(), Some("`model.d_model` = 7 is too large"));
        let (outcome, ended) = train("echo 'error: cannot write `x`: no space is left' >&2; exit 2", 3, 1);
        let message = outcome.unwrap_err().to_string();
        assert!(ended.is_empty() && message == "trial 0: cannot write `x`: no space is left", "{message}");
        let (outcome, ended) = train("true", 2, 1);
        assert!(outcome.is_ok() && ended.len() == 2);
        assert!(ended[0].1.as_deref().unwrap().contains("left no result"), "{ended:?}");
        let (outcome, ended) = train("kill -9 $$", 1, 1);
        assert!(outcome.is_ok() && ended[0].1.as_deref().unwrap().contains("it may have run out of memory"));
    }
}
