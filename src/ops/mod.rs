//! The heavy operations of a model behind one trait, so that a backend can bring a fast one.
//!
//! [`Backend`] extends Burn's trait of the same name by the operations in which a step spends its
//! time. Each has a default composed of Burn's own operations, differentiable wherever Burn is,
//! so a backend joins with an empty `impl`. A CPU backend that lets the [kernels](crate::kernels) read
//! its tensors (`floats` and the methods beside it) has every operation fused, forward and backward; one
//! with kernels of its own overrides the operations. [`Kernels`] says which of the two runs.
//!
//! The trait works on primitives, as Burn's own operations do, and its names differ from those. Models call
//! the small functions beside it ([`linear()`], [`attention()`], ...), which take Burn's `Linear` and
//! `Embedding` as they are, so that records and weights do not depend on how an operation is computed.
//!
//! Shapes are checked by the modules that call these functions; here a misfit is a programmer's
//! error and panics.

mod activation;
mod adamw;
#[cfg(test)]
mod agreement;
mod attention;
mod autodiff;
mod cross_entropy;
mod dropout;
mod embedding;
mod fused;
mod host;
mod kernels;
mod linear;
mod mask;
mod norm;
mod precision;

pub use activation::{Gelu, gelu};
pub use adamw::{AdamW, Parameter, Stepped, adamw, global_norm};
pub use attention::{
    AttentionOptions, ScorePosition, attention, attention_with_weights, packed_attention,
    packed_attention_with_weights, rotate, split_packed,
};
pub use cross_entropy::{TokenScores, cross_entropy, token_scores};
pub use dropout::dropout;
pub use embedding::embedding;
pub use host::Integers;
pub use kernels::Kernels;
pub use linear::{Layer, feed_forward, linear, linear_gelu, linear_residual, tied_linear};
pub use mask::{Mask, masked_softmax};
pub use norm::{LayerNorm, layer_norm};
pub use precision::{Precision, precision};

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};

use fused::Operation;

/// A backend that offers the heavy operations of a model, fused where it has them.
pub trait Backend: burn::tensor::backend::Backend {
    /// The numbers of a tensor that lies in the host's memory, row by row, in single precision.
    fn floats(_tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        None
    }

    /// The same tensor, laid out so that [`Self::floats`] can read it if its precision allows.
    fn row_major(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor
    }

    /// The numbers of a tensor that [`Self::floats`] can read and that nobody shares, without a copy.
    ///
    /// # Errors
    /// Any other tensor, as it came.
    fn into_floats(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        Err(tensor)
    }

    /// The numbers of a tensor of tokens in the host's memory.
    fn integers(_tensor: &IntTensor<Self>) -> Option<Integers<'_>> {
        None
    }

    /// The values of a tensor in the host's memory, row by row: anything but zero is true.
    fn bools(_tensor: &BoolTensor<Self>) -> Option<Vec<u8>> {
        None
    }

    /// Scaled dot-product attention over any number of heads; see [`attention()`].
    fn multi_head_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        match fused::attention::<Self>(&query, &key, &value, &options) {
            Some(mut operation) => operation.forward(false),
            None => attention::composed(float(query), float(key), float(value), options).0.into_float(),
        }
    }

    /// Self-attention from one packed projection; see [`packed_attention()`].
    fn packed_attention(
        query_key_value: FloatTensor<Self>,
        options: AttentionOptions<Self>,
    ) -> FloatTensor<Self> {
        match fused::packed_attention::<Self>(&query_key_value, &options) {
            Some(mut operation) => operation.forward(false),
            None => {
                let [query, key, value] = split_packed(float(query_key_value), &options);
                attention::composed(query, key, value, options).0.into_float()
            }
        }
    }

    /// `activation(input weight + bias)` over the last axis; see [`linear()`] and [`linear_gelu`].
    fn linear_activation(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        activation: Option<Gelu>,
    ) -> FloatTensor<Self> {
        match fused::linear::<Self>(&input, &weight, bias.as_ref()) {
            Some(operation) => operation.activated(activation).forward(false),
            None => linear::composed::<Self>(input, weight, bias, activation),
        }
    }

    /// `residual + dropout(input weight + bias)`; see [`linear_residual`].
    fn linear_residual(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        residual: FloatTensor<Self>,
        dropout: f64,
    ) -> FloatTensor<Self> {
        let operation = fused::linear::<Self>(&input, &weight, bias.as_ref())
            .and_then(|operation| operation.added_to(&residual));
        match operation {
            Some(mut operation) => operation.forward(false),
            None => {
                let output = linear::composed::<Self>(input, weight, bias, None);
                Self::float_add(residual, Self::dropout(output, dropout))
            }
        }
    }

    /// `residual + dropout(gelu(input W_up + b_up) W_down + b_down)`; see [`feed_forward`].
    fn feed_forward(
        input: FloatTensor<Self>,
        up: Layer<FloatTensor<Self>>,
        form: Gelu,
        down: Layer<FloatTensor<Self>>,
        residual: FloatTensor<Self>,
        dropout: f64,
    ) -> FloatTensor<Self> {
        let inner = Self::linear_activation(input, up.weight, up.bias, Some(form));
        Self::linear_residual(inner, down.weight, down.bias, residual, dropout)
    }

    /// Layer normalisation over the last axis; see [`layer_norm()`].
    fn scaled_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        match fused::norm::<Self>(&input, &gamma, beta.as_ref(), epsilon) {
            Some(mut operation) => operation.forward(false),
            None => Self::layer_norm(input, gamma, beta, epsilon),
        }
    }

    /// The rows of a table by token, plus the row of each position; see [`embedding()`].
    fn token_embedding(
        tokens: IntTensor<Self>,
        table: FloatTensor<Self>,
        positions: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        match fused::embedding::<Self>(&tokens, &table, positions.as_ref()) {
            Some(mut operation) => operation.forward(false),
            None => embedding::composed::<Self>(tokens, table, positions),
        }
    }

    /// The summed cross-entropy of the counted targets; see [`cross_entropy()`].
    fn token_cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        hidden: Option<BoolTensor<Self>>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        match fused::cross_entropy::<Self>(&logits, &targets, hidden.as_ref(), smoothing) {
            Some(mut operation) => operation.forward(false),
            None => cross_entropy::composed::<Self>(logits, targets, hidden, smoothing),
        }
    }

    /// The loss of each target and the likeliest token at its place, never differentiated; see
    /// [`token_scores`].
    fn token_scores(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        hidden: Option<BoolTensor<Self>>,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        fused::token_scores::<Self>(&logits, &targets, hidden.as_ref())
            .unwrap_or_else(|| cross_entropy::composed_scores::<Self>(logits, targets, hidden))
    }

    /// Sets elements to zero with the given probability while training; see [`dropout()`].
    fn dropout(input: FloatTensor<Self>, probability: f64) -> FloatTensor<Self> {
        dropout::composed::<Self>(input, probability)
    }
}

/// A differentiable [`Backend`] whose inner backend is one too: what training asks for.
pub trait AutodiffBackend: Backend + burn::tensor::backend::AutodiffBackend<InnerBackend: Backend> {}

impl<B> AutodiffBackend for B where B: Backend + burn::tensor::backend::AutodiffBackend<InnerBackend: Backend> {}

#[cfg(feature = "wgpu")]
impl Backend for burn_wgpu::Wgpu {}

#[cfg(feature = "cuda")]
impl Backend for burn_cuda::Cuda {}

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
