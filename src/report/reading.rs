//! What a model does with one sequence, in the words of its vocabulary.

use serde::Serialize;

use super::draw::visible;
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

/// The map of one head that a picture shows.
pub(crate) struct ShownMap<'a> {
    /// The head's name, as "layer 0, head 3".
    pub name: String,
    /// What is to be said about the head beside its name, as "induction 0.93"; may be empty.
    pub note: String,
    /// The visible form of the tokens that ask, and of those that are attended to.
    pub queries: Vec<String>,
    pub keys: Vec<String>,
    /// Whether a query sees the keys up to itself alone.
    pub is_causal: bool,
    /// The weights, `[query, key]` row by row, and so those of all heads of the layer.
    pub weights: &'a [f32],
    pub layer_weights: &'a [Vec<f32>],
}

impl Reading {
    /// What a model does with a sequence whose tokens, targets and their roles are known.
    pub fn new(sequence: String, sample: Sample, view: View, vocabulary: &Vocabulary) -> Self {
        let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
        let targets = sample.targets.iter().zip(&sample.roles).zip(&view.probabilities);
        let targets = targets.map(|((&target, &role), probabilities)| {
            (role != Role::Padding).then(|| Target {
                text: vocabulary.token(target),
                probability: probabilities[target as usize],
                role,
            })
        });
        let likeliest = view.probabilities.iter().map(|probabilities| {
            let tokens = sampling::top(probabilities, LIKELIEST).into_iter();
            tokens
                .map(|token| TokenProbability {
                    token: vocabulary.token(token),
                    probability: probabilities[token as usize],
                })
                .collect()
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

    /// The tokens that an encoder reads; empty without one.
    pub(crate) fn source(&self) -> &[String] {
        self.source.as_deref().unwrap_or(&[])
    }

    /// The kinds of attention that the model has.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = AttentionKind> + Clone + '_ {
        AttentionKind::ALL.into_iter().filter(|&kind| !self.view.maps(kind).is_empty())
    }

    /// The head of each layer that is shown first, which is `head` where that is given. Of causal
    /// self-attention, whose heads have `scores`, [`shown_head`]; of other kinds, the head whose weights are
    /// sharpest.
    pub(crate) fn shown_heads(
        &self,
        kind: AttentionKind,
        scores: &[Vec<HeadScores>],
        head: Option<usize>,
    ) -> Vec<usize> {
        let [_, keys] = kind.tokens(&self.inputs, self.source());
        let shown = |(layer, heads): (usize, &Vec<Vec<f32>>)| match (head, scores.get(layer)) {
            (Some(head), _) => head.min(heads.len() - 1),
            (None, Some(scores)) if kind == AttentionKind::Decoder => shown_head(scores),
            (None, _) => sharpest(heads, keys.len()),
        };
        self.view.maps(kind).iter().enumerate().map(shown).collect()
    }

    /// The map of one head in each layer, for every kind of attention: those of [`Self::shown_heads`].
    pub(crate) fn shown_maps(&self, scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<ShownMap<'_>> {
        let text = |tokens: &[String]| -> Vec<String> { tokens.iter().map(|token| visible(token)).collect() };
        let mut maps = Vec::new();
        for kind in self.kinds() {
            let [queries, keys] = kind.tokens(&self.inputs, self.source()).map(text);
            for (layer, head) in self.shown_heads(kind, scores, head).into_iter().enumerate() {
                let is_causal = kind == AttentionKind::Decoder;
                let scores = scores.get(layer).filter(|_| is_causal);
                let name = head_name(layer, head);
                maps.push(ShownMap {
                    name: if self.source.is_some() { format!("{}, {name}", kind.name()) } else { name },
                    note: scores.map_or_else(String::new, |scores| note(&scores[head])),
                    queries: queries.clone(),
                    keys: keys.clone(),
                    is_causal,
                    weights: &self.view.maps(kind)[layer][head],
                    layer_weights: &self.view.maps(kind)[layer],
                });
            }
        }
        maps
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
        Some(format!("{} {}", score.name(), score.text(value)))
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
