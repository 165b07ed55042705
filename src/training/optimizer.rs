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
use burn::tensor::ops::FloatTensor;
use burn::tensor::{TensorMetadata, TensorPrimitive};

use super::config::{OptimizerKind, TrainingConfig};
use crate::ops::{self, AutodiffBackend};

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

    /// Goes on with what an optimizer remembers; false where that was of another kind of update, whose
    /// moments mean something else: this one then stays fresh.
    pub fn take_up(&self, updates: usize, moments: Vec<Option<Moments<B::InnerBackend>>>) -> bool {
        let has_second = match self.hyper.kind {
            OptimizerKind::Adamw | OptimizerKind::Adam => true,
            OptimizerKind::Sgd => false,
        };
        let fits = moments.iter().flatten().all(|moments| moments.second.is_some() == has_second);
        if fits {
            let mut state = self.state();
            (state.step, state.moments) = (updates, moments);
        }
        fits
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
        let device = module.devices().first().cloned().unwrap_or_default();
        let mut state = self.state();
        state.step += 1;
        let mut gather = Gather::<B> {
            gradients,
            moments: &mut state.moments,
            due: Vec::new(),
            positions: Vec::new(),
            visited: 0,
        };
        module.visit(&mut gather);
        let Gather { due, positions, .. } = gather;

        let update = Update { hyper: self.hyper, rate, step: state.step };
        let Updated { parameters, gradient_norm } =
            update.in_one_pass(due, &device).unwrap_or_else(|due| update.composed(due, &device));
        state.gradient_norm = Some(gradient_norm);
        let mut weights = vec![None; state.moments.len()];
        for (position, done) in positions.into_iter().zip(parameters) {
            weights[position] = Some(done.weights);
            state.moments[position] = Some(done.moments);
        }
        module.map(&mut Replace::<B> { weights: weights.into_iter() })
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

/// A parameter that has a gradient. Tensors of any rank stand side by side as primitives.
struct Due<B: Backend> {
    weights: FloatTensor<B>,
    gradient: FloatTensor<B>,
    moments: Option<Moments<B>>,
    is_matrix: bool,
}

/// A parameter after its update.
struct Done<B: Backend> {
    weights: FloatTensor<B>,
    moments: Moments<B>,
}

/// What an update makes of all parameters.
struct Updated<B: Backend> {
    parameters: Vec<Done<B>>,
    /// The Euclidean norm of all gradients together, `[1]`.
    gradient_norm: Tensor<B, 1>,
}

/// Collects the parameters that have a gradient, with their positions in the model.
struct Gather<'a, B: AutodiffBackend> {
    gradients: GradientsParams,
    moments: &'a mut Vec<Option<Moments<B::InnerBackend>>>,
    due: Vec<Due<B::InnerBackend>>,
    positions: Vec<usize>,
    visited: usize,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gather<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let position = self.visited;
        self.visited += 1;
        if self.moments.len() <= position {
            self.moments.resize_with(position + 1, || None);
        }
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.positions.push(position);
            self.due.push(Due {
                weights: param.val().inner().into_primitive().tensor(),
                gradient: gradient.into_primitive().tensor(),
                moments: self.moments[position].take(),
                is_matrix: D >= 2,
            });
        }
    }
}

/// Puts the updated weights into the model.
struct Replace<B: AutodiffBackend> {
    weights: std::vec::IntoIter<Option<FloatTensor<B::InnerBackend>>>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Replace<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let Some(weights) = self.weights.next().flatten() else {
            return Param::from_mapped_value(id, old, mapper);
        };
        let mut new = Tensor::from_inner(Tensor::from_primitive(TensorPrimitive::Float(weights)));
        if old.is_require_grad() {
            new = new.require_grad();
        }
        Param::from_mapped_value(id, new, mapper)
    }
}

/// One update of every parameter.
struct Update {
    hyper: Hyper,
    rate: f64,
    step: usize,
}

