//! Normalisation over the last axis.
//!
//! ```text
//! layer norm:  y = (x - mean(x)) / sqrt(var(x) + epsilon) gamma + beta
//! RMS norm:    y = x / sqrt(mean(x^2) + epsilon) gamma
//! ```
//!
//! Ba, Kiros and Hinton, 2016 (arXiv 1607.06450), and Zhang and Sennrich, 2019 (arXiv 1910.07467), whose norm leaves
//! out the mean, and with it a pass over the numbers.

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use super::host::Floats;
use super::operation::{self, Gradients, Inputs, Operation, fused};
use super::{float, primitive};
use crate::kernels::norm as kernel;
use crate::kernels::pool::{self, Buffer};
use crate::role::{ParamRole, ParamRoles};

/// Which norm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Layer norm: the mean is taken off, and the rest divided by its deviation.
    #[default]
    Layer,
    /// RMS norm: divided by the root mean square, without a shift (Llama's).
    Rms,
}

/// A norm with Burn's parameter names and records.
///
/// Burn's own modules keep their epsilon to themselves, which an operation that is to be fused needs.
#[derive(Module, Debug)]
pub struct Norm<B: Backend> {
    /// The scale, `[d_model]`, ones at first.
    pub gamma: Param<Tensor<B, 1>>,
    /// The shift, `[d_model]`, zeros at first; absent in models without biases, and in every RMS norm.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// What is added to the variance, or the mean square, before the root.
    pub epsilon: f64,
    /// Which norm.
    #[module(skip)]
    pub kind: NormKind,
}

impl<B: Backend> ParamRoles for Norm<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { gamma, beta, epsilon: _, kind: _ } = self;
        visit(gamma.id, ParamRole::Gain);
        beta.iter().for_each(|beta| visit(beta.id, ParamRole::Bias));
    }
}

impl<B: Backend> Norm<B> {
    /// A layer norm over an axis of `d_model` elements, which changes only mean and variance at first.
    pub fn layer(d_model: usize, epsilon: f64, bias: bool, device: &B::Device) -> Self {
        let beta = bias.then(|| Initializer::Zeros.init([d_model], device));
        Self { beta, kind: NormKind::Layer, ..Self::rms(d_model, epsilon, device) }
    }

    /// An RMS norm over an axis of `d_model` elements, which changes only the mean square at first.
    pub fn rms(d_model: usize, epsilon: f64, device: &B::Device) -> Self {
        let gamma = Initializer::Ones.init([d_model], device);
        Self { gamma, beta: None, epsilon, kind: NormKind::Rms }
    }

    /// Normalises over the last axis, then scales and shifts.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out, for any leading axes.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let beta = self.beta.as_ref().map(|beta| beta.val());
        run(input, self.gamma.val(), beta, Settings { epsilon: self.epsilon, kind: self.kind })
    }
}

pub(super) fn run<B: Backend, const D: usize>(
    input: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Option<Tensor<B, 1>>,
    settings: Settings,
) -> Tensor<B, D> {
    let inputs =
        [operation::input(&input), operation::input(&gamma), beta.as_ref().and_then(operation::input)];
    fused(inputs, |_| Some(settings)).unwrap_or_else(|| match settings.kind {
        NormKind::Layer => {
            let beta = beta.map(primitive);
            float(B::layer_norm(primitive(input), primitive(gamma), beta, settings.epsilon))
        }
        NormKind::Rms => {
            let mean_square = (input.clone() * input.clone()).mean_dim(D - 1);
            input / (mean_square + settings.epsilon).sqrt() * gamma.unsqueeze()
        }
    })
}

/// Of a norm of input, scale and shift.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    epsilon: f64,
    kind: NormKind,
}

impl Settings {
    pub fn rms(epsilon: f64) -> Self {
        Self { epsilon, kind: NormKind::Rms }
    }

    fn kernel<'a>(&self, inputs: &'a Inputs<3>) -> kernel::Norm<'a> {
        kernel::Norm {
            is_centred: self.kind == NormKind::Layer,
            gamma: inputs[1].slice(),
            beta: inputs.slice(2),
            epsilon: self.epsilon as f32,
        }
    }
}

impl Operation<3> for Settings {
    /// Mean and inverse deviation of each row.
    type Saved = [Buffer; 2];

    const READS: usize = 3;

    /// The result is as large as the input.
    const IS_CHEAP: bool = true;

    fn forward(&self, inputs: &Inputs<3>) -> (Floats, [Buffer; 2]) {
        let input = inputs[0].slice();
        let rows = input.len() / inputs[0].width();
        let [mut output, mut mean, mut inverse_deviation] = [input.len(), rows, rows].map(pool::take);
        kernel::forward(&self.kernel(inputs), input, [&mut mean, &mut inverse_deviation], &mut output);
        (inputs[0].place(output, inputs[0].shape()), [mean, inverse_deviation])
    }

