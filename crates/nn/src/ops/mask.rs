//! Which keys a query may not see, and the softmax that respects it.

use std::ops::Range;

use burn::tensor::{Bool, Tensor, activation::softmax, backend::Backend};

use crate::{Error, Result};

/// Which keys each query may not see: everything that any part hides is hidden.
///
/// In every part `true` means hidden. A query whose keys are all hidden gets weights and a
/// context of zeros.
#[derive(Debug, Clone)]
pub struct Mask<B: Backend> {
    /// Hides keys that come after the query. With fewer queries than keys, the queries are the
    /// last ones, as when keys of earlier steps are cached.
    pub causal: bool,
    /// Hides keys from every query, as padding, `[batch, key_time]`.
    pub keys: Option<Tensor<B, 2, Bool>>,
    /// Hide single pairs, each `[batch, query_time, key_time]`, or with a key axis of 1 whole queries.
    pub pairs: Vec<Tensor<B, 3, Bool>>,
}

impl<B: Backend> Mask<B> {
    /// Hides nothing: every query sees every key.
    pub fn none() -> Self {
        Self { causal: false, keys: None, pairs: Vec::new() }
    }

    /// Hides the future: a query sees itself and what came before.
    pub fn causal() -> Self {
        Self { causal: true, ..Self::none() }
    }

    /// Also hides these keys from every query, as padding: `[batch, key_time]`.
    pub fn hide_keys(self, keys: Tensor<B, 2, Bool>) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// Also hides these pairs of query and key, `[batch, query_time, key_time]`: memory then grows as the square
    /// of the time.
    pub fn hide_pairs(mut self, pairs: Tensor<B, 3, Bool>) -> Self {
        self.pairs.push(pairs);
        self
    }

    /// Also hides everything from these queries, `[batch, query_time]`: their contexts are zeros. Memory grows as
    /// for pairs.
    pub fn hide_queries(self, queries: Tensor<B, 2, Bool>) -> Self {
        self.hide_pairs(queries.unsqueeze_dim(2))
    }

    /// The mask of some queries and the first `keys` keys. With a causal one these queries are the last of so many
    /// keys.
    pub(super) fn block(&self, queries: Range<usize>, keys: usize) -> Self {
        let pairs = self.pairs.iter().map(|pairs| {
            let [_, _, key_time] = pairs.dims();
            pairs.clone().narrow(1, queries.start, queries.len()).narrow(2, 0, keys.min(key_time))
        });
        let of_keys = self.keys.clone().map(|hidden| hidden.narrow(1, 0, keys));
        Self { causal: self.causal, keys: of_keys, pairs: pairs.collect() }
    }

    /// Whether a query may find all its keys hidden. The future alone never hides them all:
    /// a query sees itself.
    pub fn may_hide_all(&self) -> bool {
        self.keys.is_some() || !self.pairs.is_empty()
    }

    /// Whether every part fits queries and keys of these sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] naming the part, its shape and the shape that fits.
    pub fn check(&self, batch: usize, query_time: usize, key_time: usize) -> Result<()> {
        let fits = |name: &str, shape: &[usize], wanted: &[usize]| {
            if shape == wanted {
                return Ok(());
            }
            Err(Error::Shape(format!("the mask of {name} is {shape:?}, but it must be {wanted:?}")))
        };
        if self.causal && query_time > key_time {
            return Err(Error::Shape(format!(
                "a causal mask needs as many keys as queries or more, but there are {query_time} queries \
                 and {key_time} keys"
            )));
        }
        if let Some(keys) = &self.keys {
            fits("keys [batch, key_time]", &keys.dims(), &[batch, key_time])?;
        }
        for pairs in &self.pairs {
            let [_, _, keys] = pairs.dims();
            let wanted = [batch, query_time, if keys == 1 { 1 } else { key_time }];
            fits("pairs [batch, query_time, key_time]", &pairs.dims(), &wanted)?;
        }
        Ok(())
    }

    /// All hidden pairs and queries, `[batch, query_time, key_time]`; none where there are none.
    pub(super) fn pairs(
        &self,
        batch: usize,
        query_time: usize,
        key_time: usize,
    ) -> Option<Tensor<B, 3, Bool>> {
        let whole = |pairs: &Tensor<B, 3, Bool>| pairs.clone().expand([batch, query_time, key_time]);
        self.pairs.iter().map(whole).reduce(Tensor::bool_or)
    }

