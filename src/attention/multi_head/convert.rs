//! From one form of multi-head attention to another, with equal outputs.
//!
//! Queries, keys and values of all heads are column blocks of larger matrices: converting is
//! cutting and joining along the output axis. Dropout draws other numbers in each form, so
//! outputs are equal where nothing is dropped.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, backend::Backend};

use super::{MultiHeadAttention, SplitHeads, StackedHeads};
use crate::attention::causal::CausalAttention;
use crate::attention::mask::future;
use crate::attention::trainable::TrainableAttention;
use crate::{Error, Result};

impl<B: Backend> StackedHeads<B> {
    /// The same attention with one matrix each for queries, keys and values. Without an output
    /// projection it gets one that changes nothing.
    pub fn to_split(&self) -> SplitHeads<B> {
        let join = |part: fn(&TrainableAttention<B>) -> &Linear<B>| {
            columns_joined(self.heads.iter().map(|head| part(&head.projection)).collect())
        };
        let (query, key, value) =
            (join(|head| &head.query), join(|head| &head.key), join(|head| &head.value));
        let [_, width] = query.weight.shape().dims();
        let identity = || Linear {
            weight: Param::from_tensor(Tensor::eye(width, &query.weight.lazy_device())),
            bias: None,
        };
        SplitHeads {
            output: self.output.as_ref().map_or_else(identity, copy),
            dropout: self.heads.first().map_or(self.dropout.clone(), |head| head.dropout.clone()),
            output_dropout: self.dropout.clone(),
            heads: self.heads.len(),
            query,
            key,
            value,
        }
    }
}

impl<B: Backend> SplitHeads<B> {
    /// The same attention as a list of single heads, for sequences up to `context`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the context is zero.
    pub fn to_stacked(&self, context: usize) -> Result<StackedHeads<B>> {
        if context == 0 {
            return Err(Error::Shape("the context is 0, but must be at least 1".to_string()));
        }
        let [_, width] = self.query.weight.shape().dims();
        let d_head = width / self.heads;
        let hidden = future(context, &self.query.weight.lazy_device());
        let head = |head: usize| CausalAttention {
            projection: TrainableAttention {
                query: columns(&self.query, head * d_head, d_head),
                key: columns(&self.key, head * d_head, d_head),
                value: columns(&self.value, head * d_head, d_head),
            },
            dropout: self.dropout.clone(),
            hidden: hidden.clone(),
        };
        Ok(StackedHeads {
            heads: (0..self.heads).map(head).collect(),
            output: Some(copy(&self.output)),
            dropout: self.output_dropout.clone(),
        })
    }

    /// The same attention with one matrix for queries, keys and values.
    ///
    /// # Errors
    /// [`Error::Shape`] where input and heads differ in width, which the fused form does not offer.
    pub fn to_fused(&self) -> Result<MultiHeadAttention<B>> {
        let [d_in, width] = self.query.weight.shape().dims();
        let [_, d_out] = self.output.weight.shape().dims();
        if d_in != width || d_out != width {
            return Err(Error::Shape(format!(
                "the widths in, of all heads and out are {d_in}, {width} and {d_out}, but the fused form \
                 needs them equal"
            )));
        }
        Ok(MultiHeadAttention {
            qkv: columns_joined(vec![&self.query, &self.key, &self.value]),
            output: copy(&self.output),
            dropout: self.dropout.clone(),
            output_dropout: self.output_dropout.clone(),
            heads: self.heads,
            key_value_heads: self.heads,
            d_head: width / self.heads,
        })
    }
}

impl<B: Backend> MultiHeadAttention<B> {
    /// The same attention, causal, with one matrix each for queries, keys and values. Where heads
    /// share keys and values, each gets a copy of its own.
    pub fn to_split(&self) -> SplitHeads<B> {
        let (query, shared) = (self.heads * self.d_head, self.key_value_heads * self.d_head);
        let group = self.heads / self.key_value_heads;
        let spread = |start: usize| {
            let heads: Vec<Linear<B>> = (0..self.heads)
                .map(|head| columns(&self.qkv, start + head / group * self.d_head, self.d_head))
                .collect();
            columns_joined(heads.iter().collect())
        };
        SplitHeads {
            query: columns(&self.qkv, 0, query),
            key: spread(query),
            value: spread(query + shared),
            output: copy(&self.output),
            dropout: self.dropout.clone(),
            output_dropout: self.output_dropout.clone(),
            heads: self.heads,
        }
    }
}

/// The same layer. A plain clone of a parameter that was never read would draw numbers of its own.
fn copy<B: Backend>(layer: &Linear<B>) -> Linear<B> {
    columns_joined(vec![layer])
}

/// A layer whose outputs are those of the given layers side by side. Where one has a bias and
/// another none, the other's is zero.
fn columns_joined<B: Backend>(layers: Vec<&Linear<B>>) -> Linear<B> {
    let weights = layers.iter().map(|layer| layer.weight.val()).collect();
    let bias = layers.iter().any(|layer| layer.bias.is_some()).then(|| {
        let biases = layers.iter().map(|layer| match &layer.bias {
            Some(bias) => bias.val(),
            None => {
                let [_, width] = layer.weight.shape().dims();
                Tensor::zeros([width], &layer.weight.lazy_device())
            }
        });
        parameter(Tensor::cat(biases.collect(), 0))
    });
    Linear { weight: parameter(Tensor::cat(weights, 1)), bias }
}

/// A layer that gives only some outputs of the given one.
fn columns<B: Backend>(layer: &Linear<B>, start: usize, width: usize) -> Linear<B> {
    let bias = layer.bias.as_ref().map(|bias| parameter(bias.val().narrow(0, start, width)));
    Linear { weight: parameter(layer.weight.val().narrow(1, start, width)), bias }
}

/// A parameter with this value, cut off from the parameters it was computed from.
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
    fn converted_attention_learns_by_itself() {
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
    fn widths_that_the_fused_form_lacks_are_refused() {
        let stacked = StackedHeadsConfig::new(5, 3, 2, 7).init::<NdArray>(&Default::default()).unwrap();
        let error = stacked.to_split().to_fused().unwrap_err().to_string();
        assert!(error.contains("5, 6 and 6"), "{error}");
    }
}
