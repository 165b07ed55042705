//! The key-value cache: a token's key and value do not change when later tokens come, so they are
//! computed once and kept. A step then costs one token's projections, and attention over what is
//! kept:
//!
//! ```text
//! q_t, k_t, v_t = x_t W_qkv
//! context_t     = softmax(q_t [k_1 | .. | k_t]^T / sqrt(d_head)) [v_1 | .. | v_t]
//! ```
//!
//! Grouped heads keep the few keys and values that they share. Rotary keys are kept turned: their
//! angle is that of their own place. The memory of an encoder is projected once ([`Memory`]).

use burn::tensor::{Bool, Tensor, backend::Backend};

use super::check_width;
use super::cross::CrossAttention;
use super::multi_head::MultiHeadAttention;
use crate::ops::{self, Mask, ScorePosition};
use crate::{Error, Result};

/// The capacity of a new cache in places; it doubles when it is full.
const LEAST_CAPACITY: usize = 64;

/// The keys and values of the places that one self-attention has read.
#[derive(Debug, Clone)]
pub struct KeyValueCache<B: Backend> {
    /// Keys and values, `[batch, capacity, key_value_heads * d_head]`, filled up to `time`.
    filled: Option<[Tensor<B, 3>; 2]>,
    time: usize,
}

impl<B: Backend> Default for KeyValueCache<B> {
    fn default() -> Self {
        Self { filled: None, time: 0 }
    }
}

impl<B: Backend> KeyValueCache<B> {
    /// How many places were read.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Appends the keys and values of the next places, and returns those of all places.
    ///
    /// # Shapes
    /// `[batch, time, width]` to `[batch, all_time, width]`.
    ///
    /// # Panics
    /// Where batch or width differ from those of earlier places: a programmer's error.
    pub fn append(&mut self, key: Tensor<B, 3>, value: Tensor<B, 3>) -> [Tensor<B, 3>; 2] {
        let [batch, time, width] = key.dims();
        let (start, end) = (self.time, self.time + time);
        let (device, dtype) = (key.device(), key.dtype());
        // Taken out, so that the tensors have one owner and are written in place.
        let [keys, values] = match self.filled.take() {
            Some(filled) if end <= filled[0].dims()[1] => filled,
            full => {
                let capacity = end.next_power_of_two().max(LEAST_CAPACITY);
                let empty = || Tensor::zeros([batch, capacity, width], (&device, dtype));
                match full {
                    None => [empty(), empty()],
                    Some(full) => full.map(|full| {
                        let read = full.narrow(1, 0, start);
                        empty().slice_assign([0..batch, 0..start, 0..width], read)
                    }),
                }
            }
        };
        let filled = [
            keys.slice_assign([0..batch, start..end, 0..width], key),
            values.slice_assign([0..batch, start..end, 0..width], value),
        ];
        self.time = end;
        self.filled.insert(filled).clone().map(|filled| filled.narrow(1, 0, end))
    }
}

impl<B: ops::Backend> MultiHeadAttention<B> {
    /// [`Self::forward_onto`] for the places that follow those in the cache, to which their keys and values
    /// are appended. Every place sees itself and what came before.
    ///
    /// # Shapes
    /// `residual`, `input` and the result `[batch, time, d_model]`; `position` is for the last
    /// `time` of all places.
    ///
    /// # Errors
    /// [`Error::Shape`] where input or position do not fit the module.
    pub fn forward_cached(
        &self,
        residual: Tensor<B, 3>,
        input: Tensor<B, 3>,
        position: &ScorePosition<B>,
        cache: &mut KeyValueCache<B>,
    ) -> Result<Tensor<B, 3>> {
        let [_, time, _] = input.dims();
        let all_time = cache.time() + time;
        check_width("input", input.dims(), self.heads * self.d_head)?;
        position.check(self.heads, self.d_head, time, all_time)?;

        // A single place is the last one: nothing lies ahead of it.
        let mask = if time == 1 { Mask::none() } else { Mask::causal() };
        let mut options = self.options(mask, position.clone());
        let qkv = ops::linear(&self.qkv, input); // [batch, time, (heads + 2 * key_value_heads) * d_head]
        let [mut query, mut key, value] = ops::split_packed(qkv, &options);
        if let ScorePosition::Rotation { cosine, sine } = position {
            let last = |table: &Tensor<B, 2>| table.clone().narrow(0, all_time - time, time);
            let (cosine, sine) = (last(cosine), last(sine));
            query = turn(query, self.heads, cosine.clone(), sine.clone());
            key = turn(key, self.key_value_heads, cosine, sine);
            options.position = ScorePosition::None;
        }
        let [keys, values] = cache.append(key, value); // [batch, all_time, key_value_heads * d_head]
        let context = ops::attention(query, keys, values, options);
        Ok(ops::linear_residual(&self.output, &self.output_dropout, context, residual))
    }
}