    /// All parts in one tensor, or none where nothing is hidden.
    ///
    /// # Shapes
    /// The result is `[batch, 1, query_time, key_time]`, with a batch of 1 where all entries are
    /// alike; the axis of size 1 stands for every head.
    pub fn hidden(
        &self,
        query_time: usize,
        key_time: usize,
        device: &B::Device,
    ) -> Option<Tensor<B, 4, Bool>> {
        let causal = self.causal.then(|| {
            let ahead = (key_time - query_time) as i64;
            Tensor::<B, 4, Bool>::tril_mask([1, 1, query_time, key_time], ahead, device)
        });
        let keys = self.keys.clone().map(|keys| keys.unsqueeze_dims(&[1, 2])); // [batch, 1, 1, key_time]
        let pairs = self.pairs.iter().map(|pairs| pairs.clone().unsqueeze_dim(1)); // [batch, 1, query_time, key_time]
        let parts = causal.into_iter().chain(keys).chain(pairs);
        let batch = parts.clone().map(|part| part.dims()[0]).max()?;
        parts.map(|part| part.expand([batch, 1, query_time, key_time])).reduce(Tensor::bool_or)
    }
}

/// Softmax over the keys in which hidden ones get a weight of exactly zero.
///
/// # Shapes
/// `scores` and the result `[batch, heads, query_time, key_time]`.
pub fn masked_softmax<B: Backend>(scores: Tensor<B, 4>, mask: &Mask<B>) -> Tensor<B, 4> {
    let [batch, heads, query_time, key_time] = scores.dims();
    let Some(hidden) = mask.hidden(query_time, key_time, &scores.device()) else {
        return softmax(scores, 3);
    };
    let hidden = hidden.expand([batch, heads, query_time, key_time]);
    // The lowest finite number, not -inf, from which a row without any visible key would become
    // NaN. Beside a visible key its exponential is exactly zero all the same.
    let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
    let weights = softmax(scores.mask_fill(hidden.clone(), lowest), 3);
    if mask.may_hide_all() { weights.mask_fill(hidden, 0.0) } else { weights }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    type B = NdArray;

    fn bools<const D: usize>(values: &[u8], shape: [usize; D]) -> Tensor<B, D, Bool> {
        let values: Vec<bool> = values.iter().map(|&value| value == 1).collect();
        Tensor::from_data(burn::tensor::TensorData::new(values, shape), &Default::default())
    }

    fn hidden(mask: &Mask<B>, query_time: usize, key_time: usize) -> Vec<u8> {
        let hidden = mask.hidden(query_time, key_time, &Default::default()).unwrap();
        hidden.into_data().to_vec::<bool>().unwrap().into_iter().map(u8::from).collect()
    }

    #[test]
    fn the_future_of_the_last_queries_is_hidden() {
        assert_eq!(hidden(&Mask::causal(), 3, 3), [0, 1, 1, 0, 0, 1, 0, 0, 0]);
        assert_eq!(hidden(&Mask::causal(), 2, 5), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_any_part_hides_is_hidden() {
        let mask = Mask::causal()
            .hide_keys(bools(&[1, 0, 0, 0, 0, 0], [2, 3]))
            .hide_queries(bools(&[0, 0, 0, 1, 0, 0], [2, 3]));
        let first = [1, 1, 1, 1, 0, 1, 1, 0, 0];
        let second = [1, 1, 1, 0, 0, 1, 0, 0, 0];
        assert_eq!(hidden(&mask, 3, 3), [first, second].concat());
        let pairs = Mask::none().hide_pairs(bools(&[0, 1, 1, 0, 0, 0], [1, 2, 3]));
        assert_eq!(hidden(&pairs, 2, 3), [0, 1, 1, 0, 0, 0]);
        assert!(Mask::<B>::none().hidden(2, 3, &Default::default()).is_none());
    }

    #[test]
    fn a_mask_of_the_wrong_size_names_both_shapes() {
        let keys = Mask::none().hide_keys(bools(&[0; 6], [2, 3]));
        assert!(keys.check(2, 5, 3).is_ok());
        let message = keys.check(2, 3, 5).unwrap_err().to_string();
        assert_eq!(message, "the mask of keys [batch, key_time] is [2, 3], but it must be [2, 5]");
        let pairs = Mask::none().hide_pairs(bools(&[0; 6], [1, 2, 3]));
        assert!(pairs.check(1, 3, 2).unwrap_err().to_string().contains("[1, 3, 2]"));
        let queries = Mask::none().hide_queries(bools(&[0; 6], [2, 3]));
        assert!(queries.check(2, 3, 5).is_ok() && queries.check(2, 5, 3).is_err());
        assert!(Mask::<B>::causal().check(1, 3, 2).unwrap_err().to_string().contains("3 queries"));
    }
}
