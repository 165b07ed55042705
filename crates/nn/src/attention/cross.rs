//! Cross-attention: queries from one sequence, keys and values from another, with any mask.
//!
//! ```text
//! output = softmax(Q K^T / sqrt(d_head)) V W_output,  Q = x W_q,  K = y W_k,  V = z W_v
//! ```
//!
//! [`SplitHeads`] compute this unchanged; only the source of their keys and values differs. If `y = z` is the output of
//! an encoder, this is the cross-attention of an encoder-decoder (Vaswani et al., 2017, arXiv 1706.03762, section
//! 3.2.3; the idea is from Bahdanau et al., 2014, arXiv 1409.0473). If `x = y = z`, it is self-attention. Keys and
//! values do not depend on the queries, so they are projected once into a [`Memory`] and serve any number of queries.

use burn::tensor::{Tensor, backend::Backend};

use super::hooked::{self, AttentionHooks, with_weights};
use super::{check_residual, check_width, mask::Mask, multi_head::SplitHeads};
use crate::error::ensure;
use crate::hooks::{AttentionPoint, NoHooks};
use crate::ops::{self, Projections, merge_heads};
use crate::{Error, Result};

/// The keys and values that queries attend to, with the mask that hides some of them.
#[derive(Debug, Clone)]
pub struct Memory<B: Backend> {
    /// The keys, `[batch, key_time, heads * d_head]`.
    pub key: Tensor<B, 3>,
    /// The values, with the same shape as `key`.
    pub value: Tensor<B, 3>,
    /// The mask, which selects the hidden keys.
    pub mask: Mask<B>,
}

impl<B: Backend> SplitHeads<B> {
    /// Projects the keys and values of a memory.
    ///
    /// # Shapes
    /// `key` and `value` `[batch, key_time, d_in]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if they do not fit the module or each other.
    pub fn project_memory(&self, key: Tensor<B, 3>, value: Tensor<B, 3>, mask: Mask<B>) -> Result<Memory<B>> {
        let ([d_in, _], key_dims, value_dims) = (self.key.weight.shape().dims(), key.dims(), value.dims());
        check_width("key", key_dims, d_in)?;
        check_width("value", value_dims, d_in)?;
        ensure(key_dims == value_dims, Error::Shape, || {
            format!("key {key_dims:?} and value {value_dims:?} must have the same batch size and time")
        })?;
        Ok(Memory { key: ops::linear(&self.key, key), value: ops::linear(&self.value, value), mask })
    }

    /// Attends from `query` to a memory.
    ///
    /// # Shapes
    /// `query` `[batch, query_time, d_in]`; the result is `[batch, query_time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the query or the mask does not fit the module or the memory.
    pub fn forward_memory(&self, query: Tensor<B, 3>, memory: &Memory<B>) -> Result<Tensor<B, 3>> {
        self.forward_memory_hooked(None, query, memory, AttentionHooks::standalone(&mut NoHooks))
    }

    /// Like [`Self::forward_memory`], and also returns the attention weights as applied.
    ///
    /// # Shapes
    /// Same as [`Self::forward_memory`]; the weights are `[batch, heads, query_time, key_time]`.
    ///
    /// # Errors
    /// Same as [`Self::forward_memory`].
    pub fn forward_memory_with_weights(
        &self,
        query: Tensor<B, 3>,
        memory: &Memory<B>,
    ) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
        with_weights(|hooks| self.forward_memory_hooked(None, query, memory, hooks))
    }

    /// Like [`Self::forward_memory`], with a residual connection and hooks.
    ///
    /// # Shapes
    /// `query` `[batch, query_time, d_in]`, `residual` and the result `[batch, query_time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::forward_memory`]. Additionally [`Error::Shape`] if the shapes of residual and output differ.
    pub fn forward_memory_hooked(
        &self,
        residual: Option<Tensor<B, 3>>,
        query: Tensor<B, 3>,
        memory: &Memory<B>,
        mut hooks: AttentionHooks<'_, B>,
    ) -> Result<Tensor<B, 3>> {
        use AttentionPoint::{Key, Query, Value};
        let ([d_in, _], [batch, query_time, _]) = (self.query.weight.shape().dims(), query.dims());
        let Memory { key, value, mask } = memory.clone();
        let [memories, key_time, _] = key.dims();
        let [_, d_model] = self.output.weight.shape().dims();
        check_width("query", query.dims(), d_in)?;
        ensure(memories == batch, Error::Shape, || {
            format!("query {:?} and memory {:?} must have the same batch size", query.dims(), key.dims())
        })?;
        check_residual(residual.as_ref(), [batch, query_time, d_model])?;
        mask.check(batch, query_time, key_time)?;
        let mut parts = [ops::linear(&self.query, query), key, value];
        if !hooks.inputs.is_empty() || hooks.wants(&[Query, Key, Value]) {
            let by_heads = |part| hooked::split_and_repeat_heads(part, self.heads, self.heads);
            let [query, key, value] = parts.map(by_heads);
            let project = |input| by_heads(ops::linear(&self.query, input));
            let query = hooks.project(Query, query, project);
            parts = [query, hooks.apply(Key, key), hooks.apply(Value, value)].map(merge_heads);
        }
        let parts = Projections::Separate(parts);
        Ok(hooked::attend(parts, self.options(mask), self.head_output(), residual, &mut hooks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::SplitHeadsConfig;
    use burn_ndarray::NdArray;

    fn zeros(shape: [usize; 3]) -> Tensor<NdArray, 3> {
        Tensor::zeros(shape, &Default::default())
    }

    #[test]
    fn mismatched_inputs_report_their_shapes() {
        let attention = SplitHeadsConfig::new(6, 6, 2).init::<NdArray>(&Default::default()).unwrap();
        let attend = |query, key, value| {
            let memory = attention.project_memory(zeros(key), zeros(value), Mask::none());
            let output = memory.and_then(|memory| attention.forward_memory(zeros(query), &memory));
            output.map(|output| output.dims()).map_err(|error| error.to_string())
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
    fn heads_must_divide_d_model() {
        let error = SplitHeadsConfig::new(6, 6, 4).init::<NdArray>(&Default::default()).unwrap_err();
        assert_eq!(error.to_string(), "`heads` = 4 must divide `d_model` = 6");
    }
}
