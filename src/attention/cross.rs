//! General attention: queries of one sequence over keys and values of others, with any mask.
//!
//! ```text
//! output = softmax(Q K^T / sqrt(d_head)) V W_output,  Q = x W_q,  K = y W_k,  V = z W_v
//! ```
//!
//! With `y = z` the memory of an encoder it is the cross-attention of an encoder-decoder
//! (Vaswani et al., 2017, arXiv 1706.03762, section 3.2.3; Bahdanau et al., 2014, arXiv
//! 1409.0473, for the idea); with `x = y = z` it is self-attention.

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::mask::Mask;
use super::multi_head::width_of_head;
use super::{check_dropout, check_residual, check_width};
use crate::ops::{self, AttentionOptions, ScorePosition};
use crate::{Error, Result};

/// What a [`CrossAttention`] is built from.
#[derive(Config, Debug)]
pub struct CrossAttentionConfig {
    /// Width of all three inputs and of the output.
    pub d_model: usize,
    /// Number of heads; divides `d_model`.
    pub heads: usize,
    /// Probability of dropping a weight, and of dropping an element of the output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the projections have biases.
    #[config(default = true)]
    pub bias: bool,
}

/// Multi-head attention of one sequence over others.
#[derive(Module, Debug)]
pub struct CrossAttention<B: Backend> {
    /// `d_model` to `d_model`.
    pub query: Linear<B>,
    /// `d_model` to `d_model`.
    pub key: Linear<B>,
    /// `d_model` to `d_model`.
    pub value: Linear<B>,
    /// Mixes the heads: `d_model` to `d_model`.
    pub output: Linear<B>,
    /// On the weights.
    pub dropout: Dropout,
    /// On the output.
    pub output_dropout: Dropout,
    /// Number of heads.
    pub heads: usize,
}

impl CrossAttentionConfig {
    /// The module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// [`Error::Key`] where `heads` does not divide `d_model` or the dropout lies outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<CrossAttention<B>> {
        width_of_head(self.d_model, self.heads)?;
        check_dropout(self.dropout)?;
        let linear = || LinearConfig::new(self.d_model, self.d_model).with_bias(self.bias).init(device);
        let dropout = DropoutConfig::new(self.dropout).init();
        Ok(CrossAttention {
            query: linear(),
            key: linear(),
            value: linear(),
            output: linear(),
            dropout: dropout.clone(),
            output_dropout: dropout,
            heads: self.heads,
        })
    }

    /// How many parameters [`Self::init`] makes.
    pub fn parameters(&self) -> usize {
        4 * (self.d_model + usize::from(self.bias)) * self.d_model
    }
}

impl<B: ops::Backend> CrossAttention<B> {
    /// Attends from `query` over `key` and hands over `value`.
    ///
    /// # Shapes
    /// `query` `[batch, query_time, d_model]`, `key` and `value` `[batch, key_time, d_model]`; the
    /// result is `[batch, query_time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where inputs or mask do not fit the module or each other.
    pub fn forward(
        &self,
        query: Tensor<B, 3>,
        key: Tensor<B, 3>,
        value: Tensor<B, 3>,
        mask: &Mask<B>,
    ) -> Result<Tensor<B, 3>> {
        let context = self.context(query, key, value, mask, None)?;
        Ok(ops::dropout(&self.output_dropout, ops::linear(&self.output, context)))
    }

