//! Relative positions as T5 has them (Raffel et al., 2020, arXiv 1910.10683): each score gets a
//! learned number that depends on its head and on the bucket of its distance. Near distances have
//! a bucket each, far ones share buckets that widen logarithmically up to a largest distance,
//! beyond which all are alike.
//!
//! Where T5 leaves the scores unscaled, they are divided by the root of the head's width here, as
//! everywhere in this crate.

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use super::Direction;
use crate::role::{ParamRole, ParamRoles};

/// Number of buckets, T5's.
pub const BUCKETS: usize = 32;

/// From this distance on all keys share the last bucket, T5's.
pub const LARGEST_DISTANCE: usize = 128;

/// The bucket of a key that lies `back` places before the query (after it, where negative).
///
/// Looking back only, keys after the query share the bucket of the query itself. Looking both
/// ways, half of the buckets serve each side.
pub fn bucket(back: i64, direction: Direction, buckets: usize, largest_distance: usize) -> usize {
    let (first, buckets, distance) = match direction {
        Direction::Causal => (0, buckets, back.max(0) as usize),
        Direction::Both if back < 0 => (buckets / 2, buckets / 2, back.unsigned_abs() as usize),
        Direction::Both => (0, buckets / 2, back as usize),
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    // In single precision, as T5's own tables were made.
    let ratio = |number: usize| (number as f32 / exact as f32).ln();
    let steps = ratio(distance) / ratio(largest_distance) * (buckets - exact) as f32;
    first + (exact + steps as usize).min(buckets - 1)
}

/// A learned number for each head and bucket of distances.
#[derive(Module, Debug)]
pub struct Relative<B: Backend> {
    /// `[BUCKETS, heads]`, shared by all layers.
    pub weight: Param<Tensor<B, 2>>,
    /// Whether keys after the query have buckets of their own.
    #[module(skip)]
    direction: Direction,
}

impl<B: Backend> ParamRoles for Relative<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { weight, direction: _ } = self;
        visit(weight.id, ParamRole::Embedding);
    }
}

impl<B: Backend> Relative<B> {
    /// Biases for this many heads, from N(0, 0.02): near zero, where no distance is preferred.
    pub fn new(heads: usize, direction: Direction, device: &B::Device) -> Self {
        let initializer = Initializer::Normal { mean: 0.0, std: 0.02 };
        Self { weight: initializer.init([BUCKETS, heads], device), direction }
    }

    /// The bias by distance, `[heads, query_time + key_time - 1]`, as
    /// [`crate::ops::ScorePosition::Bias`] asks for it.
    pub fn bias(&self, query_time: usize, key_time: usize) -> Tensor<B, 2> {
        let places = 1 - query_time as i64..key_time as i64;
        let buckets: Vec<i64> =
            places.map(|back| bucket(back, self.direction, BUCKETS, LARGEST_DISTANCE) as i64).collect();
        let count = buckets.len();
        let weight = self.weight.val();
        let buckets = Tensor::<B, 1, Int>::from_data(TensorData::new(buckets, [count]), &weight.device());
        weight.select(0, buckets).transpose() // [heads, query_time + key_time - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_near_and_shared_far() {
        let causal = |back| bucket(back, Direction::Causal, BUCKETS, LARGEST_DISTANCE);
        assert_eq!([0, 1, 15].map(causal), [0, 1, 15]);
        assert_eq!(causal(16), 16);
        assert!(causal(40) < causal(80), "far distances still differ");
        assert_eq!([127, 128, 100_000].map(causal), [31, 31, 31]);
        assert_eq!(causal(-3), 0);
    }

    #[test]
    fn both_sides_have_buckets_of_their_own() {
        let both = |back| bucket(back, Direction::Both, BUCKETS, LARGEST_DISTANCE);
        assert_eq!([0, 3, -3, 1_000, -1_000].map(both), [0, 3, 19, 15, 31]);
    }
}
