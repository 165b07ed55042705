//! Trials as ordinary runs: a study starts its own program's `train` on the folder of a trial, as a person
//! would, and goes on with a survivor by `train --resume`.
//!
//! Each process holds the lock on `trials/.alive` that the study hands it as standard input. A study that is
//! resumed waits for that lock: the runs of one that was killed go on to where they were to pause.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::terminal::warn;
use crate::training::{Ended, RunFolder, Summary, dataset};

/// A run of a trial that is to be trained to a rung.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRun {
    /// Its trial.
    pub trial: usize,
    /// Which of the trial's seeds, counted from 0.
    pub seed: usize,
    /// Its folder: one that exists is resumed.
    pub folder: RunFolder,
    /// Its config.
    pub config: Config,
    /// Steps after which it pauses; none where it runs to its end.
    pub until: Option<usize>,
    /// The fingerprint of the data that it must have; none where that is drawn.
    pub data: Option<u64>,
}

/// Trains runs in processes of their own, several at once.
#[derive(Debug)]
pub struct Runner {
    /// This program, which has the command `train`.
    program: PathBuf,
    /// How many runs are trained at once.
    jobs: usize,
    /// `trials/.alive`, locked.
    alive: File,
}

/// A process that trains.
struct Process<'a> {
    run: &'a TrialRun,
    child: Child,
    /// The config file that it reads, removed when it has ended.
    _config: Option<NamedTempFile>,
}

/// How often the study looks whether a run has ended.
const LOOK: Duration = Duration::from_millis(5);

impl Runner {
    /// For a study whose runs are in the folder `trials`. Waits until no process of one that was killed is at
    /// work there, and removes what such processes left half-made.
    ///
    /// # Errors
    /// If the folder cannot be written, or the system does not say where this program is.
    pub fn new(trials: &Path, jobs: usize) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            Error::Failed(format!("cannot find this program to run trials with: {error}"))
        })?;
        let path = trials.join(".alive");
        let io = |error| Error::io("lock", &path, error);
        let alive = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
        if let Err(TryLockError::WouldBlock) = alive.try_lock() {
            warn("waiting for the runs of the killed study, which end at their next rung");
            alive.lock().map_err(io)?;
        }
        for entry in fs::read_dir(trials).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let is_hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if is_hidden && entry != path {
                // What cannot be removed is in nobody's way: it is never read.
                let _ = if entry.is_dir() { fs::remove_dir_all(entry) } else { fs::remove_file(entry) };
            }
        }
        Ok(Self { program, jobs: jobs.max(1), alive })
    }

    /// Trains every run as far as it is due, and calls `done` as each of them ends, with the reason where it
    /// could not be trained. Returns whether all were trained: not where `signal` asked for the end.
    ///
    /// # Errors
    /// If the disk or the system fails, which no other trial would survive either, or `done` does. The runs
    /// under way have then saved and stopped.
    pub fn train(
        &self,
        runs: &[TrialRun],
        signal: &AtomicUsize,
        mut done: impl FnMut(&TrialRun, Option<String>) -> Result<()>,
    ) -> Result<bool> {
        let mut waiting = runs.iter().collect::<VecDeque<_>>();
        let mut working: Vec<Process> = Vec::new();
        let mut trouble = Ok(());
        let mut stopping = false;
        loop {
            if !stopping && (trouble.is_err() || signal.load(Ordering::Relaxed) != 0) {
                stopping = true;
                working.iter_mut().for_each(Process::interrupt);
            }
            if !stopping
                && working.len() < self.jobs
                && let Some(run) = waiting.pop_front()
            {
                match self.start(run) {
                    Ok(process) => working.push(process),
                    Err(error) => trouble = Err(error),
                }
                continue;
            }
            if working.is_empty() {
                return trouble.map(|()| !stopping);
            }
            thread::sleep(LOOK);
            for mut process in working.extract_if(.., |process| process.has_ended()) {
                let outcome = match process.outcome() {
                    // What fails because it was asked to end is no news.
                    Ok(Some(_)) if stopping => Ok(()),
                    Ok(failure) => done(process.run, failure),
                    Err(error) => Err(error),
                };
                trouble = trouble.and(outcome);
            }
        }
    }

    /// Starts `train` on a run.
    fn start<'a>(&self, run: &'a TrialRun) -> Result<Process<'a>> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot start a trial: {error}"));
        let mut command = Command::new(&self.program);
        command.args(["train", "--progress", "none"]);
        let is_new = !run.folder.path().exists();
        let config = is_new.then(|| run.prepare()).transpose()?;
        match &config {
            Some(config) => command.arg(config.path()).arg("--run").arg(run.folder.path()),
            None => command.arg("--resume").arg(run.folder.path()),
        };
        if let Some(step) = run.until {
            command.args(["--until", &step.to_string()]);
        }
        if run.config.training.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
            // The cores are shared; results do not depend on the number of threads.
            let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
            command.env("RAYON_NUM_THREADS", (cores / self.jobs).max(1).to_string());
        }
        command.stdin(self.alive.try_clone().map_err(failed)?).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C in a terminal reaches a whole group of processes: the study passes it on by itself.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Process { run, child: command.spawn().map_err(failed)?, _config: config })
    }
}

