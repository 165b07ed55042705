//! ALiBi, attention with linear biases (Press, Smith and Lewis, 2021, arXiv 2108.12409). Each score is lowered by the
//! distance times the slope of its head:
//!
//! ```text
//! score(i, j) - m_h (i - j),    m_h = 2^(-8 h / heads)  for h = 1 .. heads
//! ```
//!
//! Heads with steep slopes attend to near tokens only, heads with flat slopes also to distant ones. ALiBi was designed
//! for length extrapolation.

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use super::{Direction, PositionModule, PositionSettings};
use crate::display::display_line;
use crate::ops::ScorePosition;

/// Returns the slope of each head.
///
/// If the number of heads is not a power of two, the slopes of the next lower power come first. Every second slope of
/// the next higher power follows, as in the authors' code.
pub fn slopes(heads: usize) -> Vec<f64> {
    let geometric = |heads: usize| (1..=heads).map(move |head| 2f64.powf(-8.0 * head as f64 / heads as f64));
    if heads == 0 {
        return Vec::new();
    }
    let below = 1 << heads.ilog2();
    geometric(below).chain(geometric(2 * below).step_by(2)).take(heads).collect()
}

/// A position scheme that lowers scores in proportion to the distance; no parameters.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Alibi<B: Backend> {
    /// The slopes, `[heads, 1]`.
    slopes: Tensor<B, 2>,
    /// The direction of attention: with `Both`, the scores of keys after the query are lowered too.
    #[module(skip)]
    direction: Direction,
}

display_line!(Alibi, self => { heads: self.slopes.dims()[0], direction: self.direction });

impl<B: Backend> Alibi<B> {
    /// Creates the slopes of `heads` heads. With [`Direction::Both`], the score of a key after the query is lowered as
    /// much as that of a key before it. With [`Direction::Causal`], such a key is hidden anyway and keeps its score.
    pub fn new(heads: usize, direction: Direction, device: &B::Device) -> Self {
        let slopes: Vec<f32> = slopes(heads).into_iter().map(|slope| slope as f32).collect();
        Self { slopes: Tensor::from_data(TensorData::new(slopes, [heads, 1]), device), direction }
    }

    /// Returns the bias by distance, `[heads, query_time + key_time - 1]`, in the layout of
    /// [`crate::ops::ScorePosition::Bias`].
    pub fn bias(&self, query_time: usize, key_time: usize) -> Tensor<B, 2> {
        let positions = 1 - query_time as i64..key_time as i64;
        let back = Tensor::<B, 1, Int>::arange(positions, &self.slopes.device());
        let distance = match self.direction {
            Direction::Causal => back.clamp_min(0),
            Direction::Both => back.abs(),
        };
        self.slopes.clone().neg() * distance.float().unsqueeze::<2>()
    }
}

impl<B: Backend> PositionModule<B> for Alibi<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        Self::new(settings.widths.heads, settings.direction, settings.device)
    }

    fn scores(&self, query_time: usize, key_time: usize) -> ScorePosition<B> {
        ScorePosition::Bias(self.bias(query_time, key_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn slopes_of_three_heads_follow_the_authors_rule() {
        // The slopes of two heads, 2^-4 and 2^-8, then the first slope of four heads, 2^-2.
        assert_eq!(slopes(3), [1.0 / 16.0, 1.0 / 256.0, 1.0 / 4.0]);
    }

    #[test]
    fn single_head_slope_is_two_to_minus_eight() {
        assert_eq!(slopes(1), [1.0 / 256.0]);
    }

    #[test]
    fn bias_columns_are_ordered_by_distance() {
        let bias = |direction, query_time, key_time| {
            let alibi = Alibi::<NdArray>::new(1, direction, &Default::default());
            (alibi.bias(query_time, key_time) * 256).into_data().to_vec::<f32>().unwrap()
        };
        assert_eq!(bias(Direction::Both, 3, 3), [-2.0, -1.0, 0.0, -1.0, -2.0]);
        assert_eq!(bias(Direction::Causal, 3, 3), [0.0, 0.0, 0.0, -1.0, -2.0]);
        // The last two of five positions: column 1 is the query's own position.
        assert_eq!(bias(Direction::Causal, 2, 5), [0.0, 0.0, -1.0, -2.0, -3.0, -4.0]);
    }
}
