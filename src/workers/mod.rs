//! The workers of a run: the processes started by `mpirun` on one or more machines, or this process alone.
//!
//! Every worker computes a part of each step. An [all-reduce](Workers::all_reduce) along a fixed tree gives all of them the
//! same bits. Only worker 0 writes files, shows progress and prints; messages of other workers go through it.
//!
//! | file | content |
//! |---|---|
//! | `link` | messages between two workers |
//! | `mpi` | messages over MPI, behind the cargo feature `mpi` |
//! | `launched` | detection of `mpirun` |
//! | `sum` | all-reduce with the same bits on any number of workers |
//! | `shards` | the parts of a step, and their assignment to workers |
//! | `agreement` | checks that all workers have the same code, config, data and device |
//! | `presence` | detection of workers that died or hang |

mod agreement;
mod launched;
// Without MPI, only tests link workers.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
mod link;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
mod presence;
mod shards;
mod sum;

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use serde::{Serialize, de::DeserializeOwned};

pub use agreement::Identity;
pub use launched::{mute_all_but_first, without_launcher};
pub use presence::{Presence, remove_left_behind};
pub use shards::Shards;

use crate::error::{Error, Result};
use crate::terminal::{mute, unmute};
use link::{Link, Wait};

/// Ends this process because another worker has died or hangs. Without it, this worker would wait for ever. The argument
/// is the problem with its remedy, passed to the one worker that reports it.
pub type OnLost = fn(Option<&str>);

/// The workers of a run, seen from one of them.
#[derive(Debug, Clone)]
pub struct Workers {
    rank: usize,
    count: usize,
    /// The rank of this worker on its machine, and the number of workers there.
    local: (usize, usize),
    /// The connection to the other workers, if there are any.
    link: Option<Arc<dyn Link>>,
    /// True if [`Self::agree`] has returned an error on all workers.
    has_failed: Arc<AtomicBool>,
    /// The detection of workers that died or hang.
    presence: Arc<Mutex<Option<Presence>>>,
    /// Ends this process if another worker is lost.
    on_lost: OnLost,
}

/// The error of a worker, as sent to the others.
#[derive(Debug, Serialize, serde::Deserialize)]
struct SharedError {
    message: String,
    exit_code: u8,
}

impl SharedError {
    fn into_error(self) -> Error {
        if self.exit_code == 2 { Error::Input(self.message) } else { Error::Failed(self.message) }
    }
}

impl Workers {
    /// Returns a single worker: this process.
    pub fn single() -> Self {
        Self {
            rank: 0,
            count: 1,
            local: (0, 1),
            link: None,
            has_failed: Arc::default(),
            presence: Arc::default(),
            on_lost: |_| {},
        }
    }

    /// Returns the workers started by `mpirun`, or this process alone. `on_lost` ends this process if another worker is
    /// lost.
    ///
    /// # Errors
    /// Returns an error if this build cannot communicate with the other workers, or if MPI does not start.
    pub fn start(on_lost: OnLost) -> Result<Self> {
        let workers = launched::count().map_or(Ok(Self::single()), Self::launched)?;
        Ok(Self { on_lost, ..workers })
    }

    #[cfg(feature = "mpi")]
    fn launched(_: usize) -> Result<Self> {
        let mpi::Started { rank, count, local, link } = mpi::start()?;
        if count == 1 {
            mpi::finish();
            // The launcher's variables may have muted this process, but no other process prints.
            unmute();
            return Ok(Self::single());
        }
        let (has_failed, presence) = (Arc::default(), Arc::default());
        Ok(Self { rank, count, local, link: Some(Arc::new(link)), has_failed, presence, ..Self::single() })
    }

    #[cfg(not(feature = "mpi"))]
    fn launched(count: usize) -> Result<Self> {
        match count {
            0 | 1 => Ok(Self::single()),
            count => Err(Error::Input(format!(
                "mpirun started this program {count} times ({} is set), but this build does not support MPI; \
                build it with cargo build --release --features mpi, or start it without mpirun and unset \
                that variable",
                launched::variable()
            ))),
        }
    }

    /// Returns the number of this worker, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns true for worker 0, which writes files and prints.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Returns the number of this worker among the workers of its machine.
    pub fn local_rank(&self) -> usize {
        self.local.0
    }

    /// Returns the number of compute threads: the cores of the machine divided by its workers. `None` for a single
    /// worker, which has all cores.
    pub fn threads(&self) -> Option<usize> {
        let all = cores();
        // The affinity set by mpirun, which by default binds each process to one core.
        let allowed = available_parallelism().map_or(1, NonZero::get);
        (self.count > 1).then(|| (all / self.local.1).clamp(1, allowed))
    }

    /// Returns the number of cores that this worker uses and its share of the machine's cores, if mpirun allows it
    /// fewer than that share.
    pub fn withheld_cores(&self) -> Option<(usize, usize)> {
        let (used, share) = (self.threads()?, (cores() / self.local.1).max(1));
        (used < share).then_some((used, share))
    }

