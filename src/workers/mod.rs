//! The workers of one run: the processes that `mpirun` started, on one machine or on many, or this one alone.
//!
//! Every worker computes a part of each step; what they found is [added](Workers::sum) along one tree, so that all
//! hold the same bits. Worker 0 alone writes files, shows progress and speaks; what another one has to say goes
//! through it.
//!
//! | file | what it holds |
//! |---|---|
//! | `link` | messages between two workers, and those of the test |
//! | `mpi` | the same by MPI, behind the cargo feature `mpi` |
//! | `launched` | how a process learns that `mpirun` started it |
//! | `sum` | sums over all workers whose bits do not depend on how many there are |
//! | `shards` | the parts of a step, and whose they are |
//! | `agreement` | what must be the same everywhere before a run begins |
//! | `presence` | a worker that has died or hangs is noticed, and ends all |

mod agreement;
mod launched;
// Without MPI nobody links workers but a test.
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

/// The workers of a run, as one of them sees them.
#[derive(Debug, Clone)]
pub struct Workers {
    rank: usize,
    count: usize,
    /// Its number among the workers of its machine, and how many these are.
    local: (usize, usize),
    /// How to reach the others; none where there are none.
    link: Option<Arc<dyn Link>>,
    /// Whether all have failed together.
    has_failed: Arc<AtomicBool>,
    /// What tells that one of them has died or hangs.
    presence: Arc<Mutex<Option<Presence>>>,
}

/// What ended a worker's part of common work.
#[derive(Debug, Serialize, serde::Deserialize)]
struct Ending {
    message: String,
    exit_code: u8,
}

impl Ending {
    fn error(self) -> Error {
        if self.exit_code == 2 { Error::Input(self.message) } else { Error::Failed(self.message) }
    }
}

