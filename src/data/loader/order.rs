//! The order of the samples of an epoch: a permutation of their indices.

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::data::seed::{Purpose, generator};

/// The maximum number of samples whose order is a list in memory: 64 MiB.
const MAX_LISTED: usize = 1 << 24;

/// The number of rounds of a computed permutation.
const ROUNDS: usize = 6;

/// A permutation of the numbers below the number of samples, drawn from (seed, epoch).
#[derive(Debug)]
pub(super) enum Order {
    Listed(Vec<u32>),
    Computed(Permutation),
}

impl Order {
    pub fn draw(samples: usize, seed: u64, epoch: usize) -> Self {
        Self::with_limit(samples, seed, epoch, MAX_LISTED)
    }

    fn with_limit(samples: usize, seed: u64, epoch: usize, max_listed: usize) -> Self {
        let mut random = generator(seed, Purpose::Order, [epoch as u64, 0]);
        if samples <= max_listed {
            let mut listed: Vec<u32> = (0..samples as u32).collect();
            listed.shuffle(&mut random);
            return Self::Listed(listed);
        }
        let half_bits = (samples as u64).next_power_of_two().ilog2().div_ceil(2);
        let keys = std::array::from_fn(|_| random.random());
        Self::Computed(Permutation { samples: samples as u64, half_bits, keys })
    }

    /// Returns the sample at a position; `None` after the last one.
    pub fn get(&self, position: usize) -> Option<usize> {
        match self {
            Self::Listed(listed) => listed.get(position).map(|&sample| sample as usize),
            Self::Computed(permutation) => permutation.get(position as u64).map(|sample| sample as usize),
        }
    }
}

/// A permutation that is computed for each position: a Feistel network on the next even number of bits, repeated until
/// the result is in range (Black and Rogaway, 2002).
#[derive(Debug)]
pub(super) struct Permutation {
    samples: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    fn get(&self, position: u64) -> Option<u64> {
        if position >= self.samples {
            return None;
        }
        let mut sample = self.permuted(position);
        while sample >= self.samples {
            sample = self.permuted(sample);
        }
        Some(sample)
    }

    /// Permutes the numbers of twice `half_bits` bits.
    fn permuted(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            (left, right) = (right, left ^ scrambled(right ^ key) & mask);
        }
        left << self.half_bits | right
    }
}

/// Scrambles the bits of a number (the output function of SplitMix64; Steele et al., 2014).
fn scrambled(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_orders_are_permutations_too() {
        for samples in [1, 2, 3, 101, 1024, 1025] {
            let order = Order::with_limit(samples, 7, 3, 0);
            let mut all: Vec<_> = (0..samples).map(|position| order.get(position).unwrap()).collect();
            assert_eq!(order.get(samples), None);
            if samples > 100 {
                let fixed = all.iter().enumerate().filter(|(position, sample)| position == *sample).count();
                let ascents = all.windows(2).filter(|pair| pair[0] < pair[1]).count();
                assert!(fixed < 10 && ascents.abs_diff(samples / 2) < samples / 8, "{samples}");
                let other = Order::with_limit(samples, 7, 4, 0);
                let same =
                    (0..samples).filter(|&position| other.get(position) == Some(all[position])).count();
                assert!(same < 10, "{same} of {samples} samples have the same position in the next epoch");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..samples), "{samples}");
        }
    }
}
