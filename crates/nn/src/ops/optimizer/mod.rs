//! One update of all parameters of a model, each by its own rule: AdamW, Adam and SGD as in PyTorch, and Muon.
//!
//! A rule is a file with an implementation of [`UpdateRule`], and an entry in the list of rules below. If all rules of
//! a model have kernels, the kernels update all parameters in one pass. Otherwise Burn's operations update one
//! parameter after another.

mod adam;
mod muon;
mod sgd;

use std::fmt::Debug;

use burn::tensor::{Tensor, TensorMetadata, backend::Backend, ops::FloatTensor};

pub use self::adam::Adam;
pub use self::muon::Muon;
pub use self::sgd::Sgd;
use super::host::{Floats, tensor};
use super::{float, primitive};
use crate::kernels::optimizer::global_norm;

/// An update rule: computes new weights from gradients.
pub(super) trait UpdateRule: Clone + Debug + PartialEq {
    /// The number of moments kept per parameter, one or two.
    const MOMENTS: usize;

    /// The kernel, which updates parameters given the global gradient norm; `None` if the rule has none.
    const KERNEL: Option<Kernel<Self>> = None;

    /// Updates a parameter with Burn's operations.
    fn update<B: Backend>(&self, update: &Update, parameter: Flat<B>) -> (Tensor<B, 1>, Moments<B>);
}

/// A function that updates parameters, each by its own rule, given the global gradient norm.
type Kernel<R> = for<'r, 'n> fn(&Update, f64, Vec<(&'r R, Numbers<'n>)>);

/// A parameter for Burn's operations: flattened, with a scaled gradient.
pub(super) struct Flat<B: Backend> {
    weights: Tensor<B, 1>,
    gradient: Tensor<B, 1>,
    first: Option<Tensor<B, 1>>,
    second: Option<Tensor<B, 1>>,
    weight_decay: f64,
}

/// A parameter for the kernels, with its unscaled gradient. The new weights overwrite the gradient.
pub(super) struct Numbers<'n> {
    weights: &'n [f32],
    gradient: &'n mut [f32],
    first: &'n mut [f32],
    second: Option<&'n mut [f32]>,
    weight_decay: f64,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $Name:ident),* $(,)?) => {
        /// The update rule of a parameter.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Rule {
            $($(#[$doc])* $Name($Name),)*
        }

        impl Rule {
            /// Returns the number of moments kept per parameter, one or two.
            pub fn moments(&self) -> usize {
                match self {
                    $(Self::$Name(_) => $Name::MOMENTS,)*
                }
            }

            fn has_kernel(&self) -> bool {
                match self {
                    $(Self::$Name(_) => $Name::KERNEL.is_some(),)*
                }
            }

            fn update<B: Backend>(&self, update: &Update, parameter: Flat<B>) -> (Tensor<B, 1>, Moments<B>) {
                match self {
                    $(Self::$Name(rule) => rule.update(update, parameter),)*
                }
            }
        }

        /// Updates parameters with the kernels of their rules, one call per kind of rule.
        #[allow(non_snake_case, reason = "a variable for each rule")]
        fn run_kernels<'n>(update: &Update, norm: f64, parameters: impl Iterator<Item = (&'n Rule, Numbers<'n>)>) {
            $(let mut $Name = Vec::new();)*
            for (rule, numbers) in parameters {
                match rule {
                    $(Rule::$Name(rule) => $Name.push((rule, numbers)),)*
                }
            }
            $(if let Some(kernel) = $Name::KERNEL {
                kernel(update, norm, $Name);
            })*
        }
    };
}

rules! {
    /// Adam and AdamW.
    Adam,
    /// Stochastic gradient descent.
    Sgd,
    /// Muon, for matrices.
    Muon,
}

/// The settings of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// The learning rate of this update.
    pub learning_rate: f64,
    /// The number of this update, from 1.
    pub step: usize,
    /// The largest global gradient norm (Pascanu et al., 2013); larger gradients are scaled down to it.
    pub max_norm: Option<f64>,
}

/// A parameter with its gradient. Tensors are primitives, which have the same type for any rank.
#[derive(Debug, Clone)]
pub struct Parameter<B: Backend> {
    /// The weights.
    pub weights: FloatTensor<B>,
    /// The gradient of the weights.
    pub gradient: FloatTensor<B>,
    /// The moments; `None` before the first update.
    pub moments: Option<Moments<B>>,
    /// The update rule.
    pub rule: Rule,
    /// The decoupled weight decay.
    pub weight_decay: f64,
}

/// The moments of a parameter's gradient, flattened.
#[derive(Debug, Clone)]
pub struct Moments<B: Backend> {
    /// The first moment: the running mean of the gradient, or its momentum.
    pub first: Tensor<B, 1>,
    /// The second moment: the running mean of the squared gradient, for rules with two moments.
    pub second: Option<Tensor<B, 1>>,
}

