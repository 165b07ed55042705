//! Work cut into pieces of fixed size, on the threads of the current [team], or else of rayon's current pool.
//!
//! How work is cut follows from the shapes alone, unless cuts change no bit, and sums over pieces are taken in the
//! order of the pieces: results carry the same bits on any number of threads.

use std::sync::{Mutex, PoisonError};

use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;

use super::team;

/// Runs `task` on each item, in any order, where each is about `work` multiply-adds long.
pub(super) fn for_each<I: IndexedParallelIterator>(
    items: I,
    work: usize,
    task: impl Fn(I::Item) + Sync + Send,
) {
    let (count, together) = (items.len(), items_together(items.len(), work));
    if team::is_here() {
        items.with_producer(Shared { parts: count.div_ceil(together.max(1)), count, task });
    } else {
        items.with_min_len(together).for_each(task);
    }
}

/// Items that the threads of a team share.
struct Shared<F> {
    /// Into so many parts at most.
    parts: usize,
    count: usize,
    task: F,
}

impl<T, F: Fn(T) + Sync + Send> ProducerCallback<T> for Shared<F> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        /// Parts for each thread, so that one that comes late finds less to do.
        const EACH: usize = 4;
        let Self { parts, count, task } = self;
        let threads = team::threads();
        let parts = parts.min(EACH * threads);
        if parts < 2 {
            return producer.into_iter().for_each(task);
        }
        let mut left = Some(producer);
        let parts = (0..parts).map(|part| {
            let (start, end) = (part * count / parts, (part + 1) * count / parts);
            let producer = left.take().expect("there are items for each part");
            if end == count {
                return Mutex::new(Some(producer));
            }
            let (first, others) = producer.split_at(end - start);
            left = Some(others);
            Mutex::new(Some(first))
        });
        let parts = parts.collect::<Vec<_>>();
        // Each thread begins with the same items in each kernel, which its cache may still hold.
        let sharing = threads.min(parts.len());
        team::run(sharing, &|thread| {
            let first = thread * parts.len() / sharing;
            for offset in 0..parts.len() {
                let part = &parts[(first + offset) % parts.len()];
                let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
                part.into_iter().flat_map(P::into_iter).for_each(&task);
            }
        });
    }
}

/// Runs two tasks of about `work` multiply-adds each, side by side where that is worth it.
pub(super) fn both(work: usize, one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    if items_together(2, work) == 2 {
        one();
        other();
    } else if team::is_here() {
        let tasks: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(one), Box::new(other)];
        team::map(tasks, |task| task());
    } else {
        rayon::join(one, other);
    }
}

/// How many items a thread should take at least: all where they are better done by the calling thread.
fn items_together(items: usize, work: usize) -> usize {
    /// Multiply-adds that take about as long as it takes to wake a thread, and to reach one of a team, which is awake.
    const LEAST_PARALLEL_WORK: [usize; 2] = [1 << 19, 1 << 16];
    /// Multiply-adds that are worth handing over.
    const LEAST_TASK_WORK: usize = 1 << 15;
    let least = LEAST_PARALLEL_WORK[usize::from(team::is_here())];
    if items.saturating_mul(work) < least || team::threads() == 1 {
        return items;
    }
    LEAST_TASK_WORK.div_ceil(work.max(1)).min(items.div_ceil(2))
}

/// How many rows a piece has when `rows` rows of `row_work` steps each are cut for elementwise work.
pub(super) fn rows_in_a_piece(rows: usize, row_work: usize) -> usize {
    /// Long enough to hide the cost of handing a piece over, short enough to stay in a core's own cache.
    const PIECE_WORK: usize = 1 << 14;
    (PIECE_WORK / row_work.max(1)).clamp(1, rows.max(1))
}
