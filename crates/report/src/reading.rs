//! A sequence as text, with the attention weights and the predictions of a model.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::draw::HeatMap;

/// The kind of attention in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// Causal self-attention of a decoder.
    Decoder,
    /// Attention of a decoder over the output of its encoder.
    Cross,
    /// Self-attention of an encoder.
    Encoder,
}

impl AttentionKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 3] = [Self::Decoder, Self::Cross, Self::Encoder];

    /// Returns the name used in pictures of an encoder-decoder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decoder => "decoder self-attention",
            Self::Cross => "cross-attention",
            Self::Encoder => "encoder self-attention",
        }
    }

    /// Returns the sides of the queries and of the keys; a decoder reads `inputs`, and an encoder reads `source`.
    pub fn sides<T: Copy>(self, inputs: T, source: T) -> [T; 2] {
        match self {
            Self::Decoder => [inputs, inputs],
            Self::Cross => [inputs, source],
            Self::Encoder => [source, source],
        }
    }
}

/// The attention weights of all heads over one sequence.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AttentionMaps {
    /// The weights of causal self-attention, `[layer][head]`, each `[query, key]` row by row.
    pub attention: Vec<Vec<Vec<f32>>>,
    /// The weights of the encoder's self-attention over the source; empty without an encoder.
    pub encoder: Vec<Vec<Vec<f32>>>,
    /// The weights of the decoder's attention over the source; empty without an encoder.
    pub cross: Vec<Vec<Vec<f32>>>,
    /// The keys visible to each query of causal self-attention, `[layer][query]`; empty if each query sees itself and
    /// all earlier positions.
    pub visible: Vec<Vec<Range<usize>>>,
}

impl AttentionMaps {
    /// Returns the maps of one kind, `[layer][head]`; empty if the model has none.
    pub fn of(&self, kind: AttentionKind) -> &[Vec<Vec<f32>>] {
        match kind {
            AttentionKind::Decoder => &self.attention,
            AttentionKind::Cross => &self.cross,
            AttentionKind::Encoder => &self.encoder,
        }
    }

    /// Returns the largest absolute weight if the weights are signed, as those of differential attention; `None` if all
    /// are from 0 to 1, up to rounding.
    pub fn signed_limit(&self) -> Option<f32> {
        let kinds = AttentionKind::ALL.into_iter();
        let weights = || kinds.clone().flat_map(|kind| self.of(kind).iter().flatten().flatten());
        let is_signed = weights().any(|&weight| weight < 0.0 || weight > 1.001 && weight.is_finite());
        let finite = || weights().map(|weight| weight.abs()).filter(|weight| weight.is_finite());
        is_signed.then(|| finite().fold(f32::MIN_POSITIVE, f32::max))
    }

    /// Returns the keys visible to each query of a layer; `sizes` are the numbers of queries and keys.
    pub(crate) fn visible(&self, kind: AttentionKind, layer: usize, sizes: [usize; 2]) -> Vec<Range<usize>> {
        let [queries, keys] = sizes;
        let ranges = self.visible.get(layer).filter(|_| kind == AttentionKind::Decoder);
        (0..queries)
            .map(|query| match (kind, ranges.and_then(|visible| visible.get(query))) {
                (AttentionKind::Decoder, Some(visible)) => visible.clone(),
                (AttentionKind::Decoder, None) => 0..query + 1,
                (AttentionKind::Cross | AttentionKind::Encoder, _) => 0..keys,
            })
            .collect()
    }
}

/// A sequence, with the attention weights and the predictions of a model.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reading {
    /// The name of the sequence, such as "validation sequence 0".
    pub sequence: String,
    /// The text of each token of the encoder's input; `None` without an encoder.
    pub source: Option<Vec<String>>,
    /// The text of each input token.
    pub inputs: Vec<String>,
    /// The true next token after each input; `None` if unknown.
    pub targets: Vec<Option<Target>>,
    /// The attention weights.
    #[serde(skip)]
    pub maps: AttentionMaps,
    /// The most likely next tokens at each position.
    pub most_likely: Vec<Vec<TokenProbability>>,
}

