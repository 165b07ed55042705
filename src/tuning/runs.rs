//! Trials as ordinary runs: a study starts `train` on the folder of a trial, as a person would, and resumes a survivor
//! by `train --resume`.
//!
//! Each process holds the lock on `trials/.alive` that the study hands it as standard input. A study that is
//! resumed waits for that lock: the runs of one that was killed go on to where they were to pause. Of several
//! workers that `mpirun` started each has such a file, and trains one run at a time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::folder::{ALIVE, lock_alive, trials};
use super::process::{End, LOOK, Process, TrialCommand, call, dismiss, refuse_within_trial};
use super::trial::{Record, Run};
use crate::config::Config;
use crate::error::{Error, Result, ensure};
use crate::files::write_atomically;
use crate::training::{RunFolder, dataset};
use crate::workers::Workers;

/// A run of a trial that is to be trained to a rung.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRun {
    /// Its trial, and which of the trial's seeds it has.
    pub run: Run,
    /// Its folder: one that exists is resumed.
    pub folder: RunFolder,
    /// Its config.
    pub config: Config,
    /// Steps after which it pauses; none where it runs to its end.
    pub until: Option<usize>,
    /// The fingerprint of the data that it must have; none where that is drawn.
    pub data: Option<u64>,
}

/// Trains runs in processes of their own, several at once. Dropped, it has them save and stop, and waits for that.
#[derive(Debug)]
pub struct Runner {
    /// What trains a run.
    program: TrialCommand,
    /// The workers that train, of which this one is the first; alone it trains all at once.
    workers: Workers,
    /// How many runs are trained at once.
    jobs: usize,
    /// `trials/.alive`, locked.
    alive: File,
    working: Vec<Working>,
    /// Whether a signal has asked for the end.
    pub is_stopping: bool,
}

/// A run under way.
#[derive(Debug)]
struct Working {
    run: TrialRun,
    process: Process,
    /// The number of the job, which with several workers is the worker's.
    job: usize,
}