/// A parameter after its update.
#[derive(Debug, Clone)]
pub struct Updated<B: Backend> {
    /// The new weights.
    pub weights: FloatTensor<B>,
    /// The new moments.
    pub moments: Moments<B>,
}

impl Update {
    /// Updates every parameter, and returns the global gradient norm before any scaling, `[1]`.
    pub fn apply<B: Backend>(
        &self,
        parameters: Vec<Parameter<B>>,
        device: &B::Device,
    ) -> (Vec<Updated<B>>, Tensor<B, 1>) {
        let have_kernels = parameters.iter().all(|parameter| parameter.rule.has_kernel());
        let gradients = parameters.iter().map(|parameter| Floats::new::<B>(&parameter.gradient));
        if have_kernels && let Some(gradients) = gradients.collect::<Option<Vec<_>>>() {
            let norm = global_norm(&gradients.iter().map(Floats::slice).collect::<Vec<_>>());
            // The gradients' memory can be reused only if there is no other reference to it.
            drop(gradients);
            return (self.fused(norm, parameters, device), Tensor::from_data([norm as f32], device));
        }
        self.reference(parameters, device)
    }

    /// Updates with Burn's operations, which leave the norm on the device.
    fn reference<B: Backend>(
        &self,
        parameters: Vec<Parameter<B>>,
        device: &B::Device,
    ) -> (Vec<Updated<B>>, Tensor<B, 1>) {
        let squares = parameters.iter().map(|parameter| {
            let gradient = flat::<B>(parameter.gradient.clone());
            (gradient.clone() * gradient).sum()
        });
        let norm = match parameters.is_empty() {
            true => Tensor::zeros([1], device),
            false => Tensor::cat(squares.collect(), 0).sum().sqrt(),
        };
        let scale = self.max_norm.map(|max_norm| {
            // As in PyTorch's `clip_grad_norm_`, the small number avoids division by zero.
            (norm.clone() + 1e-6).recip().mul_scalar(max_norm).clamp_max(1.0)
        });
        let update = |Parameter { weights, gradient, moments, rule, weight_decay }: Parameter<B>| {
            let shape = weights.shape();
            let (weights, mut gradient) = (flat::<B>(weights), flat::<B>(gradient));
            if let Some(scale) = &scale {
                gradient = gradient * scale.clone();
            }
            let (first, second) = moments.map_or((None, None), |old| (Some(old.first), old.second));
            let (weights, moments) =
                rule.update(self, Flat { weights, gradient, first, second, weight_decay });
            Updated { weights: B::float_reshape(primitive(weights), shape), moments }
        };
        (parameters.into_iter().map(update).collect(), norm)
    }

    /// Updates with the kernels, given the global gradient norm.
    ///
    /// The new weights take the memory of the gradients. The next gradients take the memory of the old weights, once it
    /// has no other readers.
    fn fused<B: Backend>(
        &self,
        norm: f64,
        parameters: Vec<Parameter<B>>,
        device: &B::Device,
    ) -> Vec<Updated<B>> {
        let taken = |tensor: FloatTensor<B>| Floats::contiguous::<B>(tensor).into_vec();
        let (mut old, mut numbers) = (Vec::new(), Vec::new());
        for Parameter { weights, gradient, moments, rule, weight_decay } in parameters {
            let gradient = taken(gradient);
            let (first, second) = moments.map_or((None, None), |old| (Some(old.first), old.second));
            let moment = |old: Option<Tensor<B, 1>>| {
                old.map_or_else(|| vec![0.0; gradient.len()], |old| taken(primitive(old)))
            };
            let (first, second) = (moment(first), (rule.moments() == 2).then(|| moment(second)));
            old.push((Floats::contiguous::<B>(weights), rule, weight_decay));
            numbers.push((gradient, first, second));
        }
        let parameters = old.iter().zip(&mut numbers);
        let parameters = parameters.map(|((old, rule, weight_decay), (gradient, first, second))| {
            let weights = old.slice();
            let second = second.as_deref_mut();
            (rule, Numbers { weights, gradient, first, second, weight_decay: *weight_decay })
        });
        run_kernels(self, norm, parameters);
        let updated = old.into_iter().zip(numbers).map(|((old, ..), (new, first, second))| {
            let moment = |values: Vec<f32>| {
                let length = values.len();
                float(tensor::<B>(values, [length], device))
            };
            let moments = Moments { first: moment(first), second: second.map(moment) };
            let weights = tensor::<B>(new, old.shape(), device);
            old.recycle_once_free();
            Updated { weights, moments }
        });
        updated.collect()
    }
}

/// Updates a running mean, which starts at zero, with a new value.
fn update_mean<B: Backend>(old: Option<Tensor<B, 1>>, decay: f64, new: Tensor<B, 1>) -> Tensor<B, 1> {
    let new = new * (1.0 - decay);
    match old {
        Some(old) => old * decay + new,
        None => new,
    }
}

fn flat<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    let length = tensor.shape().num_elements();
    float(B::float_reshape(tensor, [length].into()))
}

#[cfg(test)]
mod tests;
