//! Runs in processes of their own: several side by side, and none that takes the others along.
//!
//! A study starts its own program with the command `trial` and tells it on standard input what to
//! train, in one line. The line stays open: when it ends, because the study asks for it or was killed,
//! the run saves and stops. So no orphan goes on behind the back of a study that is resumed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::StudyFolder;
use super::study::DueRun;
use crate::error::{Error, Result};
use crate::training::{Device, Ended, Summary};

/// What `trial` ends with where the fault is the trial's own, and others may do better.
pub const CANNOT_BE_TRAINED: i32 = 3;
/// How often the study looks whether a run has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What a run is told: where it is to go, and how far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// The run's folder: one that exists is gone on with.
    pub folder: PathBuf,
    /// Its `config.toml`.
    pub config: String,
    /// Steps after which it pauses.
    pub pause_at: Option<usize>,
}

/// Starts runs in processes of their own.
#[derive(Debug)]
pub struct Workers {
    /// The program, which has the command `trial`.
    program: PathBuf,
    device: Device,
    /// How many run at once.
    jobs: usize,
}

/// What became of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// All of them ended or paused.
    Done,
    /// The signal asked for the end, and those under way have saved and stopped.
    Interrupted,
}

struct Worker<'a> {
    run: &'a DueRun,
    child: Child,
    /// Closing it asks for the end.
    line: Option<ChildStdin>,
}

impl Workers {
    /// `jobs` processes of this very program.
    ///
    /// # Errors
    /// If the system does not say where the program is.
    pub fn new(device: Device, jobs: usize) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            Error::Failed(format!("cannot find this program to run trials with: {error}"))
        })?;
        Ok(Self { program, device, jobs: jobs.max(1) })
    }

    /// Trains every run as far as it is due, and tells `done` of each as it ends: of one that cannot be
    /// trained, why. One whose process was killed is tried once more, for whoever killed it may have meant
    /// the whole study.
    ///
    /// # Errors
    /// If the disk or the system fails, which no other trial would survive either, or `done` does. Those
    /// under way have then saved and stopped.
    pub fn train(
        &self,
        runs: &[DueRun],
        signal: &AtomicUsize,
        mut done: impl FnMut(&DueRun, Option<String>) -> Result<()>,
    ) -> Result<Happened> {
        let mut waiting = runs.iter().collect::<VecDeque<_>>();
        let mut killed: Vec<&DueRun> = Vec::new();
        let mut working: Vec<Worker> = Vec::new();
        let mut failed: Option<Error> = None;
        loop {
            let stop = failed.is_some() || signal.load(Ordering::Relaxed) != 0;
            if stop {
                working.iter_mut().for_each(|worker| worker.line = None);
            }
            while !stop && working.len() < self.jobs {
                let Some(run) = waiting.pop_front() else { break };
                match self.start(run) {
                    Ok(worker) => working.push(worker),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            if working.is_empty() && (stop || failed.is_some() || waiting.is_empty()) {
                return match failed {
                    Some(error) => Err(error),
                    None if stop => Ok(Happened::Interrupted),
                    None => Ok(Happened::Done),
                };
            }
            let mut index = 0;
            while index < working.len() {
                match working[index].child.try_wait() {
                    Ok(None) => index += 1,
                    Ok(Some(status)) => {
                        let mut worker = working.remove(index);
                        let outcome = match worker.outcome(status) {
                            Ok(Outcome::Trained) => done(worker.run, None),
                            // What fails because it was asked to end is no news.
                            Ok(Outcome::Killed(_) | Outcome::Failed(_)) if stop => Ok(()),
                            Ok(Outcome::Killed(_)) if !killed.contains(&worker.run) => {
                                killed.push(worker.run);
                                waiting.push_back(worker.run);
                                Ok(())
                            }
                            Ok(Outcome::Killed(why) | Outcome::Failed(why)) => done(worker.run, Some(why)),
                            Err(error) => Err(error),
                        };
                        if let Err(error) = outcome
                            && failed.is_none()
                        {
                            failed = Some(error);
                        }
                    }
                    Err(error) => {
                        let mut worker = working.remove(index);
                        let _ = worker.child.kill();
                        failed.get_or_insert(Error::Failed(format!("cannot wait for a trial: {error}")));
                    }
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn start<'a>(&self, run: &'a DueRun) -> Result<Worker<'a>> {
        let mut command = Command::new(&self.program);
        command.args(["trial", "--backend", self.device.backend.name()]);
        command.arg("--device").arg(self.device.index.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        if run.config.training.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
            // The cores are shared; results do not depend on the number of threads.
            let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
            command.env("RAYON_NUM_THREADS", (cores / self.jobs).max(1).to_string());
        }
        let failed = |error: std::io::Error| Error::Failed(format!("cannot start a trial: {error}"));
        // Ctrl-C in a terminal reaches a whole group of processes: runs have one of their own, and end by
        // their line, which they know from the beginning.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed)?;
        let errand = Errand {
            folder: run.folder.path().to_path_buf(),
            config: run.config.to_toml(),
            pause_at: run.pause_at,
        };
        let mut line = child.stdin.take();
        if let Some(line) = &mut line {
            let text = serde_json::to_string(&errand).expect("an errand holds plain values");
            // A run that ended before it read this says why on standard error.
            let _ = writeln!(line, "{text}");
        }
        Ok(Worker { run, child, line })
    }
}

/// How the process of a run ended.
enum Outcome {
    /// As runs do: a divergence is a result like any other.
    Trained,
    /// It was killed, as the system does where memory runs out.
    Killed(String),
    /// It cannot be trained, and this is why.
    Failed(String),
}

impl Worker<'_> {
    fn outcome(&mut self, status: ExitStatus) -> Result<Outcome> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let summary = Summary::read(&self.run.folder).ok();
        let diverged = summary.is_some_and(|summary| summary.ended == Ended::Diverged);
        // Ctrl-C may reach a run before it has a group of its own: it is gone on with like any other.
        let interrupted = matches!(status.code(), Some(130 | 143)) || is_asked_to_end(status);
        if status.success() || diverged || interrupted {
            return Ok(Outcome::Trained);
        }
        let name = self.run.folder.name();
        let line =
            said.lines().rfind(|line| line.starts_with("error: ")).map(|line| &line["error: ".len()..]);
        let problem = line.map_or_else(|| format!("its process ended with {status}"), str::to_string);
        match status.code() {
            // A panic says what it has to say on a line of its own.
            Some(CANNOT_BE_TRAINED | 101) => return Ok(Outcome::Failed(problem)),
            None => {
                return Ok(Outcome::Killed(format!("{problem}: the memory may not suffice for it")));
            }
            _ => {}
        }
        let message = format!("trial {name}: {problem}");
        Err(match status.code() {
            Some(2) => Error::Input(message),
            _ => Error::Failed(message),
        })
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // Only after a panic of the study is a run still there: it ends with its line.
        self.line = None;
        let _ = self.child.wait();
    }
}

/// Whether a process ended by a signal that asks politely: of Ctrl-C, a closed terminal, a shutdown.
fn is_asked_to_end(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return matches!(std::os::unix::process::ExitStatusExt::signal(&status), Some(1 | 2 | 15));
    #[cfg(not(unix))]
    return false;
}

/// The file of which every run of a study holds a shared lock while it works.
fn alive(trials: &Path) -> Result<File> {
    let path = trials.join(".alive");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| Error::io("write", &path, error))
}

