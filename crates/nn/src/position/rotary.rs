//! Rotary positions (Su et al., 2021, arXiv 2104.09864): each pair of elements of a query or key is rotated in its
//! plane by an angle proportional to the position:
//!
//! ```text
//! (x, y) at position t  ->  (x cos t w_i - y sin t w_i,  x sin t w_i + y cos t w_i)
//! w_i = theta^(-2i / d_head)
//! ```
//!
//! With a fraction below 1, only the first elements of each head are rotated, as in GPT-J and GPT-NeoX; `d_head` above is
//! then their number.
//!
//! The dot product of two rotated vectors depends only on the difference of their angles, and therefore on the
//! distance. Pairs are interleaved (elements `2i` and `2i + 1`), as in the paper.
//!
//! A model trained on short sequences extrapolates to longer ones if its rotations are slowed down. Linear scaling
//! slows all planes by one factor (Chen et al., 2023, arXiv 2306.15595). Llama 3.1 fully slows only planes that rotate
//! less than once within the trained length, because fast planes distinguish nearby positions (Grattafiori et al.,
//! 2024, arXiv 2407.21783).

use std::f64::consts::TAU;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::{Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::sinusoidal::frequency;
use super::{PositionModule, PositionSettings, Widths};
use crate::choices;
use crate::display::display_line;
use crate::ops::ScorePosition;

choices! {
    /// The scaling of the frequencies of rotary positions.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum RopeScaling {
        /// No scaling.
        #[default]
        None,
        /// All frequencies are divided by the factor.
        Linear uses ["rope_factor"],
        /// Low frequencies are divided by the factor, high ones are unchanged, and the ones in between are
        /// interpolated.
        Llama3 uses ["rope_factor", "rope_low_frequency_factor", "rope_high_frequency_factor", "rope_original_context"],
    }
}

/// The frequencies of rotary positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    /// The base of the frequencies.
    pub theta: f64,
    /// The fraction of the elements of a head that are rotated, the first ones.
    pub fraction: f64,
    /// The scaling of the frequencies.
    pub scaling: RopeScaling,
    /// The factor by which scaled frequencies are divided.
    pub factor: f64,
    /// For Llama 3: planes with fewer rotations than this within the original context are scaled by the full factor.
    pub low_frequency_factor: f64,
    /// For Llama 3: planes with more rotations than this are not scaled.
    pub high_frequency_factor: f64,
    /// For Llama 3: the context length of the original training.
    pub original_context: usize,
    /// The number of equal parts of a head that are rotated by the same angles: 2 in differential attention.
    pub parts: usize,
}

impl Rotation {
    /// Returns the number of elements of a head, or of a part of this width, that are rotated, an even number.
    pub fn width(&self, d_head: usize) -> usize {
        // The largest number that is not above the fraction, but for rounding.
        (self.fraction * d_head as f64 / 2.0 + 1e-9) as usize * 2
    }

    /// Returns the angle between adjacent positions in each plane of a head; zero in planes that are not rotated.
    pub fn frequencies(&self, d_head: usize) -> Vec<f64> {
        let d_part = d_head / self.parts;
        let width = self.width(d_part);
        let rotated = (0..width / 2).map(|pair| self.scaled(frequency(self.theta, pair, width)));
        let part: Vec<f64> = rotated.chain(std::iter::repeat_n(0.0, d_part / 2 - width / 2)).collect();
        part.repeat(self.parts)
    }

    fn scaled(&self, frequency: f64) -> f64 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear => frequency / self.factor,
            RopeScaling::Llama3 => {
                let rotations = self.original_context as f64 * frequency / TAU;
                let (low, high) = (self.low_frequency_factor, self.high_frequency_factor);
                let kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / self.factor
            }
        }
    }
}

/// The maximum number of positions whose tables are computed with the model. Few sequences are longer, but a context
/// may be a hundred times as long.
const MAX_EAGER_POSITIONS: usize = 8192;

/// Cosines and sines, one row per position, up to the longest sequence so far.
#[derive(Debug, Clone, Default)]
struct Tables([Vec<f32>; 2]);