impl Runner {
    /// For a study whose runs are in the folder `trials`, each of which `program` trains. Waits until no process of a
    /// study that was killed is at work there.
    ///
    /// # Errors
    /// If the folder cannot be written, or this process itself trains a trial.
    pub fn new(trials: &Path, program: TrialCommand, jobs: usize) -> Result<Self> {
        refuse_within_trial()?;
        let alive = lock_alive(trials, 0)?;
        // Those of other workers of a study that was killed, on whichever machine.
        let mut others = fs::read_dir(trials).into_iter().flatten().flatten().filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix(ALIVE)?.strip_prefix('-')?.parse().ok()
        });
        others.try_for_each(|worker| lock_alive(trials, worker).map(drop))?;
        let workers = Workers::alone();
        Ok(Self { program, workers, jobs: jobs.max(1), alive, working: Vec::new(), is_stopping: false })
    }

    /// Shares the runs of a study with the other workers, each of which trains one at a time.
    ///
    /// # Errors
    /// If one of them cannot be reached, or does not see the folder.
    pub fn share(&mut self, workers: &Workers, study: &RunFolder) -> Result<()> {
        call(workers, study.path(), &trials(study))?;
        self.workers = workers.clone();
        Ok(())
    }

    /// Trains those of `waiting` as far as they are due, until one of them ends: it comes with the reason where it
    /// could not be trained. None where all have ended. Once `signal` asks for the end, those under way save and stop,
    /// and no other begins.
    ///
    /// # Errors
    /// If the disk or the system fails, which no other trial would survive either.
    pub fn next(
        &mut self,
        waiting: &mut VecDeque<TrialRun>,
        signal: &AtomicUsize,
    ) -> Result<Option<(TrialRun, Option<String>)>> {
        loop {
            if signal.load(Ordering::Relaxed) != 0 {
                self.stop();
                waiting.clear();
            }
            while self.working.len() < self.jobs
                && let Some(run) = waiting.pop_front()
            {
                let is_free = |job: &usize| self.working.iter().all(|working| working.job != *job);
                let job = (0..self.jobs).find(is_free).expect("there are fewer runs than jobs");
                let process = self.start(&run, job)?;
                self.working.push(Working { run, process, job });
            }
            if self.working.is_empty() {
                return Ok(None);
            }
            for place in 0..self.working.len() {
                if let Some(end) = self.working[place].process.end()? {
                    let Working { run, .. } = self.working.swap_remove(place);
                    // What fails because it was asked to end is no news.
                    let failure = run.failure(&end).map(|why| why.filter(|_| !self.is_stopping))?;
                    return Ok(Some((run, failure)));
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Asks the runs under way to save and stop.
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
        let is_open =
            run.config.training.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none();
        // The cores are shared; results do not depend on the number of threads.
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = self.workers.threads().unwrap_or((cores / self.jobs).max(1));
        let threads = is_open.then_some(threads);
        match self.workers.count() > 1 && job > 0 {
            true => Process::start_there(&self.workers, job, arguments, threads),
            false => Process::start(&self.program, &arguments, threads, &self.alive),
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
        for working in &mut self.working {
            let _ = working.process.wait();
            working.run.forget_config();
        }
        dismiss(&self.workers);
    }
}

impl TrialRun {
    /// Writes the config of a new run to a file beside its folder, for `train` to read.
    ///
    /// # Errors
    /// If the data is no longer that of the other trials, or the file cannot be written.
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

    /// Removes the file of [`Self::write_config`]: whatever becomes of the run, it is never read again.
    fn forget_config(&self) {
        let _ = fs::remove_file(self.config_file());
    }

    /// Why the run could not be trained, by the end of its process; none where it ended, paused, diverged or was
    /// interrupted.
    ///
    /// # Errors
    /// If what stopped it is no fault of the trial.
    fn failure(&self, end: &End) -> Result<Option<String>> {
        self.forget_config();
        // Asked to end by Ctrl-C, a closed terminal or a shutdown.
        let is_interrupted =
            matches!((end.code, end.signal), (Some(129 | 130 | 143), _) | (_, Some(1 | 2 | 15)));
        if is_interrupted || self.is_there() {
            return Ok(None);
        }
        if end.code == Some(0) {
            return Ok(Some("its process reported success but left no result in its folder".into()));
        }
        let problem = end.said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        // Without the place in the config, which is gone.
        let file = format!("{}:", self.config_file().display());
        let problem = problem.map(|problem| {
            let placed = problem.strip_prefix(&file).and_then(|place| place.split_once(": "));
            placed.map_or(problem, |(_, problem)| problem)
        });
        let problem =
            problem.map_or_else(|| format!("its process ended with {}", end.describe()), str::to_string);
        let blames_a_key = problem.strip_prefix('`').is_some_and(|rest| rest.contains("` = "));
        match end.code {
            // As the system does where memory runs out.
            None => Ok(Some(format!("{problem}: the memory may not suffice for it"))),
            // What `train` refuses for another reason than a value of the config, it would refuse the next
            // trial too: a full disk, a run that another process works in.
            Some(2) if !blames_a_key => Err(Error::Input(format!("trial {}: {problem}", self.folder.name()))),
            Some(_) => Ok(Some(problem)),
        }
    }

    /// Whether it is as far as it was to go.
    fn is_there(&self) -> bool {
        let record = Record::read(&self.folder).ok().flatten();
        record.is_some_and(|record| record.loss_at(self.until.unwrap_or(usize::MAX)).is_some())
    }
}

/// Whether two fingerprints are of the same data, as far as both are known: the trials of a study are compared
/// on one validation set.
///
/// # Errors
/// If they are not.
pub fn check_data(here: Option<u64>, there: Option<u64>) -> Result<()> {
    ensure(here.zip(there).is_none_or(|(here, there)| here == there), Error::Input, || {
        "the data has changed since the study began: restore what its trials were made with, or begin another study"
            .into()
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Trains runs by a program whose `train` does what `script` says in the folder of the trials, which is
    /// `$1` of it, and returns what was said of each.
    fn train(script: &str, runs: usize, jobs: usize) -> (Result<()>, Vec<(usize, Option<String>)>) {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", place.path().display());
        // Written by a process of its own: what this one still had open for writing could not be started.
        let writes = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"", "sh"])
            .args([text.as_str(), program.to_str().unwrap()])
            .status();
        assert!(writes.unwrap().success());
        let mut runner = Runner::new(place.path(), TrialCommand::new(program), jobs).unwrap();
        let run = |trial: usize| TrialRun {
            run: (trial, 0),
            folder: RunFolder::at(place.path().join(trial.to_string())),
            config: Config::default(),
            until: Some(7),
            data: None,
        };
        let mut runs = (0..runs).map(run).collect::<VecDeque<_>>();
        let mut ended = Vec::new();
        let outcome = loop {
            match runner.next(&mut runs, &AtomicUsize::new(0)) {
                Ok(Some((run, why))) => ended.push((run.run.0, why)),
                outcome => break outcome.map(drop),
            }
        };
        ended.sort();
        (outcome, ended)
    }

    #[test]
    fn a_run_is_asked_for_as_a_person_would_ask() {
        let (_, ended) = train(
            "echo \"error: $(echo \"$@\" | sed 's/\\S*\\.toml/CONFIG/; s/\\S*\\/0/DIR/')\" >&2; exit 1",
            1,
            1,
        );
        let asked = "train --progress none CONFIG --run DIR --until 7";
        assert_eq!(ended, [(0, Some(asked.to_string()))]);
    }

    #[test]
    fn a_trial_fails_by_itself_where_a_key_is_blamed_and_other_trouble_ends_the_study() {
        let (outcome, ended) = train("echo 'error: `model.d_model` = 7 is too large' >&2; exit 2", 3, 2);
        assert!(outcome.is_ok() && ended.len() == 3);
        assert_eq!(ended[0].1.as_deref(), Some("`model.d_model` = 7 is too large"));
        let (outcome, ended) = train("echo 'error: cannot write `x`: no space is left' >&2; exit 2", 3, 1);
        let told = outcome.unwrap_err().to_string();
        assert!(ended.is_empty() && told == "trial 0: cannot write `x`: no space is left", "{told}");
        let (outcome, ended) = train("true", 2, 1);
        assert!(outcome.is_ok() && ended.len() == 2);
        assert!(ended[0].1.as_deref().unwrap().contains("left no result"), "{ended:?}");
        let (outcome, ended) = train("kill -9 $$", 1, 1);
        assert!(outcome.is_ok() && ended[0].1.as_deref().unwrap().contains("the memory may not suffice"));
    }
}