    fn backward(
        &self,
        inputs: &Inputs<3>,
        [mean, inverse_deviation]: [Buffer; 2],
        gradient: &Floats,
    ) -> Gradients<3> {
        let (norm, statistics) = (self.kernel(inputs), [&*mean, &*inverse_deviation]);
        inputs.gradients(|[input, gamma, beta]| {
            let (input, gamma) = input.zip(gamma).expect("input and scale are never absent");
            kernel::backward(&norm, inputs[0].slice(), statistics, gradient.slice(), input, gamma, beta);
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::random::random;
    use crate::ops::{Activation, agreement::*, feed_forward};

    /// The input of a norm. Each value lies far from the next: where those of a row hardly differ, nothing is
    /// left of them but the rounding of their mean.
    fn uneven<B: AutodiffBackend>(seed: u64, [rows, width]: [usize; 2]) -> Tensor<B, 3> {
        let mut values = random(seed, rows * width);
        for row in values.chunks_mut(width) {
            row.iter_mut().step_by(2).for_each(|value| *value += 3.0);
        }
        Tensor::from_data(TensorData::new(values, [1, rows, width]), &Default::default()).require_grad()
    }

    const LAYER: Settings = Settings { epsilon: 1e-5, kind: NormKind::Layer };
    const RMS: Settings = Settings { kind: NormKind::Rms, ..LAYER };

    fn norm_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], bias: bool, seed: u64) {
        check("RMS norm", || {
            let input = uneven::<B>(seed, [rows, width]);
            let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
            let output = run(input.clone(), gamma.clone(), None, RMS);
            let inner = run(input.clone().inner(), gamma.clone().inner(), None, RMS);
            outcome!(output, inner, [input, gamma])
        });
        check("norm", || {
            let input = uneven::<B>(seed, [rows, width]);
            let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
            let beta = bias.then(|| leaf::<B, 1>(seed + 2, [width]).require_grad());
            let output = run(input.clone(), gamma.clone(), beta.clone(), LAYER);
            let inner_beta = beta.clone().map(Tensor::inner);
            let inner = run(input.clone().inner(), gamma.clone().inner(), inner_beta, LAYER);
            match &beta {
                Some(beta) => outcome!(output, inner, [input, gamma, beta]),
                None => outcome!(output, inner, [input, gamma]),
            }
        });
    }

    /// Linear layers compute the norm before them again for their gradients: `tracked` says whether scale and
    /// shift have gradients themselves, without which it is kept.
    fn norm_before_linear_layers_agrees<B: AutodiffBackend>(
        [rows, width]: [usize; 2],
        tracked: bool,
        seed: u64,
    ) {
        check("norm before linear layers", || {
            let input = uneven::<B>(seed, [rows, width]);
            let parameter = |seed| {
                let parameter = leaf::<B, 1>(seed, [width]);
                if tracked { parameter.require_grad() } else { parameter }
            };
            let (gamma, beta) = (parameter(seed + 1), parameter(seed + 2));
            let weight = leaf::<B, 2>(seed + 3, [width, width]).require_grad();
            let normed = run(input.clone(), gamma.clone(), Some(beta.clone()), LAYER);
            let layer = || layer_of(weight.clone(), None);
            let linear = || layer().apply(normed.clone(), None);
            let layers = [layer(), layer()];
            let feed_forward =
                feed_forward::run(layers, Activation::Gelu, 0.0, normed.clone(), normed.clone());
            let output = linear() + linear() * 2.0 + feed_forward;
            match tracked {
                true => outcome!(output.clone(), output.inner(), [input, weight, gamma, beta]),
                false => outcome!(output.clone(), output.inner(), [input, weight]),
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Of a row of one number the gradient is nothing but rounding.
        #[test]
        fn norms_agree(sizes in [1usize..131, 2usize..70], bias: bool, seed in 0u64..1_000) {
            norm_agrees::<Ndarray>(sizes, bias, seed);
            norm_agrees::<Flexible>(sizes, bias, seed);
        }

        #[test]
        fn norms_before_linear_layers_agree(
            sizes in [1usize..131, 5usize..70], tracked: bool, seed in 0u64..1_000,
        ) {
            norm_before_linear_layers_agrees::<Ndarray>(sizes, tracked, seed);
            norm_before_linear_layers_agrees::<Flexible>(sizes, tracked, seed);
        }
    }

    #[test]
    fn the_graph_keeps_no_norm_for_the_layer_behind_it() {
        /// Whether its memory comes back to the pool while the layer's result is there. Of such a size nothing else is.
        fn is_free<B: AutodiffBackend>() -> bool {
            let (rows, width) = (997, 41);
            let parameter = |seed| leaf::<B, 1>(seed, [width]).require_grad();
            let input = leaf::<B, 2>(3, [rows, width]).require_grad();
            let normed = run(input, parameter(1), Some(parameter(2)), LAYER);
            let layer = layer_of(leaf::<B, 2>(4, [width, 5]).require_grad(), None);
            let output = layer.apply(normed.clone(), None);
            let normed = Floats::contiguous::<B>(primitive(normed));
            let place = normed.slice().as_ptr();
            drop(normed);
            let is_free = [(); 2].map(|()| pool::take(rows * width)).iter().any(|it| it.as_ptr() == place);
            drop(output);
            is_free
        }
        assert!(is_free::<Ndarray>() && is_free::<Flexible>());
    }

    #[test]
    fn transposed_and_cut_tensors_are_read_as_they_stand() {
        fn agrees<B: AutodiffBackend>() {
            check("norm of a transposed part", || {
                let input = leaf::<B, 3>(1, [7, 5, 11]).require_grad();
                let part = input.clone().swap_dims(0, 1).narrow(1, 2, 3); // [5, 3, 11]
                let output = run(part, leaf::<B, 1>(2, [11]), None, LAYER);
                outcome!(output.clone(), output.inner(), [input])
            });
        }
        agrees::<Ndarray>();
        agrees::<Flexible>();
    }
}
