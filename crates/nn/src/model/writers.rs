//! The components of a model that write to its residual stream.

use burn::tensor::backend::Backend;

use super::{Decoder, Model};
use crate::hooks::ResidualWriter;

impl ResidualWriter {
    /// Returns all components of a model, in model order.
    pub fn all<B: Backend>(model: &Model<B>) -> Vec<Self> {
        match model {
            Model::OneLayer(model) => (0..model.attention.heads).map(|head| Self::Head(0, head)).collect(),
            Model::Decoder(model) => Self::of_decoder(model).collect(),
        }
    }

    /// Iterates over all components of a decoder, in model order.
    pub fn of_decoder<B: Backend>(model: &Decoder<B>) -> impl Iterator<Item = Self> {
        model.blocks.iter().enumerate().flat_map(|(layer, block)| {
            let cross = block.cross_attention.as_ref().map_or(0, |attention| attention.heads);
            let heads = (0..block.attention.heads).map(move |head| Self::Head(layer, head));
            heads
                .chain((0..cross).map(move |head| Self::Cross(layer, head)))
                .chain([Self::FeedForward(layer)])
        })
    }
}