/// A token and its probability.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TokenProbability {
    /// The id of the token.
    pub id: u32,
    /// The text of the token.
    pub token: String,
    /// The probability, 0 to 1.
    pub probability: f32,
}

/// The true next token at a position.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// The id of the token. Different tokens may have the same text.
    pub id: u32,
    /// The text of the token.
    pub text: String,
    /// The probability that the model assigns to the token.
    pub probability: f32,
    /// The predictability of the token.
    pub role: TargetRole,
}

/// The predictability of a true token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRole {
    /// Even the optimal predictor cannot know the token.
    Undetermined,
    /// The optimal predictor knows the token.
    Determined,
    /// The predictability is unknown, as in natural text.
    Unknown,
}

/// The head of each layer that is shown first, for each kind of attention.
pub type ShownHeads = BTreeMap<AttentionKind, Vec<usize>>;

/// The attention of one layer over a sequence.
#[derive(Debug, Clone)]
pub struct Layer<'a> {
    /// The kind of attention.
    pub kind: AttentionKind,
    /// The index of the layer among the layers of its kind.
    pub index: usize,
    /// The tokens of the queries and of the keys.
    pub tokens: [&'a [String]; 2],
    /// The weights of each head, `[query, key]` row by row.
    pub heads: &'a [Vec<f32>],
    /// The keys visible to each query.
    pub visible: Vec<Range<usize>>,
    /// The head that is shown first.
    pub shown: usize,
    /// The name of the shown head, such as "layer 0, head 3".
    pub name: String,
    /// A note next to the name, such as "induction 0.93"; may be empty.
    pub note: String,
}

impl Layer<'_> {
    /// Returns true for causal self-attention, in which no query can see later positions.
    pub(crate) fn is_causal(&self) -> bool {
        self.kind == AttentionKind::Decoder
    }

    /// Returns the map of a head with `bins` queries and keys per cell.
    pub(crate) fn map(&self, head: usize, bins: [usize; 2]) -> HeatMap {
        HeatMap::of_weights(&self.heads[head], self.tokens.map(<[String]>::len), bins, &self.visible)
    }
}

impl Reading {
    /// Returns the layers of all kinds of attention. Each shows the head given in `shown`, by default its sharpest
    /// head. `notes` are drawn next to the names of causal self-attention heads.
    pub fn layers(&self, shown: &ShownHeads, notes: &[String]) -> Vec<Layer<'_>> {
        let mut layers = Vec::new();
        for kind in AttentionKind::ALL {
            let tokens = kind.sides(&self.inputs[..], self.source.as_deref().unwrap_or(&[]));
            for (index, heads) in self.maps.of(kind).iter().enumerate() {
                let head = shown.get(&kind).and_then(|shown| shown.get(index));
                let sharpest = || sharpest(heads, tokens[1].len());
                let shown = head.map_or_else(sharpest, |&head| head.min(heads.len() - 1));
                let name = head_name(index, shown);
                let name = if self.source.is_some() { format!("{}, {name}", kind.name()) } else { name };
                let note = notes.get(index).filter(|_| kind == AttentionKind::Decoder);
                let note = note.cloned().unwrap_or_default();
                let visible = self.maps.visible(kind, index, tokens.map(<[String]>::len));
                layers.push(Layer { kind, index, tokens, heads, visible, shown, name, note });
            }
        }
        layers
    }
}

/// Returns the name of a head, such as "layer 0, head 3".
pub(crate) fn head_name(layer: usize, head: usize) -> String {
    format!("layer {layer}, head {head}")
}

/// Returns the head whose queries put the most weight on a single key on average; the first one if several are equal.
fn sharpest(heads: &[Vec<f32>], keys: usize) -> usize {
    let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
    let sharpness = |head: usize| heads[head].chunks_exact(keys.max(1)).map(largest).sum::<f32>();
    // `max_by` returns the last of equal heads, so the order is reversed.
    (0..heads.len()).rev().max_by(|&a, &b| sharpness(a).total_cmp(&sharpness(b))).unwrap_or(0)
}
