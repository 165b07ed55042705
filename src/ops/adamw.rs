//! One step of AdamW over all parameters of a model, in one pass over their numbers.
//!
//! Parameters are primitives, so that those of any rank stand side by side.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, backend};

use super::host::{Floats, tensor};
use super::{HostAccess, IntoFloat, float};
use crate::kernels::optimizer;

pub use crate::kernels::optimizer::AdamW;

/// A parameter with its gradient and moments.
#[derive(Debug, Clone)]
pub struct Parameter<B: backend::Backend> {
    /// The weights.
    pub weights: FloatTensor<B>,
    /// Their gradient.
    pub gradient: FloatTensor<B>,
    /// First and second moment, flat; none before the first step.
    pub moments: Option<[Tensor<B, 1>; 2]>,
    /// Decay of the weights.
    pub weight_decay: f64,
}

/// What a step makes of a parameter.
#[derive(Debug, Clone)]
pub struct Stepped<B: backend::Backend> {
    /// The new weights.
    pub weights: FloatTensor<B>,
    /// First and second moment, flat.
    pub moments: [Tensor<B, 1>; 2],
}

/// The Euclidean norm of all gradients together; none where the kernels do not serve the backend.
pub fn global_norm<'a, B: HostAccess>(gradients: impl Iterator<Item = &'a FloatTensor<B>>) -> Option<f64> {
    let gradients: Vec<_> = gradients.map(Floats::<B>::new).collect::<Option<_>>()?;
    let slices: Vec<_> = gradients.iter().map(Floats::slice).collect();
    Some(optimizer::global_norm(&slices))
}

/// One step of every parameter, given the [`global_norm`] of all gradients.
///
/// The new weights take the memory of the gradients, and the next gradients that of the old weights,
/// once nobody reads these any more.
pub fn adamw<B: HostAccess>(settings: &AdamW, norm: f64, parameters: Vec<Parameter<B>>) -> Vec<Stepped<B>> {
    struct Numbers<B: HostAccess> {
        old: Floats<B>,
        gradient: Vec<f32>,
        moments: [Vec<f32>; 2],
        weight_decay: f32,
    }
    let mut numbers: Vec<_> = parameters
        .into_iter()
        .map(|Parameter { weights, gradient, moments, weight_decay }| {
            let old = Floats::<B>::contiguous(weights);
            let length = old.slice().len();
            let moments = match moments {
                Some(moments) => {
                    moments.map(|moment| Floats::<B>::contiguous(moment.into_float()).into_vec())
                }
                None => [vec![0.0; length], vec![0.0; length]],
            };
            let gradient = Floats::<B>::contiguous(gradient).into_vec();
            Numbers { old, gradient, moments, weight_decay: weight_decay as f32 }
        })
        .collect();
    let mut slices: Vec<_> = numbers
        .iter_mut()
        .map(|Numbers { old, gradient, moments: [first, second], weight_decay }| optimizer::Parameter {
            values: old.slice(),
            gradient,
            first_moment: first,
            second_moment: second,
            weight_decay: *weight_decay,
        })
        .collect();
    optimizer::step(settings, norm, &mut slices);
    let stepped = numbers.into_iter().map(|Numbers { old, gradient: new, moments, .. }| {
        let device = B::float_device(&old.tensor());
        let flat = |values: Vec<f32>| {
            let length = values.len();
            float(tensor::<B>(values, [length], &device))
        };
        let weights = tensor::<B>(new, old.shape(), &device);
        old.recycle_once_free();
        Stepped { weights, moments: moments.map(flat) }
    });
    stepped.collect()
}
