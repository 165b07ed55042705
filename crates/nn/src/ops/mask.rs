//! Attention masks, and the softmax that applies them.
//!
//! [`Mask`] describes hidden keys by rules. Only [`Mask::lower`] translates the rules to the first and last visible key
//! of each query. All forms of attention take this result: reference, blockwise, fused, and with a cache.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Bool, Int, Tensor, TensorData, activation::softmax, backend::Backend};

pub use crate::kernels::attention::KeyRange;
use crate::kernels::attention::span;
use crate::{Error, Result};

/// The rules that hide keys from queries: a key is hidden if any rule hides it.
///
/// If there are fewer queries than keys, the queries are the last positions, as with a KV cache. In tensors, `true`
/// means hidden. A query whose keys are all hidden gets weights and a context of zeros.
#[derive(Debug, Clone)]
pub struct Mask<B: Backend> {
    /// Hides keys after the query.
    pub causal: bool,
    /// Hides keys at a distance of at least `window` positions from the query, on both sides: a sliding window (Beltagy
    /// et al., 2020, arXiv 2004.05150). With a window of 1, a query sees only itself.
    pub window: Option<usize>,
    /// The length of each sequence without its padding, which is hidden, `[batch]`.
    pub lengths: Option<Arc<[usize]>>,
    /// The document of each key, `[batch][key_time]`, if several documents are packed into a sequence. A query sees the
    /// keys around it up to the first one of another document.
    pub documents: Option<Arc<[Vec<u32>]>>,
    /// Masks that hide single pairs, each `[batch, query_time, key_time]`; an axis of size 1 is broadcast.
    pub pairs: Vec<Tensor<B, 3, Bool>>,
}

impl<B: Backend> Mask<B> {
    /// Creates a mask that hides nothing.
    pub fn none() -> Self {
        Self { causal: false, window: None, lengths: None, documents: None, pairs: Vec::new() }
    }

    /// Creates a causal mask: a query sees itself and earlier keys.
    pub fn causal() -> Self {
        Self { causal: true, ..Self::none() }
    }

    /// Also hides keys at a distance of `window` or more from the query.
    pub fn with_window(self, window: usize) -> Self {
        Self { window: Some(window), ..self }
    }

    /// Also hides the padding of each sequence: the keys from its length on. `lengths` is `[batch]`.
    pub fn with_lengths(self, lengths: &[usize]) -> Self {
        Self { lengths: Some(lengths.into()), ..self }
    }

    /// Also hides from each query the keys of other documents, given the document of each key, `[batch][key_time]`.
    pub fn with_documents(self, documents: &[Vec<u32>]) -> Self {
        Self { documents: Some(documents.into()), ..self }
    }

    /// Also hides these keys from every query, wherever they are: `[batch, key_time]`.
    pub fn hide_keys(self, keys: Tensor<B, 2, Bool>) -> Self {
        self.hide_pairs(keys.unsqueeze_dim(1))
    }

    /// Also hides these pairs of query and key, `[batch, query_time, key_time]`. Memory then grows quadratically with
    /// the sequence length.
    pub fn hide_pairs(mut self, pairs: Tensor<B, 3, Bool>) -> Self {
        self.pairs.push(pairs);
        self
    }

    /// Also hides all keys from these queries, `[batch, query_time]`, whose contexts are then zeros. Memory grows as
    /// with [`Self::hide_pairs`].
    pub fn hide_queries(self, queries: Tensor<B, 2, Bool>) -> Self {
        self.hide_pairs(queries.unsqueeze_dim(2))
    }

    /// Returns true if sequences may have different visible keys, so that each needs a matrix of its own where masks are
    /// stored as matrices.
    pub fn differs_between_sequences(&self) -> bool {
        self.lengths.is_some() || self.documents.is_some() || !self.pairs.is_empty()
    }

    /// Checks that every rule fits queries and keys of these sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] with the rule, its shape and the expected shape; [`Error::Argument`] for a window of 0.
    pub fn check(&self, batch: usize, query_time: usize, key_time: usize) -> Result<()> {
        let fits = |name: &str, axes: &str, shape: &[usize], wanted: &[usize]| {
            if shape == wanted {
                return Ok(());
            }
            Err(Error::Shape(format!("`mask.{name}` is {shape:?}, but must be {axes} = {wanted:?}")))
        };
        let Self { causal, window, lengths, documents, pairs } = self;
        Error::check(*window != Some(0), "window", 0, "must be at least 1, because a query sees itself")?;
        let ordered = [("causal", *causal), ("window", window.is_some()), ("documents", documents.is_some())];
        if let Some((name, _)) = ordered.iter().find(|(_, is_set)| *is_set && query_time > key_time) {
            return Err(Error::Shape(format!(
                "a mask with `{name}` needs at least as many keys as queries, but there are {query_time} queries \
                 and {key_time} keys"
            )));
        }
        if let Some(lengths) = lengths {
            fits("lengths", "[batch]", &[lengths.len()], &[batch])?;
            if let Some(long) = lengths.iter().find(|length| **length > key_time) {
                return Err(Error::Shape(format!(
                    "`mask.lengths` contains {long}, more than the {key_time} keys"
                )));
            }
        }
        if let Some(documents) = documents {
            let wrong = documents.iter().map(Vec::len).find(|time| *time != key_time);
            fits(
                "documents",
                "[batch][key_time]",
                &[documents.len(), wrong.unwrap_or(key_time)],
                &[batch, key_time],
            )?;
        }
        for pairs in pairs {
            let [sequences, queries, keys] = pairs.dims();
            let broadcast = |size: usize, all: usize| if size == 1 { 1 } else { all };
            let wanted =
                [broadcast(sequences, batch), broadcast(queries, query_time), broadcast(keys, key_time)];
            fits("pairs", "[batch, query_time, key_time]", &pairs.dims(), &wanted)?;
        }
        Ok(())
    }

