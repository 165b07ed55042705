//! Work cut into pieces of fixed size, on as many threads as rayon's current pool has.
//!
//! How work is cut follows from the shapes alone, never from the number of threads, and sums over pieces are
//! taken in the order of the pieces: results carry the same bits on any number of threads.

use rayon::prelude::*;

/// Runs `task(0)`, .., `task(pieces - 1)`, in any order, where each is about `work` multiply-adds long.
pub(super) fn for_each_piece(pieces: usize, work: usize, task: impl Fn(usize) + Sync + Send) {
    match pieces_together(pieces, work) {
        None => (0..pieces).for_each(task),
        Some(together) => (0..pieces).into_par_iter().with_min_len(together).for_each(task),
    }
}

/// Runs `task` on each item, in any order, where each is about `work` multiply-adds long.
pub(super) fn for_each_item<T: Send>(items: Vec<T>, work: usize, task: impl Fn(T) + Sync + Send) {
    match pieces_together(items.len(), work) {
        None => items.into_iter().for_each(task),
        Some(together) => items.into_par_iter().with_min_len(together).for_each(task),
    }
}

/// Runs two tasks of about `work` multiply-adds each, side by side where that is worth it.
pub(super) fn both(work: usize, one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    match pieces_together(2, work) {
        None => {
            one();
            other();
        }
        Some(_) => {
            rayon::join(one, other);
        }
    }
}

/// How many pieces a thread should take at least; `None` where all are better done by the calling thread.
fn pieces_together(pieces: usize, work: usize) -> Option<usize> {
    /// Multiply-adds that take about as long as it takes to wake a thread.
    const LEAST_PARALLEL_WORK: usize = 1 << 19;
    /// Multiply-adds that are worth handing over.
    const LEAST_TASK_WORK: usize = 1 << 16;
    let worthwhile = pieces > 1 && pieces.saturating_mul(work) >= LEAST_PARALLEL_WORK;
    (worthwhile && rayon::current_num_threads() > 1)
        .then(|| LEAST_TASK_WORK.div_ceil(work.max(1)).min(pieces.div_ceil(2)))
}

/// How many rows a piece has when `rows` rows of `row_work` steps each are cut for elementwise work.
pub(super) fn rows_in_a_piece(rows: usize, row_work: usize) -> usize {
    /// Long enough to hide the cost of handing a piece over, short enough to stay in a core's own cache.
    const PIECE_WORK: usize = 1 << 15;
    (PIECE_WORK / row_work.max(1)).clamp(1, rows.max(1))
}
