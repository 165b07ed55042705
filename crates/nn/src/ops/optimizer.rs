//! One update of all parameters of a model: AdamW, Adam and SGD as PyTorch computes them, and Muon.
//!
//! The kernels update all parameters in one pass over their numbers; Burn's operations update one after the
//! other.

use burn::tensor::{Tensor, TensorMetadata, backend::Backend, ops::FloatTensor};

use super::host::{Floats, tensor};
use super::precision::{matmul, precision};
use super::{float, primitive};
use crate::kernels::{muon, optimizer as kernel};

/// How gradients move weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Adam (Kingma and Ba, 2015, algorithm 1), `w - rate m / (sqrt(v) + epsilon)` with the moments corrected
    /// for their beginning; with a decay of the weights, AdamW (Loshchilov and Hutter, 2019).
    Adam {
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the denominator.
        epsilon: f64,
    },
    /// Stochastic gradient descent: `m = momentum m + g`, `w - rate m`.
    Sgd {
        /// Decay of the first moment.
        momentum: f64,
    },
}

/// The settings of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// How gradients move weights.
    pub rule: Rule,
    /// Decay of the momentum of [`Parameter::matrices`].
    pub momentum: f64,
    /// The learning rate of this update.
    pub learning_rate: f64,
    /// Updates made, this one counted.
    pub step: usize,
    /// The largest norm of all gradients together (Pascanu et al., 2013), to which larger ones are scaled.
    pub max_norm: Option<f64>,
}

/// A parameter that has a gradient. Tensors of any rank stand side by side as primitives.
#[derive(Debug, Clone)]
pub struct Parameter<B: Backend> {
    /// The weights.
    pub weights: FloatTensor<B>,
    /// Their gradient.
    pub gradient: FloatTensor<B>,
    /// The moments, none before the first update.
    pub moments: Option<Moments<B>>,
    /// Decoupled decay of the weights.
    pub weight_decay: f64,
    /// Columns of the matrices that stand side by side in it, where Muon ([`muon`]) moves each in place of the rule.
    pub matrices: Option<Vec<usize>>,
}

/// The running means of a parameter's gradient, flat.
#[derive(Debug, Clone)]
pub struct Moments<B: Backend> {
    /// Of the gradient; for SGD and Muon the momentum.
    pub first: Tensor<B, 1>,
    /// Of its square; SGD and Muon have none.
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
    /// Updates every parameter, and says the Euclidean norm of all gradients together before any scaling, `[1]`.
    pub fn apply<B: Backend>(
        &self,
        parameters: Vec<Parameter<B>>,
        device: &B::Device,
    ) -> (Vec<Updated<B>>, Tensor<B, 1>) {
        let gradients = parameters.iter().map(|parameter| Floats::new::<B>(&parameter.gradient));
        if let Rule::Adam { beta1, beta2, epsilon } = self.rule
            && let Some(gradients) = gradients.collect::<Option<Vec<_>>>()
        {
            let norm = kernel::global_norm(&gradients.iter().map(Floats::slice).collect::<Vec<_>>());
            // Their memory can be taken only where nobody else holds it.
            drop(gradients);
            let Self { momentum, learning_rate, step, max_norm, .. } = *self;
            let (beta_1, beta_2, epsilon, step) = (beta1, beta2, epsilon as f32, step as u32);
            let adam = kernel::AdamW { learning_rate, beta_1, beta_2, epsilon, step, max_norm };
            // Kernels do not know f16.
            let precision = precision().of_kernels().unwrap_or_default();
            let muon = muon::Muon { learning_rate, momentum, max_norm, precision };
            return (
                fused((&adam, &muon), norm, parameters, device),
                Tensor::from_data([norm as f32], device),
            );
        }
        self.composed(parameters, device)
    }