    /// Translates the mask for queries and keys of these sizes, which must have passed [`check`](Self::check).
    pub(super) fn lower(&self, query_time: usize, key_time: usize) -> LoweredMask<B> {
        let visible = self.visible_keys(query_time, key_time);
        let hides = visible.iter().any(|keys| keys.range() != (0..key_time));
        LoweredMask {
            visible: hides.then_some(visible),
            pairs: self.hidden_pairs(key_time),
            query_time,
            key_time,
        }
    }

    /// Returns the visible keys of each query, before single pairs are hidden: `[batch, query_time]`, or `[query_time]`
    /// if all sequences are alike.
    pub fn visible_keys(&self, query_time: usize, key_time: usize) -> Vec<KeyRange> {
        let Self { causal, window, lengths, documents, .. } = self;
        let num_lengths = lengths.as_ref().map(|lengths| lengths.len());
        let batch = num_lengths.or(documents.as_ref().map(|documents| documents.len())).unwrap_or(1);
        let farthest = window.map_or(usize::MAX, |window| window - 1);
        let mut visible = Vec::with_capacity(batch * query_time);
        for sequence in 0..batch {
            let length = lengths.as_ref().map_or(key_time, |lengths| lengths[sequence]);
            let documents = documents.as_ref().map(|documents| &documents[sequence]);
            let mut document = if documents.is_some() { 0..0 } else { 0..key_time };
            for query in 0..query_time {
                let position = (key_time + query).saturating_sub(query_time);
                if let Some(documents) = documents
                    && !document.contains(&position)
                {
                    document = document_at(documents, position);
                }
                let last = if *causal { position } else { position.saturating_add(farthest) };
                let end = document.end.min(length).min(last.saturating_add(1));
                let first = document.start.max(position.saturating_sub(farthest)).min(end);
                visible.push(KeyRange { first: first as u32, end: end as u32 });
            }
        }
        visible
    }

    /// Returns all hidden pairs in one tensor; `None` if there are none. Each of its first two axes has size 1 if
    /// that axis has size 1 in all of `pairs`.
    fn hidden_pairs(&self, key_time: usize) -> Option<Tensor<B, 3, Bool>> {
        let shapes = self.pairs.iter().map(|pairs| pairs.dims());
        let [batch, queries, _] = shapes.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1]), key_time])?;
        let shape = [batch, queries, key_time];
        self.pairs.iter().map(|pairs| pairs.clone().expand(shape)).reduce(Tensor::bool_or)
    }

    /// Returns all rules in one tensor, or `None` if nothing is hidden.
    ///
    /// # Shapes
    /// The result is `[batch, 1, query_time, key_time]`, with a batch of 1 if all entries are alike; the axis of size 1
    /// is broadcast over the heads.
    pub fn hidden(
        &self,
        query_time: usize,
        key_time: usize,
        device: &B::Device,
    ) -> Option<Tensor<B, 4, Bool>> {
        self.lower(query_time, key_time).hidden(device)
    }
}

/// Returns the range of adjacent positions around `position` that belong to the same document.
fn document_at(documents: &[u32], position: usize) -> Range<usize> {
    let is_other = |document: &u32| *document != documents[position];
    let start = documents[..position].iter().rposition(is_other).map_or(0, |other| other + 1);
    let end =
        documents[position..].iter().position(is_other).map_or(documents.len(), |other| position + other);
    start..end
}

/// A [`Mask`] translated for queries and keys of given sizes, as all forms of attention take it.
#[derive(Debug, Clone)]
pub(super) struct LoweredMask<B: Backend> {
    /// The visible keys of each query, `[batch, query_time]`, or `[query_time]` if all sequences are alike; `None` if
    /// every query sees every key.
    pub visible: Option<Vec<KeyRange>>,
    /// Hidden pairs among the visible ones, `[batch, query_time, key_time]`; the first two axes are broadcast if of
    /// size 1.
    pub pairs: Option<Tensor<B, 3, Bool>>,
    pub query_time: usize,
    pub key_time: usize,
}