impl Tables {
    /// Extends the tables to `positions` positions.
    fn extend(&mut self, rotation: Rotation, d_head: usize, positions: usize) {
        let frequencies = rotation.frequencies(d_head);
        let computed = self.0[0].len() / frequencies.len();
        for (table, function) in self.0.iter_mut().zip([f64::cos, f64::sin]) {
            let row = |position| {
                frequencies.iter().map(move |frequency| function(position as f64 * frequency) as f32)
            };
            table.extend((computed..positions).flat_map(row));
        }
    }

    /// Returns the first `positions` rows, each table `[positions, pairs]`.
    fn tensors<B: Backend>(&self, [positions, pairs]: [usize; 2], device: &B::Device) -> [Tensor<B, 2>; 2] {
        self.0.each_ref().map(|table| {
            let data = TensorData::new(table[..positions * pairs].to_vec(), [positions, pairs]);
            Tensor::from_data(data, device)
        })
    }
}

/// Rotary positions: tables of cosines and sines that rotate queries and keys. There are no parameters.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Rotary<B: Backend> {
    /// The cosines, `[positions, d_head / 2]`, up to the context or `MAX_EAGER_POSITIONS` positions.
    cosine: Tensor<B, 2>,
    /// The sines, with the same shape as `cosine`.
    sine: Tensor<B, 2>,
    #[module(skip)]
    rotation: Rotation,
    /// The tables for longer sequences, shared by all copies of a model.
    #[module(skip)]
    longer: Arc<Mutex<Tables>>,
}

display_line!(Rotary, self => {
    d_head: 2 * self.cosine.dims()[1],
    theta: self.rotation.theta,
    fraction: self.rotation.fraction,
    scaling: self.rotation.scaling,
    factor: self.rotation.factor,
});

impl<B: Backend> Rotary<B> {
    /// Creates tables of `context` positions for heads of this width, which must be even.
    pub fn new(context: usize, d_head: usize, rotation: Rotation, device: &B::Device) -> Self {
        let (mut tables, positions) = (Tables::default(), context.min(MAX_EAGER_POSITIONS));
        tables.extend(rotation, d_head, positions);
        let [cosine, sine] = tables.tensors([positions, d_head / 2], device);
        Self { cosine, sine, rotation, longer: Arc::default() }
    }

    /// Returns the tables of the first `time` positions.
    pub fn tables(&self, time: usize) -> ScorePosition<B> {
        let [positions, pairs] = self.cosine.dims();
        if time <= positions {
            let [cosine, sine] = [&self.cosine, &self.sine].map(|table| table.clone().narrow(0, 0, time));
            return ScorePosition::Rotation { cosine, sine };
        }
        let mut longer = self.longer.lock().unwrap_or_else(PoisonError::into_inner);
        if longer.0[0].len() < time * pairs {
            // Doubling the table keeps the number of extensions small for a text that grows token by token.
            longer.extend(self.rotation, 2 * pairs, time.next_power_of_two());
        }
        let [cosine, sine] = longer.tensors([time, pairs], &self.cosine.device());
        ScorePosition::Rotation { cosine, sine }
    }
}

