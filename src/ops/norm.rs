//! Layer normalisation (Ba, Kiros and Hinton, 2016, arXiv 1607.06450):
//! `y = (x - mean(x)) / sqrt(var(x) + epsilon) gamma + beta`, over the last axis.

use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param};
use burn::tensor::{Tensor, backend};

use super::{Backend, IntoFloat, float};

/// Layer normalisation with Burn's parameter names and records.
///
/// Burn's own module keeps its epsilon to itself, which an operation that is to be fused needs.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm<B: backend::Backend> {
    /// The scale, `[d_model]`, ones at first.
    pub gamma: Param<Tensor<B, 1>>,
    /// The shift, `[d_model]`, zeros at first; absent in models without biases.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// What is added to the variance before the root.
    pub epsilon: f64,
}

impl<B: backend::Backend> LayerNorm<B> {
    /// A norm over an axis of `d_model` elements, which changes only mean and variance at first.
    pub fn new(d_model: usize, epsilon: f64, bias: bool, device: &B::Device) -> Self {
        Self {
            gamma: Initializer::Ones.init([d_model], device),
            beta: bias.then(|| Initializer::Zeros.init([d_model], device)),
            epsilon,
        }
    }
}

impl<B: Backend> LayerNorm<B> {
    /// Normalises over the last axis.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out, for any leading axes.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        layer_norm(self, input)
    }
}

impl<B: backend::Backend> ModuleDisplay for LayerNorm<B> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content.add("d_model", &d_model).add("epsilon", &self.epsilon).optional()
    }
}

/// Normalises over the last axis, then scales and shifts; see [`LayerNorm`].
///
/// # Shapes
/// `[batch, time, d_model]`, in and out, for any leading axes.
pub fn layer_norm<B: Backend, const D: usize>(norm: &LayerNorm<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let beta = norm.beta.as_ref().map(|beta| beta.val().into_float());
    float(B::scaled_layer_norm(input.into_float(), norm.gamma.val().into_float(), beta, norm.epsilon))
}
