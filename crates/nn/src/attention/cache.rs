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
    /// Keys and values, `[batch, capacity, key_value_heads * d_head]`, filled up to `kept`.
    filled: Option<[Tensor<B, 3>; 2]>,
    /// The number of positions in `filled`, which are the last ones.
    kept: usize,
    time: usize,
    window: Option<usize>,
}

impl<B: Backend> KeyValueCache<B> {
    /// Creates a cache for a layer whose queries see at most `window` positions, including their own. Its size does not
    /// grow with the number of positions read. `None` keeps all positions.
    pub fn with_window(window: Option<usize>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Returns the window of the layer.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// Returns the number of positions read.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Returns a cache of the first `time` positions for `copies` of the batch, which follow each other in the batch
    /// dimension.
    ///
    /// # Panics
    /// Panics if fewer positions are cached, or if the cache has a window.
    #[must_use]
    pub fn prefix(&self, time: usize, copies: usize) -> Self {
        assert!(time <= self.time, "the cache has {} positions, not {time}", self.time);
        assert_eq!(self.window, None, "a cache with a window does not keep its first positions");
        let part = |filled: &Tensor<B, 3>| filled.clone().narrow(1, 0, time).repeat_dim(0, copies);
        let filled = self.filled.as_ref().filter(|_| time > 0);
        Self { filled: filled.map(|filled| filled.each_ref().map(part)), kept: time, time, window: None }
    }

    /// Appends the keys and values of the next positions, and returns the keys and values of all positions, or of those
    /// that the appended ones see through the window.
    ///
    /// # Shapes
    /// `[batch, time, width]` to `[batch, key_time, width]`.
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
        let earlier = self.window.map_or(self.kept, |window| self.kept.min(window - 1));
        // Taking the tensors out of `self` leaves a single owner, so that they are written in place.
        let (start, [keys, values]) = match self.filled.take() {
            Some(filled) if self.kept + time <= filled[0].dims()[1] => (self.kept, filled),
            full => {
                // A window of 1 keeps no earlier position, and a narrow part must not be empty.
                let full = full.filter(|_| earlier > 0);
                // Room for as many positions as are copied, so that copies are rare.
                let needed = earlier + time + if self.window.is_some() { earlier } else { 0 };
                let capacity = needed.next_power_of_two().max(MIN_CAPACITY);
                let empty = || Tensor::zeros([batch, capacity, width], (&key.device(), key.dtype()));
                let copied = |full: Tensor<B, 3>| {
                    let last = full.narrow(1, self.kept - earlier, earlier);
                    empty().slice_assign([0..batch, 0..earlier, 0..width], last)
                };
                (earlier, full.map_or_else(|| [empty(), empty()], |full| full.map(copied)))
            }
        };
        let end = start + time;
        let filled = [
            keys.slice_assign([0..batch, start..end, 0..width], key),
            values.slice_assign([0..batch, start..end, 0..width], value),
        ];
        (self.kept, self.time) = (end, self.time + time);
        Ok(self.filled.insert(filled).clone().map(|filled| filled.narrow(1, start - earlier, earlier + time)))
    }

    /// Appends the keys and values of the next positions, and returns their queries with the keys and values that
    /// [`append`](Self::append) returns. A rotation is applied here and removed from `options`, and a bias by distance is
    /// cut to the distances within a window.
    ///
    /// # Errors
    /// Same as [`append`](Self::append). Also if the cache has a window, but the mask has another one, or rules for the
    /// positions that the cache no longer has.
    pub(super) fn extend(
        &mut self,
        projections: Projections<B>,
        options: &mut AttentionOptions<B>,
    ) -> Result<Projections<B>> {
        let mask = &options.mask;
        let has_more_rules = mask.lengths.is_some() || mask.documents.is_some() || !mask.pairs.is_empty();
        let fits = self.window.is_none() || mask.window == self.window && !has_more_rules;
        ensure(fits, Error::Shape, || {
            "a cache with a window needs a mask with the same window and no other rule but `causal`"
                .to_string()
        })?;
        let [mut query, mut key, value] = projections.split(options);
        let [_, time, _] = query.dims();
        if let ScorePosition::Rotation { cosine, sine } = &options.position {
            let [cosine, sine] = [cosine, sine].map(|table| table.clone().narrow(0, self.time, time));
            query = ops::rotate(query, cosine.clone(), sine.clone());
            key = ops::rotate(key, cosine, sine);
            options.position = ScorePosition::None;
        }
        let [keys, values] = self.append(key, value)?; // [batch, key_time, key_value_heads * d_head]
        if let ScorePosition::Bias(by_distance) = &mut options.position {
            let [_, key_time, _] = keys.dims();
            *by_distance = by_distance.clone().narrow(1, 0, time + key_time - 1);
        }
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
    fn a_window_keeps_its_last_positions_in_constant_memory() {
        let device = Default::default();
        let keys = Tensor::<NdArray, 3>::random([2, 301, 3], Distribution::Default, &device);
        for window in [1, 5, 40] {
            let mut cache = KeyValueCache::with_window(Some(window));
            let mut start = 0;
            for time in [1, 5, 61, 1, 2].into_iter().chain([1; 150]).chain([81]) {
                let part = narrowed(&keys, start, time);
                let [found, values] = cache.append(part.clone(), part * 2.0).unwrap();
                let first = (start + 1).saturating_sub(window);
                start += time;
                assert_eq!(cache.time(), start);
                let expected = narrowed(&keys, first, start - first);
                assert_eq!(values.into_data(), (expected.clone() * 2.0).into_data());
                assert_eq!(found.into_data(), expected.into_data());
                let [_, capacity, _] = cache.filled.as_ref().unwrap()[0].dims();
                assert!(capacity <= 2 * (2 * window + time).max(MIN_CAPACITY), "{window}: {capacity}");
            }
        }
    }

    #[test]
    fn a_window_needs_its_own_mask() {
        let device = Default::default();
        let attention =
            crate::attention::MultiHeadAttentionConfig::new(6, 2).init::<NdArray>(&device).unwrap();
        let read = |mask: Mask<NdArray>| {
            let mut cache = KeyValueCache::with_window(Some(3));
            let input = AttentionInput::new(Tensor::ones([1, 2, 6], &device), &mask, &ScorePosition::None);
            let input = AttentionInput { cache: Some(&mut cache), ..input };
            attention.forward_hooked(input, AttentionHooks::standalone(&mut NoHooks)).map(|_| ())
        };
        assert!(read(Mask::causal().with_window(3)).is_ok());
        let windowed = || Mask::causal().with_window(3);
        let documents = windowed().with_documents(&[vec![0, 1]]);
        for mask in [Mask::causal(), Mask::causal().with_window(2), windowed().with_lengths(&[2]), documents]
        {
            assert!(read(mask).unwrap_err().to_string().contains("the same window"));
        }
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
