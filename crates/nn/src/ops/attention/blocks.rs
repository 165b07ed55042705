//! Attention that never stores the weights of all queries at once (Rabe and Staats, 2021, arXiv 2112.05682). It
//! processes queries in blocks, and the backward pass recomputes the weights of each block. Memory grows linearly with
//! the sequence length instead of quadratically. It uses Burn's operations, for backends whose tensors the kernels
//! cannot read.
//!
//! With the weights `W` of a block, its dropout mask `D`, contexts `O = (W ∘ D) V` and their gradients `dO`:
//!
//! ```text
//! dV = (W ∘ D)^T dO     dS = W ∘ (dO V^T ∘ D - rowsum(dO ∘ O))     dQ = dS K     dK = dS^T Q
//! ```
//!
//! With a softcap `c`, `dS` has the additional factor `1 - (S / c)^2`. The weight of a sink `z` is `w = 1 - rowsum(W)`, and
//! its gradient is `dz = -sum(w rowsum(dO ∘ O))`.

use std::ops::Range;

use burn::tensor::{Distribution, IndexingUpdateOp, Tensor, backend::Backend, ops::FloatTensor};
use burn_autodiff::Autodiff;

use super::{HeadParts, bias_columns};
use crate::ops::autodiff::{Recomputed, run_recomputed};
use crate::ops::host::{self, cast};
use crate::ops::precision::{Precision, matmul, precision};
use crate::ops::{Mask, dropout, float, mask::LoweredMask, primitive};

/// The maximum number of scores in a block, unless the block has a single query: 16 MiB, an eighth of the smallest
/// buffer limit of any device (WebGPU, limit `maxStorageBufferBindingSize`).
pub(super) const MAX_BLOCK_SCORES: usize = 1 << 22;

/// Returns `$run` from the calling function if the tensors of `$B` are those of `Autodiff` around a known backend.
macro_rules! on_devices {
    ($B:ty, $H:ident => $run:expr) => {
        #[cfg(feature = "ndarray")]
        on_devices!(@one burn_ndarray::NdArray, $B, $H => $run);
        on_devices!(@one burn_flex::Flex, $B, $H => $run);
        #[cfg(feature = "wgpu")]
        on_devices!(@one burn_wgpu::Wgpu, $B, $H => $run);
        #[cfg(feature = "cuda")]
        on_devices!(@one burn_cuda::Cuda, $B, $H => $run);
    };
    (@one $host:ty, $B:ty, $H:ident => $run:expr) => {
        {
            type $H = $host;
            if host::has_tensors_of::<$B, Autodiff<$H>>() {
                return $run;
            }
        }
    };
}

/// Returns the contexts of the heads, `[batch, heads, query_time, d_head]`, computed in blocks of at most `max_scores`
/// scores, or of one query. Returns `None` if a gradient is needed and the backend is unknown.
pub(super) fn attention<B: Backend>(
    parts: &HeadParts<B>,
    mask: &Mask<B>,
    probability: f64,
    max_scores: usize,
) -> Option<Tensor<B, 4>> {
    let is_differentiated = B::ad_enabled(&parts.query.device());
    let settings = Settings {
        dropout: (probability > 0.0 && is_differentiated).then(|| (probability, dropout::next_seed())),
        precision: precision(),
        max_scores,
        softcap: parts.softcap,
    };
    let [query_time, key_time] = parts.times();
    let mask = mask.lower(query_time, key_time);
    let HeadParts { query, key, value, bias, softcap: _, sinks } = parts.clone();
    let [query, key, value] = [query, key, value].map(|part| Some(primitive(part)));
    let inputs = [query, key, value, bias.map(primitive), sinks.map(primitive)];
    if !is_differentiated {
        return Some(float(Blocks { mask, settings }.forward(inputs)));
    }
    on_devices!(B, H => {
        let operation = Blocks { mask: cast_mask::<B, H>(&mask), settings };
        Some(float(cast(run_recomputed::<H, _, 5>(operation, cast(inputs)))))
    });
    None
}

