//! Randomised sinusoidal positions (Ruoss et al., 2023, arXiv 2305.16843). The tokens of a sequence get, in order,
//! positions drawn without replacement from a range much larger than the sequence:
//!
//! ```text
//! position of token t = the t-th smallest of n drawn from 0 .. largest
//! ```
//!
//! Short training sequences thus cover all positions of longer ones, and only the order carries information. In
//! training, positions are redrawn for each batch. In evaluation the seed is fixed, and the number of positions drawn
//! is the larger of training context and sequence length.

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use rand::{SeedableRng, rngs::ChaCha8Rng, seq::index};

use super::sinusoidal::sinusoids;
use crate::display::display_line;
use crate::{Error, Result, error::ensure, ops};

/// The seed of the positions in evaluation.
const EVALUATION_SEED: u64 = 0;

/// Fixed sines and cosines of randomly drawn positions; no parameters.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RandomSinusoidal<B: Backend> {
    /// The sines and cosines, `[largest, d_model]`.
    table: Tensor<B, 2>,
    /// The longest sequence in training.
    context: usize,
}

display_line!(RandomSinusoidal, self => {
    context: self.context,
    largest_position: self.table.dims()[0],
    d_model: self.table.dims()[1],
});

impl<B: Backend> RandomSinusoidal<B> {
    /// Creates a table of `largest` positions for training sequences of up to `context` tokens.
    pub fn new(context: usize, largest: usize, d_model: usize, device: &B::Device) -> Self {
        Self { table: sinusoids(largest, d_model, device), context }
    }

    /// Returns the embeddings of the `time` positions from `start` on, `[time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are more tokens than positions.
    pub fn embedding(&self, start: usize, time: usize) -> Result<Tensor<B, 2>> {
        self.check(start + time)?;
        let [largest, _] = self.table.dims();
        let device = self.table.device();
        let (seed, count) = match B::ad_enabled(&device) {
            true => (ops::next_seed(), start + time),
            false => (EVALUATION_SEED, (start + time).max(self.context)),
        };
        let positions = positions(seed, count, largest).into_iter().skip(start).take(time);
        let positions = TensorData::new(positions.map(|position| position as i64).collect(), [time]);
        Ok(self.table.clone().select(0, Tensor::<B, 1, Int>::from_data(positions, &device)))
    }

    /// Checks that there are positions for `time` tokens.
    ///
    /// # Errors
    /// Same as [`Self::embedding`].
    pub fn check(&self, time: usize) -> Result<()> {
        let [largest, _] = self.table.dims();
        ensure(time <= largest, Error::Shape, || {
            format!(
                "a sequence of {time} tokens is longer than the {largest} random positions (`largest_position`); \
                 shorten it"
            )
        })
    }
}

/// Returns the positions drawn in evaluation for a sequence of `time` tokens, in ascending order. Sequences shorter
/// than the context use the first positions of the draw for the context.
pub fn evaluation_positions(time: usize, largest: usize) -> Vec<usize> {
    positions(EVALUATION_SEED, time, largest)
}

/// Draws `count` distinct positions below `largest`, in ascending order.
fn positions(seed: u64, count: usize, largest: usize) -> Vec<usize> {
    let mut positions =
        index::sample(&mut ChaCha8Rng::seed_from_u64(seed), largest, count.min(largest)).into_vec();
    positions.sort_unstable();
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    fn rows<B: Backend>(position: &RandomSinusoidal<B>, start: usize, time: usize) -> Vec<Vec<f32>> {
        let rows = position.embedding(start, time).unwrap().into_data().convert::<f32>();
        rows.to_vec::<f32>().unwrap().chunks(7).map(<[f32]>::to_vec).collect()
    }

    #[test]
    fn positions_are_increasing_and_cover_the_range() {
        let mut seen = [false; 23];
        for seed in 0..200 {
            let positions = positions(seed, 5, 23);
            assert!(positions.is_sorted_by(|a, b| a < b) && positions.len() == 5, "{positions:?}");
            positions.into_iter().for_each(|position| seen[position] = true);
        }
        assert_eq!(seen, [true; 23]);
        assert_eq!(positions(3, 23, 23), (0..23).collect::<Vec<_>>());
    }

    #[test]
    fn training_resamples_positions_and_evaluation_is_fixed() {
        let device = Default::default();
        let trained = RandomSinusoidal::<Autodiff<NdArray>>::new(5, 101, 7, &device);
        let evaluated = RandomSinusoidal::<NdArray>::new(5, 101, 7, &device);
        ops::seed::<Autodiff<NdArray>>(&device, 3);
        let drawn = [rows(&trained, 0, 5), rows(&trained, 0, 5)];
        assert_ne!(drawn[0], drawn[1]);
        ops::seed::<Autodiff<NdArray>>(&device, 3);
        assert_eq!(drawn, [rows(&trained, 0, 5), rows(&trained, 0, 5)]);
        let first = rows(&evaluated, 0, 5);
        ops::seed::<NdArray>(&device, 11);
        assert_eq!(rows(&evaluated, 0, 5), first);
        // Within the context, reading in parts gives the same rows as reading at once.
        assert_eq!(rows(&evaluated, 2, 3), first[2..]);
        assert_eq!(rows(&evaluated, 0, 3), first[..3]);
    }

    #[test]
    fn sequences_beyond_largest_position_are_errors() {
        let position = RandomSinusoidal::<NdArray>::new(5, 11, 7, &Default::default());
        assert_eq!(rows(&position, 0, 11).len(), 11);
        let error = position.embedding(5, 7).unwrap_err().to_string();
        assert!(
            error.starts_with("a sequence of 12 tokens is longer than the 11 random positions"),
            "{error}"
        );
    }
}
