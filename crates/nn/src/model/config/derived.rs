//! Values that follow from the keys.

use std::sync::Arc;

use burn::tensor::backend::Backend;

use super::{Architecture, LayerSpan, ModelConfig, QkNormScope};
use crate::attention::{
    DifferentialConfig, Mask, MultiHeadAttentionConfig, QkNormConfig, ScoreConfig, SplitHeadsConfig,
};
use crate::position::{PositionScheme, RopeScaling, Rotation};

impl ModelConfig {
    /// Returns the number of positions that a query sees in the decoder's self-attention of a layer; `None` for all.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let span = self.layer_pattern.get(layer % self.layer_pattern.len().max(1));
        self.window.filter(|_| span != Some(&LayerSpan::Global))
    }

    /// Returns true if a layer of the decoder has a window.
    pub fn has_window(&self) -> bool {
        (0..self.layers).any(|layer| self.window_of(layer).is_some())
    }

    /// Returns true if a layer of the decoder sees all keys.
    pub fn has_global_layer(&self) -> bool {
        (0..self.layers).any(|layer| self.window_of(layer).is_none())
    }

    /// Returns the number of blocks of all stacks together; the one-layer decoder counts as one.
    pub fn blocks(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 1,
            Architecture::Decoder => self.layers,
            Architecture::EncoderDecoder => 2 * self.layers,
        }
    }

    /// Returns the inner width of the feed-forward layers; 0 if the architecture has none.
    pub fn inner_width(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 0,
            Architecture::Decoder | Architecture::EncoderDecoder if self.d_inner > 0 => self.d_inner,
            Architecture::Decoder | Architecture::EncoderDecoder => self.feed_forward * self.d_model,
        }
    }

    /// Returns the number of columns of the feed-forward layers' first matrix: twice the inner width if the activation
    /// is gated.
    pub fn up_width(&self) -> usize {
        if self.activation.is_gated() { 2 * self.inner_width() } else { self.inner_width() }
    }

    /// Returns the width of a head.
    pub fn head_width(&self) -> usize {
        if self.d_head > 0 { self.d_head } else { self.d_model / self.heads }
    }

    /// Returns the number of columns of the projection to queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        let [queries, keys] = self.query_and_key_widths();
        queries + 2 * keys
    }

    /// Returns the number of columns of all queries, and of all keys or values.
    fn query_and_key_widths(&self) -> [usize; 2] {
        let shared = if self.key_value_heads > 0 { self.key_value_heads } else { self.heads };
        [self.heads, shared].map(|heads| heads * self.head_width())
    }

    /// Returns the mask of a decoder's self-attention in a layer, given the document of each token if several documents
    /// are packed into a sequence. Training, inference and the memory estimate all take their masks from here.
    pub fn mask<B: Backend>(&self, layer: usize, documents: Option<Arc<[Vec<u32>]>>) -> Mask<B> {
        // The padding of an answer is at its end, where the causal mask hides it from all tokens.
        Mask { window: self.window_of(layer), documents, ..Mask::causal() }
    }

    /// Returns the frequencies of rotary positions.
    pub fn rotation(&self) -> Rotation {
        Rotation {
            theta: self.rope_theta,
            fraction: self.rotary_fraction.unwrap_or(1.0),
            scaling: self.rope_scaling,
            factor: self.rope_factor,
            low_frequency_factor: self.rope_low_frequency_factor,
            high_frequency_factor: self.rope_high_frequency_factor,
            original_context: self.rope_original_context,
            parts: if self.differential { 2 } else { 1 },
        }
    }

    /// Returns the frequencies of rotary positions in local layers; `None` if all layers have the same.
    pub fn local_rotation(&self) -> Option<Rotation> {
        let theta =
            self.rope_theta_local.filter(|_| self.position == PositionScheme::Rotary && self.has_window())?;
        Some(Rotation { theta, scaling: RopeScaling::None, ..self.rotation() })
    }

    /// Returns true if there is a layer whose queries and keys rotary positions rotate, with a window or without.
    pub(in crate::model) fn rotates(&self, is_local: bool) -> bool {
        (0..self.layers)
            .any(|layer| self.window_of(layer).is_some() == is_local && !self.skips_rotation(layer))
    }

    /// Returns true if rotary positions do not rotate the queries and keys of a layer.
    pub fn skips_rotation(&self, layer: usize) -> bool {
        self.rotary_skip_every.is_some_and(|every| (layer + 1).is_multiple_of(every))
    }

    /// Returns the config of the self-attention of a layer.
    pub(in crate::model) fn attention(&self, layer: usize) -> MultiHeadAttentionConfig {
        let (epsilon, unit_offset) = (self.norm_epsilon, self.norm_unit_offset);
        let all_heads = self.qk_norm_scope == QkNormScope::AllHeads;
        let scores =
            ScoreConfig { scale: self.attention_scale, softcap: self.attention_softcap, sinks: self.sinks };
        MultiHeadAttentionConfig::new(self.d_model, self.heads)
            .with_d_head((self.d_head > 0).then_some(self.d_head))
            .with_key_value_heads((self.key_value_heads > 0).then_some(self.key_value_heads))
            .with_dropout(self.dropout)
            .with_bias(self.bias)
            .with_query_key_value_bias(self.query_key_value_bias)
            .with_output_bias(self.attention_output_bias)
            .with_qk_norm(self.qk_norm.then_some(QkNormConfig { epsilon, all_heads, unit_offset }))
            .with_scores(scores)
            .with_gate(self.attention_gate)
            .with_differential(self.differential.then_some(DifferentialConfig {
                layer,
                epsilon,
                unit_offset,
            }))
    }

    /// Returns the config of the cross-attention of each layer that has one.
    pub(in crate::model) fn cross_attention(&self) -> SplitHeadsConfig {
        SplitHeadsConfig::new(self.d_model, self.d_model, self.heads)
            .with_d_head((self.d_head > 0).then_some(self.d_head))
            .with_dropout(self.dropout)
            .with_bias(self.query_key_value_bias.unwrap_or(self.bias))
            .with_output_bias(self.attention_output_bias.unwrap_or(self.bias))
    }
}