/// Converts a mask between two type parameters that name the same backend.
fn cast_mask<B: Backend, H: Backend>(mask: &LoweredMask<B>) -> LoweredMask<H> {
    let LoweredMask { visible, pairs, query_time, key_time } = mask.clone();
    let pairs = pairs.map(|pairs| Tensor::from_primitive(cast(pairs.into_primitive())));
    LoweredMask { visible, pairs, query_time, key_time }
}

/// The settings of all blocks.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// The probability of dropping a weight, and the seed of the first block.
    dropout: Option<(f64, u64)>,
    precision: Precision,
    max_scores: usize,
    softcap: Option<f64>,
}

/// The operation on queries, keys, values and an optional bias by distance.
#[derive(Debug, Clone)]
struct Blocks<B: Backend> {
    mask: LoweredMask<B>,
    settings: Settings,
}

/// A block of queries with the keys that they may see.
struct KeyBlock<B: Backend> {
    queries: Range<usize>,
    keys: Range<usize>,
    /// The first column of the bias by distance.
    first_column: usize,
    parts: HeadParts<B>,
    scores: Tensor<B, 4>,
    weights: Tensor<B, 4>,
    /// The factor of each weight: zero for a dropped weight.
    kept: Option<Tensor<B, 4>>,
}

impl<B: Backend> Blocks<B> {
    /// Returns the blocks in order, each computed when needed.
    fn blocks<'a>(&'a self, parts: &'a HeadParts<B>) -> impl Iterator<Item = KeyBlock<B>> + 'a {
        let ([batch, heads, query_time, _], [_, _, key_time, _]) = (parts.query.dims(), parts.key.dims());
        let rows = (self.settings.max_scores / (batch * heads * key_time).max(1)).clamp(1, query_time.max(1));
        (0..query_time).step_by(rows).map(move |start| {
            let queries = start..(start + rows).min(query_time);
            let keys = self.mask.keys(queries.clone());
            let first_column = start + key_time - keys.end;
            let select_keys = |part: &Tensor<B, 4>| part.clone().narrow(2, keys.start, keys.len());
            let distances = queries.len() + keys.len() - 1;
            let parts = HeadParts {
                query: parts.query.clone().narrow(2, start, queries.len()),
                key: select_keys(&parts.key),
                value: select_keys(&parts.value),
                bias: parts.bias.clone().map(|bias| bias.narrow(1, first_column, distances)),
                ..parts.clone()
            };
            let (scores, mask) = (parts.scores(), self.mask.block(queries.clone(), keys.clone()));
            let weights = mask.softmax(scores.clone(), parts.sinks.as_ref());
            let kept = self.settings.dropout.map(|(probability, seed)| {
                let device = weights.device();
                B::seed(&device, seed.wrapping_add(start as u64));
                let drawn = Distribution::Bernoulli(1.0 - probability);
                weights.random_like(drawn) / (1.0 - probability)
            });
            KeyBlock { queries, keys, first_column, parts, scores, weights, kept }
        })
    }
}

impl<B: Backend> KeyBlock<B> {
    /// Applies dropout to the weights or their gradients.
    fn apply_dropout(&self, weights: Tensor<B, 4>) -> Tensor<B, 4> {
        self.kept.iter().fold(weights, |weights, kept| weights * kept.clone())
    }

    /// Returns the gradient of the scores before the softcap, given the one after it.
    fn before_cap(&self, gradient: Tensor<B, 4>, softcap: Option<f64>) -> Tensor<B, 4> {
        match softcap {
            Some(cap) => gradient * (-(self.scores.clone() / cap).powi_scalar(2) + 1.0),
            None => gradient,
        }
    }

    /// Returns the sums over queries of `factors`, `[batch, heads, queries, 1]`, times the weights of the sinks, `[heads]`.
    fn of_sinks(&self, factors: Tensor<B, 4>) -> Tensor<B, 1> {
        let [_, heads, ..] = factors.dims();
        let weights = -self.weights.clone().sum_dim(3) + 1.0;
        (weights * factors).sum_dim(0).sum_dim(2).reshape([heads])
    }

    /// Selects the rows of this block's queries.
    fn select_queries(&self, all: &Tensor<B, 4>) -> Tensor<B, 4> {
        all.clone().narrow(2, self.queries.start, self.queries.len())
    }
}