impl Errand {
    /// Reads the errand of this process, and watches the line that it came on: when that ends, `signal`
    /// is set as SIGTERM sets it. The file holds the study's attention until it is dropped.
    ///
    /// # Errors
    /// If there is no errand on standard input.
    pub fn receive(signal: Arc<AtomicUsize>) -> Result<(Self, File)> {
        const TERMINATED: usize = 15;
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let errand = read.ok().and_then(|_| serde_json::from_str::<Self>(&line).ok());
        let errand = errand.ok_or_else(|| {
            Error::Input(
                "`trial` is for studies, which tell it on standard input what to train: see `tune`".into(),
            )
        })?;
        let alive = alive(errand.folder.parent().unwrap_or(Path::new(".")))?;
        let _ = alive.lock_shared();
        thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = signal.compare_exchange(0, TERMINATED, Ordering::Relaxed, Ordering::Relaxed);
        });
        Ok((errand, alive))
    }
}

/// Waits until no run of the study is at work: those of one that was killed save and stop by
/// themselves. Then removes what was left half-made.
///
/// # Errors
/// If the folder cannot be written.
pub fn follow(folder: &StudyFolder) -> Result<()> {
    let trials = folder.trials();
    let alive = alive(&trials)?;
    if alive.try_lock().is_err() {
        eprintln!("waiting for the runs of the killed study to save and stop");
        alive.lock().map_err(|error| Error::io("lock", &trials, error))?;
    }
    for entry in std::fs::read_dir(&trials).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".run-") {
            // What cannot be removed is in nobody's way: its name is hidden and never read.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