impl Update {
    /// By the kernels.
    ///
    /// # Errors
    /// The parameters as they came, where the kernels do not serve the backend or the optimizer.
    fn in_one_pass<B: ops::Backend>(
        &self,
        due: Vec<Due<B>>,
        device: &B::Device,
    ) -> Result<Updated<B>, Vec<Due<B>>> {
        let Hyper { kind, beta1, beta2, epsilon, max_gradient_norm, .. } = self.hyper;
        let has_kernel = match kind {
            OptimizerKind::Adamw | OptimizerKind::Adam => true,
            OptimizerKind::Sgd => false,
        };
        let norm = has_kernel.then(|| ops::global_norm::<B>(due.iter().map(|due| &due.gradient))).flatten();
        let Some(norm) = norm else { return Err(due) };
        let settings = ops::AdamW {
            learning_rate: self.rate,
            beta_1: beta1,
            beta_2: beta2,
            epsilon: epsilon as f32,
            step: self.step as u32,
            max_norm: (max_gradient_norm > 0.0).then_some(max_gradient_norm),
        };
        let parameters = due.into_iter().map(|due| ops::Parameter {
            weight_decay: self.decay(due.is_matrix),
            weights: due.weights,
            gradient: due.gradient,
            moments: due.moments.and_then(|moments| Some([moments.first, moments.second?])),
        });
        let stepped = ops::adamw(&settings, norm, parameters.collect());
        let done = stepped.into_iter().map(|ops::Stepped { weights, moments: [first, second] }| Done {
            weights,
            moments: Moments { first, second: Some(second) },
        });
        let gradient_norm = Tensor::from_data([norm as f32], device);
        Ok(Updated { parameters: done.collect(), gradient_norm })
    }

    /// By Burn's operations, which leave the norm on the device.
    fn composed<B: Backend>(&self, due: Vec<Due<B>>, device: &B::Device) -> Updated<B> {
        let squares = due.iter().map(|due| {
            let gradient = flat::<B>(due.gradient.clone());
            (gradient.clone() * gradient).sum()
        });
        let norm = match due.is_empty() {
            true => Tensor::zeros([1], device),
            false => Tensor::cat(squares.collect(), 0).sum().sqrt(),
        };
        let scale = (self.hyper.max_gradient_norm > 0.0).then(|| {
            // As PyTorch's clip_grad_norm_: the small number keeps a zero gradient from dividing by zero.
            (norm.clone() + 1e-6).recip().mul_scalar(self.hyper.max_gradient_norm).clamp_max(1.0)
        });
        let update = |due: Due<B>| {
            let Due { weights, gradient, moments, is_matrix } = due;
            let shape = weights.shape();
            let (weights, mut gradient) = (flat::<B>(weights), flat::<B>(gradient));
            if let Some(scale) = &scale {
                gradient = gradient * scale.clone();
            }
            let (weights, moments) = match self.hyper.kind {
                OptimizerKind::Adamw | OptimizerKind::Adam => {
                    let weights = weights * (1.0 - self.rate * self.decay(is_matrix));
                    self.adam(weights, gradient, moments)
                }
                OptimizerKind::Sgd => self.sgd(weights, gradient, moments),
            };
            Done { weights: B::float_reshape(weights.into_primitive().tensor(), shape), moments }
        };
        let parameters = due.into_iter().map(update).collect();
        Updated { parameters, gradient_norm: norm }
    }

    fn decay(&self, is_matrix: bool) -> f64 {
        match self.hyper.kind {
            OptimizerKind::Adamw if is_matrix => self.hyper.weight_decay,
            OptimizerKind::Adamw | OptimizerKind::Adam | OptimizerKind::Sgd => 0.0,
        }
    }

    /// Adam (Kingma and Ba, 2015, algorithm 1): `w - rate m̂ / (sqrt(v̂) + ε)`.
    fn adam<B: Backend>(
        &self,
        weights: Tensor<B, 1>,
        gradient: Tensor<B, 1>,
        moments: Option<Moments<B>>,
    ) -> (Tensor<B, 1>, Moments<B>) {
        let Hyper { beta1, beta2, epsilon, .. } = self.hyper;
        let square = gradient.clone() * gradient.clone();
        let (first, second) = match moments {
            Some(Moments { first, second: Some(second) }) => {
                (first * beta1 + gradient * (1.0 - beta1), second * beta2 + square * (1.0 - beta2))
            }
            _ => (gradient * (1.0 - beta1), square * (1.0 - beta2)),
        };
        let step = self.step as i32;
        let (correction1, correction2) = (1.0 - beta1.powi(step), 1.0 - beta2.powi(step));
        let denominator = second.clone().sqrt() / correction2.sqrt() + epsilon;
        let weights = weights - first.clone() / denominator * (self.rate / correction1);
        (weights, Moments { first, second: Some(second) })
    }

