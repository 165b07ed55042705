//! Shards of a step side by side, each on a thread of its own: none then waits for another one's part of a product.

use burn::tensor::backend::Backend;

use crate::backend::shards_at_once;
use crate::kernels::team;
use crate::ops;

/// How many of a worker's `shards` are computed at once: as many as [`shards_at_once`] says where the kernels compute them
/// and memory holds the gradients of so many, `most`.
pub fn at_once<B: Backend>(shards: usize, most: usize) -> usize {
    let at_once = shards_at_once(team::threads(), shards);
    if at_once <= most && ops::is_on_host::<B>() { at_once } else { 1 }
}

/// What `work` makes of each item, in their order: of one after another with all threads, or, where several are to be
/// worked on `at_once`, of each on one thread, with the kernels and the precision of this one.
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
    fn each_thread_has_as_many_shards() {
        let of = |threads, shards, most| team::with_threads(threads, || at_once::<NdArray>(shards, most));
        assert_eq!(of(2, 8, 8), 2);
        assert_eq!(of(8, 8, 8), 8);
        assert_eq!(of(8, 8, 4), 1, "memory holds the gradients of four");
        assert_eq!(of(3, 8, 8), 1);
        assert_eq!(of(4, 2, 8), 1);
        assert_eq!(
            Kernels::Composed.run(|| of(2, 8, 8)),
            1,
            "composed operations draw from a shared generator"
        );
    }

    #[test]
    fn each_computes_as_this_thread_does() {
        let found =
            team::with_threads(2, || Precision::Bf16.run(|| map(2, vec![(), ()], |()| ops::precision())));
        assert_eq!(found, [Precision::Bf16; 2]);
    }
}
