//! The introductory attention layers: without weights, with weights, causal, and two concatenated heads.

use burn::nn::DropoutConfig;
use burn::tensor::{Tensor, backend::Backend};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::attention::causal::{CausalAttention, Masking, mask_weights};
use causal_attention::attention::mask::causal_mask;
use causal_attention::attention::{StackedHeads, TrainableAttention, simple};

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};

/// Returns a head from `weight.{prefix}query{suffix}` and the matching key and value.
pub fn projection<B: Backend>(case: &Case, prefix: &str, suffix: &str) -> TrainableAttention<B> {
    let linear = |name: &str| case.linear(&format!("weight.{prefix}{name}{suffix}"), "");
    TrainableAttention { query: linear("query"), key: linear("key"), value: linear("value") }
}

/// Returns a causal head without dropout, for sequences of length `context`.
pub fn head<B: Backend>(projection: TrainableAttention<B>, context: usize) -> CausalAttention<B> {
    let hidden = causal_mask(context, &Default::default());
    CausalAttention { projection, dropout: DropoutConfig::new(0.0).init(), hidden }
}

#[test]
fn simple_attention() {
    fn agrees<B: Backend>() {
        let case = Case::read("simple_attention");
        let x = case.float::<B, 2>("input.x");
        let attended = simple::attend(x.clone()).unwrap();
        case.assert_close("expected.scores", attended.scores, CLOSE);
        case.assert_close("expected.weights", attended.weights, CLOSE);
        case.assert_close("expected.context", attended.context, CLOSE);

        let [time, _] = x.dims();
        let one = |query| simple::attend_from(x.clone(), query).unwrap().context;
        case.assert_close("expected.context", Tensor::stack::<2>((0..time).map(one).collect(), 0), CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn trainable_attention() {
    fn agrees<B: Backend>() {
        let case = Case::read("trainable_attention");
        let attention = projection::<B>(&case, "", "");
        let x = case.float::<B, 2>("input.x");
        let [time, _] = x.dims();
        let [queries, keys, values] = attention.project(x.clone()).unwrap();
        case.assert_close("expected.queries", queries, CLOSE);
        case.assert_close("expected.keys", keys, CLOSE);
        case.assert_close("expected.values", values, CLOSE);
        let attended = attention.forward(x.clone()).unwrap();
        case.assert_close("expected.scores", attended.scores, CLOSE);
        case.assert_close("expected.weights", attended.weights, CLOSE);
        case.assert_close("expected.context", attended.context, CLOSE);
        for masking in [Masking::Scores, Masking::Weights] {
            let head = head(attention.clone(), time);
            let causal = head.forward(x.clone().unsqueeze(), masking).unwrap();
            case.assert_close("expected.causal_weights", causal.weights.squeeze_dim::<2>(0), CLOSE);
        }
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn causal_attention() {
    fn agrees<B: Backend>() {
        let case = Case::read("causal_attention");
        let x = case.float::<B, 3>("input.x");
        let [_, time, _] = x.dims();
        let projection = projection::<B>(&case, "", "");
        let first = |all: Tensor<B, 3>| all.narrow(0, 0, 1).squeeze_dim::<2>(0);

        let unmasked = projection.forward(x.clone()).unwrap();
        case.assert_close("expected.scores", first(unmasked.scores), CLOSE);
        case.assert_close("expected.weights", first(unmasked.weights.clone()), CLOSE);
        let masked = mask_weights(unmasked.weights, causal_mask(time, &Default::default())).unwrap();
        case.assert_close("expected.masked_weights", first(masked), CLOSE);

        let head = head(projection, time);
        let by_weights = head.forward(x.clone(), Masking::Weights).unwrap();
        case.assert_close("expected.renormalized_weights", first(by_weights.weights), CLOSE);
        case.assert_close("expected.context", by_weights.context, CLOSE);
        let by_scores = head.forward(x, Masking::Scores).unwrap();
        case.assert_close("expected.masked_scores", first(by_scores.scores), CLOSE);
        case.assert_close("expected.causal_weights", first(by_scores.weights), CLOSE);
        case.assert_close("expected.context", by_scores.context, CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn multi_head_wrapper() {
    fn agrees<B: Backend>() {
        let case = Case::read("multi_head_wrapper");
        let x = case.float::<B, 3>("input.x");
        let [_, time, _] = x.dims();
        let heads = case.count("weight.", ".query.weight");
        let stacked = StackedHeads::<B> {
            heads: (0..heads).map(|i| head(projection(&case, &format!("{i}."), ".weight"), time)).collect(),
            output: None,
            dropout: DropoutConfig::new(0.0).init(),
        };
        case.assert_close("expected.context", stacked.forward(x.clone()).unwrap(), CLOSE);
        case.assert_close("expected.context", stacked.to_split().forward(x).unwrap(), CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}
