//! What an update makes of every parameter: AdamW, Adam and SGD, by the kernels or by Burn's operations.

use burn::prelude::*;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{TensorMetadata, TensorPrimitive};

use super::optimizer::{Hyper, Moments};
use crate::config::OptimizerKind;
use crate::ops;

/// A parameter that has a gradient. Tensors of any rank stand side by side as primitives.
pub struct Due<B: Backend> {
    pub weights: FloatTensor<B>,
    pub gradient: FloatTensor<B>,
    pub moments: Option<Moments<B>>,
    pub is_matrix: bool,
}

/// A parameter after its update.
pub struct Done<B: Backend> {
    pub weights: FloatTensor<B>,
    pub moments: Moments<B>,
}

/// What an update makes of all parameters.
pub struct Updated<B: Backend> {
    pub parameters: Vec<Done<B>>,
    /// The Euclidean norm of all gradients together, `[1]`.
    pub gradient_norm: Tensor<B, 1>,
}

/// One update of every parameter.
pub struct Update {
    pub hyper: Hyper,
    pub rate: f64,
    /// Updates made, this one counted.
    pub step: usize,
}

impl Update {
    /// By the kernels where they serve, else by Burn's operations.
    pub fn apply<B: ops::HostAccess>(&self, due: Vec<Due<B>>, device: &B::Device) -> Updated<B> {
        self.in_one_pass(due, device).unwrap_or_else(|due| self.composed(due, device))
    }

    /// By the kernels.
    ///
    /// # Errors
    /// The parameters as they came, where the kernels do not serve the backend or the optimizer.
    fn in_one_pass<B: ops::HostAccess>(
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
    fn path<B: ops::HostAccess>(hyper: Hyper, shapes: &[[usize; 2]], seed: u64) -> Vec<Vec<f32>> {
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
            let updated = update.apply::<B>(due.collect(), &device);
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

    fn both_ways_agree<B: ops::HostAccess>(hyper: Hyper, shapes: &[[usize; 2]], seed: u64) {
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
