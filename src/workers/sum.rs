//! An all-reduce along a fixed tree: recursive halving, then recursive doubling (Thakur, Rabenseifner and Gropp, 2005,
//! "Optimization of collective communication operations in MPICH", section 4.5).
//!
//! In the first round, the workers form pairs (0 and 1, 2 and 3, ...), and each worker of a pair sums one half of the
//! elements. In the next round (0 and 2, 1 and 3, ...), each worker sums a quarter. In the end, each worker holds one
//! part of the total, and the pairs exchange these parts in reverse order. Each element is thus summed along one binary
//! tree over the workers, and each of N workers sends 2 (N - 1) / N times the data. MPI's own all-reduce is not used,
//! because it may choose another order of summation. In a pair, one worker computes `a + b` and the other `b + a`,
//! which gives the same bits.

use std::ops::Range;

use super::link::{Link, Wait};
use crate::error::Result;

/// Sums the `values` of all workers, whose `count` is a power of two. `add` adds the second slice to the first, element
/// by element.
pub(super) fn over_workers<T: bytemuck::Pod>(
    link: &dyn Link,
    (rank, count): (usize, usize),
    values: &mut [T],
    scratch: &mut Vec<T>,
    add: fn(&mut [T], &[T]),
    wait: &mut Wait,
) -> Result<()> {
    scratch.resize(values.len().div_ceil(2).max(scratch.len()), bytemuck::Zeroable::zeroed());
    let mut part = 0..values.len();
    let mut outer: Vec<Range<usize>> = Vec::new();
    let rounds = (0..count.ilog2()).map(|round| rank ^ 1 << round);
    for peer in rounds.clone() {
        let (low, high) = halves(&part);
        let (own, others) = if rank < peer { (low, high) } else { (high, low) };
        let received = &mut scratch[..own.len()];
        link.swap(peer, bytemuck::cast_slice(&values[others]), bytemuck::cast_slice_mut(received), wait)?;
        add(&mut values[own.clone()], received);
        outer.push(std::mem::replace(&mut part, own));
    }
    for (peer, part) in rounds.rev().zip(outer.into_iter().rev()) {
        let (before, after) = values[part.clone()].split_at_mut(halves(&part).0.len());
        let (own, others) = if rank < peer { (before, after) } else { (after, before) };
        link.swap(peer, bytemuck::cast_slice(own), bytemuck::cast_slice_mut(others), wait)?;
    }
    Ok(())
}

fn halves(part: &Range<usize>) -> (Range<usize>, Range<usize>) {
    let middle = part.start + part.len() / 2;
    (part.start..middle, middle..part.end)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::kernels::random::random;
    use crate::kernels::sums;
    use crate::ops::sum_in_order;

    /// A link over two channels per worker, one in each direction. The workers of the test are threads.
    #[derive(Debug)]
    struct Channels {
        to: Vec<Mutex<Sender<Vec<u8>>>>,
        from: Vec<Mutex<Receiver<Vec<u8>>>>,
    }

    impl Link for Channels {
        fn swap(&self, peer: usize, out: &[u8], into: &mut [u8], wait: &mut Wait) -> Result<()> {
            self.send(peer, out, wait)?;
            into.copy_from_slice(&self.receive(peer, wait)?);
            Ok(())
        }

        fn send(&self, peer: usize, message: &[u8], _: &mut Wait) -> Result<()> {
            self.to[peer].lock().unwrap().send(message.to_vec()).unwrap();
            Ok(())
        }

        fn receive(&self, peer: usize, _: &mut Wait) -> Result<Vec<u8>> {
            Ok(self.from[peer].lock().unwrap().recv().unwrap())
        }

        fn poll(&self, _: usize) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }
    }

    fn links(count: usize) -> Vec<Channels> {
        let mut links: Vec<_> = (0..count).map(|_| Channels { to: Vec::new(), from: Vec::new() }).collect();
        for first in 0..count {
            for second in 0..count {
                let (sender, receiver) = channel();
                links[first].to.push(Mutex::new(sender));
                links[second].from.push(Mutex::new(receiver));
            }
        }
        links
    }

    #[test]
    fn all_reduce_is_bitwise_equal_across_worker_counts() {
        const SHARDS: usize = 16;
        for length in [0, 1, 3, 64, 100_001] {
            let shard = |shard: usize| random(shard as u64 + 1, length);
            let add_up = |shards: Range<usize>| {
                let sum = sum_in_order(shards.map(|number| Some(shard(number))), |mut a: Vec<f32>, b| {
                    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                    a
                });
                sum.unwrap()
            };
            let alone = add_up(0..SHARDS);
            for count in [2, 4, 8, 16] {
                std::thread::scope(|scope| {
                    let threads = links(count).into_iter().enumerate().map(|(rank, link)| {
                        scope.spawn(move || {
                            let each = SHARDS / count;
                            let mut sum = add_up(rank * each..(rank + 1) * each);
                            let wait = &mut Wait::new(Arc::default());
                            let scratch = &mut Vec::new();
                            over_workers(&link, (rank, count), &mut sum, scratch, sums::add, wait).unwrap();
                            sum
                        })
                    });
                    for thread in threads.collect::<Vec<_>>() {
                        assert_eq!(thread.join().unwrap(), alone, "{count} workers");
                    }
                });
            }
        }
    }
}
