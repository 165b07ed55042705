//! The KV cache: a token's key and value do not depend on later tokens, so they are computed once and cached. Each step
//! then costs the projections of one token and attention over the cache:
//!
//! ```text
//! q_t, k_t, v_t = x_t W_qkv
//! context_t     = softmax(q_t [k_1 | .. | k_t]^T / sqrt(d_head)) [v_1 | .. | v_t]
//! ```
//!
//! Grouped heads cache only the keys and values that they share. Rotary keys are cached after their rotation, since the
//! angle depends only on the key's own position. [`AttentionInput`](super::AttentionInput) takes a cache.

use burn::tensor::{Tensor, backend::Backend};

use crate::error::{Error, Result, ensure};
use crate::ops::{self, AttentionOptions, Projections, ScorePosition};

/// The smallest capacity of a cache, in positions; the capacity doubles when the cache is full.
const MIN_CAPACITY: usize = 64;

/// The keys and values of the positions that a self-attention layer has read.
#[derive(Debug, Clone, Default)]
pub struct KeyValueCache<B: Backend> {
    /// Keys and values, `[batch, capacity, key_value_heads * d_head]`, filled up to `time`.
    filled: Option<[Tensor<B, 3>; 2]>,
    time: usize,
}

impl<B: Backend> KeyValueCache<B> {
    /// Returns the number of positions read.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Returns a cache of the first `time` positions for `copies` of the batch, which follow each other in the batch
    /// dimension.
    ///
    /// # Panics
    /// Panics if fewer positions are cached.
    #[must_use]
    pub fn prefix(&self, time: usize, copies: usize) -> Self {
        assert!(time <= self.time, "the cache has {} positions, not {time}", self.time);
        let part = |filled: &Tensor<B, 3>| filled.clone().narrow(1, 0, time).repeat_dim(0, copies);
        let filled = self.filled.as_ref().filter(|_| time > 0);
        Self { filled: filled.map(|filled| filled.each_ref().map(part)), time }
    }

