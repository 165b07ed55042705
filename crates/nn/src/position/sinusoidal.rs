//! Sinusoidal positions (Vaswani et al., 2017, arXiv 1706.03762, section 3.5). Position `t` has the vector
//!
//! ```text
//! [sin(t w_0), cos(t w_0), sin(t w_1), cos(t w_1), ..],    w_i = 10000^(-2i / d_model)
//! ```
//!
//! Wavelengths range from `2 pi` to `10000 2 pi`. The row of `t + k` is the row of `t` after a rotation that depends
//! only on `k`, so a distance has the same effect at every position.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData, backend::Backend};

use super::documents::DocumentPositions;
use super::{PositionModule, PositionSettings};
use crate::Result;
use crate::display::display_line;

/// Returns the interleaved sines and cosines of `time` positions, `[time, d_model]`.
pub fn sinusoids<B: Backend>(time: usize, d_model: usize, device: &B::Device) -> Tensor<B, 2> {
    let table = (0..time).flat_map(|position| {
        (0..d_model).map(move |column| {
            let angle = position as f64 * frequency(10_000.0, column / 2, d_model);
            if column % 2 == 0 { angle.sin() as f32 } else { angle.cos() as f32 }
        })
    });
    Tensor::from_data(TensorData::new(table.collect::<Vec<f32>>(), [time, d_model]), device)
}

/// Returns the angle between adjacent positions in the plane of pair `pair` of a vector of this width. It is in double
/// precision, since distant positions have angles of thousands of radians, of which f32 keeps few digits.
pub(super) fn frequency(theta: f64, pair: usize, width: usize) -> f64 {
    theta.powf(-((2 * pair) as f64) / width as f64)
}

/// Fixed sines and cosines, added to the embedding; no parameters.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Sinusoidal<B: Backend> {
    /// The vectors, `[context, d_model]`; the vectors of longer sequences are computed on demand.
    table: Tensor<B, 2>,
}

display_line!(Sinusoidal, self => { context: self.table.dims()[0], d_model: self.table.dims()[1] });

impl<B: Backend> Sinusoidal<B> {
    /// Creates a table of `context` positions.
    pub fn new(context: usize, d_model: usize, device: &B::Device) -> Self {
        Self { table: sinusoids(context, d_model, device) }
    }

    /// Returns a table of at least `positions` rows.
    fn table(&self, positions: usize) -> Tensor<B, 2> {
        let [context, d_model] = self.table.dims();
        match positions <= context {
            true => self.table.clone(),
            false => sinusoids(positions, d_model, &self.table.device()),
        }
    }
}

impl<B: Backend> PositionModule<B> for Sinusoidal<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        Self::new(settings.context, settings.widths.d_model, settings.device)
    }

    fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        Ok(Some(self.table(start + time).narrow(0, start, time)))
    }

    fn document_embedding(&self, documents: &DocumentPositions) -> Result<Option<Tensor<B, 2>>> {
        Ok(Some(documents.select(self.table(documents.longest()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn rows_match_within_and_beyond_the_table() {
        let device = Default::default();
        let rows = sinusoids::<NdArray>(13, 7, &device).narrow(0, 3, 8).into_data();
        for context in [5, 11, 13] {
            let table = Sinusoidal::<NdArray>::new(context, 7, &device);
            assert_eq!(table.embedding(3, 8).unwrap().unwrap().into_data(), rows);
        }
    }
}