/// Converts the inputs to tensors.
fn parts<B: Backend>(
    [query, key, value, bias, sinks]: [Option<FloatTensor<B>>; 5],
    softcap: Option<f64>,
) -> HeadParts<B> {
    let [query, key, value] =
        [query, key, value].map(|part| float(part.expect("queries, keys and values are never absent")));
    HeadParts { query, key, value, bias: bias.map(float), softcap, sinks: sinks.map(float) }
}

/// Adds `rows` to the rows of `sum` that belong to these keys.
fn add<B: Backend>(sum: Tensor<B, 4>, keys: &Range<usize>, rows: Tensor<B, 4>) -> Tensor<B, 4> {
    let [batch, heads, _, width] = rows.dims();
    let rows_of_keys = [0..batch, 0..heads, keys.clone(), 0..width];
    if sum.dims() == rows.dims() {
        return sum + rows;
    }
    let added = sum.clone().slice(rows_of_keys.clone()) + rows;
    sum.slice_assign(rows_of_keys, added)
}

impl<B: Backend> Recomputed<B, 5> for Blocks<B> {
    fn forward(&self, inputs: [Option<FloatTensor<B>>; 5]) -> FloatTensor<B> {
        let parts = parts(inputs, self.settings.softcap);
        let context =
            |block: KeyBlock<B>| matmul(block.apply_dropout(block.weights.clone()), block.parts.value);
        let contexts = self.settings.precision.run(|| self.blocks(&parts).map(context).collect());
        primitive(Tensor::cat(contexts, 2))
    }

    fn backward(
        &self,
        inputs: [Option<FloatTensor<B>>; 5],
        result: FloatTensor<B>,
        gradient: FloatTensor<B>,
    ) -> [Option<FloatTensor<B>>; 5] {
        let (parts, result, gradient) =
            (parts(inputs, self.settings.softcap), float(result), float(gradient));
        let mut query_gradient = Vec::new();
        let (mut key_gradient, mut value_gradient) = (parts.key.zeros_like(), parts.value.zeros_like());
        let mut bias_gradient = parts.bias.as_ref().map(Tensor::zeros_like);
        let mut sink_gradients = parts.sinks.as_ref().map(Tensor::zeros_like);
        self.settings.precision.run(|| {
            for block in self.blocks(&parts) {
                let gradient = block.select_queries(&gradient);
                let applied = block.apply_dropout(block.weights.clone());
                let added = matmul(applied.swap_dims(2, 3), gradient.clone());
                value_gradient = add(value_gradient.clone(), &block.keys, added);
                let weights_gradient = matmul(gradient.clone(), block.parts.value.clone().swap_dims(2, 3));
                let mean = (gradient * block.select_queries(&result)).sum_dim(3);
                sink_gradients = sink_gradients.take().map(|sum| sum - block.of_sinks(mean.clone()));
                let scores_gradient = block.weights.clone() * (block.apply_dropout(weights_gradient) - mean);
                let scores_gradient = block.before_cap(scores_gradient, self.settings.softcap);
                query_gradient.push(matmul(scores_gradient.clone(), block.parts.key.clone()));
                let added = matmul(scores_gradient.clone().swap_dims(2, 3), block.parts.query.clone());
                key_gradient = add(key_gradient.clone(), &block.keys, added);
                bias_gradient = bias_gradient.take().map(|bias_gradient| {
                    let [_, heads, rows, keys] = scores_gradient.dims();
                    let pairs = scores_gradient.sum_dim(0).reshape([heads, rows * keys]);
                    let columns = bias_columns(rows, keys, &pairs.device()) + block.first_column as i64;
                    bias_gradient.select_assign(1, columns, pairs, IndexingUpdateOp::Add)
                });
            }
        });
        if let Some((_, seed)) = self.settings.dropout {
            // The next batch of the step must not repeat the numbers drawn after this batch's forward pass.
            B::seed(&parts.query.device(), !seed);
        }
        let query_gradient = primitive(Tensor::cat(query_gradient, 2));
        let [key_gradient, value_gradient] = [key_gradient, value_gradient].map(primitive);
        let [bias_gradient, sink_gradients] = [bias_gradient.map(primitive), sink_gradients.map(primitive)];
        [Some(query_gradient), Some(key_gradient), Some(value_gradient), bias_gradient, sink_gradients]
    }
}
