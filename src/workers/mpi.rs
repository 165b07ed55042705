//! Messages between workers over MPI.
//!
//! Every call holds one lock, so the threading level `Serialized` is enough. No call blocks inside MPI: requests are
//! polled, so that a worker notices when another has died.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::Threading;
use mpi::environment::initialize_with_threading;
use mpi::request::{Request, Scope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Equivalence, Source};

use super::link::{Link, Wait};
use crate::error::{Error, Result};

/// The state of MPI after it has started.
pub(super) struct Started {
    pub(super) rank: usize,
    pub(super) count: usize,
    /// The rank on this machine, and the number of processes there.
    pub(super) local: (usize, usize),
    pub(super) link: Mpi,
}

/// The link over MPI.
#[derive(Debug)]
pub(super) struct Mpi;

/// The size of a piece of a swap, small enough for Open MPI's eager protocol over TCP. A larger message needs a
/// rendezvous, and its reply queues behind the data of the other direction: the two directions would alternate.
const PIECE_BYTES: usize = 60 << 10;
/// The number of pieces in flight in each direction, enough for a link of 10 Gbit/s with a latency of a few
/// milliseconds.
const MAX_PIECES_IN_FLIGHT: usize = 64;

/// The lock that serialises calls to MPI.
static CALLS: Mutex<()> = Mutex::new(());

fn lock_calls() -> MutexGuard<'static, ()> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes completed requests from the front of a queue.
fn drop_done<'a, D: ?Sized, S: Scope<'a>>(requests: &mut VecDeque<Request<'a, D, S>>) {
    while let Some(first) = requests.pop_front() {
        if let Err(first) = first.test() {
            requests.push_front(first);
            break;
        }
    }
}

/// Starts MPI.
pub(super) fn start() -> Result<Started> {
    let Some((universe, threading)) = initialize_with_threading(Threading::Serialized) else {
        return Err(Error::Failed(
            "MPI is already initialised; call Workers::start once, before other uses of MPI".into(),
        ));
    };
    if threading < Threading::Serialized {
        return Err(Error::Failed(
            "this MPI library supports calls from one thread only; use one that supports MPI_THREAD_SERIALIZED".into(),
        ));
    }
    let world = universe.world();
    let (rank, count) = (world.rank() as usize, world.size() as usize);
    let machine = world.split_shared(world.rank());
    let local = (machine.rank() as usize, machine.size() as usize);
    drop(machine);
    // `finish` ends MPI once all workers are done. A process that fails earlier must not wait for the others.
    std::mem::forget(universe);
    Ok(Started { rank, count, local, link: Mpi })
}

/// Ends MPI, which waits for all workers.
pub(super) fn finish() {
    let _lock = lock_calls();
    // SAFETY: MPI is started, and nothing calls it afterwards.
    unsafe { mpi::ffi::MPI_Finalize() };
}

impl Link for Mpi {
    fn swap(&self, peer: usize, out: &[u8], into: &mut [u8], wait: &mut Wait) -> Result<()> {
        let world = SimpleCommunicator::world();
        let peer = world.process_at_rank(peer as i32);
        let (mut outs, mut intos) = (out.chunks(PIECE_BYTES), into.chunks_mut(PIECE_BYTES));
        scope(|scope| {
            let (mut receives, mut sends) = (VecDeque::new(), VecDeque::new());
            loop {
                {
                    let _lock = lock_calls();
                    drop_done(&mut receives);
                    drop_done(&mut sends);
                    while receives.len() < MAX_PIECES_IN_FLIGHT
                        && let Some(into) = intos.next()
                    {
                        receives.push_back(peer.immediate_receive_into(scope, into));
                    }
                    while sends.len() < MAX_PIECES_IN_FLIGHT
                        && let Some(out) = outs.next()
                    {
                        sends.push_back(peer.immediate_send(scope, out));
                    }
                }
                if receives.is_empty() && sends.is_empty() {
                    break;
                }
                wait.back_off();
            }
        });
        wait.done();
        Ok(())
    }

    fn send(&self, peer: usize, message: &[u8], wait: &mut Wait) -> Result<()> {
        let world = SimpleCommunicator::world();
        let peer = world.process_at_rank(peer as i32);
        scope(|scope| {
            let mut sends = Some({
                let _lock = lock_calls();
                peer.immediate_send(scope, message)
            });
            loop {
                {
                    let _lock = lock_calls();
                    sends = sends.and_then(|request| request.test().err());
                }
                if sends.is_none() {
                    break;
                }
                wait.back_off();
            }
        });
        wait.done();
        Ok(())
    }

    fn receive(&self, peer: usize, wait: &mut Wait) -> Result<Vec<u8>> {
        loop {
            if let Some(message) = self.poll(peer)? {
                wait.done();
                return Ok(message);
            }
            wait.back_off();
        }
    }

    fn poll(&self, peer: usize) -> Result<Option<Vec<u8>>> {
        let world = SimpleCommunicator::world();
        let peer = world.process_at_rank(peer as i32);
        let _lock = lock_calls();
        let Some((message, status)) = peer.immediate_matched_probe() else { return Ok(None) };
        let mut bytes = vec![0; status.count(u8::equivalent_datatype()) as usize];
        message.matched_receive_into(&mut bytes[..]);
        Ok(Some(bytes))
    }
}
