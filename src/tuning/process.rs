//! A process that trains one run of a study: a child of this program, or one of another worker that `mpirun` started.
//!
//! A worker other than 0 [serves](serve): it starts `train` where worker 0 asks for it, and tells how it ended. A run is
//! so one process on one machine, whichever it is.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::lock_alive;
use crate::error::{Error, Result, ensure};
use crate::workers::{Presence, Workers, remove_left_behind, without_launcher};

/// How often one looks whether a run has ended.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// What worker 0 asks of another one.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// To start the program with these arguments, and with so many threads where that is said.
    Train(Vec<String>, Option<usize>),
    /// To have it save and stop.
    Stop,
    /// To leave.
    Leave,
}

/// The variable by which a process knows that it trains a trial.
const TRIAL: &str = "CAUSAL_ATTENTION_TRIAL";

/// The command that trains a trial: what `causal-attention` does for `train` and the arguments of it that follow.
///
/// A program of one's own names the installed `causal-attention`, or itself where it hands its arguments over to
/// [`crate::cli::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before `train`.
    pub arguments: Vec<OsString>,
}

impl TrialCommand {
    /// A program without arguments before `train`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: Vec::new() }
    }

    /// The program that is running.
    ///
    /// # Errors
    /// If the system does not say where it is.
    pub fn current() -> Result<Self> {
        std::env::current_exe()
            .map(Self::new)
            .map_err(|error| Error::Failed(format!("cannot find this program to run trials with: {error}")))
    }
}

/// Refuses to begin or resume a study in a process that a study started to train a trial: such a program would start
/// itself without end.
pub(super) fn refuse_within_trial() -> Result<()> {
    ensure(std::env::var_os(TRIAL).is_none(), Error::Input, || {
        "a trial cannot run a study: give the study a command that trains, as TrialCommand::new(\"causal-attention\")"
            .into()
    })
}

/// How a process ended, and what it said on standard error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) said: String,
}

/// Where a run is trained.
#[derive(Debug)]
pub(super) enum Process {
    Here(Child),
    /// By the worker of this number.
    There(usize, Workers),
}

impl Process {
    /// Starts `train` here. The child holds the lock `alive` as its standard input.
    pub(super) fn start(
        program: &TrialCommand,
        arguments: &[String],
        threads: Option<usize>,
        alive: &File,
    ) -> Result<Self> {
        let shown = program.program.display();
        let failed =
            |error: std::io::Error| Error::Failed(format!("cannot start `{shown}` for a trial: {error}"));
        let mut command = Command::new(&program.program);
        command.args(&program.arguments).args(arguments).env(TRIAL, "1");
        without_launcher(&mut command);
        if let Some(threads) = threads {
            command.env("RAYON_NUM_THREADS", threads.to_string());
        }
        command.stdin(alive.try_clone().map_err(failed)?).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C in a terminal reaches a whole group of processes: the study passes it on by itself.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Self::Here(command.spawn().map_err(failed)?))
    }

    /// Has another worker start it.
    pub(super) fn start_there(
        workers: &Workers,
        rank: usize,
        arguments: Vec<String>,
        threads: Option<usize>,
    ) -> Result<Self> {
        workers.send(rank, &Request::Train(arguments, threads))?;
        Ok(Self::There(rank, workers.clone()))
    }

    /// How it ended; none while it is at work.
    pub(super) fn end(&mut self) -> Result<Option<End>> {
        match self {
            // A child that cannot be asked is treated as one that has ended, and waited for.
            Self::Here(child) => match child.try_wait() {
                Ok(None) => Ok(None),
                _ => self.wait().map(Some),
            },
            Self::There(rank, workers) => workers.poll(*rank),
        }
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Result<End> {
        let child = match self {
            Self::Here(child) => child,
            Self::There(rank, workers) => loop {
                match workers.poll(*rank)? {
                    Some(end) => return Ok(end),
                    None => thread::sleep(LOOK),
                }
            },
        };
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let status =
            child.wait().map_err(|error| Error::Failed(format!("cannot wait for a trial: {error}")))?;
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal = None;
        Ok(End { code: status.code(), signal, said })
    }

    /// Asks it to save and stop.
    pub(super) fn stop(&mut self) {
        match self {
            #[cfg(unix)]
            // SAFETY: kill reads no memory, and a child that was not waited for keeps its number.
            Self::Here(child) => unsafe {
                libc::kill(child.id() as libc::pid_t, libc::SIGTERM);
            },
            #[cfg(not(unix))]
            Self::Here(child) => drop(child.kill()),
            Self::There(rank, workers) => drop(workers.send(*rank, &Request::Stop)),
        }
    }
}

impl End {
    /// How it ended, in words.
    pub(super) fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit status: {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "no exit status".to_string(),
        }
    }
}

/// Tells the other workers where the study is, and watches them from here on. On worker 0.
pub(super) fn call(workers: &Workers, study: &Path, trials: &Path) -> Result<()> {
    if workers.count() > 1 {
        workers.from_first(Some(trials.to_path_buf()))?;
        let remedy = format!(
            "go on by mpirun -n N causal-attention tune --resume {} with any number of workers",
            study.display()
        );
        workers.watch(Presence::begin(workers, study, Duration::MAX, remedy)?);
    } else {
        remove_left_behind(study);
    }
    Ok(())
}

/// Lets the other workers leave, whether they were called or not.
pub(super) fn dismiss(workers: &Workers) {
    (1..workers.count()).for_each(|rank| drop(workers.send(rank, &Request::Leave)));
}

/// Trains by `program` what worker 0 asks for until it says that nothing is left. A `signal` is passed on to the run
/// under way.
///
/// # Errors
/// If a process cannot be started, or worker 0 cannot be reached.
pub fn serve(workers: &Workers, program: &TrialCommand, signal: &AtomicUsize) -> Result<()> {
    let Some(trials) = workers.from_first(None::<PathBuf>)? else { return Ok(()) };
    workers.watch(Presence::begin(workers, Path::new(""), Duration::MAX, String::new())?);
    let alive = lock_alive(&trials, workers.rank())?;
    let mut working: Option<Process> = None;
    let mut is_stopping = false;
    loop {
        match workers.poll(0)? {
            Some(Request::Train(arguments, threads)) => {
                working = Some(Process::start(program, &arguments, threads, &alive)?);
            }
            Some(Request::Stop) => working.iter_mut().for_each(Process::stop),
            Some(Request::Leave) => return Ok(()),
            None => thread::sleep(LOOK),
        }
        if signal.load(Ordering::Relaxed) != 0 && !std::mem::replace(&mut is_stopping, true) {
            working.iter_mut().for_each(Process::stop);
        }
        if let Some(end) = working.as_mut().map(Process::end).transpose()?.flatten() {
            working = None;
            workers.send(0, &end)?;
        }
    }
}