/// Turns each head by its places: `[batch, time, heads * d_head]`, in and out.
fn turn<B: Backend>(
    input: Tensor<B, 3>,
    heads: usize,
    cosine: Tensor<B, 2>,
    sine: Tensor<B, 2>,
) -> Tensor<B, 3> {
    let [batch, time, width] = input.dims();
    let split = input.reshape([batch, time, heads, width / heads]).swap_dims(1, 2);
    ops::rotate(split, cosine, sine).swap_dims(1, 2).reshape([batch, time, width])
}

/// A memory's keys and values for one cross-attention, computed once.
#[derive(Debug, Clone)]
pub struct Memory<B: Backend> {
    /// `[batch, memory_time, d_model]`.
    key: Tensor<B, 3>,
    /// As `key`.
    value: Tensor<B, 3>,
    mask: Mask<B>,
}

impl<B: ops::Backend> CrossAttention<B> {
    /// Projects a memory, in which `padding` is hidden.
    ///
    /// # Shapes
    /// `memory` `[batch, memory_time, d_model]`, `padding` `[batch, memory_time]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the memory does not fit the module, or the padding the memory.
    pub fn remember(&self, memory: Tensor<B, 3>, padding: Tensor<B, 2, Bool>) -> Result<Memory<B>> {
        let [batch, time, _] = memory.dims();
        let [d_model, _] = self.key.weight.shape().dims();
        check_width("memory", memory.dims(), d_model)?;
        if padding.dims() != [batch, time] {
            return Err(Error::Shape(format!(
                "the memory is {:?}, but its padding {:?}",
                memory.dims(),
                padding.dims()
            )));
        }
        Ok(Memory {
            key: ops::linear(&self.key, memory.clone()),
            value: ops::linear(&self.value, memory),
            mask: Mask::none().hide_keys(padding),
        })
    }

    /// [`Self::forward_onto`] over a memory that was projected before.
    ///
    /// # Shapes
    /// `residual`, `query` and the result `[batch, time, d_model]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the query does not fit the module or the memory.
    pub fn forward_cached(
        &self,
        residual: Tensor<B, 3>,
        query: Tensor<B, 3>,
        memory: &Memory<B>,
    ) -> Result<Tensor<B, 3>> {
        let [batch, time, _] = query.dims();
        let [_, memory_time, d_model] = memory.key.dims();
        check_width("query", query.dims(), d_model)?;
        memory.mask.check(batch, time, memory_time)?;
        let query = ops::linear(&self.query, query);
        let options = self.options(memory.mask.clone());
        let context = ops::attention(query, memory.key.clone(), memory.value.clone(), options);
        Ok(ops::linear_residual(&self.output, &self.output_dropout, context, residual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use burn_ndarray::NdArray;

    #[test]
    fn the_cache_returns_all_that_was_appended_in_order_whatever_its_capacity() {
        let device = Default::default();
        let random = || Tensor::<NdArray, 3>::random([2, 301, 3], Distribution::Default, &device);
        let (keys, values) = (random(), random());
        let mut cache = KeyValueCache::default();
        let mut start = 0;
        for time in [1, 5, 61, 1, 2, 150, 81] {
            let part = |all: &Tensor<NdArray, 3>| all.clone().narrow(1, start, time);
            let [all_keys, all_values] = cache.append(part(&keys), part(&values));
            start += time;
            assert_eq!(cache.time(), start);
            assert_eq!(all_keys.into_data(), keys.clone().narrow(1, 0, start).into_data());
            assert_eq!(all_values.into_data(), values.clone().narrow(1, 0, start).into_data());
        }
        assert_eq!(start, 301);
    }

    #[test]
    fn what_does_not_fit_names_its_shape() {
        let device = Default::default();
        let attention = crate::attention::MultiHeadAttentionConfig::new(6, 2).init::<NdArray>(&device);
        let zeros = |width| Tensor::zeros([1, 2, width], &device);
        let forward = |width| {
            let mut cache = KeyValueCache::default();
            let attention = attention.as_ref().unwrap();
            attention.forward_cached(zeros(6), zeros(width), &ScorePosition::None, &mut cache)
        };
        assert!(forward(6).is_ok());
        assert!(forward(5).unwrap_err().to_string().contains("[1, 2, 5]"));
    }
}
