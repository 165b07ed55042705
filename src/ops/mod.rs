//! The heavy operations of a model behind one trait, so that a backend can bring a fast one.
//!
//! [`Backend`] extends Burn's trait of the same name by the operations in which a step spends its
//! time. Each has a default composed of Burn's own operations, differentiable wherever Burn is,
//! so a backend joins with an empty `impl`; one that has a fused kernel overrides the method.
//! The trait works on primitives, as Burn's own operations do, and its names differ from those. Models call the small functions
//! beside it ([`linear()`], [`attention()`], ...), which take Burn's `Linear` and `Embedding` as
//! they are, so that records and weights do not depend on how an operation is computed.
//!
//! Shapes are checked by the modules that call these functions; here a misfit is a programmer's
//! error and panics.

mod activation;
mod attention;
mod cross_entropy;
mod dropout;
mod embedding;
mod linear;
mod mask;
mod norm;

pub use activation::{Gelu, gelu};
pub use attention::{
    AttentionOptions, ScorePosition, attention, attention_with_weights, packed_attention,
    packed_attention_with_weights, rotate, split_packed,
};
pub use cross_entropy::cross_entropy;
pub use dropout::dropout;
pub use embedding::embedding;
pub use linear::{linear, linear_gelu, linear_residual, tied_linear};
pub use mask::{Mask, masked_softmax};
pub use norm::{LayerNorm, layer_norm};

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

/// A backend that offers the heavy operations of a model, fused where it has them.
pub trait Backend: burn::tensor::backend::Backend {
    /// Scaled dot-product attention over any number of heads; see [`attention()`].
    fn multi_head_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        attention::composed(float(query), float(key), float(value), options).0.into_float()
    }

    /// Self-attention from one packed projection; see [`packed_attention()`].
    fn packed_attention(
        query_key_value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        let [query, key, value] = split_packed(float(query_key_value), &options);
        Self::multi_head_attention(query.into_float(), key.into_float(), value.into_float(), options)
    }

    /// `activation(input weight + bias)` over the last axis; see [`linear()`] and [`linear_gelu`].
    fn linear_activation(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        activation: Option<Gelu>,
    ) -> FloatTensor<Self> {
        linear::composed::<Self>(input, weight, bias, activation)
    }

    /// `residual + dropout(input weight + bias)`; see [`linear_residual`].
    fn linear_residual(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: FloatTensor<Self>,
        dropout: f64,
    ) -> FloatTensor<Self> {
        let output = Self::linear_activation(input, weight, bias, None);
        Self::float_add(residual, Self::dropout(output, dropout))
    }

    /// Layer normalisation over the last axis; see [`layer_norm()`].
    fn scaled_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        Self::layer_norm(input, gamma, beta, epsilon)
    }

    /// The rows of a table by token, plus the row of each position; see [`embedding()`].
    fn token_embedding(
        tokens: IntTensor<Self>,
        table: FloatTensor<Self>,
        positions: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        embedding::composed::<Self>(tokens, table, positions)
    }

    /// The summed cross-entropy of the counted targets; see [`cross_entropy()`].
    fn token_cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        hidden: Option<BoolTensor<Self>>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        cross_entropy::composed::<Self>(logits, targets, hidden, smoothing)
    }

    /// Sets elements to zero with the given probability while training; see [`dropout()`].
    fn dropout(input: FloatTensor<Self>, probability: f64) -> FloatTensor<Self> {
        dropout::composed::<Self>(input, probability)
    }
}

/// A differentiable [`Backend`] whose inner backend is one too: what training asks for.
pub trait AutodiffBackend: Backend + burn::tensor::backend::AutodiffBackend<InnerBackend: Backend> {}

impl<B> AutodiffBackend for B where B: Backend + burn::tensor::backend::AutodiffBackend<InnerBackend: Backend> {}

#[cfg(feature = "ndarray")]
impl Backend for burn_ndarray::NdArray<f32> {}

#[cfg(feature = "ndarray")]
impl Backend for burn_ndarray::NdArray<f64> {}

impl Backend for burn_flex::Flex {}

#[cfg(feature = "wgpu")]
impl Backend for burn_wgpu::Wgpu {}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {}

/// Wraps a float primitive as a tensor of a known rank.
fn float<B: burn::tensor::backend::Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The way back from a tensor to its float primitive.
trait IntoFloat<B: burn::tensor::backend::Backend> {
    fn into_float(self) -> FloatTensor<B>;
}

impl<B: burn::tensor::backend::Backend, const D: usize> IntoFloat<B> for Tensor<B, D> {
    fn into_float(self) -> FloatTensor<B> {
        self.into_primitive().tensor()
    }
}
