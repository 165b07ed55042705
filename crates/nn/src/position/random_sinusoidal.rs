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

use std::collections::HashMap;

use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use rand::{SeedableRng, rngs::ChaCha8Rng, seq::index};

use super::documents::{DocumentPositions, select};
use super::sinusoidal::sinusoids;
use super::{PositionModule, PositionSettings, Widths};
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

    /// Returns the seed of the next draw, which is fixed in evaluation.
    fn seed(&self) -> u64 {
        if B::ad_enabled(&self.table.device()) { ops::next_seed() } else { EVALUATION_SEED }
    }

    /// Draws at least `time` positions in ascending order.
    fn draw(&self, seed: u64, time: usize) -> Vec<usize> {
        let [largest, _] = self.table.dims();
        let count = if B::ad_enabled(&self.table.device()) { time } else { time.max(self.context) };
        positions(seed, count, largest)
    }
}

impl<B: Backend> PositionModule<B> for RandomSinusoidal<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        let Widths { d_model, largest_position, .. } = settings.widths;
        Self::new(settings.context, largest_position, d_model, settings.device)
    }

    fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        self.check(start + time)?;
        let positions = self.draw(self.seed(), start + time).into_iter().skip(start).take(time);
        Ok(Some(select(self.table.clone(), positions.map(|position| position as i64).collect())))
    }

    fn document_embedding(&self, documents: &DocumentPositions) -> Result<Option<Tensor<B, 2>>> {
        self.check(documents.longest())?;
        let seed = self.seed();
        let mut drawn = HashMap::new();
        let mut all = Vec::new();
        for &length in documents.lengths() {
            let positions = drawn.entry(length).or_insert_with(|| self.draw(seed, length));
            all.extend(positions[..length].iter().map(|&position| position as i64));
        }
        Ok(Some(select(self.table.clone(), all)))
    }

    fn check(&self, time: usize) -> Result<()> {
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
        let rows = position.embedding(start, time).unwrap().unwrap().into_data().convert::<f32>();
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
