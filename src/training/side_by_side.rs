//! Computing shards of a step in parallel, each on its own thread. Threads that split each matrix product instead would
//! wait for each other.

use burn::tensor::backend::Backend;

use crate::backend::concurrent_shards;
use crate::kernels::team;
use crate::ops;

/// Returns the number of a worker's `shards` to compute at once, by [`concurrent_shards`]. Returns 1 if the backend
/// does not compute on the host, or if the number exceeds `max_shards`, whose gradients fit into memory.
pub fn at_once<B: Backend>(shards: usize, max_shards: usize) -> usize {
    let at_once = concurrent_shards(team::threads(), shards);
    if at_once <= max_shards && ops::is_on_host::<B>() { at_once } else { 1 }
}

/// Applies `work` to each item and returns the results in order. If `at_once` is 1, items are processed sequentially
/// with all threads. Otherwise each item runs on one thread, with this thread's kernels and precision.
pub fn map<I: Send, T: Send>(at_once: usize, items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    if at_once == 1 {
        return items.into_iter().map(work).collect();
    }
    let (kernels, precision) = (ops::kernels(), ops::precision());
    team::map(items, |item| kernels.run(|| precision.run(|| work(item))))
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::ops::{Kernels, Precision};

    #[test]
    fn shards_are_divided_equally_among_threads() {
        let of = |threads, shards, max| team::with_threads(threads, || at_once::<NdArray>(shards, max));
        assert_eq!(of(2, 8, 8), 2);
        assert_eq!(of(8, 8, 8), 8);
        assert_eq!(of(8, 8, 4), 1, "memory holds the gradients of four");
        assert_eq!(of(3, 8, 8), 1);
        assert_eq!(of(4, 2, 8), 1);
        assert_eq!(
            Kernels::Reference.run(|| of(2, 8, 8)),
            1,
            "reference kernels draw from a shared generator"
        );
    }

    #[test]
    fn threads_inherit_kernels_and_precision() {
        let found =
            team::with_threads(2, || Precision::Bf16.run(|| map(2, vec![(), ()], |()| ops::precision())));
        assert_eq!(found, [Precision::Bf16; 2]);
    }
}
