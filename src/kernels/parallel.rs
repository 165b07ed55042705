//! Work cut into pieces of fixed size, on as many threads as rayon's current pool has.
//!
//! How work is cut follows from the shapes alone, never from the number of threads, and sums over pieces are
//! taken in the order of the pieces: results carry the same bits on any number of threads.

use rayon::prelude::*;

/// Runs `task` on each item, in any order, where each is about `work` multiply-adds long.
pub(super) fn for_each<I: IndexedParallelIterator>(
    items: I,
    work: usize,
    task: impl Fn(I::Item) + Sync + Send,
) {
    let together = items_together(items.len(), work);
    items.with_min_len(together).for_each(task);
}

/// Runs two tasks of about `work` multiply-adds each, side by side where that is worth it.
pub(super) fn both(work: usize, one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    if items_together(2, work) < 2 {
        rayon::join(one, other);
    } else {
        one();
        other();
    }
}

/// How many items a thread should take at least: all where they are better done by the calling thread.
fn items_together(items: usize, work: usize) -> usize {
    /// Multiply-adds that take about as long as it takes to wake a thread.
    const LEAST_PARALLEL_WORK: usize = 1 << 19;
    /// Multiply-adds that are worth handing over.
    const LEAST_TASK_WORK: usize = 1 << 16;
    if items.saturating_mul(work) < LEAST_PARALLEL_WORK || rayon::current_num_threads() == 1 {
        return items;
    }
    LEAST_TASK_WORK.div_ceil(work.max(1)).min(items.div_ceil(2))
}

/// How many rows a piece has when `rows` rows of `row_work` steps each are cut for elementwise work.
pub(super) fn rows_in_a_piece(rows: usize, row_work: usize) -> usize {
    /// Long enough to hide the cost of handing a piece over, short enough to stay in a core's own cache.
    const PIECE_WORK: usize = 1 << 15;
    (PIECE_WORK / row_work.max(1)).clamp(1, rows.max(1))
}