    /// Appends the keys and values of the next positions, and returns the keys and values of all positions.
    ///
    /// # Shapes
    /// `[batch, time, width]` to `[batch, all_time, width]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if keys and values differ in shape, or if their batch or width differs from that of earlier
    /// positions. The cache is then unchanged.
    pub fn append(&mut self, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Result<[Tensor<B, 3>; 2]> {
        let [batch, time, width] = key.dims();
        ensure(value.dims() == key.dims(), Error::Shape, || {
            format!(
                "keys are {:?}, but values are {:?}; both must have the same shape",
                key.dims(),
                value.dims()
            )
        })?;
        if let Some([filled, _]) = &self.filled {
            let [filled_batch, _, filled_width] = filled.dims();
            ensure((batch, width) == (filled_batch, filled_width), Error::Shape, || {
                format!(
                    "the cache has [batch, width] = [{filled_batch}, {filled_width}], but [{batch}, {width}] is \
                     appended; start a new cache"
                )
            })?;
        }
        let (start, end) = (self.time, self.time + time);
        // Taking the tensors out of `self` leaves a single owner, so that they are written in place.
        let [keys, values] = match self.filled.take() {
            Some(filled) if end <= filled[0].dims()[1] => filled,
            full => {
                let capacity = end.next_power_of_two().max(MIN_CAPACITY);
                let empty = || Tensor::zeros([batch, capacity, width], (&key.device(), key.dtype()));
                let copied = |full: Tensor<B, 3>| {
                    empty().slice_assign([0..batch, 0..start, 0..width], full.narrow(1, 0, start))
                };
                full.map_or_else(|| [empty(), empty()], |full| full.map(copied))
            }
        };
        let filled = [
            keys.slice_assign([0..batch, start..end, 0..width], key),
            values.slice_assign([0..batch, start..end, 0..width], value),
        ];
        self.time = end;
        Ok(self.filled.insert(filled).clone().map(|filled| filled.narrow(1, 0, end)))
    }

    /// Appends the keys and values of the next positions, and returns their queries with the keys and values of all
    /// positions. A rotation is applied here and removed from `options`.
    ///
    /// # Errors
    /// Same as [`append`](Self::append).
    pub(super) fn extend(
        &mut self,
        projections: Projections<B>,
        options: &mut AttentionOptions<B>,
    ) -> Result<Projections<B>> {
        let [mut query, mut key, value] = projections.split(options);
        let [_, time, _] = query.dims();
        if let ScorePosition::Rotation { cosine, sine } = &options.position {
            let [cosine, sine] = [cosine, sine].map(|table| table.clone().narrow(0, self.time, time));
            query = ops::rotate(query, cosine.clone(), sine.clone());
            key = ops::rotate(key, cosine, sine);
            options.position = ScorePosition::None;
        }
        let [keys, values] = self.append(key, value)?; // [batch, all_time, key_value_heads * d_head]
        Ok(Projections::Separate([query, keys, values]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionHooks, AttentionInput, Mask};
    use crate::hooks::NoHooks;
    use burn::tensor::Distribution;
    use burn_ndarray::NdArray;

    fn narrowed(all: &Tensor<NdArray, 3>, start: usize, time: usize) -> Tensor<NdArray, 3> {
        all.clone().narrow(1, start, time)
    }

    #[test]
    fn cache_returns_everything_appended_in_order() {
        let device = Default::default();
        let random = || Tensor::<NdArray, 3>::random([2, 301, 3], Distribution::Default, &device);
        let (keys, values) = (random(), random());
        let mut cache = KeyValueCache::default();
        let mut start = 0;
        for time in [1, 5, 61, 1, 2, 150, 81] {
            let part = |all: &Tensor<NdArray, 3>| all.clone().narrow(1, start, time);
            let [all_keys, all_values] = cache.append(part(&keys), part(&values)).unwrap();
            start += time;
            assert_eq!(cache.time(), start);
            assert_eq!(all_keys.into_data(), keys.clone().narrow(1, 0, start).into_data());
            assert_eq!(all_values.into_data(), values.clone().narrow(1, 0, start).into_data());
        }
        assert_eq!(start, 301);
        let mut prefix = cache.prefix(70, 3);
        let [next, all] = [narrowed(&keys, 70, 2), narrowed(&keys, 0, 72)].map(|part| part.repeat_dim(0, 3));
        let [found, _] = prefix.append(next.clone(), next).unwrap();
        assert_eq!(found.into_data(), all.into_data());
    }

    #[test]
    fn different_batch_size_is_an_error_without_effect() {
        let device = Default::default();
        let zeros = |shape: [usize; 3]| Tensor::<NdArray, 3>::zeros(shape, &device);
        let mut cache = KeyValueCache::default();
        cache.append(zeros([2, 5, 3]), zeros([2, 5, 3])).unwrap();
        for shape in [[1, 1, 3], [7, 1, 3], [2, 1, 11]] {
            let error = cache.append(zeros(shape), zeros(shape)).unwrap_err().to_string();
            let [batch, _, width] = shape;
            assert!(error.contains("[2, 3]") && error.contains(&format!("[{batch}, {width}]")), "{error}");
            assert_eq!(cache.time(), 5);
        }
        assert!(cache.append(zeros([2, 1, 3]), zeros([2, 7, 3])).is_err());
        assert_eq!(cache.append(zeros([2, 1, 3]), zeros([2, 1, 3])).unwrap()[0].dims(), [2, 6, 3]);
    }

    #[test]
    fn wrong_input_shape_is_reported() {
        let device = Default::default();
        let attention = crate::attention::MultiHeadAttentionConfig::new(6, 2).init::<NdArray>(&device);
        let zeros = |width| Tensor::zeros([1, 2, width], &device);
        let forward = |width| {
            let mut cache = KeyValueCache::default();
            let (attention, mask) = (attention.as_ref().unwrap(), Mask::causal());
            let input = AttentionInput::new(zeros(width), &mask, &ScorePosition::None);
            let input = AttentionInput { cache: Some(&mut cache), ..input };
            attention.forward_hooked(input, AttentionHooks::standalone(&mut NoHooks))
        };
        assert!(forward(6).is_ok());
        assert!(forward(5).unwrap_err().to_string().contains("[1, 2, 5]"));
    }
}
