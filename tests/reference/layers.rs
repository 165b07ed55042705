//! Complete encoder layers, and decoder layers with cross-attention, each with pre- and post-norm.

use burn::module::Param;
use burn::nn::DropoutConfig;
use burn::tensor::{Tensor, backend::Backend};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::attention::Mask;
use causal_attention::hooks::{BlockHooks, NoHooks};
use causal_attention::model::block::{Block, BlockInput};
use causal_attention::model::{NormPlacement, feed_forward::FeedForward};
use causal_attention::ops::{Activation, Norm, NormKind, ScorePosition};

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};
use crate::heads::self_attention;

/// The number of heads of PyTorch's layers, which cannot be derived from the tensors of a case.
const HEADS: usize = 4;

fn norm<B: Backend>(case: &Case, name: &str) -> Norm<B> {
    let parameter = |part: &str| Param::from_tensor(case.float::<B, 1>(&format!("weight.{name}.{part}")));
    Norm {
        gamma: parameter("weight"),
        beta: Some(parameter("bias")),
        epsilon: 1e-5,
        kind: NormKind::Layer,
        unit_offset: false,
    }
}

fn feed_forward<B: Backend>(case: &Case) -> FeedForward<B> {
    FeedForward {
        up: case.linear("weight.linear1.weight", "weight.linear1.bias"),
        down: case.linear("weight.linear2.weight", "weight.linear2.bias"),
        dropout: DropoutConfig::new(0.0).init(),
        activation: Activation::Gelu,
    }
}

fn encoder_layer<B: Backend>(name: &str, placement: NormPlacement) {
    let case = Case::read(name);
    let block = Block::<B> {
        attention_norm: norm(&case, "norm1"),
        attention: self_attention(&case, "self_attn.", HEADS),
        cross_attention_norm: None,
        cross_attention: None,
        feed_forward_norm: norm(&case, "norm2"),
        feed_forward: feed_forward(&case),
        output_norms: None,
        placement,
        parallel: false,
        skips_rotation: false,
    };
    let mask = Mask::none().hide_keys(case.hidden("input.key_padding"));
    let (x, position) = (case.float("input.x"), ScorePosition::None);
    let input = BlockInput { x, memory: None, mask: &mask, position: &position, cache: None };
    let output = block.forward(input, BlockHooks::standalone(&mut NoHooks)).unwrap();
    case.assert_close("expected.output", output, CLOSE);
}

fn decoder_layer<B: Backend>(name: &str, placement: NormPlacement) {
    let case = Case::read(name);
    let cross_attention = self_attention::<B>(&case, "multihead_attn.", HEADS).to_split();
    let block = Block::<B> {
        attention_norm: norm(&case, "norm1"),
        attention: self_attention(&case, "self_attn.", HEADS),
        cross_attention_norm: Some(norm(&case, "norm2")),
        cross_attention: Some(cross_attention.clone()),
        feed_forward_norm: norm(&case, "norm3"),
        feed_forward: feed_forward(&case),
        output_norms: None,
        placement,
        parallel: false,
        skips_rotation: false,
    };
    let memory_mask = Mask::none().hide_keys(case.hidden("input.memory_key_padding"));
    let (x, memory): (Tensor<B, 3>, _) = (case.float("input.x"), case.float("input.memory"));
    let memory = cross_attention.project_memory(memory.clone(), memory, memory_mask).unwrap();
    let (mask, position) = (Mask::causal(), ScorePosition::None);
    let input = BlockInput { x, memory: Some(&memory), mask: &mask, position: &position, cache: None };
    let output = block.forward(input, BlockHooks::standalone(&mut NoHooks)).unwrap();
    case.assert_close("expected.output", output, CLOSE);
}

#[test]
fn encoder_layer_pre_norm() {
    with_both_kernels(|| encoder_layer::<NdArray>("encoder_layer_pre_norm", NormPlacement::Pre));
    with_both_kernels(|| encoder_layer::<Flex>("encoder_layer_pre_norm", NormPlacement::Pre));
}

#[test]
fn encoder_layer_post_norm() {
    with_both_kernels(|| encoder_layer::<NdArray>("encoder_layer_post_norm", NormPlacement::Post));
    with_both_kernels(|| encoder_layer::<Flex>("encoder_layer_post_norm", NormPlacement::Post));
}

#[test]
fn decoder_layer_pre_norm() {
    with_both_kernels(|| decoder_layer::<NdArray>("decoder_layer_pre_norm", NormPlacement::Pre));
    with_both_kernels(|| decoder_layer::<Flex>("decoder_layer_pre_norm", NormPlacement::Pre));
}

#[test]
fn decoder_layer_post_norm() {
    with_both_kernels(|| decoder_layer::<NdArray>("decoder_layer_post_norm", NormPlacement::Post));
    with_both_kernels(|| decoder_layer::<Flex>("decoder_layer_post_norm", NormPlacement::Post));
}