impl TrialRun {
    /// Writes the config of a new run to a file beside its folder, for `train` to read.
    ///
    /// # Errors
    /// If the data is no longer that of the other trials, or the file cannot be written.
    fn prepare(&self) -> Result<NamedTempFile> {
        if self.data.is_some() {
            check_data(self.data, Some(dataset(&self.config)?.fingerprint()))?;
        }
        let trials = self.folder.path().parent().unwrap_or(Path::new("."));
        let io = |error: std::io::Error| Error::io("write", trials, error.kind().into());
        let hidden = tempfile::Builder::new().prefix(".trial-").suffix(".toml").tempfile_in(trials);
        let file = hidden.map_err(io)?;
        fs::write(file.path(), self.config.to_toml()).map_err(io)?;
        Ok(file)
    }

    /// Whether it is as far as it was to go.
    fn is_there(&self) -> bool {
        Summary::read(&self.folder).is_ok_and(|summary| match summary.ended {
            Ended::Completed | Ended::EarlyStopped | Ended::Diverged => true,
            Ended::Paused | Ended::Interrupted | Ended::TimeLimit => {
                self.until.is_some_and(|step| summary.steps >= step)
            }
        })
    }
}

/// Whether two fingerprints are of the same data, as far as both are known: the trials of a study are compared
/// on one validation set.
///
/// # Errors
/// If they are not.
pub fn check_data(here: Option<u64>, there: Option<u64>) -> Result<()> {
    match (here, there) {
        (Some(here), Some(there)) if here != there => Err(Error::Input(
            "the data has changed since the study began: restore what its trials were made with, or begin another \
             study"
                .into(),
        )),
        _ => Ok(()),
    }
}

impl Process<'_> {
    fn has_ended(&mut self) -> bool {
        // A child that cannot be asked is treated as one that has ended, and waited for.
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the run to save and stop.
    fn interrupt(&mut self) {
        #[cfg(unix)]
        // SAFETY: kill reads no memory, and a child that was not waited for keeps its number.
        unsafe {
            libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM);
        }
        #[cfg(not(unix))]
        let _ = self.child.kill();
    }

    /// Why the run could not be trained; none where it ended, paused, diverged or was interrupted.
    ///
    /// # Errors
    /// If what stopped it is no fault of the trial.
    fn outcome(&mut self) -> Result<Option<String>> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot wait for a trial: {error}"));
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.child.wait().map_err(failed)?;
        if status.success() || is_interrupted(status) || self.run.is_there() {
            return Ok(None);
        }
        let problem = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        let problem = problem.map_or_else(|| format!("its process ended with {status}"), str::to_string);
        match status.code() {
            // As the system does where memory runs out.
            None => Ok(Some(format!("{problem}: the memory may not suffice for it"))),
            // What `train` refuses for another reason than a value of the config, it would refuse the next
            // trial too: a full disk, a run that another process works in.
            Some(2) if !blames_a_key(&problem) => {
                Err(Error::Input(format!("trial {}: {problem}", self.run.folder.name())))
            }
            Some(_) => Ok(Some(problem)),
        }
    }
}

/// Whether an error is about the value of a config's key, as "`model.d_model` = 65536 ...".
fn blames_a_key(problem: &str) -> bool {
    problem.strip_prefix('`').is_some_and(|rest| rest.contains("` = "))
}

/// Whether a process was asked to end, by Ctrl-C, a closed terminal or a shutdown.
fn is_interrupted(status: ExitStatus) -> bool {
    #[cfg(unix)]
    if matches!(std::os::unix::process::ExitStatusExt::signal(&status), Some(1 | 2 | 15)) {
        return true;
    }
    matches!(status.code(), Some(129 | 130 | 143))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Trains runs by a program whose `train` does what `script` says in the folder of the trials, which is
    /// `$1` of it, and returns what was said of each.
    fn train(script: &str, runs: usize, jobs: usize) -> (Result<bool>, Vec<(usize, Option<String>)>) {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", place.path().display());
        // Written by a process of its own: what this one still had open for writing could not be started.
        let writes = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"", "sh"])
            .args([text.as_str(), program.to_str().unwrap()])
            .status();
        assert!(writes.unwrap().success());
        let runner = Runner { program, ..Runner::new(place.path(), jobs).unwrap() };
        let run = |trial: usize| TrialRun {
            trial,
            seed: 0,
            folder: RunFolder::at(place.path().join(trial.to_string())),
            config: Config::default(),
            until: Some(7),
            data: None,
        };
        let runs = (0..runs).map(run).collect::<Vec<_>>();
        let mut ended = Vec::new();
        let outcome = runner.train(&runs, &AtomicUsize::new(0), |run, why| {
            ended.push((run.trial, why));
            Ok(())
        });
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
        assert!(outcome.unwrap() && ended.len() == 3);
        assert_eq!(ended[0].1.as_deref(), Some("`model.d_model` = 7 is too large"));
        let (outcome, ended) = train("echo 'error: cannot write `x`: no space is left' >&2; exit 2", 3, 1);
        let told = outcome.unwrap_err().to_string();
        assert!(ended.is_empty() && told == "trial 0: cannot write `x`: no space is left", "{told}");
        let (outcome, ended) = train("kill -9 $$", 1, 1);
        assert!(outcome.is_ok() && ended[0].1.as_deref().unwrap().contains("the memory may not suffice"));
    }
}
