//! The evidence for the kinds of a head: its score, the number of queries, a 95 % interval and the score of chance.

use std::collections::BTreeMap;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::bench::{Bench, mean};
use super::gain::{MIN_SEQUENCE_GROUPS, interval};
use super::kind::{HeadKind, cross_kinds, kinds};
use super::pass::Site;
use super::question::Quantity;
use crate::analysis::head::{uniform_weights, values_by_query};
use crate::analysis::view::floats;
use crate::analysis::{HeadScores, Sample, Score};
use crate::data::Role;

/// The minimum weight of a separator, as a multiple of the weight under uniform attention.
const MIN_UNIFORM_WEIGHTS: f64 = 3.0;
/// The maximum variation of a positional head's weights between sequences.
const MAX_POSITIONAL_VARIATION: f64 = 0.2;

/// The score for which a head has a kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KindScore {
    /// The kind.
    pub kind: HeadKind,
    /// The attention weight on the targets of the kind, averaged over the queries that have one. For a positional head, how
    /// far its mean weights over the sequences are from uniform attention: 0 for that, 1 for a single position.
    pub score: f64,
    /// The number of queries.
    pub queries: usize,
    /// The 95 % interval of the score over sequences, or over tokens if there are fewer than eight sequences; for a positional
    /// head over positions. `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The score of a head that attends to all visible keys equally.
    pub chance: f64,
    /// The largest score of a head of the same model with random weights, on the same sequences; `None` at the end of
    /// training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<f64>,
}

impl KindScore {
    /// Returns true if a head with random weights has a score as high as this one, or in its interval.
    pub fn may_be_chance(&self) -> bool {
        let lowest = self.interval.map_or(self.score, |[low, _]| low);
        self.random.is_some_and(|random| random >= lowest)
    }
}

/// The kinds of a head, and the scores of those that depend on the sequences.
pub(super) type ScoredKinds = (Vec<HeadKind>, Vec<KindScore>);

/// The values of a score at single queries.
#[derive(Default)]
struct QueryScores {
    values: Vec<f64>,
    chances: Vec<f64>,
    groups: Vec<usize>,
}

impl QueryScores {
    /// Adds a query. Queries of one group are not independent evidence.
    fn add(&mut self, value: f64, chance: f64, group: usize) {
        self.values.push(value);
        self.chances.push(chance);
        self.groups.push(group);
    }

    fn of_kind(&self, kind: HeadKind) -> KindScore {
        let bounded = |interval: [f64; 2]| interval.map(|bound| bound.clamp(0.0, 1.0));
        KindScore {
            kind,
            score: mean(&self.values),
            queries: self.values.len(),
            interval: interval(&self.values, &self.groups).map(bounded),
            chance: mean(&self.chances),
            random: None,
        }
    }
}

impl HeadKind {
    /// Returns the score of the attention weights for the kind; `None` if the kind does not depend on them alone.
    pub(super) fn score(self) -> Option<Score> {
        match self {
            HeadKind::PreviousToken => Some(Score::Previous),
            HeadKind::Induction => Some(Score::Induction),
            HeadKind::Duplicate => Some(Score::Duplicate),
            HeadKind::Itself => Some(Score::Itself),
            HeadKind::FirstToken => Some(Score::First),
            HeadKind::Separator | HeadKind::NextToken | HeadKind::Positional | HeadKind::Copying => None,
        }
    }
}