impl Workers {
    /// One worker: this process.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            count: 1,
            local: (0, 1),
            link: None,
            has_failed: Arc::default(),
            presence: Arc::default(),
        }
    }

    /// The workers that `mpirun` started; this process alone where it did not.
    ///
    /// # Errors
    /// If this build cannot speak to the others, or MPI does not start.
    pub fn start() -> Result<Self> {
        launched::count().map_or(Ok(Self::alone()), Self::launched)
    }

    #[cfg(feature = "mpi")]
    fn launched(_: usize) -> Result<Self> {
        let mpi::Started { rank, count, local, link } = mpi::start()?;
        if count == 1 {
            mpi::finish();
            // Whatever number the variables of a launcher give this process, there is no other one to speak.
            unmute();
            return Ok(Self::alone());
        }
        let (has_failed, presence) = (Arc::default(), Arc::default());
        Ok(Self { rank, count, local, link: Some(Arc::new(link)), has_failed, presence })
    }

    #[cfg(not(feature = "mpi"))]
    fn launched(count: usize) -> Result<Self> {
        match count {
            0 | 1 => Ok(Self::alone()),
            count => Err(Error::Input(format!(
                "mpirun started this program {count} times, as {} says, and this build cannot share the work: build it \
                 with cargo build --release --features mpi, or start it without mpirun and that variable",
                launched::variable()
            ))),
        }
    }

    /// The number of this worker, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether this is worker 0, which writes and speaks.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// The number of this worker among those of its machine.
    pub fn local_rank(&self) -> usize {
        self.local.0
    }

    /// The threads that this worker computes with: the cores of its machine by the workers there; none where it is
    /// alone and has them all.
    pub fn threads(&self) -> Option<usize> {
        let all = cores();
        // What mpirun lets this process use: by itself it binds each to one core.
        let allowed = available_parallelism().map_or(1, NonZero::get);
        (self.count > 1).then(|| (all / self.local.1).clamp(1, allowed))
    }

    /// How many cores mpirun keeps from this worker that it would use; none where it keeps none.
    pub fn withheld_cores(&self) -> Option<(usize, usize)> {
        let (used, due) = (self.threads()?, (cores() / self.local.1).max(1));
        (used < due).then_some((used, due))
    }

    /// Adds up what all workers hold, element by element, along the tree over their numbers: every worker then has the
    /// same bits. Each has as many `values`; `add` adds some to others, one by one.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub fn sum<T: bytemuck::Pod>(
        &self,
        values: &mut [T],
        scratch: &mut Vec<T>,
        add: fn(&mut [T], &[T]),
    ) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        sum::over_workers(&**link, (self.rank, self.count), values, scratch, add, &mut self.wait())
    }

    /// What worker 0 holds, on every worker.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<T> {
        let Some(link) = &self.link else { return Ok(value) };
        if self.is_first() {
            let text = written(&value);
            (1..self.count).try_for_each(|peer| link.send(peer, &text, &mut self.wait()))?;
            return Ok(value);
        }
        read(0, &link.receive(0, &mut self.wait())?)
    }

    /// What each worker holds, in the order of their numbers, on worker 0; nothing on the others.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub fn to_first<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<Vec<T>> {
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

    /// Sends a message to another worker, which polls for it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn send<T: Serialize>(&self, rank: usize, message: &T) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let text = written(message);
        link.send(rank, &text, &mut self.wait())
    }

    /// A message that another worker has sent; none where there is none yet.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn poll<T: DeserializeOwned>(&self, rank: usize) -> Result<Option<T>> {
        let text = self.link.as_ref().map(|link| link.poll(rank)).transpose()?.flatten();
        text.map(|text| read(rank, &text)).transpose()
    }

    /// What every worker has come to. Where one of them failed all fail alike, and worker 0 says why.
    ///
    /// # Errors
    /// That of the first worker that failed.
    pub fn agree<T>(&self, result: Result<T>) -> Result<T> {
        if self.link.is_none() {
            return result;
        }
        let own = result.as_ref().err().map(|error| self.ending(error));
        let first = self.to_first(own)?.into_iter().flatten().next();
        let first = self.from_first(first)?;
        self.has_failed.store(first.is_some(), Ordering::Relaxed);
        match (first, result) {
            (None, result) => result,
            // Worker 0 keeps its own error as it is.
            (Some(_), Err(error)) if self.is_first() => Err(error),
            (Some(ending), _) => Err(ending.error()),
        }
    }

    /// What worker 0 alone does. Where it fails, all fail.
    ///
    /// # Errors
    /// That of the work.
    pub fn on_first<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.agree(self.is_first().then(work).transpose())
    }

    /// An error of this worker, as the others hear of it.
    fn ending(&self, error: &Error) -> Ending {
        let message = match self.is_first() {
            true => error.to_string(),
            false => format!("worker {} on {}: {error}", self.rank, host()),
        };
        Ending { message, exit_code: error.exit_code() }
    }

    /// Watches the others from here on: who dies or hangs ends all.
    pub fn watch(&self, presence: Presence) {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = Some(presence);
    }

    /// Ends this worker's part with what it came to, once worker 0 is through as well, which may look into the model and
    /// draw for long.
    ///
    /// # Errors
    /// What it came to. Of a failure that no other worker shares, its number and machine are said.
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
            return result.map_err(|error| self.ending(&error).error());
        }
        if let (true, Err(error)) = (self.is_first(), &result) {
            // Before another worker ends: mpirun then ends the rest.
            log::error!("{error}");
            mute();
        }
        self.from_first(()).and_then(|()| self.to_first(()))?;
        presence.into_iter().for_each(Presence::leave);
        #[cfg(feature = "mpi")]
        mpi::finish();
        result
    }

    /// How this worker waits for another.
    fn wait(&self) -> Wait {
        Wait::new(self.presence.clone())
    }
}

/// The cores of this machine.
fn cores() -> usize {
    #[cfg(unix)]
    // SAFETY: it reads no memory of this program.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    #[cfg(not(unix))]
    let online = 0;
    usize::try_from(online)
        .ok()
        .filter(|&cores| cores > 0)
        .unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
}

/// The name of this machine.
pub fn host() -> String {
    sysinfo::System::host_name().unwrap_or_else(|| "an unnamed host".into())
}

/// A message to another worker.
fn written(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("what workers share are plain values")
}

/// A message of worker `rank`.
fn read<T: DeserializeOwned>(rank: usize, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::Failed(format!("worker {rank} said what nobody can read: {error}")))
}
