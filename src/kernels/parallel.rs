//! Work cut into pieces of fixed size, on as many threads as rayon's current pool has.
//!
//! How work is cut follows from the shapes alone, never from the number of threads, and sums over pieces are
//! taken in the order of the pieces: results carry the same bits on any number of threads.

use rayon::prelude::*;

/// Multiply-adds (or comparable steps) that take about as long as it takes to wake a thread.
const LEAST_PARALLEL_WORK: usize = 1 << 19;

/// Steps that a task should at least have.
const LEAST_TASK_WORK: usize = 1 << 16;

/// Runs `task(0)`, .., `task(pieces - 1)`, in any order, where each is about `work` steps long.
///
/// Little work stays on the calling thread, and short pieces go to a thread together.
pub(super) fn for_each_piece(pieces: usize, work: usize, task: impl Fn(usize) + Sync + Send) {
    if pieces < 2 || pieces.saturating_mul(work) < LEAST_PARALLEL_WORK || rayon::current_num_threads() < 2 {
        (0..pieces).for_each(task);
    } else {
        let together = LEAST_TASK_WORK.div_ceil(work.max(1)).min(pieces.div_ceil(2));
        (0..pieces).into_par_iter().with_min_len(together).for_each(task);
    }
}

/// How many rows a piece has when `rows` rows of `row_work` steps each are cut for elementwise work.
pub(super) fn rows_in_a_piece(rows: usize, row_work: usize) -> usize {
    /// Long enough to hide the cost of handing a piece over, short enough to stay in a core's own cache.
    const PIECE_WORK: usize = 1 << 15;
    (PIECE_WORK / row_work.max(1)).clamp(1, rows.max(1))
}