impl<B: Backend> Bench<'_, B> {
    /// Returns the kinds of a self-attention head with these scores. `copies` is true if its OV circuit copies.
    pub fn scored_kinds(
        &self,
        [layer, head]: [usize; 2],
        samples: &[Sample],
        (scores, copies): (&HeadScores, bool),
    ) -> ScoredKinds {
        let pattern = Site::Pattern(layer, head);
        let (separator, positional) = (self.separator(pattern, samples), self.positional(pattern, samples));
        let means = [&separator, &positional].map(|it| it.as_ref().map(|it| mean(&it.values)));
        let kinds = kinds(scores, means, copies);
        let of_kind = |&kind: &HeadKind| {
            let found = match kind {
                HeadKind::Separator => separator.as_ref()?,
                HeadKind::Positional => positional.as_ref()?,
                _ => &self.query_scores(pattern, samples, kind.score()?),
            };
            Some(found.of_kind(kind))
        };
        let scored = kinds.iter().filter_map(of_kind).collect();
        (kinds, scored)
    }

    /// Returns the kinds of a cross-attention head.
    pub fn scored_cross_kinds(&self, [layer, head]: [usize; 2], samples: &[Sample]) -> ScoredKinds {
        let pattern = Site::CrossPattern(layer, head);
        let ([first, next], positional) =
            (self.source_scores(pattern, samples), self.positional(pattern, samples));
        let weights = [&first, &next].map(|it| mean(&it.values));
        let kinds = cross_kinds(weights, positional.as_ref().map(|it| mean(&it.values)));
        let of_kind = |&kind: &HeadKind| {
            let found = match kind {
                HeadKind::FirstToken => &first,
                HeadKind::NextToken => &next,
                _ => positional.as_ref()?,
            };
            Some(found.of_kind(kind))
        };
        let scored = kinds.iter().filter_map(of_kind).collect();
        (kinds, scored)
    }

    /// Returns the score of a head for a kind; `None` if the kind does not depend on attention weights, or if the head is
    /// certainly not of it.
    pub fn kind_score(&self, kind: HeadKind, pattern: Site, samples: &[Sample]) -> Option<f64> {
        let found = match (kind, pattern) {
            (HeadKind::Positional, _) => self.positional(pattern, samples)?,
            (HeadKind::FirstToken, Site::CrossPattern(..)) => {
                let [first, _] = self.source_scores(pattern, samples);
                first
            }
            (HeadKind::NextToken, Site::CrossPattern(..)) => {
                let [_, next] = self.source_scores(pattern, samples);
                next
            }
            (HeadKind::Separator, _) => self.separator(pattern, samples)?,
            _ => self.query_scores(pattern, samples, kind.score()?),
        };
        Some(mean(&found.values))
    }

    /// Returns the group of a query: its sequence or, of a few sequences, its token.
    fn group(&self, samples: &[Sample], [sample, query]: [usize; 2]) -> usize {
        match samples.len() >= MIN_SEQUENCE_GROUPS {
            true => sample,
            false => samples[sample].inputs[query] as usize,
        }
    }

    fn query_scores(&self, pattern: Site, samples: &[Sample], score: Score) -> QueryScores {
        let (weights, [_, time]) = (floats(self.full.at(pattern)), self.batch.targets.dims());
        let window = self.model.config.window_of(pattern.layer(0));
        let mut found = QueryScores::default();
        for (number, (sample, map)) in samples.iter().zip(weights.chunks(time * time)).enumerate() {
            let documents = sample.documents();
            let values = values_by_query(score, map, &documents);
            let chances = values_by_query(score, &uniform_weights(sample, window), &documents);
            for ((query, value), (_, chance)) in values.into_iter().zip(chances) {
                found.add(value, chance, self.group(samples, [number, query]));
            }
        }
        found
    }

    /// Returns how far the mean of a head's weights over the sequences is from uniform attention, by query with at least two
    /// keys: the total variation distance, half the sum over the keys of the absolute differences, divided by that of a head
    /// that attends to a single position. `None` if the weights vary between sequences, for a single sequence, for
    /// prompts, whose positions differ, and if all sequences repeat their tokens at the same positions, so that a head
    /// that compares tokens always finds them there.
    fn positional(&self, pattern: Site, samples: &[Sample]) -> Option<QueryScores> {
        if samples.len() == 1 || self.quantity != Quantity::Loss || repeat_alike(samples) {
            return None;
        }
        let window = self.model.config.window_of(pattern.layer(0));
        let reads_source = matches!(pattern, Site::CrossPattern(..));
        let pattern = self.full.at(pattern);
        let ([_, time, keys], common) = (pattern.dims(), self.mean(pattern.clone()));
        let variation = floats((pattern - common.clone()).abs().sum_dim(2) / 2.0);
        let common = floats(common);
        let (mut found, mut variations) = (QueryScores::default(), Vec::new());
        for (sample, row) in samples.iter().zip(variation.chunks(time)) {
            let uniform = match &sample.source {
                Some(source) if reads_source => {
                    vec![1.0 / source.len().max(1) as f32; sample.inputs.len() * source.len()]
                }
                _ => uniform_weights(sample, window),
            };
            let (length, width) = (sample.inputs.len(), uniform.len() / sample.inputs.len());
            variations.extend(row[..length].iter().copied().map(f64::from));
            for query in 0..length {
                let uniform = &uniform[query * width..][..width];
                let pairs = common[query * keys..].iter().zip(uniform);
                let distance: f64 = pairs.map(|(weight, even)| f64::from((weight - even).abs()) / 2.0).sum();
                let largest = 1.0 - uniform.iter().copied().map(f64::from).fold(0.0, f64::max);
                // All sequences share the mean, so only positions are independent.
                if largest > 0.0 {
                    found.add((distance / largest).min(1.0), 0.0, query);
                }
            }
        }
        (mean(&variations) <= MAX_POSITIONAL_VARIATION).then_some(found)
    }

    /// Returns the weights of a head on the token of the vocabulary that gets the largest weight. The first position of each
    /// document is ignored. `None` unless the weight exceeds three times the weight under uniform attention.
    fn separator(&self, pattern: Site, samples: &[Sample]) -> Option<QueryScores> {
        let (pattern, [_, time]) = (floats(self.full.at(pattern)), self.batch.targets.dims());
        let mut weights = BTreeMap::<u32, f64>::new();
        for_each_later_query(&pattern, time, samples, |tokens, row, _| {
            for (&token, &weight) in tokens.iter().zip(row) {
                *weights.entry(token).or_default() += f64::from(weight);
            }
        });
        let (separator, _) = weights.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let mut found = QueryScores::default();
        for_each_later_query(&pattern, time, samples, |tokens, row, at| {
            let keys = tokens.iter().zip(row).filter(|(token, _)| **token == separator);
            let (weight, count) =
                keys.fold((0.0, 0.0), |(sum, count), (_, &weight)| (sum + f64::from(weight), count + 1.0));
            found.add(weight, count / tokens.len() as f64, self.group(samples, at));
        });
        (mean(&found.values) > MIN_UNIFORM_WEIGHTS * mean(&found.chances)).then_some(found)
    }

    /// Returns the weights of a cross-attention head on the first source token and on source tokens equal to the target, at
    /// the targets that count.
    fn source_scores(&self, pattern: Site, samples: &[Sample]) -> [QueryScores; 2] {
        let pattern = self.full.at(pattern);
        let [_, time, keys] = pattern.dims();
        let pattern = floats(pattern);
        let [mut first, mut next] = [QueryScores::default(), QueryScores::default()];
        for (number, (sample, map)) in samples.iter().zip(pattern.chunks(time * keys)).enumerate() {
            let source = sample.source.as_deref().unwrap_or_default();
            let uniform = 1.0 / source.len().max(1) as f64;
            let targets = sample.targets.iter().zip(&sample.roles).enumerate();
            for (query, (target, _)) in targets.filter(|(_, (_, role))| **role != Role::Padding) {
                let (row, group) = (&map[query * keys..], self.group(samples, [number, query]));
                first.add(row[0].into(), uniform, group);
                let equal = || source.iter().zip(row).filter(|(token, _)| *token == target);
                let weight = equal().map(|(_, &weight)| f64::from(weight)).sum();
                next.add(weight, uniform * equal().count() as f64, group);
            }
        }
        [first, next]
    }
}

