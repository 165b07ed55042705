//! Position schemes.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::model::ModelConfig;
use causal_attention::ops::{ScorePosition, rotate};
use causal_attention::position::{Alibi, Direction, Rotary, alibi, relative::bucket, sinusoids};

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};

/// The settings of the T5 buckets, which cannot be derived from the tensors of the case.
const BUCKETS: usize = 16;
const MAX_DISTANCE: usize = 24;

/// Expands a bias per distance to `[heads, time, time]`.
fn expand<B: Backend>(by_distance: Tensor<B, 2>, time: usize) -> Tensor<B, 3> {
    let row = |query| by_distance.clone().narrow(1, query, time).flip([1]);
    Tensor::stack((0..time).map(row).collect(), 1)
}

#[test]
fn positions() {
    fn agrees<B: Backend>() {
        let case = Case::read("positions");
        let device = Default::default();
        let [time, d_model] = case.shape("expected.sinusoid");
        case.assert_close("expected.sinusoid", sinusoids::<B>(time, d_model, &device), CLOSE);

        let x = case.float::<B, 4>("input.x");
        let [batch, heads, time, d_head] = x.dims();
        let ScorePosition::Rotation { cosine, sine } =
            Rotary::<B>::new(time, d_head, ModelConfig::default().rotation(), &device).tables(time)
        else {
            panic!("rotary positions have no rotation");
        };
        let rotated = rotate(x.flatten(0, 1), cosine, sine).reshape([batch, heads, time, d_head]);
        case.assert_close("expected.rotated_interleaved", rotated, CLOSE);

        let [heads, time, _] = case.shape("expected.alibi_bias");
        let slopes: Vec<f32> = alibi::slopes(heads).into_iter().map(|slope| slope as f32).collect();
        let slopes = Tensor::<B, 1>::from_data(TensorData::new(slopes, [heads]), &device);
        case.assert_close("expected.alibi_slopes", slopes, CLOSE);
        let bias = Alibi::<B>::new(heads, Direction::Causal, &device).bias(time, time);
        case.assert_close("expected.alibi_bias", expand(bias, time), CLOSE);

        let [time, _] = case.shape("expected.relative_buckets");
        let distances = (0..time as i64).flat_map(|query| (0..time as i64).map(move |key| query - key));
        let bucket = |distance| bucket(distance, Direction::Causal, BUCKETS, MAX_DISTANCE) as i64;
        let buckets: Vec<i64> = distances.map(bucket).collect();
        let buckets = Tensor::<B, 2, Int>::from_data(TensorData::new(buckets, [time, time]), &device);
        case.assert_close("expected.relative_buckets", buckets.float(), 0.0);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}
