//! A pool of reusable buffers: in steady state a training step allocates no memory.
//!
//! A step frees tensors that the next step allocates again. The pool keeps a returned buffer for a request of about the
//! same length, and frees it after many requests without use. The content of a buffer is initialised but arbitrary;
//! every kernel overwrites its output completely.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A buffer borrowed from the pool, to which it returns when it is dropped.
#[derive(Debug)]
pub struct Buffer(Vec<f32>);

/// Takes a buffer of `length` arbitrary numbers. Tests and debug builds fill it with NaN, which propagates to every
/// result that depends on them.
pub fn take(length: usize) -> Buffer {
    let class = length_class(length);
    let values = if class == 0 { None } else { pool().take(class) };
    let mut values = values.unwrap_or_else(|| vec![0.0; class]);
    values.resize(length, 0.0);
    if cfg!(any(test, debug_assertions)) {
        values.fill(f32::NAN);
    }
    Buffer(values)
}

/// Returns a vector from [`Buffer::into_vec`] to the pool. Any other vector is freed, unless its capacity is exactly a
/// length class: no request would match any other capacity.
pub fn recycle(values: Vec<f32>) {
    pool().recycle(values);
}

/// Registers a vector that is still shared. `reclaim` returns the vector once it is no longer read elsewhere, and
/// `None` before; it is called when a request finds no idle buffer.
pub fn recycle_once_free(reclaim: impl FnMut() -> Option<Vec<f32>> + Send + 'static) {
    let mut pool = pool();
    let requests = pool.requests;
    pool.shared.push((requests, Box::new(reclaim)));
}

impl Buffer {
    /// Returns the numbers as a vector, whose memory goes back to the pool through [`recycle`].
    pub fn into_vec(mut self) -> Vec<f32> {
        std::mem::take(&mut self.0)
    }
}

impl From<Buffer> for Vec<f32> {
    fn from(buffer: Buffer) -> Self {
        buffer.into_vec()
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            recycle(std::mem::take(&mut self.0));
        }
    }
}

/// The maximum number of requests for which an idle buffer is kept, which is several training steps.
const MAX_IDLE_REQUESTS: u64 = 1 << 15;

type Reclaim = Box<dyn FnMut() -> Option<Vec<f32>> + Send>;

#[derive(Default)]
struct Pool {
    /// Idle buffers, whose capacity is their length class, with the number of requests when each was returned; the
    /// latest is at the back.
    idle: VecDeque<(u64, Vec<f32>)>,
    /// Shared buffers, with the number of requests when each was registered.
    shared: Vec<(u64, Reclaim)>,
    requests: u64,
}

fn pool() -> MutexGuard<'static, Pool> {
    static POOL: Mutex<Pool> = Mutex::new(Pool { idle: VecDeque::new(), shared: Vec::new(), requests: 0 });
    // A panic elsewhere leaves the list of buffers consistent.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<Vec<f32>> {
        self.requests += 1;
        // The buffer used last is most likely in a cache.
        let last = |pool: &Self| pool.idle.iter().rposition(|(_, values)| values.capacity() == class);
        let index = last(self).or_else(|| {
            self.reclaim();
            last(self)
        })?;
        self.idle.remove(index).map(|(_, values)| values)
    }

    /// Takes back shared buffers that are no longer read elsewhere.
    fn reclaim(&mut self) {
        let mut shared = std::mem::take(&mut self.shared);
        shared.retain_mut(|(registered, reclaim)| match reclaim() {
            Some(values) => {
                self.recycle(values);
                false
            }
            None => *registered + MAX_IDLE_REQUESTS >= self.requests,
        });
        self.shared = shared;
    }

    fn recycle(&mut self, values: Vec<f32>) {
        let class = values.capacity();
        if class > 0 && length_class(class) == class {
            self.idle.push_back((self.requests, values));
        }
        while self.idle.front().is_some_and(|(returned, _)| returned + MAX_IDLE_REQUESTS < self.requests) {
            self.idle.pop_front();
        }
    }
}

/// Rounds a length up to an eighth of a power of two, so that similar requests share buffers.
fn length_class(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(64);
    length.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_classes_waste_at_most_an_eighth() {
        for length in (1..5_000).chain([65_535, 65_536, 65_537, 1_000_003, 12_582_912]) {
            let class = length_class(length);
            assert!(class >= length && class <= length + (length / 8).max(63), "{length} in {class}");
            assert_eq!(length_class(class), class, "class of {length}");
        }
    }

    #[test]
    fn memory_of_buffers_and_vectors_is_reused() {
        let mut pool = Pool::default();
        assert!(pool.take(128).is_none());
        let first = vec![1.0; 128];
        let address = first.as_ptr();
        pool.recycle(first);
        assert!(pool.take(64).is_none(), "another length");
        assert_eq!(pool.take(128).map(|values| values.as_ptr()), Some(address));

        let vector = take(1_000).into_vec();
        assert_eq!(vector.len(), 1_000);
        assert_eq!(vector.capacity(), length_class(1_000));
        recycle(vector);
    }

    #[test]
    fn shared_memory_is_reclaimed_after_its_last_reader() {
        let mut pool = Pool::default();
        let mut owner = Some(std::sync::Arc::new(vec![1.0; 128]));
        let reader = owner.clone();
        let address = reader.as_ref().map(|values| values.as_ptr());
        let reclaim = move || match std::sync::Arc::try_unwrap(owner.take()?) {
            Ok(values) => Some(values),
            Err(shared) => {
                owner = Some(shared);
                None
            }
        };
        pool.shared.push((0, Box::new(reclaim)));
        assert!(pool.take(128).is_none(), "another reader exists");
        drop(reader);
        assert!(pool.take(64).is_none(), "another length");
        assert_eq!(pool.take(128).map(|values| values.as_ptr()), address);
        assert!(pool.shared.is_empty());
    }

    #[test]
    fn buffers_without_use_are_freed() {
        let mut pool = Pool::default();
        pool.recycle(vec![0.0; 64]);
        for _ in 0..MAX_IDLE_REQUESTS {
            let values = pool.take(128).unwrap_or_else(|| vec![0.0; 128]);
            pool.recycle(values);
            assert_eq!(pool.idle.len(), 2);
        }
        let values = pool.take(128).unwrap_or_default();
        pool.recycle(values);
        assert_eq!(pool.idle.iter().map(|(_, values)| values.len()).collect::<Vec<_>>(), [128]);
    }
}
