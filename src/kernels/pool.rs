//! Buffers that are used again: in steady state a training step asks the system for no memory.
//!
//! A step frees the tensors that the next step needs anew. What comes back to the pool is kept for a request of
//! about the same length, and never holds more than was once in use at the same time. Buffers come as they were
//! left: their numbers are initialised but mean nothing, and every kernel overwrites all of its output.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A slice borrowed from the pool, which goes back when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    /// As long as its length class; empty once it was taken out.
    values: Vec<f32>,
    length: usize,
}

/// `length` numbers of unknown value.
pub fn take(length: usize) -> Buffer {
    let class = length_class(length);
    let values = idle().take(class).unwrap_or_else(|| vec![0.0; class]);
    Buffer { values, length }
}

/// Returns a vector that came from [`Buffer::into_vec`]; any other vector is welcome too.
pub fn give(mut values: Vec<f32>) {
    // The class is the largest one that fits the memory, so that the vector need not grow.
    let class = largest_class_within(values.capacity());
    if class > 0 {
        values.resize(class, 0.0);
        idle().give(values);
    }
}

/// Frees all idle buffers.
pub fn clear() {
    let mut pool = idle();
    pool.idle.clear();
    pool.idle_length = 0;
}

impl Buffer {
    /// The numbers as a vector, whose memory [`give`] brings back to the pool.
    pub fn into_vec(mut self) -> Vec<f32> {
        let mut values = std::mem::take(&mut self.values);
        values.truncate(self.length);
        values
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.values.is_empty() {
            idle().give(std::mem::take(&mut self.values));
        }
    }
}

struct Pool {
    /// Idle buffers, each as long as its class, the last one returned at the back.
    idle: VecDeque<Vec<f32>>,
    idle_length: usize,
    used_length: usize,
    most_used: usize,
}

fn idle() -> MutexGuard<'static, Pool> {
    static POOL: Mutex<Pool> =
        Mutex::new(Pool { idle: VecDeque::new(), idle_length: 0, used_length: 0, most_used: 0 });
    // A panic elsewhere leaves the list of buffers whole.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<Vec<f32>> {
        self.used_length += class;
        self.most_used = self.most_used.max(self.used_length);
        let place = self.idle.iter().rposition(|values| values.len() == class)?;
        self.idle_length -= class;
        self.idle.remove(place)
    }

    fn give(&mut self, values: Vec<f32>) {
        // Vectors that came from elsewhere were not counted when they were taken.
        self.used_length = self.used_length.saturating_sub(values.len());
        self.idle_length += values.len();
        self.idle.push_back(values);
        while self.idle_length > self.most_used {
            let Some(oldest) = self.idle.pop_front() else { break };
            self.idle_length -= oldest.len();
        }
    }
}

/// Lengths are rounded up to an eighth of a power of two, so that nearly equal requests share buffers.
fn length_class(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(64);
    length.next_multiple_of(step)
}

/// The largest class that is not above `capacity`, zero if there is none.
fn largest_class_within(capacity: usize) -> usize {
    let step = ((capacity / 2 + 1).next_power_of_two() / 8).max(64);
    capacity / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_lengths_and_waste_at_most_an_eighth() {
        for length in (1..5_000).chain([65_535, 65_536, 65_537, 1_000_003, 12_582_912]) {
            let class = length_class(length);
            assert!(class >= length && class <= length + (length / 8).max(63), "{length} in {class}");
            assert_eq!(length_class(class), class, "class of {length}");
            assert_eq!(largest_class_within(class), class, "class of {length} by capacity");
            let within = largest_class_within(length);
            assert!(
                within <= length && (within == 0 || length_class(within) == within),
                "{length}: {within}"
            );
        }
    }

    #[test]
    fn memory_comes_back_from_buffers_and_from_vectors() {
        let mut pool = Pool { idle: VecDeque::new(), idle_length: 0, used_length: 0, most_used: 0 };
        assert!(pool.take(128).is_none());
        assert!(pool.take(64).is_none());
        let first = vec![1.0; 128];
        let place = first.as_ptr();
        pool.give(first);
        assert!(pool.take(64).is_none(), "another length");
        assert_eq!(pool.take(128).map(|values| values.as_ptr()), Some(place));

        let vector = take(1_000).into_vec();
        assert_eq!(vector.len(), 1_000);
        assert_eq!(largest_class_within(vector.capacity()), length_class(1_000));
        give(vector);
    }

    #[test]
    fn idle_memory_never_exceeds_what_was_in_use_at_once() {
        let mut pool = Pool { idle: VecDeque::new(), idle_length: 0, used_length: 0, most_used: 0 };
        for class in (64..6_400).step_by(64) {
            let values = pool.take(class).unwrap_or_else(|| vec![0.0; class]);
            pool.give(values);
            assert!(pool.idle_length <= class);
        }
        assert_eq!(pool.idle_length, pool.idle.iter().map(Vec::len).sum::<usize>());
    }
}
