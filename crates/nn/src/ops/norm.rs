//! Normalisation over the last axis.
//!
//! ```text
//! layer norm:  y = (x - mean(x)) / sqrt(var(x) + epsilon) gamma + beta
//! RMS norm:    y = x / sqrt(mean(x^2) + epsilon) gamma
//! ```
//!
//! The layer norm is from Ba, Kiros and Hinton, 2016 (arXiv 1607.06450). The RMS norm of Zhang and Sennrich, 2019
//! (arXiv 1910.07467), omits the mean, which saves a pass over the elements.

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use super::fused::{self, fused};
use super::host::Floats;
use super::operation::{Input, Operation, gradients, inputs};
use super::{float, primitive};
use crate::choices;
use crate::display::display_line;
use crate::kernels::norm as kernel;
use crate::kernels::pool::{self, Buffer};
use crate::role::{ParamRole, ParamRoles};

choices! {
    /// The kind of norm.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum NormKind {
        /// Layer norm: subtracts the mean and divides by the standard deviation.
        #[default]
        Layer,
        /// RMS norm: divides by the root mean square, without a shift, as in Llama.
        Rms,
    }
}

/// A norm with Burn's parameter names and records.
///
/// Burn's own modules keep their epsilon private, but a fused operation needs it.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Norm<B: Backend> {
    /// The scale, `[d_model]`, initially ones; with `unit_offset`, the scale minus one.
    pub gamma: Param<Tensor<B, 1>>,
    /// The shift, `[d_model]`, initially zeros; absent in models without biases and in every RMS norm.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// The number added to the variance or mean square before the root.
    pub epsilon: f64,
    /// The kind of norm.
    #[module(skip)]
    pub kind: NormKind,
    /// True if the scale is `1 + gamma`, as in Gemma (arXiv 2403.08295), so that weight decay would pull it towards one.
    #[module(skip)]
    pub unit_offset: bool,
}

display_line!(Norm, self => {
    kind: self.kind,
    d_model: self.gamma.lazy_shape().dims::<1>()[0],
    epsilon: self.epsilon,
    bias: self.beta.is_some(),
});

impl<B: Backend> ParamRoles for Norm<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { gamma, beta, epsilon: _, kind: _, unit_offset: _ } = self;
        visit(gamma.id, ParamRole::Gain);
        beta.iter().for_each(|beta| visit(beta.id, ParamRole::Bias));
    }
}

impl<B: Backend> Norm<B> {
    /// Creates a layer norm over an axis of `d_model` elements, with scales of one and shifts of zero.
    pub fn layer(d_model: usize, epsilon: f64, bias: bool, device: &B::Device) -> Self {
        let beta = bias.then(|| Initializer::Zeros.init([d_model], device));
        Self { beta, kind: NormKind::Layer, ..Self::rms(d_model, epsilon, device) }
    }

    /// Creates an RMS norm over an axis of `d_model` elements, with scales of one.
    pub fn rms(d_model: usize, epsilon: f64, device: &B::Device) -> Self {
        let gamma = Initializer::Ones.init([d_model], device);
        Self { gamma, beta: None, epsilon, kind: NormKind::Rms, unit_offset: false }
    }

    /// Stores the scales minus one, initially zeros, if `unit_offset` is true.
    #[must_use]
    pub fn with_unit_offset(mut self, unit_offset: bool) -> Self {
        if unit_offset {
            self.gamma = Initializer::Zeros.init(self.gamma.lazy_shape(), &self.gamma.lazy_device());
        }
        self.unit_offset = unit_offset;
        self
    }

    /// Returns the scale, `[d_model]`.
    pub fn gain(&self) -> Tensor<B, 1> {
        if self.unit_offset { self.gamma.val() + 1.0 } else { self.gamma.val() }
    }

    /// Normalises over the last axis, then scales and shifts.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out, for any leading axes.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let beta = self.beta.as_ref().map(|beta| beta.val());
        run(input, self.gain(), beta, Settings { epsilon: self.epsilon, kind: self.kind })
    }
}

pub(super) fn run<B: Backend, const D: usize>(
    input: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Option<Tensor<B, 1>>,
    settings: Settings,
) -> Tensor<B, D> {
    let inputs = NormInputs {
        input: fused::input(&input),
        gamma: fused::input(&gamma),
        beta: beta.as_ref().and_then(fused::input),
    };
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

inputs!(NormInputs<3> { input, gamma, beta });

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    epsilon: f64,
    kind: NormKind,
}

impl Settings {
    pub fn rms(epsilon: f64) -> Self {
        Self { epsilon, kind: NormKind::Rms }
    }

    fn kernel<'a>(&self, inputs: &'a NormInputs<Input>) -> kernel::Norm<'a> {
        kernel::Norm {
            is_centred: self.kind == NormKind::Layer,
            gamma: inputs.gamma.slice(),
            beta: inputs.beta.numbers(),
            epsilon: self.epsilon as f32,
        }
    }
}

impl Operation<3> for Settings {
    type Inputs<T> = NormInputs<T>;
    /// The mean and the inverse standard deviation of each row.
    type Saved = [Buffer; 2];

    const BACKWARD_INPUTS: NormInputs<bool> = NormInputs { input: true, gamma: true, beta: true };

    /// The result is as large as the input, and recomputing it is cheap.
    const IS_CHEAP: bool = true;

    fn forward(&self, inputs: &NormInputs<Input>) -> (Floats, [Buffer; 2]) {
        let input = inputs.input.slice();
        let rows = input.len() / inputs.input.width();
        let [mut output, mut mean, mut inverse_deviation] = [input.len(), rows, rows].map(pool::take);
        kernel::forward(&self.kernel(inputs), input, [&mut mean, &mut inverse_deviation], &mut output);
        (inputs.input.with_values(output, inputs.input.shape()), [mean, inverse_deviation])
    }

    fn backward(
        &self,
        inputs: &NormInputs<Input>,
        [mean, inverse_deviation]: [Buffer; 2],
        gradient: &Floats,
    ) -> NormInputs<Option<Floats>> {
        let (norm, statistics) = (self.kernel(inputs), [&*mean, &*inverse_deviation]);
        gradients::<Self, 3>(inputs, |NormInputs { input, gamma, beta }| {
            let (input, gamma) = input.zip(gamma).expect("input and scale are never absent");
            kernel::backward(&norm, inputs.input.slice(), statistics, gradient.slice(), input, gamma, beta);
        })
    }
}

#[cfg(test)]
mod tests;
