//! Rotary positions (Su et al., 2021, arXiv 2104.09864): before they meet, the pairs of elements
//! of query and key are turned in their planes by the angle of their place,
//!
//! ```text
//! (x, y) at place t  ->  (x cos t w_i - y sin t w_i,  x sin t w_i + y cos t w_i)
//! w_i = 10000^(-2i / d_head)
//! ```
//!
//! A dot product of two turned vectors depends on the difference of their angles only, that is on
//! the distance. Pairs are interleaved (elements `2i` and `2i + 1`), as in the paper.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData, backend::Backend};

use super::sinusoidal::angle;
use crate::ops::ScorePosition;

/// Queries and keys turned by their position; no parameters.
#[derive(Module, Debug)]
pub struct Rotary<B: Backend> {
    /// `[context, d_head / 2]`; longer sequences compute their own.
    cosine: Tensor<B, 2>,
    /// As `cosine`.
    sine: Tensor<B, 2>,
}

impl<B: Backend> Rotary<B> {
    /// Tables of `context` places for heads of this width, which must be even.
    pub fn new(context: usize, d_head: usize, device: &B::Device) -> Self {
        let table = |of: fn(f64) -> f64| {
            let angles = (0..context).flat_map(|place| (0..d_head / 2).map(move |pair| (place, pair)));
            let values = angles.map(|(place, pair)| of(angle(place, pair, d_head)) as f32);
            let data = TensorData::new(values.collect::<Vec<f32>>(), [context, d_head / 2]);
            Tensor::from_data(data, device)
        };
        Self { cosine: table(f64::cos), sine: table(f64::sin) }
    }

    /// The tables of the first `time` places.
    pub fn scores(&self, time: usize) -> ScorePosition<B> {
        let [context, pairs] = self.cosine.dims();
        let Self { cosine, sine } = match time > context {
            true => Self::new(time, 2 * pairs, &self.cosine.device()),
            false => self.clone(),
        };
        ScorePosition::Rotation { cosine: cosine.narrow(0, 0, time), sine: sine.narrow(0, 0, time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::rotate;
    use burn::tensor::Tolerance;
    use burn_ndarray::NdArray;

    fn tables(time: usize) -> [Tensor<NdArray, 2>; 2] {
        match Rotary::<NdArray>::new(5, 6, &Default::default()).scores(time) {
            ScorePosition::Rotation { cosine, sine } => [cosine, sine],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scores_depend_on_the_distance_only() {
        let device = Default::default();
        let query = Tensor::<NdArray, 3>::from_floats([[[0.9, 0.2, 0.5, 0.7, 0.1, 0.4]]], &device);
        let key = Tensor::<NdArray, 3>::from_floats([[[0.3, 0.8, 0.6, 0.1, 0.9, 0.5]]], &device);
        // The same two vectors at every place: their scores must be constant along each diagonal.
        let turned = |x: &Tensor<NdArray, 3>| {
            let [cosine, sine] = tables(7);
            rotate(x.clone().repeat_dim(1, 7), cosine, sine).reshape([7, 6])
        };
        let scores: Tensor<NdArray, 2> = turned(&query).matmul(turned(&key).transpose());
        let inner = scores.clone().slice([0..6, 0..6]).into_data();
        let shifted = scores.clone().slice([1..7, 1..7]).into_data();
        inner.assert_approx_eq::<f32>(&shifted, Tolerance::absolute(1e-5));
        // And they must change with it.
        let scores = scores.into_data().to_vec::<f32>().unwrap();
        assert!((scores[0] - scores[1]).abs() > 1e-3, "{scores:?}");
    }

    #[test]
    fn tables_beyond_the_context_continue_it() {
        let longer = tables(7).map(|table| table.narrow(0, 0, 3).into_data());
        assert_eq!(longer, tables(3).map(|table| table.into_data()));
    }
}