    /// By Burn's operations, which leave the norm on the device.
    fn composed<B: Backend>(
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
            // As PyTorch's clip_grad_norm_: the small number keeps a zero gradient from dividing by zero.
            (norm.clone() + 1e-6).recip().mul_scalar(max_norm).clamp_max(1.0)
        });
        // A moment begins at zero.
        let moved = |old: Option<Tensor<B, 1>>, decay: f64, new: Tensor<B, 1>| {
            let new = new * (1.0 - decay);
            match old {
                Some(old) => old * decay + new,
                None => new,
            }
        };
        let update = |Parameter { weights, gradient, moments, weight_decay, matrices }: Parameter<B>| {
            let shape = weights.shape();
            let (weights, mut gradient) = (flat::<B>(weights), flat::<B>(gradient));
            if let Some(scale) = &scale {
                gradient = gradient * scale.clone();
            }
            let (first, second) = moments.map_or((None, None), |old| (Some(old.first), old.second));
            let (weights, moments) = match self.rule {
                _ if let Some(widths) = matrices => {
                    let new = gradient.clone() * (1.0 - self.momentum);
                    let first = moved(first, self.momentum, gradient);
                    let change = orthogonal(first.clone() * self.momentum + new, &widths);
                    let weights = weights * (1.0 - self.learning_rate * weight_decay);
                    (weights - change * self.learning_rate, Moments { first, second: None })
                }
                Rule::Adam { beta1, beta2, epsilon } => {
                    let weights = weights * (1.0 - self.learning_rate * weight_decay);
                    let square = gradient.clone() * gradient.clone();
                    let (first, second) = (moved(first, beta1, gradient), moved(second, beta2, square));
                    let [correction1, correction2] =
                        [beta1, beta2].map(|beta| 1.0 - beta.powi(self.step as i32));
                    let denominator = second.clone().sqrt() / correction2.sqrt() + epsilon;
                    let change = first.clone() / denominator * (self.learning_rate / correction1);
                    (weights - change, Moments { first, second: Some(second) })
                }
                Rule::Sgd { momentum } => {
                    let first = match first {
                        Some(first) => first * momentum + gradient,
                        None => gradient,
                    };
                    (weights - first.clone() * self.learning_rate, Moments { first, second: None })
                }
            };
            Updated { weights: B::float_reshape(primitive(weights), shape), moments }
        };
        (parameters.into_iter().map(update).collect(), norm)
    }
}

/// What Muon moves matrices side by side by, whose momentum this is, at a learning rate of one.
fn orthogonal<B: Backend>(momentum: Tensor<B, 1>, widths: &[usize]) -> Tensor<B, 1> {
    let columns = widths.iter().sum::<usize>();
    let rows = momentum.dims()[0] / columns;
    let of_one = |x: Tensor<B, 2>| {
        let [rows, columns] = x.dims();
        let norm = (x.clone() * x.clone()).sum().sqrt() + muon::EPSILON;
        let x = x / norm.unsqueeze();
        let mut x = if rows <= columns { x } else { x.transpose() };
        let [a, b, c] = muon::COEFFICIENTS;
        for _ in 0..muon::ITERATIONS {
            let gram = matmul(x.clone(), x.clone().transpose());
            let polynomial = gram.clone() * b + matmul(gram.clone(), gram) * c;
            x = x.clone() * a + matmul(polynomial, x);
        }
        let x = if rows <= columns { x } else { x.transpose() };
        x * muon::scale(rows, columns)
    };
    let parts = momentum.reshape([rows, columns]).split_with_sizes(widths.to_vec(), 1);
    Tensor::cat(parts.into_iter().map(of_one).collect(), 1).reshape([rows * columns])
}

fn flat<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    let length = tensor.shape().num_elements();
    float(B::float_reshape(tensor, [length].into()))
}

