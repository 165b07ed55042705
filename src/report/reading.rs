//! What a model does with one sequence, in the words of its vocabulary.

use serde::Serialize;

use super::draw::HeatMap;
use crate::analysis::{AttentionKind, HeadScores, Sample, Score, View, shown_head};
use crate::data::{Role, Vocabulary};
use crate::generation::sampling;

/// The likeliest tokens that are kept at each position.
const LIKELIEST: usize = 5;

/// One sequence, and what a model does with it.
#[derive(Debug, Clone, Serialize)]
pub struct Reading {
    /// Which sequence it is, as "validation sequence 0".
    pub sequence: String,
    /// The text of what an encoder reads, token by token, where there is one.
    pub source: Option<Vec<String>>,
    /// The text of each input token.
    pub inputs: Vec<String>,
    /// What truly follows each input; none at the end of an input of the user's.
    pub targets: Vec<Option<Target>>,
    /// What the model does.
    #[serde(skip)]
    pub view: View,
    /// The text of the likeliest next tokens at each position, with their probabilities.
    pub likeliest: Vec<Vec<TokenProbability>>,
}

/// A token and how probable it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TokenProbability {
    /// The token's text.
    pub token: String,
    /// Its probability, 0 to 1.
    pub probability: f32,
}

/// What truly follows a token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// Its text.
    pub text: String,
    /// The probability that the model gave it.
    pub probability: f32,
    /// What can be known of it.
    pub role: Role,
}

/// The attention of one layer over a sequence.
pub(crate) struct Layer<'a> {
    pub kind: AttentionKind,
    /// Its place among those of its kind.
    pub index: usize,
    /// The tokens that ask, and those that are attended to.
    pub tokens: [&'a [String]; 2],
    /// The weights of each head, `[query, key]` row by row.
    pub heads: &'a [Vec<f32>],
    /// The head that is shown first, its name, as "layer 0, head 3", and what is to be said of it beside its
    /// name, as "induction 0.93"; may be empty.
    pub shown: usize,
    pub name: String,
    pub note: String,
}

impl Layer<'_> {
    /// Whether a query sees the keys up to itself alone.
    pub fn is_causal(&self) -> bool {
        self.kind == AttentionKind::Decoder
    }

    /// The map of a head, with so many queries and keys in a bin.
    pub fn map(&self, head: usize, bins: [usize; 2]) -> HeatMap {
        HeatMap::of_weights(&self.heads[head], self.tokens.map(<[String]>::len), bins, self.is_causal())
    }
}

impl Reading {
    /// What a model does with a sequence whose tokens, targets and their roles are known.
    pub fn new(sequence: String, sample: Sample, view: View, vocabulary: &Vocabulary) -> Self {
        let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
        let targets = sample.targets.iter().zip(&sample.roles).zip(&view.probabilities);
        let targets = targets.map(|((&target, &role), probabilities)| {
            let (text, probability) = (vocabulary.token(target), probabilities[target as usize]);
            (role != Role::Padding).then_some(Target { text, probability, role })
        });
        let likeliest = view.probabilities.iter().map(|probabilities| {
            let probability = |token: u32| probabilities[token as usize];
            let tokens = sampling::top(probabilities, LIKELIEST).into_iter();
            let named =
                |token| TokenProbability { token: vocabulary.token(token), probability: probability(token) };
            tokens.map(named).collect()
        });
        Self {
            sequence,
            source: sample.source.as_deref().map(texts),
            inputs: texts(&sample.inputs),
            targets: targets.collect(),
            likeliest: likeliest.collect(),
            view,
        }
    }

    /// The layers of every kind of attention. Each shows `head` where that is given; else causal self-attention, whose
    /// heads have `scores`, shows [`shown_head`], and the other kinds the head whose weights are sharpest.
    pub(crate) fn layers(&self, scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<Layer<'_>> {
        let mut layers = Vec::new();
        for kind in AttentionKind::ALL {
            let tokens = kind.sides(&self.inputs[..], self.source.as_deref().unwrap_or(&[]));
            for (index, heads) in self.view.maps(kind).iter().enumerate() {
                let scores = scores.get(index).filter(|_| kind == AttentionKind::Decoder);
                let shown = match (head, scores) {
                    (Some(head), _) => head.min(heads.len() - 1),
                    (None, Some(scores)) => shown_head(scores),
                    (None, None) => sharpest(heads, tokens[1].len()),
                };
                let name = head_name(index, shown);
                let name = if self.source.is_some() { format!("{}, {name}", kind.name()) } else { name };
                let note = scores.map_or_else(String::new, |scores| note(&scores[shown]));
                layers.push(Layer { kind, index, tokens, heads, shown, name, note });
            }
        }
        layers
    }
}

/// The name of a head, as "layer 0, head 3".
pub(super) fn head_name(layer: usize, head: usize) -> String {
    format!("layer {layer}, head {head}")
}

/// What is said of a head beside its name.
fn note(scores: &HeadScores) -> String {
    let said = [Score::Ablation, Score::Induction].into_iter().filter_map(|score| {
        let value = scores[score].filter(|value| value.is_finite())?;
        Some(format!("{} {}", score.about().name, score.text(value)))
    });
    said.collect::<Vec<_>>().join(", ")
}

/// The head whose queries put the most weight on a single key, in the mean; the first of equals.
fn sharpest(heads: &[Vec<f32>], keys: usize) -> usize {
    let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
    let sharpness = |head: usize| heads[head].chunks_exact(keys.max(1)).map(largest).sum::<f32>();
    // From the last to the first: `max_by` takes the last of equals.
    (0..heads.len()).rev().max_by(|&a, &b| sharpness(a).total_cmp(&sharpness(b))).unwrap_or(0)
}