    /// Sums the `values` of all workers element by element, along a binary tree over their ranks (an all-reduce). Every
    /// worker gets the same bits. All workers must pass the same number of values. `add` adds the second slice to the
    /// first, element by element.
    ///
    /// # Errors
    /// Returns an error if a worker does not answer.
    pub fn all_reduce<T: bytemuck::Pod>(
        &self,
        values: &mut [T],
        scratch: &mut Vec<T>,
        add: fn(&mut [T], &[T]),
    ) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        sum::over_workers(&**link, (self.rank, self.count), values, scratch, add, &mut self.wait())
    }

    /// Broadcasts the value of worker 0 to every worker.
    ///
    /// # Errors
    /// Returns an error if a worker does not answer.
    pub fn broadcast<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<T> {
        let Some(link) = &self.link else { return Ok(value) };
        if self.is_first() {
            let text = written(&value);
            (1..self.count).try_for_each(|peer| link.send(peer, &text, &mut self.wait()))?;
            return Ok(value);
        }
        read(0, &link.receive(0, &mut self.wait())?)
    }

    /// Gathers the values of all workers on worker 0, ordered by rank. The other workers get an empty list.
    ///
    /// # Errors
    /// Returns an error if a worker does not answer.
    pub fn gather_to_first<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<Vec<T>> {
        let Some(link) = &self.link else { return Ok(vec![value]) };
        if !self.is_first() {
            let text = written(&value);
            return link.send(0, &text, &mut self.wait()).map(|()| Vec::new());
        }
        let mut values = vec![value];
        for peer in 1..self.count {
            values.push(read(peer, &link.receive(peer, &mut self.wait())?)?);
        }
        Ok(values)
    }

    /// Sends a message to another worker, which receives it with [`Self::poll`].
    ///
    /// # Errors
    /// Returns an error if the worker does not answer.
    pub fn send<T: Serialize>(&self, rank: usize, message: &T) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let text = written(message);
        link.send(rank, &text, &mut self.wait())
    }

    /// Returns a message from another worker, or `None` if there is none yet.
    ///
    /// # Errors
    /// Returns an error if the message cannot be read.
    pub fn poll<T: DeserializeOwned>(&self, rank: usize) -> Result<Option<T>> {
        let text = self.link.as_ref().map(|link| link.poll(rank)).transpose()?.flatten();
        text.map(|text| read(rank, &text)).transpose()
    }

    /// Returns this worker's result, unless a worker has failed: then all fail, and worker 0 reports the error.
    ///
    /// # Errors
    /// Returns the error of the first worker that failed.
    pub fn agree<T>(&self, result: Result<T>) -> Result<T> {
        if self.link.is_none() {
            return result;
        }
        let own = result.as_ref().err().map(|error| self.shared_error(error));
        let first = self.gather_to_first(own)?.into_iter().flatten().next();
        let first = self.broadcast(first)?;
        self.has_failed.store(first.is_some(), Ordering::Relaxed);
        match (first, result) {
            (None, result) => result,
            // Worker 0 keeps its own error unchanged.
            (Some(_), Err(error)) if self.is_first() => Err(error),
            (Some(shared_error), _) => Err(shared_error.into_error()),
        }
    }

    /// Calls `work` on worker 0 only. If it fails, all workers fail.
    ///
    /// # Errors
    /// Returns the error of `work`.
    pub fn on_first<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.agree(self.is_first().then(work).transpose())
    }

    /// Converts an error of this worker for the others.
    fn shared_error(&self, error: &Error) -> SharedError {
        let message = match self.is_first() {
            true => error.to_string(),
            false => format!("worker {} on {}: {error}", self.rank, host()),
        };
        SharedError { message, exit_code: error.exit_code() }
    }

    /// Starts watching the other workers: if one of them dies or hangs, all exit.
    pub fn watch(&self, presence: Presence) {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = Some(presence);
    }

    /// Ends this worker and returns `result`, after worker 0 has finished as well. Worker 0 may spend a long time on
    /// analysis and plots.
    ///
    /// # Errors
    /// Returns the error of `result`. If only this worker failed, the message names its rank and host.
    pub fn finish<T>(&self, result: Result<T>) -> Result<T> {
        if self.link.is_none() {
            return result;
        }
        let presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_shared = match &result {
            Ok(_) | Err(Error::Diverged { .. }) => true,
            Err(_) => self.has_failed.load(Ordering::Relaxed),
        };
        if !is_shared {
            presence.into_iter().for_each(Presence::leave);
            if self.is_first() {
                return result;
            }
            unmute();
            return result.map_err(|error| self.shared_error(&error).into_error());
        }
        if let (true, Err(error)) = (self.is_first(), &result) {
            // Worker 0 reports before any worker exits, because mpirun then ends the rest.
            log::error!("{error}");
            mute();
        }
        self.broadcast(()).and_then(|()| self.gather_to_first(()))?;
        presence.into_iter().for_each(Presence::leave);
        #[cfg(feature = "mpi")]
        mpi::finish();
        result
    }

    /// Returns the waiting strategy of this worker.
    fn wait(&self) -> Wait {
        Wait::new(self.presence.clone())
    }
}

/// Returns the number of cores of this machine.
fn cores() -> usize {
    #[cfg(unix)]
    // SAFETY: the call reads no memory of this program.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    #[cfg(not(unix))]
    let online = 0;
    usize::try_from(online)
        .ok()
        .filter(|&cores| cores > 0)
        .unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
}

/// Returns the name of this machine.
pub fn host() -> String {
    sysinfo::System::host_name().unwrap_or_else(|| "an unnamed host".into())
}

/// Serialises a message to another worker.
fn written(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages hold plain values")
}

/// Parses a message from worker `rank`.
fn read<T: DeserializeOwned>(rank: usize, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::Failed(format!("worker {rank} sent an invalid message: {error}")))
}
