//! Relative positions of T5 (Raffel et al., 2020, arXiv 1910.10683): each score gets a learned bias that depends on the
//! head and the bucket of the distance. Small distances have their own buckets. Larger distances share logarithmically
//! spaced buckets. All distances from [`MAX_DISTANCE`] share the last bucket.
//!
//! T5 leaves the scores unscaled; here they are divided by the root of the head width, as everywhere in this crate.

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use super::{Direction, PositionModule, PositionSettings};
use crate::display::display_line;
use crate::ops::ScorePosition;
use crate::role::ParamRole;

/// The number of buckets, as in T5.
pub const BUCKETS: usize = 32;

/// The distance at and beyond which all keys share the last bucket, as in T5.
pub const MAX_DISTANCE: usize = 128;

/// Returns the bucket of a key that is `back` positions before the query (after it if negative).
///
/// With [`Direction::Causal`], keys after the query share the query's own bucket. With [`Direction::Both`], each side
/// gets half of the buckets.
pub fn bucket(back: i64, direction: Direction, buckets: usize, max_distance: usize) -> usize {
    let (first, buckets, distance) = match direction {
        Direction::Causal => (0, buckets, back.max(0) as usize),
        Direction::Both if back < 0 => (buckets / 2, buckets / 2, back.unsigned_abs() as usize),
        Direction::Both => (0, buckets / 2, back as usize),
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    // In single precision, as in T5.
    let ratio = |number: usize| (number as f32 / exact as f32).ln();
    let steps = ratio(distance) / ratio(max_distance) * (buckets - exact) as f32;
    first + (exact + steps as usize).min(buckets - 1)
}

/// A learned bias for each head and bucket of distances.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Relative<B: Backend> {
    /// The biases, `[BUCKETS, heads]`, shared by all layers.
    pub weight: Param<Tensor<B, 2>>,
    /// The direction of attention: with `Both`, keys after the query have their own buckets.
    #[module(skip)]
    direction: Direction,
}

display_line!(Relative, self => {
    heads: self.weight.lazy_shape().dims::<2>()[1],
    buckets: BUCKETS,
    direction: self.direction,
});

impl<B: Backend> Relative<B> {
    /// Creates biases for `heads` heads from N(0, 0.02): near zero, so that initially no distance is preferred.
    pub fn new(heads: usize, direction: Direction, device: &B::Device) -> Self {
        let initializer = Initializer::Normal { mean: 0.0, std: 0.02 };
        Self { weight: initializer.init([BUCKETS, heads], device), direction }
    }

    /// Returns the bias by distance, `[heads, query_time + key_time - 1]`, in the layout of
    /// [`crate::ops::ScorePosition::Bias`].
    pub fn bias(&self, query_time: usize, key_time: usize) -> Tensor<B, 2> {
        let positions = 1 - query_time as i64..key_time as i64;
        let buckets: Vec<i64> =
            positions.map(|back| bucket(back, self.direction, BUCKETS, MAX_DISTANCE) as i64).collect();
        let count = buckets.len();
        let weight = self.weight.val();
        let buckets = Tensor::<B, 1, Int>::from_data(TensorData::new(buckets, [count]), &weight.device());
        weight.select(0, buckets).transpose() // [heads, query_time + key_time - 1]
    }
}

impl<B: Backend> PositionModule<B> for Relative<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        Self::new(settings.widths.heads, settings.direction, settings.device)
    }

    fn visit_parameters(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { weight, direction: _ } = self;
        visit(weight.id, ParamRole::Embedding);
    }

    fn scores(&self, query_time: usize, key_time: usize) -> ScorePosition<B> {
        ScorePosition::Bias(self.bias(query_time, key_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_near_and_shared_far() {
        let causal = |back| bucket(back, Direction::Causal, BUCKETS, MAX_DISTANCE);
        assert_eq!([0, 1, 15].map(causal), [0, 1, 15]);
        assert_eq!(causal(16), 16);
        assert!(causal(40) < causal(80), "far distances still differ");
        assert_eq!([127, 128, 100_000].map(causal), [31, 31, 31]);
        assert_eq!(causal(-3), 0);
    }

    #[test]
    fn both_directions_have_separate_buckets() {
        let both = |back| bucket(back, Direction::Both, BUCKETS, MAX_DISTANCE);
        assert_eq!([0, 3, -3, 1_000, -1_000].map(both), [0, 3, 19, 15, 31]);
    }
}
