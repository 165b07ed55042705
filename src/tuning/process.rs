//! A process that trains one run of a study: a child of this program or of another worker started by `mpirun`.
//!
//! Workers other than 0 [serve](serve): they start `train` when worker 0 requests it, and report its exit status. A run
//! is therefore one process on one machine, whichever worker starts it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::lock_alive;
use crate::error::{Error, Result, ensure};
use crate::training::StopSignal;
use crate::workers::{Presence, Workers, remove_left_behind, without_launcher};

/// The interval at which the end of a run is checked.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A request of worker 0 to another worker.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Starts the program with these arguments and, if given, this number of threads.
    Train(Vec<String>, Option<usize>),
    /// Makes the run save and stop.
    Stop,
    /// Ends the worker.
    Leave,
}

/// The environment variable that is set in a process that trains a trial.
const TRIAL: &str = "CAUSAL_ATTENTION_TRIAL";

/// The command that trains a trial. It behaves like `causal-attention` when `train` and its arguments are appended.
///
/// A custom program names the installed `causal-attention`, or itself if it passes its arguments to
/// [`crate::cli::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialCommand {
    /// The program.
    pub program: PathBuf,
    /// The arguments before `train`.
    pub arguments: Vec<OsString>,
}

impl TrialCommand {
    /// Creates a command without arguments before `train`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: Vec::new() }
    }

    /// Returns the running program as a command.
    ///
    /// # Errors
    /// If the operating system does not return the program's path.
    pub fn current() -> Result<Self> {
        std::env::current_exe().map(Self::new).map_err(|error| {
            Error::Failed(format!("cannot find the path of this program: {error}; mount /proc"))
        })
    }
}

/// Refuses to start or resume a study in a process that trains a trial, because such a program would start itself
/// endlessly.
pub(super) fn refuse_within_trial() -> Result<()> {
    ensure(std::env::var_os(TRIAL).is_none(), Error::Input, || {
        "a trial cannot run a study; pass the study a command that trains, such as \
         TrialCommand::new(\"causal-attention\")"
            .into()
    })
}

/// The exit status of a process and its output on standard error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) said: String,
}

/// The process of a run.
#[derive(Debug)]
pub(super) enum Process {
    Local(Child),
    /// Trained by the worker of this rank.
    Remote(usize, Workers),
}

impl Process {
    /// Starts `train` on this worker. The child holds the lock `alive` as its standard input.
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
        // Ctrl-C in a terminal signals the whole process group. The study forwards the signal itself, so the child gets
        // its own group.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Self::Local(command.spawn().map_err(failed)?))
    }

    /// Makes another worker start `train`.
    pub(super) fn start_remote(
        workers: &Workers,
        rank: usize,
        arguments: Vec<String>,
        threads: Option<usize>,
    ) -> Result<Self> {
        workers.send(rank, &Request::Train(arguments, threads))?;
        Ok(Self::Remote(rank, workers.clone()))
    }

    /// Returns the exit status; `None` while the process is running.
    pub(super) fn end(&mut self) -> Result<Option<End>> {
        match self {
            // A child whose status cannot be read is treated as ended, and waited for.
            Self::Local(child) => match child.try_wait() {
                Ok(None) => Ok(None),
                _ => self.wait().map(Some),
            },
            Self::Remote(rank, workers) => workers.poll(*rank),
        }
    }

    /// Waits for the process to end.
    pub(super) fn wait(&mut self) -> Result<End> {
        let child = match self {
            Self::Local(child) => child,
            Self::Remote(rank, workers) => loop {
                match workers.poll(*rank)? {
                    Some(end) => return Ok(end),
                    None => thread::sleep(POLL_INTERVAL),
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

    /// Asks the process to save and stop.
    pub(super) fn stop(&mut self) {
        match self {
            #[cfg(unix)]
            // SAFETY: kill reads no memory, and a child that was not waited for keeps its process id.
            Self::Local(child) => unsafe {
                libc::kill(child.id() as libc::pid_t, libc::SIGTERM);
            },
            #[cfg(not(unix))]
            Self::Local(child) => drop(child.kill()),
            Self::Remote(rank, workers) => drop(workers.send(*rank, &Request::Stop)),
        }
    }
}

impl End {
    /// Returns a description of the exit status.
    pub(super) fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit status: {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "no exit status".to_string(),
        }
    }
}

/// Sends the study's folder to the other workers and starts to monitor them. Called by worker 0.
pub(super) fn enlist(workers: &Workers, study: &Path, trials: &Path) -> Result<()> {
    if workers.count() > 1 {
        workers.broadcast(Some(trials.to_path_buf()))?;
        let remedy = format!(
            "resume with mpirun -n N causal-attention tune --resume {}, with any number of workers",
            study.display()
        );
        workers.watch(Presence::begin(workers, study, Duration::MAX, remedy)?);
    } else {
        remove_left_behind(study);
    }
    Ok(())
}

/// Makes the other workers exit, including those that were never enlisted.
pub(super) fn dismiss(workers: &Workers) {
    (1..workers.count()).for_each(|rank| drop(workers.send(rank, &Request::Leave)));
}

/// Trains the runs that worker 0 requests with `program`, until worker 0 reports that none are left. A `signal` is
/// forwarded to the running process.
///
/// # Errors
/// If a process cannot be started, or worker 0 cannot be reached.
pub fn serve(workers: &Workers, program: &TrialCommand, signal: &StopSignal) -> Result<()> {
    let Some(trials) = workers.broadcast(None::<PathBuf>)? else { return Ok(()) };
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
            None => thread::sleep(POLL_INTERVAL),
        }
        if signal.received().is_some() && !std::mem::replace(&mut is_stopping, true) {
            working.iter_mut().for_each(Process::stop);
        }
        if let Some(end) = working.as_mut().map(Process::end).transpose()?.flatten() {
            working = None;
            workers.send(0, &end)?;
        }
    }
}
