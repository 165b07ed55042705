//! What a model does with one sequence, in the words of its vocabulary.

use serde::Serialize;

use super::score::head_name;
use super::token::visible;
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
    kind: AttentionKind,
    layer: usize,
    head: usize,
    /// Whether the model has several kinds of attention, so that a name must tell them apart.
    is_one_of_kinds: bool,
    /// What is to be said about the head beside its name, as "induction 0.93"; may be empty.
    pub note: String,
    /// The visible form of the tokens that ask, and of those that are attended to.
    pub queries: Vec<String>,
    pub keys: Vec<String>,
    /// The weights of all heads of the layer, each `[query, key]` row by row.
    pub layer_weights: &'a [Vec<f32>],
}

impl ShownMap<'_> {
    /// The head's name, as "layer 0, head 3".
    pub fn name(&self) -> String {
        let name = head_name(self.layer, self.head);
        if self.is_one_of_kinds { format!("{}, {name}", self.kind.name()) } else { name }
    }

    /// Its weights, `[query, key]` row by row.
    pub fn weights(&self) -> &[f32] {
        &self.layer_weights[self.head]
    }

    /// Whether a query sees the keys up to itself alone.
    pub fn is_causal(&self) -> bool {
        self.kind == AttentionKind::Decoder
    }
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

    /// The map of one head in each layer, for every kind of attention: `head` where it is given. Of causal
    /// self-attention, whose heads have `scores`, [`shown_head`]; of other kinds, the head whose weights are
    /// sharpest.
    pub(crate) fn shown_maps(&self, scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<ShownMap<'_>> {
        let maps = self.kinds().flat_map(|kind| {
            let [queries, keys] = kind.tokens(&self.inputs, self.source());
            self.view.maps(kind).iter().enumerate().map(move |(layer, heads)| {
                let scores = scores.get(layer).filter(|_| kind == AttentionKind::Decoder);
                let chosen = match scores {
                    Some(scores) => shown_head(scores),
                    None => sharpest(heads, keys.len()),
                };
                let head = head.unwrap_or(chosen).min(heads.len() - 1);
                let text = |tokens: &[String]| tokens.iter().map(|token| visible(token)).collect();
                ShownMap {
                    kind,
                    layer,
                    head,
                    is_one_of_kinds: self.source.is_some(),
                    note: scores.map_or_else(String::new, |scores| note(&scores[head])),
                    queries: text(queries),
                    keys: text(keys),
                    layer_weights: heads,
                }
            })
        });
        maps.collect()
    }
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
