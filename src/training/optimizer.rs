//! AdamW, Adam and SGD as in PyTorch, and Muon. Burn's optimizers lack two features: weight decay on matrices only, and
//! clipping by the norm of all gradients together (Pascanu et al., 2013).
//!
//! Burn's learner owns its optimizer, so this one shares its state through a handle. Checkpoints read and write the
//! moments by their position in the model, which, unlike Burn's parameter ids, is the same in every process.

use std::collections::BTreeMap;
use std::iter::Enumerate;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsParams, MultiGradientsParams};
use burn::prelude::*;
use burn::tensor::{TensorPrimitive, backend::AutodiffBackend, ops::FloatTensor};
use std::vec::IntoIter;

use super::intervene::{Frozen, unchanged};
use crate::config::TrainingConfig;
use crate::ops::{Moments, Parameter, Update, Updated};
use crate::role::ParamRole;
use crate::weights::native::Tensors;

/// An optimizer whose state is shared by all its clones.
#[derive(Debug, Clone)]
pub struct Optimizer<B: AutodiffBackend> {
    config: TrainingConfig,
    roles: Vec<ParamRole>,
    state: Arc<Mutex<OptimizerState<B::InnerBackend>>>,
}

/// The state of an optimizer.
#[derive(Debug)]
pub struct OptimizerState<B: Backend> {
    /// The number of updates.
    pub step: usize,
    /// The moments of each parameter, in visiting order. `None` for a parameter that never had a gradient.
    pub moments: Vec<Option<Moments<B>>>,
    /// The norm of all gradients at the last step before clipping, `[1]`. It stays on the device until it is needed.
    pub gradient_norm: Option<Tensor<B, 1>>,
    /// The elements that the next update leaves as they are.
    pub frozen: Frozen,
}

impl<B: AutodiffBackend> Optimizer<B> {
    /// Creates an optimizer with the settings of `config`, for a module whose parameters have these roles in visiting
    /// order.
    pub fn new(config: &TrainingConfig, roles: Vec<ParamRole>) -> Self {
        let state =
            OptimizerState { step: 0, moments: Vec::new(), gradient_norm: None, frozen: Frozen::new() };
        Self { config: config.clone(), roles, state: Arc::new(Mutex::new(state)) }
    }

    /// Restores the recorded moments of the parameters `names` after `updates` updates. Returns false and restores
    /// nothing if the moments were recorded by another update rule.
    pub fn restore(&self, updates: usize, recorded: Tensors, names: &[String], device: &B::Device) -> bool {
        let mut recorded = recorded.into_iter().collect::<BTreeMap<_, _>>();
        let mut take = |name: String| recorded.remove(&name).map(|data| Tensor::from_data(data, device));
        let moments = names.iter().map(|name| {
            let first = take(format!("{name}.first"))?;
            Some(Moments { first, second: take(format!("{name}.second")) })
        });
        let moments = moments.collect::<Vec<_>>();
        let fits = self.roles.iter().zip(&moments).all(|(role, moments)| {
            let has_second = self.config.rule(role, 1).0.moments() == 2;
            moments.as_ref().is_none_or(|moments| moments.second.is_some() == has_second)
        });
        if fits {
            let mut state = self.state();
            (state.step, state.moments) = (updates, moments);
        }
        fits
    }

    /// Returns the moments of the parameters `names` as named tensors: `<parameter>.first` and `<parameter>.second`.
    pub fn record(&self, names: &[String]) -> Tensors {
        let mut tensors = Vec::new();
        for (name, moments) in names.iter().zip(&self.state().moments) {
            let Some(Moments { first, second }) = moments else { continue };
            tensors.push((format!("{name}.first"), first.to_data().convert::<f32>()));
            if let Some(second) = second {
                tensors.push((format!("{name}.second"), second.to_data().convert::<f32>()));
            }
        }
        tensors
    }

