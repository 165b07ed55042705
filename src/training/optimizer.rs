//! AdamW, Adam and SGD as PyTorch computes them, with what Burn's own lack: weight decay on
//! matrices only, and clipping by the norm of all gradients together (Pascanu et al., 2013).
//!
//! Burn's learner keeps its optimizer to itself, so this one shares its state through a handle:
//! checkpoints read and write the moments by position in the model, which, unlike Burn's
//! parameter ids, is the same in every process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsParams, MultiGradientsParams};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

use super::config::{OptimizerKind, TrainingConfig};

/// The constants of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// Which update.
    pub kind: OptimizerKind,
    /// Decoupled decay of matrices, for AdamW.
    pub weight_decay: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to Adam's denominator.
    pub epsilon: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// The largest norm of all gradients together; 0: any.
    pub max_gradient_norm: f64,
}

impl From<&TrainingConfig> for Hyper {
    fn from(config: &TrainingConfig) -> Self {
        Self {
            kind: config.optimizer,
            weight_decay: config.weight_decay,
            beta1: config.beta1,
            beta2: config.beta2,
            epsilon: config.epsilon,
            momentum: config.momentum,
            max_gradient_norm: config.max_gradient_norm,
        }
    }
}

/// An optimizer whose state is shared by all its clones.
#[derive(Debug, Clone)]
pub struct Optimizer<B: AutodiffBackend> {
    hyper: Hyper,
    state: Arc<Mutex<State<B::InnerBackend>>>,
}

/// What an optimizer remembers.
#[derive(Debug)]
pub struct State<B: Backend> {
    /// Updates made.
    pub step: usize,
    /// The moments of each parameter, in the order in which the model's parameters are visited;
    /// `None` for one that never had a gradient.
    pub moments: Vec<Option<Moments<B>>>,
    /// The norm of all gradients at the last step before clipping, `[1]`: not read from the device
    /// until somebody asks.
    pub gradient_norm: Option<Tensor<B, 1>>,
}

/// The running means of one parameter's gradient, flat.
#[derive(Debug, Clone)]
pub struct Moments<B: Backend> {
    /// Of the gradient; for SGD the momentum.
    pub first: Tensor<B, 1>,
    /// Of its square; SGD has none.
    pub second: Option<Tensor<B, 1>>,
}

impl<B: AutodiffBackend> Optimizer<B> {
    /// A fresh optimizer.
    pub fn new(hyper: Hyper) -> Self {
        let state = State { step: 0, moments: Vec::new(), gradient_norm: None };
        Self { hyper, state: Arc::new(Mutex::new(state)) }
    }

    /// The state, shared with every clone.
    pub fn state(&self) -> MutexGuard<'_, State<B::InnerBackend>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> burn::optim::Optimizer<M, B> for Optimizer<B> {
    // The state travels through the handle, see above.
    type Record = ();

    fn step(&mut self, rate: f64, module: M, gradients: GradientsParams) -> M {
        let mut state = self.state();
        let norm = gradient_norm::<B, M>(&module, &gradients);
        let scale = (self.hyper.max_gradient_norm > 0.0).then(|| {
            // As PyTorch's clip_grad_norm_: the small number keeps a zero gradient from dividing by zero.
            (norm.clone() + 1e-6).recip().mul_scalar(self.hyper.max_gradient_norm).clamp_max(1.0)
        });
        state.gradient_norm = Some(norm);
        state.step += 1;
        let mut update = Update { hyper: self.hyper, rate, scale, gradients, state: &mut state, position: 0 };
        module.map(&mut update)
    }

    fn step_multi(&mut self, rate: f64, module: M, gradients: MultiGradientsParams) -> M {
        // One device trains: several would be added up here.
        let gradients =
            gradients.grads.into_iter().next().map(|(gradients, _)| gradients).unwrap_or_default();
        burn::optim::Optimizer::step(self, rate, module, gradients)
    }

    fn to_record(&self) {}

    fn load_record(self, _record: ()) -> Self {
        self
    }
}

