//! The learning-rate schedule, and AdamW with weight decay on matrices only and clipping by the global norm.

use burn::module::{Module, Param};
use burn::optim::{GradientsParams, Optimizer as _};
use burn::tensor::{Int, Tensor, backend::AutodiffBackend, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::config::{OptimizerKind, ScheduleKind, TrainingConfig};
use causal_attention::model::{Inputs, ModelConfig, Sizes, loss};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::PositionScheme;
use causal_attention::role::{ParamRole, ParamRoles};
use causal_attention::training::{Optimizer, Schedule};
use causal_attention::weights::native;

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};

#[test]
fn warmup_cosine() {
    let case = Case::read("warmup_cosine");
    let [peak, min_rate] = case.numbers("input.peak_floor")[..] else { panic!() };
    let [warmup, total] = case.numbers("input.warmup_total")[..] else { panic!() };
    let (warmup, total) = (warmup as usize, total as usize);
    let schedule = Schedule { kind: ScheduleKind::Cosine, peak, min_rate, warmup, cooldown: 0, total };
    for (step, expected) in case.numbers("expected.learning_rates").into_iter().enumerate() {
        let rate = schedule.at(step);
        assert!((rate - expected).abs() <= 1e-9 * expected, "step {step}: {rate}, not {expected}");
    }
}

#[test]
fn adamw_clipped() {
    #[derive(Module, Debug)]
    struct Affine<B: Backend> {
        matrix: Param<Tensor<B, 2>>,
        vector: Param<Tensor<B, 1>>,
    }

    fn agrees<B: AutodiffBackend>() {
        let case = Case::read("adamw_clipped");
        let mut model = Affine::<B> {
            matrix: Param::from_tensor(case.float("weight.matrix")),
            vector: Param::from_tensor(case.float("weight.vector")),
        };
        let config = TrainingConfig { weight_decay: 0.1, beta2: 0.95, ..TrainingConfig::default() };
        let mut optimizer = Optimizer::<B>::new(&config, vec![ParamRole::Head, ParamRole::Bias]);
        let [steps, rows, columns] = case.shape("input.x");
        let inputs = case.float::<B, 3>("input.x");
        let (mut norms, mut path) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let x = inputs.clone().narrow(0, step, 1).reshape([rows, columns]);
            let output = x.matmul(model.matrix.val()) + model.vector.val().unsqueeze();
            let loss = output.powi_scalar(2).sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-2, model, gradients);
            norms.push(optimizer.state().gradient_norm.clone().unwrap());
            let matrix = model.matrix.val().inner().reshape([-1]);
            path.push(Tensor::cat(vec![matrix, model.vector.val().inner()], 0).unsqueeze::<2>());
        }
        case.assert_close("expected.norms", Tensor::cat(norms, 0), CLOSE);
        case.assert_close("expected.path", Tensor::cat(path, 0), CLOSE);
    }
    with_both_kernels(agrees::<Autodiff<NdArray>>);
    with_both_kernels(agrees::<Autodiff<Flex>>);
}

/// Twenty steps of a small decoder, compared with `tests/peers/make_muon.py`.
#[test]
fn muon_with_adamw() {
    fn agrees<B: AutodiffBackend>() {
        let case = Case::read("muon");
        let [steps, sequences, tokens] = case.shape("input.batches");
        let [vocab, d_model] = case.shape("weight.embedding.token.weight");
        let model = ModelConfig {
            d_model,
            heads: 3,
            key_value_heads: 1,
            layers: 2,
            position: PositionScheme::Learned,
            norm_kind: NormKind::Rms,
            activation: Activation::Swiglu,
            d_inner: 40,
            bias: false,
            ..ModelConfig::default()
        };
        let training = TrainingConfig {
            optimizer: OptimizerKind::Muon,
            momentum_warmup: 10,
            weight_decay: 0.1,
            ..TrainingConfig::default()
        };
        let sizes = Sizes { vocab, context: tokens - 1, source_context: None };
        let mut decoder = model.init::<B>(sizes, &Default::default()).unwrap();
        let tensors = native::names(&decoder).into_iter().map(|name| {
            let data = case.data(&format!("weight.{name}"));
            (name, data)
        });
        decoder = native::apply(decoder, tensors.collect(), "muon".as_ref()).unwrap();
        let batches = case.int::<B, 3>("input.batches");
        let mut optimizer = Optimizer::<B>::new(&training, decoder.roles());
        let mut losses = Vec::new();
        for step in 0..steps {
            let batch: Tensor<B, 2, Int> = batches.clone().narrow(0, step, 1).reshape([sequences, tokens]);
            let logits = decoder.forward(Inputs::tokens(batch.clone().narrow(1, 0, tokens - 1))).unwrap();
            let targets = batch.narrow(1, 1, tokens - 1);
            let loss = loss::cross_entropy(logits, targets, None, 0.0).unwrap();
            let loss = loss / (sequences * (tokens - 1)) as f64;
            losses.push(loss.clone().inner());
            let gradients = GradientsParams::from_grads(loss.backward(), &decoder);
            decoder = optimizer.step(2e-3, decoder, gradients);
        }
        case.assert_close("expected.losses", Tensor::cat(losses, 0), CLOSE);
        for (name, data) in native::collect(&decoder).unwrap() {
            let (key, device) = (format!("expected.{name}"), Default::default());
            match data.shape.num_dims() {
                1 => case.assert_close(&key, Tensor::<B::InnerBackend, 1>::from_data(data, &device), 1e-5),
                _ => case.assert_close(&key, Tensor::<B::InnerBackend, 2>::from_data(data, &device), 1e-5),
            }
        }
    }
    with_both_kernels(agrees::<Autodiff<NdArray>>);
    with_both_kernels(agrees::<Autodiff<Flex>>);
}
