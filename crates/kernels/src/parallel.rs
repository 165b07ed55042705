//! Parallel loops on the threads of the current [team], or of the current rayon pool without a team.
//!
//! Work is divided by shape alone, unless the division cannot change the result. Partial sums are added in the order of
//! the pieces. Results therefore have the same bits on any number of threads.

use std::sync::{Mutex, PoisonError};

use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;

use super::team;

/// Runs `task` on each item, in any order; an item costs about `work` multiply-adds.
pub(super) fn for_each<I: IndexedParallelIterator>(
    items: I,
    work: usize,
    task: impl Fn(I::Item) + Sync + Send,
) {
    let (count, per_task) = (items.len(), items_per_task(items.len(), work));
    if team::is_active() {
        items.with_producer(Shared { parts: count.div_ceil(per_task.max(1)), count, task });
    } else {
        items.with_min_len(per_task).for_each(task);
    }
}

/// Items shared by the threads of a team.
struct Shared<F> {
    /// The maximum number of parts that the items are divided into.
    parts: usize,
    count: usize,
    task: F,
}

impl<T, F: Fn(T) + Sync + Send> ProducerCallback<T> for Shared<F> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        /// The number of parts per thread; threads that start late process fewer parts.
        const PARTS_PER_THREAD: usize = 4;
        let Self { parts, count, task } = self;
        let threads = team::threads();
        let parts = parts.min(PARTS_PER_THREAD * threads);
        if parts < 2 {
            return producer.into_iter().for_each(task);
        }
        let mut remaining = Some(producer);
        let parts = (0..parts).map(|part| {
            let (start, end) = (part * count / parts, (part + 1) * count / parts);
            let producer = remaining.take().expect("items for each part");
            if end == count {
                return Mutex::new(Some(producer));
            }
            let (first, others) = producer.split_at(end - start);
            remaining = Some(others);
            Mutex::new(Some(first))
        });
        let parts = parts.collect::<Vec<_>>();
        // Each thread starts with the same items in every kernel, because its cache may still hold them.
        let thread_count = threads.min(parts.len());
        team::run(thread_count, &|thread| {
            let first = thread * parts.len() / thread_count;
            for offset in 0..parts.len() {
                let part = &parts[(first + offset) % parts.len()];
                let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
                part.into_iter().flat_map(P::into_iter).for_each(&task);
            }
        });
    }
}

/// Runs two tasks of about `work` multiply-adds each, in parallel if that is faster.
pub(super) fn both(work: usize, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    if items_per_task(2, work) == 2 {
        first();
        second();
    } else if team::is_active() {
        let tasks: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(first), Box::new(second)];
        team::map(tasks, |task| task());
    } else {
        rayon::join(first, second);
    }
}

/// Returns the minimum number of items per task: all items if a single thread is faster.
fn items_per_task(items: usize, work: usize) -> usize {
    /// The minimum number of multiply-adds for several threads, without and with a team. They take about as long as
    /// waking a rayon thread, or handing a task to a spinning thread.
    const MIN_PARALLEL_WORK: [usize; 2] = [1 << 19, 1 << 16];
    /// The minimum number of multiply-adds of a task.
    const MIN_TASK_WORK: usize = 1 << 15;
    let min_work = MIN_PARALLEL_WORK[usize::from(team::is_active())];
    if items.saturating_mul(work) < min_work || team::threads() == 1 {
        return items;
    }
    MIN_TASK_WORK.div_ceil(work.max(1)).min(items.div_ceil(2))
}

/// Returns the number of rows per piece for elementwise work on `rows` rows of `row_work` steps each.
pub(super) fn rows_per_piece(rows: usize, row_work: usize) -> usize {
    /// The work of a piece: long enough to hide the overhead of a task, short enough for the cache of a core.
    const PIECE_WORK: usize = 1 << 14;
    (PIECE_WORK / row_work.max(1)).clamp(1, rows.max(1))
}