    /// [`Self::forward`], with the weights as they were applied.
    ///
    /// # Shapes
    /// As [`Self::forward`]; the weights are `[batch, heads, query_time, key_time]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_with_weights(
        &self,
        query: Tensor<B, 3>,
        key: Tensor<B, 3>,
        value: Tensor<B, 3>,
        mask: &Mask<B>,
    ) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
        let mut maps = Vec::with_capacity(1);
        let context = self.context(query, key, value, mask, Some(&mut maps))?;
        let output = ops::dropout(&self.output_dropout, ops::linear(&self.output, context));
        Ok((output, maps.remove(0)))
    }

    /// `residual + forward(query, memory, memory)`, in one operation where the backend has it; the
    /// weights are added to `maps` where asked for.
    ///
    /// # Shapes
    /// `residual` and `query` `[batch, query_time, d_model]`, as the result; `memory`
    /// `[batch, key_time, d_model]`; a map is `[batch, heads, query_time, key_time]`.
    ///
    /// # Errors
    /// As [`Self::forward`], and where the residual has another shape than the query.
    pub fn forward_onto(
        &self,
        residual: Tensor<B, 3>,
        query: Tensor<B, 3>,
        memory: Tensor<B, 3>,
        mask: &Mask<B>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        check_residual(residual.dims(), query.dims())?;
        let context = self.context(query, memory.clone(), memory, mask, maps)?;
        Ok(ops::linear_residual(&self.output, &self.output_dropout, context, residual))
    }

    /// The heads' contexts side by side, before the output projection mixes them.
    fn context(
        &self,
        query: Tensor<B, 3>,
        key: Tensor<B, 3>,
        value: Tensor<B, 3>,
        mask: &Mask<B>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        self.check(query.dims(), key.dims(), value.dims())?;
        let ([batch, query_time, _], [_, key_time, _]) = (query.dims(), key.dims());
        mask.check(batch, query_time, key_time)?;

        let query = ops::linear(&self.query, query);
        let key = ops::linear(&self.key, key);
        let value = ops::linear(&self.value, value);
        let options = self.options(mask.clone());
        let Some(maps) = maps else { return Ok(ops::attention(query, key, value, options)) };
        let (context, weights) = ops::attention_with_weights(query, key, value, options);
        maps.push(weights);
        Ok(context)
    }

    pub(super) fn options(&self, mask: Mask<B>) -> AttentionOptions<B> {
        AttentionOptions {
            heads: self.heads,
            key_value_heads: self.heads,
            mask,
            position: ScorePosition::None,
            dropout: self.dropout.prob,
        }
    }

    fn check(&self, query: [usize; 3], key: [usize; 3], value: [usize; 3]) -> Result<()> {
        let [d_model, _] = self.query.weight.shape().dims();
        for (what, dims) in [("query", query), ("key", key), ("value", value)] {
            check_width(what, dims, d_model)?;
        }
        if query[0] != key[0] || key[..2] != value[..2] {
            return Err(Error::Shape(format!(
                "query {query:?}, key {key:?} and value {value:?} must share the batch, and key and value \
                 the time"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    fn zeros(shape: [usize; 3]) -> Tensor<NdArray, 3> {
        Tensor::zeros(shape, &Default::default())
    }

    #[test]
    fn inputs_that_do_not_fit_name_their_shapes() {
        let attention = CrossAttentionConfig::new(6, 2).init::<NdArray>(&Default::default()).unwrap();
        let attend = |query, key, value| {
            let result = attention.forward(zeros(query), zeros(key), zeros(value), &Mask::none());
            result.map(|output| output.dims()).map_err(|error| error.to_string())
        };
        assert_eq!(attend([2, 3, 6], [2, 5, 6], [2, 5, 6]), Ok([2, 3, 6]));
        let message = attend([2, 3, 6], [2, 5, 7], [2, 5, 6]).unwrap_err();
        assert_eq!(message, "the key is [2, 5, 7], but its last axis must be 6");
        let message = attend([2, 3, 6], [3, 5, 6], [3, 5, 6]).unwrap_err();
        assert!(message.contains("[2, 3, 6]") && message.contains("[3, 5, 6]"), "{message}");
        let message = attend([2, 3, 6], [2, 5, 6], [2, 7, 6]).unwrap_err();
        assert!(message.contains("[2, 5, 6]") && message.contains("[2, 7, 6]"), "{message}");
    }

    #[test]
    fn heads_that_do_not_divide_are_refused() {
        let error = CrossAttentionConfig::new(6, 4).init::<NdArray>(&Default::default()).unwrap_err();
        assert_eq!(error.to_string(), "`model.heads` = 4 must divide `model.d_model` = 6");
    }
}
