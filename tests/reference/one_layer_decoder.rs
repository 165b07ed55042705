//! The one-layer decoder: forward pass, gradients and forty steps of Adam.

use burn::optim::{GradientsParams, Optimizer as _};
use burn::tensor::{Int, Tensor, backend::AutodiffBackend, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::config::{OptimizerKind, TrainingConfig};
use causal_attention::model::{Architecture, Inputs, Model, ModelConfig, Sizes, loss};
use causal_attention::role::ParamRoles;
use causal_attention::training::Optimizer;

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};
use crate::heads::fused_attention;

#[test]
fn one_layer_decoder() {
    with_both_kernels(agrees::<Autodiff<NdArray>>);
    with_both_kernels(agrees::<Autodiff<Flex>>);
}

/// Returns the mean loss of a batch of sequences, `[batch, length + 1]`.
fn mean_loss<B: Backend>(model: &Model<B>, batch: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [sequences, tokens] = batch.dims();
    let logits = model.forward(Inputs::tokens(batch.clone().narrow(1, 0, tokens - 1))).unwrap();
    let targets = batch.narrow(1, 1, tokens - 1);
    loss::cross_entropy(logits, targets, None, 0.0).unwrap() / (sequences * (tokens - 1)) as f64
}

fn agrees<B: AutodiffBackend>() {
    let case = Case::read("one_layer_decoder");
    let device = Default::default();
    let [vocab, d_model] = case.shape("weight.embedding.weight");
    let [batches, sequences, tokens] = case.shape("input.batches");
    let [_, heads, _, _] = case.shape("expected.weights");
    let [steps] = case.shape("expected.losses");
    let config =
        ModelConfig { architecture: Architecture::OneLayer, d_model, heads, ..ModelConfig::default() };
    let sizes = Sizes { vocab, context: tokens - 1, source_context: None };
    let Model::OneLayer(mut decoder) = config.init::<B>(sizes, &device).unwrap() else { panic!() };
    decoder.embedding = case.embedding("weight.embedding.weight");
    decoder.attention = fused_attention(&case, "attention.", heads);
    decoder.head = case.linear("weight.head.weight", "weight.head.bias");
    let mut model = Model::OneLayer(decoder);
    let batch = |index: usize| -> Tensor<B, 2, Int> {
        let batches = case.int::<B, 3>("input.batches");
        batches.narrow(0, index, 1).reshape([sequences, tokens])
    };

    let (logits, maps) = model.forward_with_maps(Inputs::tokens(batch(0).narrow(1, 0, tokens - 1))).unwrap();
    case.assert_close("expected.logits", logits, CLOSE);
    assert_eq!(maps.causal.len(), 1);
    case.assert_close("expected.weights", maps.causal[0].clone(), CLOSE);
    let loss = mean_loss(&model, batch(0));
    case.assert_close("expected.loss", loss.clone(), CLOSE);

    let gradients = loss.backward();
    let Model::OneLayer(decoder) = &model else { panic!() };
    let gradient = decoder.embedding.weight.val().grad(&gradients).unwrap();
    case.assert_close("expected.grad.embedding.weight", gradient, CLOSE);
    for (name, layer) in [
        ("attention.qkv", &decoder.attention.qkv),
        ("attention.output", &decoder.attention.output),
        ("head", &decoder.head),
    ] {
        let gradient = layer.weight.val().grad(&gradients).unwrap().transpose();
        case.assert_close(&format!("expected.grad.{name}.weight"), gradient, CLOSE);
        let gradient = layer.bias.as_ref().unwrap().val().grad(&gradients).unwrap();
        case.assert_close(&format!("expected.grad.{name}.bias"), gradient, CLOSE);
    }

    let config = TrainingConfig {
        optimizer: OptimizerKind::Adam,
        max_gradient_norm: 0.0,
        ..TrainingConfig::default()
    };
    let mut adam = Optimizer::<B>::new(&config, model.roles());
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss = mean_loss(&model, batch(step % batches));
        losses.push(loss.clone().inner());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(1e-3, model, gradients);
    }
    case.assert_close("expected.losses", Tensor::cat(losses, 0), CLOSE);
}
