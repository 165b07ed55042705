//! What a model does with one sequence: its attention and its predictions, on the host.

use burn::prelude::*;

use crate::error::Result;
use crate::model::Model;
use crate::ops;
use crate::training::{DeviceBatch, Sample};

/// What a model does with one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Positions.
    pub time: usize,
    /// The attention weights, `[layer][head]`, each `[query, key]` row-major.
    pub attention: Vec<Vec<Vec<f32>>>,
    /// The likeliest next token at each position.
    pub predictions: Vec<u32>,
}

impl View {
    /// Looks at `model` reading `sample`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the sample is longer than the model can read.
    pub fn new<B: ops::Backend>(model: &Model<B>, sample: &Sample, device: &B::Device) -> Result<Self> {
        let batch = DeviceBatch::<B>::new(&sample.batch(), device);
        let (logits, maps) = model.forward_with_attention(batch.inputs)?;
        let predictions = logits.argmax(2).into_data();
        let heads = |map: Tensor<B, 4>| {
            let [_, heads, query_time, key_time] = map.dims();
            let weights = map.into_data().convert::<f32>().iter::<f32>().collect::<Vec<_>>();
            weights.chunks(query_time * key_time).take(heads).map(<[f32]>::to_vec).collect()
        };
        Ok(Self {
            time: sample.inputs.len(),
            attention: maps.into_iter().map(heads).collect(),
            predictions: predictions.iter::<i64>().map(|token| token as u32).collect(),
        })
    }
}
