//! Shards of a step side by side: each takes its part of a worker's threads, so that no piece of work is cut smaller
//! than it must be.

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::MOST_SHARDS_AT_ONCE;
use crate::error::{Error, Result};
use crate::ops;

/// The threads of a worker, in equal parts that each compute a shard.
#[derive(Debug, Default)]
pub struct Lanes(Vec<ThreadPool>);

impl Lanes {
    /// Parts of the threads of this thread's pool for as many `shards` as this worker has: as many as divide both, up to
    /// `most`; none, so that one shard after another has all threads, where operations are not computed by the kernels
    /// on the host.
    ///
    /// # Errors
    /// If the system has no threads left.
    pub fn new<B: ops::Backend>(shards: usize, most: usize) -> Result<Self> {
        /// As large as a program's first thread.
        const STACK: usize = 8 << 20;
        let threads = rayon::current_num_threads();
        let divides = |lanes: &usize| threads.is_multiple_of(*lanes) && shards.is_multiple_of(*lanes);
        let lanes = (1..=most.min(MOST_SHARDS_AT_ONCE)).rev().find(divides).unwrap_or(1);
        if lanes == 1 || !ops::is_on_host::<B>() {
            return Ok(Self::default());
        }
        let pool = |_| ThreadPoolBuilder::new().num_threads(threads / lanes).stack_size(STACK).build();
        let pools = (0..lanes).map(pool).collect::<std::result::Result<_, _>>();
        pools.map(Self).map_err(|error| {
            Error::Failed(format!(
                "no threads for the shards: {error}; ask for fewer with `training.threads`"
            ))
        })
    }

    /// How many shards are computed at once.
    pub fn count(&self) -> usize {
        self.0.len().max(1)
    }

    /// What `work` makes of each item, in their order; with the kernels and the precision of this thread.
    pub fn map<I: Send, T: Send>(&self, items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
        if self.0.is_empty() {
            return items.into_iter().map(work).collect();
        }
        let (kernels, precision) = (ops::kernels(), ops::precision());
        let mut done = items.iter().map(|_| None).collect::<Vec<_>>();
        let left = Mutex::new(items.into_iter().zip(&mut done));
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        run(&self.0, &|| {
            kernels.run(|| {
                precision.run(|| {
                    while let Some((item, done)) = next() {
                        *done = Some(work(item));
                    }
                });
            });
        });
        done.into_iter().map(|done| done.expect("every item is worked on")).collect()
    }
}

/// Runs `lane` in each of the pools at once.
fn run(pools: &[ThreadPool], lane: &(impl Fn() + Sync)) {
    let Some((first, others)) = pools.split_first() else { return };
    first.in_place_scope(|scope| {
        scope.spawn(|_| lane());
        run(others, lane);
    });
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::ops::{Kernels, Precision};

    #[test]
    fn shards_take_equal_parts_of_the_threads() {
        let lanes = |threads, shards, most| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let lanes = Lanes::new::<NdArray>(shards, most).unwrap();
                let numbers = (0..shards).collect::<Vec<_>>();
                let done = lanes.map(numbers, |number| (number, rayon::current_num_threads()));
                assert!(done.iter().enumerate().all(|(index, (number, _))| index == *number));
                (lanes.count(), done[shards - 1].1)
            })
        };
        assert_eq!(lanes(2, 8, 8), (2, 1));
        assert_eq!(lanes(6, 4, 8), (2, 3));
        assert_eq!(lanes(8, 8, 4), (4, 2));
        assert_eq!(lanes(32, 32, 64), (8, 4));
        assert_eq!(lanes(3, 8, 8), (1, 3));
        assert_eq!(lanes(4, 1, 8), (1, 4));
    }

    #[test]
    fn each_computes_as_this_thread_does() {
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| {
            let lanes = Lanes::new::<NdArray>(2, 2).unwrap();
            let found = Precision::Bf16.run(|| lanes.map(vec![(), ()], |()| ops::precision()));
            assert_eq!(found, [Precision::Bf16; 2]);
            let composed = Kernels::Composed.run(|| Lanes::new::<NdArray>(2, 2).unwrap().count());
            assert_eq!(composed, 1, "composed operations draw from a generator that threads share");
        });
    }
}