impl<B: Backend> PositionModule<B> for Rotary<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        let Widths { d_head, rotation, .. } = settings.widths;
        Self::new(settings.context, d_head, rotation, settings.device)
    }

    fn scores(&self, _query_time: usize, key_time: usize) -> ScorePosition<B> {
        self.tables(key_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::ModelConfig, ops::rotate};
    use burn::tensor::Tolerance;
    use burn_ndarray::NdArray;

    fn tables(time: usize) -> [Tensor<NdArray, 2>; 2] {
        let rotation = ModelConfig::default().rotation();
        match Rotary::<NdArray>::new(5, 6, rotation, &Default::default()).tables(time) {
            ScorePosition::Rotation { cosine, sine } => [cosine, sine],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scores_depend_on_the_distance_only() {
        let device = Default::default();
        let query = Tensor::<NdArray, 3>::from_floats([[[0.9, 0.2, 0.5, 0.7, 0.1, 0.4]]], &device);
        let key = Tensor::<NdArray, 3>::from_floats([[[0.3, 0.8, 0.6, 0.1, 0.9, 0.5]]], &device);
        // The same two vectors at every position: their scores must be constant along each diagonal.
        let rotated = |x: &Tensor<NdArray, 3>| {
            let [cosine, sine] = tables(7);
            rotate(x.clone().repeat_dim(1, 7), cosine, sine).reshape([7, 6])
        };
        let scores: Tensor<NdArray, 2> = rotated(&query).matmul(rotated(&key).transpose());
        let inner = scores.clone().slice([0..6, 0..6]).into_data();
        let shifted = scores.clone().slice([1..7, 1..7]).into_data();
        inner.assert_approx_eq::<f32>(&shifted, Tolerance::absolute(1e-5));
        // The scores must also change with the distance.
        let scores = scores.into_data().to_vec::<f32>().unwrap();
        assert!((scores[0] - scores[1]).abs() > 1e-3, "{scores:?}");
    }

    #[test]
    fn longer_tables_extend_shorter_ones() {
        let longer = tables(7).map(|table| table.narrow(0, 0, 3).into_data());
        assert_eq!(longer, tables(3).map(|table| table.into_data()));
    }

    #[test]
    fn long_contexts_extend_rotary_tables_on_demand() {
        let rotation = ModelConfig::default().rotation();
        let rotary = Rotary::<NdArray>::new(131_072, 6, rotation, &Default::default());
        assert_eq!(rotary.cosine.dims(), [MAX_EAGER_POSITIONS, 3]);
        for time in [MAX_EAGER_POSITIONS + 7, MAX_EAGER_POSITIONS + 3, 3 * MAX_EAGER_POSITIONS] {
            let ScorePosition::Rotation { cosine, sine } = rotary.clone().tables(time) else { panic!() };
            for (table, function) in [(cosine, f64::cos as fn(f64) -> f64), (sine, f64::sin)] {
                assert_eq!(table.dims(), [time, 3]);
                let last = table.narrow(0, time - 1, 1).into_data().to_vec::<f32>().unwrap();
                let angles =
                    rotation.frequencies(6).into_iter().map(|frequency| (time - 1) as f64 * frequency);
                assert_eq!(last, angles.map(|angle| function(angle) as f32).collect::<Vec<_>>(), "{time}");
            }
        }
        let computed = rotary.longer.lock().unwrap().0[0].len();
        assert_eq!(computed, 4 * MAX_EAGER_POSITIONS * 3, "all copies of a model share the tables");
    }

    #[test]
    fn only_the_first_elements_are_rotated() {
        let plain = ModelConfig::default().rotation();
        let partial = Rotation { fraction: 0.25, ..plain };
        assert_eq!([partial.width(16), partial.width(20), partial.width(64)], [4, 4, 16]);
        assert_eq!(partial.frequencies(16)[..3], [1.0, 0.01, 0.0]);
        let tables = Rotary::<NdArray>::new(5, 16, partial, &Default::default()).tables(5);
        let ScorePosition::Rotation { cosine, sine } = tables else { panic!() };
        let x = Tensor::<NdArray, 3>::ones([1, 5, 16], &Default::default());
        let rotated = rotate(x.clone(), cosine, sine);
        let rest = |x: Tensor<NdArray, 3>| x.narrow(2, 4, 12).into_data();
        assert_eq!(rest(rotated.clone()), rest(x.clone()));
        assert_ne!(rotated.into_data(), x.into_data());
    }

    #[test]
    fn scaling_lowers_the_expected_frequencies() {
        let plain = Rotation { theta: 100.0, ..ModelConfig::default().rotation() };
        let linear = Rotation { scaling: RopeScaling::Linear, factor: 4.0, ..plain };
        assert_eq!(plain.frequencies(4), [1.0, 0.1]);
        assert_eq!(linear.frequencies(4), [0.25, 0.025]);
        // With an original context of 20 rotations of the first plane, the planes rotate 20, 6.3, 2 and 0.63 times.
        let original_context = (20.0 * TAU) as usize;
        let llama3 = Rotation { scaling: RopeScaling::Llama3, original_context, ..linear };
        let rotations = |frequency: f64| original_context as f64 * frequency / TAU;
        let between = rotations(0.1);
        let kept = (between - 1.0) / 3.0;
        let expected = [1.0, 10f64.powf(-0.5), kept * 0.1 + (1.0 - kept) * 0.025, 10f64.powf(-1.5) / 4.0];
        for (frequency, expected) in llama3.frequencies(8).into_iter().zip(expected) {
            assert!((frequency - expected).abs() < 1e-12, "{frequency} {expected}");
        }
    }
}