    /// Returns the state, which all clones share.
    pub fn state(&self) -> MutexGuard<'_, OptimizerState<B::InnerBackend>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> burn::optim::Optimizer<M, B> for Optimizer<B> {
    // The state is recorded through the shared handle instead.
    type Record = ();

    fn step(&mut self, rate: f64, module: M, gradients: GradientsParams) -> M {
        let device = module.devices().first().cloned().unwrap_or_default();
        let mut state = self.state();
        state.step += 1;
        let step = state.step;
        let update = Update {
            learning_rate: rate,
            step,
            max_norm: Some(self.config.max_gradient_norm).filter(|&norm| norm > 0.0),
        };
        let frozen = std::mem::take(&mut state.frozen);
        let moments = &mut state.moments;
        let (due, visited) = (Vec::new(), 0);
        let mut gather = Gather { optimizer: self, gradients, frozen: &frozen, step, moments, due, visited };
        module.visit(&mut gather);
        let (positions, due): (Vec<_>, Vec<_>) = gather.due.into_iter().unzip();

        let (updated, gradient_norm) = update.apply(due, &device);
        state.gradient_norm = Some(gradient_norm);
        let mut weights = vec![None; state.moments.len()];
        for (position, Updated { weights: new, moments }) in positions.into_iter().zip(updated) {
            weights[position] = Some(new);
            state.moments[position] = Some(moments);
        }
        module.map(&mut Replace::<B> { weights: weights.into_iter().enumerate(), frozen: &frozen })
    }

    fn step_multi(&mut self, rate: f64, module: M, gradients: MultiGradientsParams) -> M {
        // Training uses a single device, so there is only one set of gradients.
        let first = gradients.grads.into_iter().next();
        let gradients = first.map(|(gradients, _)| gradients).unwrap_or_default();
        burn::optim::Optimizer::step(self, rate, module, gradients)
    }

    fn to_record(&self) {}

    fn load_record(self, _record: ()) -> Self {
        self
    }
}

/// A visitor that collects the parameters with a gradient and their positions in the model.
struct Gather<'a, B: AutodiffBackend> {
    optimizer: &'a Optimizer<B>,
    gradients: GradientsParams,
    frozen: &'a Frozen,
    /// The current update, counted from 1.
    step: usize,
    moments: &'a mut Vec<Option<Moments<B::InnerBackend>>>,
    due: Vec<(usize, Parameter<B::InnerBackend>)>,
    visited: usize,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gather<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let position = self.visited;
        self.visited += 1;
        self.moments.resize_with(self.moments.len().max(self.visited), || None);
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let Optimizer { config, roles, .. } = self.optimizer;
            let (rule, weight_decay) = config.rule(&roles[position], self.step);
            let gradient = match self.frozen.get(&position) {
                Some(elements) => unchanged(gradient.zeros_like(), gradient, elements),
                None => gradient,
            };
            let parameter = Parameter {
                weights: param.val().inner().into_primitive().tensor(),
                gradient: gradient.into_primitive().tensor(),
                moments: self.moments[position].take(),
                rule,
                weight_decay,
            };
            self.due.push((position, parameter));
        }
    }
}

/// A mapper that puts the updated weights into the model.
struct Replace<'a, B: AutodiffBackend> {
    weights: Enumerate<IntoIter<Option<FloatTensor<B::InnerBackend>>>>,
    frozen: &'a Frozen,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Replace<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let Some((position, Some(weights))) = self.weights.next() else {
            return Param::from_mapped_value(id, old, mapper);
        };
        let mut new = Tensor::from_primitive(TensorPrimitive::Float(weights));
        if let Some(elements) = self.frozen.get(&position) {
            new = unchanged(old.clone().inner(), new, elements);
        }
        let mut new = Tensor::from_inner(new);
        if old.is_require_grad() {
            new = new.require_grad();
        }
        Param::from_mapped_value(id, new, mapper)
    }
}