    /// Momentum as PyTorch counts it: `m = μ m + g`, `w - rate m`.
    fn sgd<B: Backend>(
        &self,
        weights: Tensor<B, 1>,
        gradient: Tensor<B, 1>,
        moments: Option<Moments<B>>,
    ) -> (Tensor<B, 1>, Moments<B>) {
        let first = match moments {
            Some(Moments { first, .. }) => first * self.hyper.momentum + gradient,
            None => gradient,
        };
        (weights - first.clone() * self.rate, Moments { first, second: None })
    }
}

fn flat<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    let length = tensor.shape().num_elements();
    Tensor::from_primitive(TensorPrimitive::Float(B::float_reshape(tensor, [length].into())))
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::testing::random;
    use crate::ops::Kernels;

    /// A few updates of matrices and vectors in turn, of these lengths: after each the weights, both
    /// moments and the norm.
    fn path<B: ops::Backend>(hyper: Hyper, shapes: &[[usize; 2]], seed: u64) -> Vec<Vec<f32>> {
        let device = B::Device::default();
        let tensor = |seed, shape: [usize; 2]| {
            let values = TensorData::new(random(seed, shape[0] * shape[1]), shape);
            Tensor::<B, 2>::from_data(values, &device).into_primitive().tensor()
        };
        let mut state: Vec<_> =
            shapes.iter().enumerate().map(|(at, shape)| (tensor(seed + at as u64, *shape), None)).collect();
        let mut path = Vec::new();
        for step in 1..=4 {
            let due =
                state.into_iter().zip(shapes).enumerate().map(|(at, ((weights, moments), shape))| Due {
                    weights,
                    gradient: tensor(seed + (100 * step + at) as u64, *shape),
                    moments,
                    is_matrix: at % 2 == 0,
                });
            let update = Update { hyper, rate: 1e-2, step };
            let updated = update
                .in_one_pass(due.collect::<Vec<_>>(), &device)
                .unwrap_or_else(|due| update.composed::<B>(due, &device));
            let numbers = |tensor: Tensor<B, 1>| tensor.into_data().to_vec::<f32>().unwrap();
            path.push(numbers(updated.gradient_norm));
            for done in &updated.parameters {
                path.push(numbers(flat::<B>(done.weights.clone())));
                path.push(numbers(done.moments.first.clone()));
                path.extend(done.moments.second.clone().map(numbers));
            }
            state = updated.parameters.into_iter().map(|done| (done.weights, Some(done.moments))).collect();
        }
        path
    }

    fn both_ways_agree<B: ops::Backend>(hyper: Hyper, shapes: &[[usize; 2]], seed: u64) {
        let path = |kernels: Kernels| kernels.run(|| path::<B>(hyper, shapes, seed));
        let (fused, composed) = (path(Kernels::Fused), path(Kernels::Composed));
        assert_eq!(fused.len(), composed.len());
        for (fused, composed) in fused.iter().zip(&composed) {
            let largest = composed.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            assert_eq!(fused.len(), composed.len());
            for (a, b) in fused.iter().zip(composed) {
                assert!((a - b).abs() <= 1e-5 * largest, "{a}, not {b} (largest {largest})");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_kernels_update_as_burns_operations_do(
            shapes in prop::collection::vec([1usize..131, 1usize..70], 1..5),
            (beta1, beta2) in (0.0..0.99, 0.5..0.999),
            (weight_decay, max_gradient_norm) in (0.0..1.0, prop::sample::select(vec![0.0, 0.1, 1e3])),
            is_adam: bool,
            seed in 0u64..1_000,
        ) {
            let kind = if is_adam { OptimizerKind::Adam } else { OptimizerKind::Adamw };
            let hyper =
                Hyper { kind, weight_decay, beta1, beta2, epsilon: 1e-8, momentum: 0.0, max_gradient_norm };
            both_ways_agree::<NdArray>(hyper, &shapes, seed);
            both_ways_agree::<Flex>(hyper, &shapes, seed);
        }
    }
}