/// The Euclidean norm of all gradients together, `[1]`, left on the device.
fn gradient_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    gradients: &GradientsParams,
) -> Tensor<B::InnerBackend, 1> {
    struct Squares<'a, B: AutodiffBackend> {
        gradients: &'a GradientsParams,
        sums: Vec<Tensor<B::InnerBackend, 1>>,
    }
    impl<B: AutodiffBackend> ModuleVisitor<B> for Squares<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            if let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) {
                self.sums.push((gradient.clone() * gradient).sum());
            }
        }
    }
    let mut squares = Squares::<B> { gradients, sums: Vec::new() };
    module.visit(&mut squares);
    match squares.sums.is_empty() {
        true => Tensor::zeros([1], &module.devices().first().cloned().unwrap_or_default()),
        false => Tensor::cat(squares.sums, 0).sum().sqrt(),
    }
}

/// One update of every parameter.
struct Update<'a, B: AutodiffBackend> {
    hyper: Hyper,
    rate: f64,
    scale: Option<Tensor<B::InnerBackend, 1>>,
    gradients: GradientsParams,
    state: &'a mut State<B::InnerBackend>,
    position: usize,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Update<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let position = self.position;
        self.position += 1;
        if self.state.moments.len() <= position {
            self.state.moments.resize_with(position + 1, || None);
        }
        let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let shape = tensor.dims();
        let mut gradient = gradient.reshape([-1]);
        if let Some(scale) = &self.scale {
            gradient = gradient * scale.clone();
        }
        let weights = tensor.clone().inner().reshape([-1]);
        let moments = self.state.moments[position].take();
        let is_matrix = D >= 2;
        let (weights, moments) = match self.hyper.kind {
            OptimizerKind::Adamw => {
                let decay = if is_matrix { self.rate * self.hyper.weight_decay } else { 0.0 };
                self.adam(weights * (1.0 - decay), gradient, moments)
            }
            OptimizerKind::Adam => self.adam(weights, gradient, moments),
            OptimizerKind::Sgd => self.sgd(weights, gradient, moments),
        };
        self.state.moments[position] = Some(moments);

        let mut updated = Tensor::from_inner(weights.reshape(shape));
        if tensor.is_require_grad() {
            updated = updated.require_grad();
        }
        Param::from_mapped_value(id, updated, mapper)
    }
}

impl<B: AutodiffBackend> Update<'_, B> {
    /// Adam (Kingma and Ba, 2015, algorithm 1): `w - rate m̂ / (sqrt(v̂) + ε)`.
    fn adam(
        &self,
        weights: Tensor<B::InnerBackend, 1>,
        gradient: Tensor<B::InnerBackend, 1>,
        moments: Option<Moments<B::InnerBackend>>,
    ) -> (Tensor<B::InnerBackend, 1>, Moments<B::InnerBackend>) {
        let Hyper { beta1, beta2, epsilon, .. } = self.hyper;
        let square = gradient.clone() * gradient.clone();
        let (first, second) = match moments {
            Some(Moments { first, second: Some(second) }) => {
                (first * beta1 + gradient * (1.0 - beta1), second * beta2 + square * (1.0 - beta2))
            }
            _ => (gradient * (1.0 - beta1), square * (1.0 - beta2)),
        };
        let steps = self.state.step as i32;
        let (correction1, correction2) = (1.0 - beta1.powi(steps), 1.0 - beta2.powi(steps));
        let denominator = second.clone().sqrt() / correction2.sqrt() + epsilon;
        let weights = weights - first.clone() / denominator * (self.rate / correction1);
        (weights, Moments { first, second: Some(second) })
    }

    /// Momentum as PyTorch counts it: `m = μ m + g`, `w - rate m`.
    fn sgd(
        &self,
        weights: Tensor<B::InnerBackend, 1>,
        gradient: Tensor<B::InnerBackend, 1>,
        moments: Option<Moments<B::InnerBackend>>,
    ) -> (Tensor<B::InnerBackend, 1>, Moments<B::InnerBackend>) {
        let first = match moments {
            Some(Moments { first, .. }) => first * self.hyper.momentum + gradient,
            None => gradient,
        };
        (weights - first.clone() * self.rate, Moments { first, second: None })
    }
}
