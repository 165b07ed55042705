//! Conversions between the forms of multi-head attention, with equal outputs.
//!
//! The queries, keys and values of all heads are column blocks of larger matrices, so converting means splitting and
//! concatenating along the output axis. Dropout draws different numbers in each form, so outputs are equal only without
//! dropout.

use std::ops::Range;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, backend::Backend};

use super::{MultiHeadAttention, ScoreFunction, SplitHeads, StackedHeads};
use crate::attention::{causal::CausalAttention, mask::causal_mask, trainable::TrainableAttention};
use crate::{Error, Result, error::ensure};

impl<B: Backend> StackedHeads<B> {
    /// Returns the same attention with one matrix each for queries, keys and values. Without an output projection, the
    /// result gets an identity matrix.
    pub fn to_split(&self) -> SplitHeads<B> {
        let join = |part: fn(&TrainableAttention<B>) -> &Linear<B>| {
            columns(self.heads.iter().map(|head| all(part(&head.projection))))
        };
        let query = join(|head| &head.query);
        let [_, width] = query.weight.shape().dims();
        let identity =
            || Linear { weight: parameter(Tensor::eye(width, &query.weight.device())), bias: None };
        SplitHeads {
            output: self.output.as_ref().map_or_else(identity, copy),
            dropout: self.dropout.clone(),
            heads: self.heads.len(),
            key: join(|head| &head.key),
            value: join(|head| &head.value),
            query,
        }
    }
}

impl<B: Backend> SplitHeads<B> {
    /// Returns the same attention as a list of single heads, for sequences up to `context`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the context is zero.
    pub fn to_stacked(&self, context: usize) -> Result<StackedHeads<B>> {
        Error::check(context > 0, "context", context, "must be at least 1")?;
        let [_, width] = self.query.weight.shape().dims();
        let d_head = width / self.heads;
        let hidden = causal_mask(context, &self.query.weight.lazy_device());
        let head = |head: usize| {
            let part = |layer| columns([(layer, head * d_head..(head + 1) * d_head)]);
            CausalAttention {
                projection: TrainableAttention {
                    query: part(&self.query),
                    key: part(&self.key),
                    value: part(&self.value),
                },
                dropout: self.dropout.clone(),
                hidden: hidden.clone(),
            }
        };
        Ok(StackedHeads {
            heads: (0..self.heads).map(head).collect(),
            output: Some(copy(&self.output)),
            dropout: self.dropout.clone(),
        })
    }

    /// Returns the same attention with one matrix for queries, keys and values.
    ///
    /// # Errors
    /// [`Error::Shape`] if the widths of input, heads and output differ, which the fused form does not support.
    pub fn to_fused(&self) -> Result<MultiHeadAttention<B>> {
        let [d_in, width] = self.query.weight.shape().dims();
        let [_, d_out] = self.output.weight.shape().dims();
        ensure([d_in, d_out] == [width; 2], Error::Shape, || {
            format!(
                "input, heads and output have the widths {d_in}, {width} and {d_out}, but the fused form \
                 requires equal widths"
            )
        })?;
        Ok(MultiHeadAttention {
            qkv: columns([&self.query, &self.key, &self.value].map(all)),
            query_norm: None,
            key_norm: None,
            scores: ScoreFunction::plain(),
            gate: None,
            differential: None,
            output: copy(&self.output),
            dropout: self.dropout.clone(),
            heads: self.heads,
            key_value_heads: self.heads,
            d_head: width / self.heads,
        })
    }
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Returns the same attention, always causal, with one matrix each for queries, keys and values. Heads that share
    /// keys and values each get their own copy. Norms of queries and keys, the score function, gates and differential attention
    /// are dropped, since the split form has none.
    pub fn to_split(&self) -> SplitHeads<B> {
        let d_head = self.d_head;
        let group = self.heads / self.key_value_heads;
        // The column order is the heads of the queries, then of the keys, then of the values.
        let heads = |first: usize, group: usize| {
            let starts = (0..self.heads).map(move |head| (first + head / group) * d_head);
            columns(starts.map(|start| (&self.qkv, start..start + d_head)))
        };
        SplitHeads {
            query: heads(0, 1),
            key: heads(self.heads, group),
            value: heads(self.heads + self.key_value_heads, group),
            output: copy(&self.output),
            dropout: self.dropout.clone(),
            heads: self.heads,
        }
    }
}

/// Copies a layer. A clone of an uninitialised parameter would draw different numbers.
fn copy<B: Backend>(layer: &Linear<B>) -> Linear<B> {
    columns([all(layer)])
}

/// Selects all outputs of a layer.
fn all<B: Backend>(layer: &Linear<B>) -> (&Linear<B>, Range<usize>) {
    let [_, width] = layer.weight.shape().dims();
    (layer, 0..width)
}

/// Concatenates ranges of the outputs of some layers into one layer. If only some of the layers have a bias, the bias
/// of the others is zero.
fn columns<'a, B: Backend>(parts: impl IntoIterator<Item = (&'a Linear<B>, Range<usize>)>) -> Linear<B> {
    let (mut weights, mut biases, mut has_bias) = (Vec::new(), Vec::new(), false);
    for (layer, outputs) in parts {
        let weight = layer.weight.val();
        let zeros = || Tensor::zeros([outputs.len()], &weight.device());
        biases.push(
            layer.bias.as_ref().map_or_else(zeros, |bias| bias.val().narrow(0, outputs.start, outputs.len())),
        );
        has_bias |= layer.bias.is_some();
        weights.push(weight.narrow(1, outputs.start, outputs.len()));
    }
    let bias = has_bias.then(|| parameter(Tensor::cat(biases, 0)));
    Linear { weight: parameter(Tensor::cat(weights, 1)), bias }
}

/// Creates a parameter with this value, detached from the parameters it was computed from.
fn parameter<B: Backend, const D: usize>(value: Tensor<B, D>) -> Param<Tensor<B, D>> {
    Param::from_tensor(value.detach())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{Mask, StackedHeadsConfig};
    use crate::ops::ScorePosition;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    #[test]
    fn converted_attention_has_its_own_gradients() {
        let device = Default::default();
        let stacked = StackedHeadsConfig::new(6, 3, 2, 5)
            .with_bias(true)
            .with_d_out(Some(6))
            .init::<Autodiff<NdArray>>(&device)
            .unwrap();
        let fused = stacked.to_split().to_fused().unwrap();
        let output = fused.forward(Tensor::ones([1, 5, 6], &device), &Mask::causal(), &ScorePosition::None);
        let gradients = output.unwrap().sum().backward();
        for weight in [&fused.qkv.weight, &fused.output.weight] {
            assert_eq!(weight.val().grad(&gradients).unwrap().dims(), weight.dims());
        }
        assert!(stacked.heads[0].projection.value.weight.val().grad(&gradients).is_none());
    }

    #[test]
    fn unequal_widths_cannot_be_fused() {
        let stacked = StackedHeadsConfig::new(5, 3, 2, 7).init::<NdArray>(&Default::default()).unwrap();
        let error = stacked.to_split().to_fused().unwrap_err().to_string();
        assert!(error.contains("5, 6 and 6"), "{error}");
    }
}