/// By the kernels, given the norm of all gradients together.
///
/// The new weights take the memory of the gradients, and the next gradients that of the old weights,
/// once nobody reads these any more.
fn fused<B: Backend>(
    (adam, muon): (&kernel::AdamW, &muon::Muon),
    norm: f64,
    parameters: Vec<Parameter<B>>,
    device: &B::Device,
) -> Vec<Updated<B>> {
    let taken = |tensor: FloatTensor<B>| Floats::contiguous::<B>(tensor).into_vec();
    let (mut old, mut numbers) = (Vec::new(), Vec::new());
    for Parameter { weights, gradient, moments, weight_decay, matrices } in parameters {
        let gradient = taken(gradient);
        let (first, second) = moments.map_or((None, None), |old| (Some(old.first), old.second));
        let moment = |old: Option<Tensor<B, 1>>| {
            old.map_or_else(|| vec![0.0; gradient.len()], |old| taken(primitive(old)))
        };
        let (first, second) = (moment(first), matrices.is_none().then(|| moment(second)));
        old.push(Floats::contiguous::<B>(weights));
        numbers.push((gradient, first, second, weight_decay, matrices));
    }
    let (mut by_adam, mut by_muon) = (Vec::new(), Vec::new());
    for (old, (gradient, first, second, weight_decay, matrices)) in old.iter().zip(&mut numbers) {
        let (values, weight_decay) = (old.slice(), *weight_decay);
        match (second, matrices) {
            (Some(second_moment), _) => by_adam.push(kernel::Parameter {
                values,
                gradient,
                first_moment: first,
                second_moment,
                weight_decay: weight_decay as f32,
            }),
            (None, widths) => by_muon.push(muon::Matrices {
                values,
                gradient,
                momentum: first,
                widths: widths.as_deref().unwrap_or_default(),
                weight_decay,
            }),
        }
    }
    kernel::step(adam, norm, &mut by_adam);
    muon::step(muon, norm, &mut by_muon);
    let updated = old.into_iter().zip(numbers).map(|(old, (new, first, second, ..))| {
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

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::{kernels::random::random, ops::Kernels};

    /// A few updates of matrices of these shapes, the first `muon` of them by Muon: after each the weights, the
    /// moments and the norm.
    fn path<B: Backend>(
        rule: Rule,
        (decay, max_norm, muon): (f64, Option<f64>, usize),
        shapes: &[[usize; 2]],
        seed: u64,
    ) -> Vec<Vec<f32>> {
        let device = B::Device::default();
        let tensor = |seed, shape: [usize; 2]| {
            let values = TensorData::new(random(seed, shape[0] * shape[1]), shape);
            primitive(Tensor::<B, 2>::from_data(values, &device))
        };
        let mut state: Vec<_> =
            shapes.iter().enumerate().map(|(at, shape)| (tensor(seed + at as u64, *shape), None)).collect();
        let mut path = Vec::new();
        for step in 1..=4 {
            let parameters =
                state.into_iter().zip(shapes).enumerate().map(|(at, ((weights, moments), shape))| {
                    Parameter {
                        weights,
                        gradient: tensor(seed + (100 * step + at) as u64, *shape),
                        moments,
                        weight_decay: if at % 2 == 0 { decay } else { 0.0 },
                        matrices: (at < muon).then(|| match shape[1] / 2 {
                            0 => vec![1],
                            half => vec![half, shape[1] - half],
                        }),
                    }
                });
            let update = Update { rule, momentum: 0.95, learning_rate: 1e-2, step, max_norm };
            let (updated, norm) = update.apply::<B>(parameters.collect(), &device);
            let numbers = |tensor: Tensor<B, 1>| tensor.into_data().to_vec::<f32>().unwrap();
            path.push(numbers(norm));
            for Updated { weights, moments } in &updated {
                path.push(numbers(flat::<B>(weights.clone())));
                path.push(numbers(moments.first.clone()));
                path.extend(moments.second.clone().map(numbers));
            }
            state = updated.into_iter().map(|updated| (updated.weights, Some(updated.moments))).collect();
        }
        path
    }

    fn both_ways_agree<B: Backend>(
        rule: Rule,
        settings: (f64, Option<f64>, usize),
        shapes: &[[usize; 2]],
        seed: u64,
    ) {
        let path = |kernels: Kernels| kernels.run(|| path::<B>(rule, settings, shapes, seed));
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
            decay in 0.0..1.0,
            max_norm in prop::sample::select(vec![None, Some(0.1), Some(1e3)]),
            is_adam: bool,
            muon in 0usize..4,
            seed in 0u64..1_000,
        ) {
            let rule = Rule::Adam { beta1, beta2, epsilon: 1e-8 };
            let decay = if is_adam { 0.0 } else { decay };
            both_ways_agree::<NdArray>(rule, (decay, max_norm, muon), &shapes, seed);
            both_ways_agree::<Flex>(rule, (decay, max_norm, muon), &shapes, seed);
        }
    }
}
