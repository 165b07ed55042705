//! Trials as ordinary runs: a study starts its own program's `train` on the folder of a trial, as a person
//! would, and goes on with a survivor by `train --resume`.
//!
//! Each process holds the lock on `trials/.alive` that the study hands it as standard input. A study that is
//! resumed waits for that lock: the runs of one that was killed go on to where they were to pause.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{study::Run, trial::Record};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::terminal::warn;
use crate::training::{RunFolder, dataset};

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
    /// This program, which has the command `train`.
    program: PathBuf,
    /// How many runs are trained at once.
    jobs: usize,
    /// `trials/.alive`, locked.
    alive: File,
    working: Vec<Process>,
    /// Whether a signal has asked for the end.
    pub is_stopping: bool,
}

/// A process that trains.
#[derive(Debug)]
struct Process {
    run: TrialRun,
    child: Child,
}

/// How often the study looks whether a run has ended.
const LOOK: Duration = Duration::from_millis(5);

impl Runner {
    /// For a study whose runs are in the folder `trials`. Waits until no process of one that was killed is at
    /// work there.
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
            warn("notice: waiting for the runs of the killed study, which end at their next rung");
            alive.lock().map_err(io)?;
        }
        Ok(Self { program, jobs: jobs.max(1), alive, working: Vec::new(), is_stopping: false })
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
                let process = self.start(run)?;
                self.working.push(process);
            }
            if self.working.is_empty() {
                return Ok(None);
            }
            // A child that cannot be asked is treated as one that has ended, and waited for.
            let has_ended = |process: &mut Process| !matches!(process.child.try_wait(), Ok(None));
            if let Some(place) = self.working.iter_mut().position(has_ended) {
                let mut process = self.working.swap_remove(place);
                // What fails because it was asked to end is no news.
                let failure = process.failure().map(|why| why.filter(|_| !self.is_stopping))?;
                return Ok(Some((process.run, failure)));
            }
            thread::sleep(LOOK);
        }
    }

    /// Asks the runs under way to save and stop.
    fn stop(&mut self) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        for process in &mut self.working {
            #[cfg(unix)]
            // SAFETY: kill reads no memory, and a child that was not waited for keeps its number.
            unsafe {
                libc::kill(process.child.id() as libc::pid_t, libc::SIGTERM);
            }
            #[cfg(not(unix))]
            let _ = process.child.kill();
        }
    }

    /// Starts `train` on a run.
    fn start(&self, run: TrialRun) -> Result<Process> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot start a trial: {error}"));
        let mut command = Command::new(&self.program);
        command.args(["train", "--progress", "none"]);
        match run.folder.path().exists() {
            true => command.arg("--resume").arg(run.folder.path()),
            false => command.arg(run.write_config()?).arg("--run").arg(run.folder.path()),
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
        Ok(Process { run, child: command.spawn().map_err(failed)? })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
        for process in &mut self.working {
            let _ = process.failure();
        }
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
    match here.zip(there) {
        Some((here, there)) if here != there => Err(Error::Input(
            "the data has changed since the study began: restore what its trials were made with, or begin another \
             study"
                .into(),
        )),
        _ => Ok(()),
    }
}

impl Process {
    /// Waits for the end: why the run could not be trained, none where it ended, paused, diverged or was interrupted.
    ///
    /// # Errors
    /// If what stopped it is no fault of the trial.
    fn failure(&mut self) -> Result<Option<String>> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.child.wait();
        // It was there for a run that began; whatever becomes of it, it is never read again.
        let _ = fs::remove_file(self.run.config_file());
        let status = status.map_err(|error| Error::Failed(format!("cannot wait for a trial: {error}")))?;
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal = None;
        // Asked to end by Ctrl-C, a closed terminal or a shutdown.
        let is_interrupted =
            matches!((status.code(), signal), (Some(129 | 130 | 143), _) | (_, Some(1 | 2 | 15)));
        if status.success() || is_interrupted || self.run.is_there() {
            return Ok(None);
        }
        let problem = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        let problem = problem.map_or_else(|| format!("its process ended with {status}"), str::to_string);
        let blames_a_key = problem.strip_prefix('`').is_some_and(|rest| rest.contains("` = "));
        match status.code() {
            // As the system does where memory runs out.
            None => Ok(Some(format!("{problem}: the memory may not suffice for it"))),
            // What `train` refuses for another reason than a value of the config, it would refuse the next
            // trial too: a full disk, a run that another process works in.
            Some(2) if !blames_a_key => {
                Err(Error::Input(format!("trial {}: {problem}", self.run.folder.name())))
            }
            Some(_) => Ok(Some(problem)),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
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
        let mut runner = Runner::new(place.path(), jobs).unwrap();
        runner.program = program;
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
        let (outcome, ended) = train("kill -9 $$", 1, 1);
        assert!(outcome.is_ok() && ended[0].1.as_deref().unwrap().contains("the memory may not suffice"));
    }
}