impl<B: Backend> LoweredMask<B> {
    /// Returns the range of keys that any of these queries sees; the first key if they see none.
    pub fn keys(&self, queries: Range<usize>) -> Range<usize> {
        let Some(visible) = &self.visible else { return 0..self.key_time };
        let rows = visible.chunks_exact(self.query_time).flat_map(|rows| &rows[queries.clone()]);
        span(rows.map(|keys| keys.range())).unwrap_or(0..self.key_time.min(1))
    }

    /// Returns the mask of a block of queries and keys.
    pub fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Self {
        let visible = self.visible.as_ref().map(|visible| {
            let rows = visible.chunks_exact(self.query_time).flat_map(|rows| &rows[queries.clone()]);
            let within = |key: u32| (key as usize).clamp(keys.start, keys.end) - keys.start;
            rows.map(|row| KeyRange { first: within(row.first) as u32, end: within(row.end) as u32 })
                .collect()
        });
        let pairs = self.pairs.clone().map(|pairs| {
            let [_, rows, _] = pairs.dims();
            let rows = if rows == 1 { pairs } else { pairs.narrow(1, queries.start, queries.len()) };
            rows.narrow(2, keys.start, keys.len())
        });
        Self { visible, pairs, query_time: queries.len(), key_time: keys.len() }
    }

    /// Returns everything hidden in one tensor, `[batch, 1, query_time, key_time]`; see [`Mask::hidden`].
    fn hidden(&self, device: &B::Device) -> Option<Tensor<B, 4, Bool>> {
        let Self { query_time, key_time, .. } = *self;
        let out_of_range = self.visible.as_ref().map(|visible| {
            let batch = visible.len() / query_time;
            let ends = |end: fn(&KeyRange) -> u32| {
                let ends: Vec<i64> = visible.iter().map(|keys| end(keys).into()).collect();
                let ends = TensorData::new(ends, [batch, 1, query_time, 1]);
                Tensor::<B, 4, Int>::from_data(ends, device).expand([batch, 1, query_time, key_time])
            };
            let keys = Tensor::<B, 1, Int>::arange(0..key_time as i64, device).reshape([1, 1, 1, key_time]);
            let keys = keys.expand([batch, 1, query_time, key_time]);
            let behind = keys.clone().greater_equal(ends(|keys| keys.end));
            match visible.iter().all(|keys| keys.first == 0) {
                true => behind,
                false => behind.bool_or(keys.lower(ends(|keys| keys.first))),
            }
        });
        let pairs = self.pairs.clone().map(|pairs| pairs.unsqueeze_dim::<4>(1)); // [batch, 1, query_time, key_time]
        let parts = out_of_range.into_iter().chain(pairs);
        let batch = parts.clone().map(|part| part.dims()[0]).max()?;
        parts.map(|part| part.expand([batch, 1, query_time, key_time])).reduce(Tensor::bool_or)
    }

    /// Applies the softmax of [`masked_softmax`].
    pub fn softmax(&self, scores: Tensor<B, 4>, sinks: Option<&Tensor<B, 1>>) -> Tensor<B, 4> {
        let [batch, heads, query_time, key_time] = scores.dims();
        let softmax = |scores: Tensor<B, 4>| match sinks {
            None => softmax(scores, 3),
            Some(sinks) => {
                let sinks = sinks.clone().reshape([1, heads, 1, 1]).expand([batch, heads, query_time, 1]);
                softmax(Tensor::cat(vec![scores, sinks], 3), 3).narrow(3, 0, key_time)
            }
        };
        let Some(hidden) = self.hidden(&scores.device()) else { return softmax(scores) };
        let hidden = hidden.expand([batch, heads, query_time, key_time]);
        // The lowest finite number is used, since -inf would make a row without visible keys NaN. If the row has a
        // visible key, the exponential of this number is exactly zero all the same.
        let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
        let weights = softmax(scores.mask_fill(hidden.clone(), lowest));
        let sees_nothing = |keys: &KeyRange| keys.range().is_empty();
        let may_hide_all = self.pairs.is_some() || self.visible.iter().flatten().any(sees_nothing);
        if may_hide_all { weights.mask_fill(hidden, 0.0) } else { weights }
    }
}

/// Returns the softmax over the keys, in which hidden keys get a weight of exactly zero. A sink of each head takes part in
/// it like one more score, whose weight is not returned.
///
/// # Shapes
/// `scores` and the result `[batch, heads, query_time, key_time]`, `sinks` `[heads]`.
pub fn masked_softmax<B: Backend>(
    scores: Tensor<B, 4>,
    mask: &Mask<B>,
    sinks: Option<&Tensor<B, 1>>,
) -> Tensor<B, 4> {
    let [_, _, query_time, key_time] = scores.dims();
    mask.lower(query_time, key_time).softmax(scores, sinks)
}

#[cfg(test)]
mod tests;