/// Returns true if tokens recur, in every sample at the same positions.
fn repeat_alike(samples: &[Sample]) -> bool {
    let first_occurrences = |sample: &Sample| {
        let tokens = [sample.source.as_deref().unwrap_or_default(), &sample.inputs].concat();
        let first = |token: &u32| tokens.iter().position(|it| it == token);
        tokens.iter().filter_map(first).collect::<Vec<_>>()
    };
    let common = first_occurrences(&samples[0]);
    let recurs = common.iter().enumerate().any(|(at, &first)| first < at);
    recurs && samples.iter().all(|sample| first_occurrences(sample) == common)
}

/// Calls `visit` for each query after the first one of its document, with the tokens after the first one up to the query,
/// their weights, and the numbers of the sample and the query. `pattern` is `[batch, query, key]`.
fn for_each_later_query(
    pattern: &[f32],
    time: usize,
    samples: &[Sample],
    mut visit: impl FnMut(&[u32], &[f32], [usize; 2]),
) {
    for (number, (sample, map)) in samples.iter().zip(pattern.chunks(time * time)).enumerate() {
        for (first, tokens) in sample.documents() {
            for query in 1..tokens.len() {
                let row = &map[(first + query) * time + first..];
                visit(&tokens[1..=query], &row[1..=query], [number, first + query]);
            }
        }
    }
}
