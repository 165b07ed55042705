//! The learning-rate schedule, and AdamW with decay on matrices only and clipping by the global norm.

use burn::module::{Module, Param};
use burn::optim::{GradientsParams, Optimizer as _};
use burn::tensor::{Tensor, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::config::{ScheduleKind, TrainingConfig};
use causal_attention::ops;
use causal_attention::training::{Optimizer, Schedule};

use crate::CLOSE;
use crate::case::{Case, on_both_paths};

#[test]
fn warmup_cosine() {
    let case = Case::read("warmup_cosine");
    let [peak, floor] = case.numbers("input.peak_floor")[..] else { panic!() };
    let [warmup, total] = case.numbers("input.warmup_total")[..] else { panic!() };
    let (warmup, total) = (warmup as usize, total as usize);
    let schedule = Schedule { kind: ScheduleKind::Cosine, peak, floor, warmup, total };
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

    fn agrees<B: ops::AutodiffBackend>() {
        let case = Case::read("adamw_clipped");
        let mut model = Affine::<B> {
            matrix: Param::from_tensor(case.float("weight.matrix")),
            vector: Param::from_tensor(case.float("weight.vector")),
        };
        let config = TrainingConfig { weight_decay: 0.1, beta2: 0.95, ..TrainingConfig::default() };
        let mut optimizer = Optimizer::<B>::new(&config);
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
    on_both_paths(agrees::<Autodiff<NdArray>>);
    on_both_paths(agrees::<Autodiff<Flex>>);
}
