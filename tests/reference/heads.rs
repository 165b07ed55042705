//! Multi-head attention in its three forms, and over a memory.

use burn::nn::{DropoutConfig, Linear};
use burn::tensor::backend::Backend;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::attention::{
    Mask, MultiHeadAttention, MultiHeadAttentionConfig, SplitHeads, SplitHeadsConfig, StackedHeads,
};
use causal_attention::ops::ScorePosition;

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};
use crate::lessons::{head, projection};

/// Returns the linear layer `weight.{name}.weight`, with its bias if the case has one.
fn linear<B: Backend>(case: &Case, name: &str) -> Linear<B> {
    case.linear(&format!("weight.{name}.weight"), &format!("weight.{name}.bias"))
}

/// Returns a fused attention from `weight.{prefix}qkv` and `weight.{prefix}output`.
pub fn fused_attention<B: Backend>(case: &Case, prefix: &str, heads: usize) -> MultiHeadAttention<B> {
    let output: Linear<B> = linear(case, &format!("{prefix}output"));
    let [d_model, _] = output.weight.shape().dims();
    MultiHeadAttention {
        qkv: linear(case, &format!("{prefix}qkv")),
        output,
        ..MultiHeadAttentionConfig::new(d_model, heads).init(&Default::default()).unwrap()
    }
}

/// Returns a fused attention from the weights of PyTorch's `MultiheadAttention`.
pub fn self_attention<B: Backend>(case: &Case, prefix: &str, heads: usize) -> MultiHeadAttention<B> {
    let output: Linear<B> = linear(case, &format!("{prefix}out_proj"));
    let [d_model, _] = output.weight.shape().dims();
    let name = |part: &str| format!("weight.{prefix}in_proj_{part}");
    MultiHeadAttention {
        qkv: case.linear(&name("weight"), &name("bias")),
        output,
        ..MultiHeadAttentionConfig::new(d_model, heads).init(&Default::default()).unwrap()
    }
}

#[test]
fn multi_head_concat() {
    fn agrees<B: Backend>() {
        let case = Case::read("multi_head_concat");
        let x = case.float::<B, 3>("input.x");
        let [_, time, _] = x.dims();
        let heads = case.count("weight.heads.", ".query.weight");
        let one = |i| head(projection(&case, &format!("heads.{i}."), ".weight"), time);
        let stacked = StackedHeads::<B> {
            heads: (0..heads).map(one).collect(),
            output: Some(linear(&case, "projection")),
            dropout: DropoutConfig::new(0.0).init(),
        };
        case.assert_close("expected.output", stacked.forward(x.clone()).unwrap(), CLOSE);
        let split = stacked.to_split();
        case.assert_close("expected.output", split.forward(x.clone()).unwrap(), CLOSE);
        let fused = split.to_fused().unwrap();
        let output = fused.forward(x, &Mask::causal(), &ScorePosition::None).unwrap();
        case.assert_close("expected.output", output, CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn multi_head_split() {
    fn agrees<B: Backend>() {
        let case = Case::read("multi_head_split");
        let [_, heads, _, _] = case.shape("expected.weights");
        let [d_model, d_in] = case.shape("weight.query.weight");
        let split = SplitHeads::<B> {
            query: linear(&case, "query"),
            key: linear(&case, "key"),
            value: linear(&case, "value"),
            output: linear(&case, "output"),
            ..SplitHeadsConfig::new(d_in, d_model, heads).init(&Default::default()).unwrap()
        };
        let x = case.float("input.x");
        let (output, weights) = split.forward_with_weights(x.clone()).unwrap();
        case.assert_close("expected.output", output, CLOSE);
        case.assert_close("expected.weights", weights, CLOSE);
        case.assert_close("expected.output", split.forward(x).unwrap(), CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn multi_head_fused() {
    fn agrees<B: Backend>() {
        let case = Case::read("multi_head_fused");
        let [_, heads, _, _] = case.shape("expected.weights");
        let attention = fused_attention::<B>(&case, "", heads);
        let (mask, position) = (Mask::causal(), ScorePosition::None);
        let x = case.float("input.x");
        let (output, weights) = attention.forward_with_weights(x.clone(), &mask, &position).unwrap();
        case.assert_close("expected.output", output, CLOSE);
        case.assert_close("expected.weights", weights, CLOSE);
        case.assert_close("expected.output", attention.forward(x, &mask, &position).unwrap(), CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn cross_attention() {
    fn agrees<B: Backend>() {
        let case = Case::read("cross_attention");
        let [_, heads, _, _] = case.shape("expected.weights");
        let attention = self_attention::<B>(&case, "", heads).to_split();
        let (query, memory) = (case.float("input.query"), case.float::<B, 3>("input.memory"));
        let mask = Mask::none().hide_keys(case.hidden("input.key_padding"));
        let memory = attention.project_memory(memory.clone(), memory, mask).unwrap();
        let output = attention.forward_memory(query.clone(), &memory).unwrap();
        case.assert_close("expected.output", output, CLOSE);
        let (output, weights) = attention.forward_memory_with_weights(query, &memory).unwrap();
        case.assert_close("expected.output", output, CLOSE);
        case.assert_close("expected.weights", weights, CLOSE);
    }
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}
