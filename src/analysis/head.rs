//! Head scores computed from attention weights alone.
//!
//! Each score is a mean over the queries that it applies to. For example, the induction score applies only to queries
//! with an earlier occurrence of their token.

use rayon::prelude::*;

use super::Sample;
use super::score::{HeadScores, Score};
use crate::evaluation::Mean;

/// Running sums for the scores of all heads, `[layer][head]`.
#[derive(Debug, Clone, Default)]
pub struct HeadTallies(Vec<Vec<ScoreTally>>);

/// The documents of a sequence, each with the position of its first token.
type DocumentTokens<'a> = Vec<(usize, &'a [u32])>;

/// The mean of each score of one head.
type ScoreTally = [Mean; Score::ALL.len()];

impl HeadTallies {
    /// Adds one sequence: the `attention` of all heads, `[layer][head]`, over its [documents](super::Sample::documents).
    pub fn add(&mut self, attention: &[Vec<Vec<f32>>], documents: DocumentTokens) {
        let layers: Vec<_> = attention.iter().map(|heads| (heads.len(), heads.concat())).collect();
        self.add_batch(&layers, &[documents]);
    }

    /// Adds a batch. `attention` holds for each layer its number of heads and its weights,
    /// `[sequence, head, query, key]`; `sequences` holds the [documents](super::Sample::documents) of each sequence.
    /// Shorter sequences are padded.
    pub fn add_batch(&mut self, attention: &[(usize, Vec<f32>)], sequences: &[DocumentTokens]) {
        self.0.resize_with(attention.len(), Vec::new);
        for (tallies, (heads, weights)) in self.0.iter_mut().zip(attention) {
            add_layer(tallies, (*heads, weights), sequences);
        }
    }

    /// Adds another layer, with its number of heads and its weights as in [`add_batch`](Self::add_batch).
    pub fn push_layer(&mut self, attention: (usize, &[f32]), sequences: &[DocumentTokens]) {
        let mut tallies = Vec::new();
        add_layer(&mut tallies, attention, sequences);
        self.0.push(tallies);
    }

    /// Returns the chance level of each score: the scores, on these samples, of a head that attends to all visible keys
    /// equally. With a `window`, these are the last ones up to the query.
    pub fn chance(samples: &[Sample], window: Option<usize>) -> HeadScores {
        let mut tallies = Self::default();
        for sample in samples {
            tallies.add(&[vec![uniform_weights(sample, window)]], sample.documents());
        }
        tallies.scores().concat().first().copied().unwrap_or_default()
    }

    /// Returns the scores of all heads, without the ablation score.
    pub fn scores(&self) -> Vec<Vec<HeadScores>> {
        let scores = |tally: &ScoreTally| HeadScores::new(|score| tally[score as usize].value());
        self.0.iter().map(|heads| heads.iter().map(scores).collect()).collect()
    }
}

/// Returns the weights `[query, key]` of a head that attends to all visible keys of a sample equally: with a `window`, to the
/// last ones up to the query.
pub(super) fn uniform_weights(sample: &Sample, window: Option<usize>) -> Vec<f32> {
    let time = sample.inputs.len();
    let mut weights = vec![0.0; time * time];
    for (first, tokens) in sample.documents() {
        for query in 0..tokens.len() {
            let row = (first + query) * time + first;
            let keys = window.unwrap_or(usize::MAX).min(query + 1);
            weights[row + query + 1 - keys..=row + query].fill(1.0 / keys as f32);
        }
    }
    weights
}

/// Returns the values of a weight score at the queries that it applies to, each with the position of the query. `weights`
/// are those of a head over one sequence with these documents, `[query, key]`, and may be padded.
pub(super) fn values_by_query(
    score: Score,
    weights: &[f32],
    documents: &[(usize, &[u32])],
) -> Vec<(usize, f64)> {
    let time = weights.len().isqrt().max(1);
    let of_document = |&(first, tokens): &(usize, &[u32])| {
        let rows = weights.chunks(time).skip(first).take(tokens.len()).enumerate();
        let value = |(query, row): (usize, &[f32])| {
            let scores = query_weights(&row[first..], tokens, query);
            let (_, value) = scores.into_iter().find(|(it, _)| *it == score)?;
            Some((first + query, value?))
        };
        rows.filter_map(value).collect::<Vec<_>>()
    };
    documents.iter().flat_map(of_document).collect()
}

/// Returns the weight scores of one query of a document; `None` for a score that does not apply to it.
fn query_weights(row: &[f32], tokens: &[u32], query: usize) -> [(Score, Option<f64>); 5] {
    let weight = |key: usize| f64::from(row[key]);
    let earlier = (0..query).filter(|&key| tokens[key] == tokens[query]);
    let has_earlier = earlier.clone().next().is_some();
    [
        (Score::Itself, Some(weight(query))),
        (Score::Previous, query.checked_sub(1).map(weight)),
        (Score::First, (query > 0).then(|| weight(0))),
        (Score::Induction, has_earlier.then(|| earlier.clone().map(|key| weight(key + 1)).sum())),
        (Score::Duplicate, has_earlier.then(|| earlier.map(weight).sum())),
    ]
}

/// Adds the weights of all heads of a layer, `[sequence, head, query, key]`.
fn add_layer(tallies: &mut Vec<ScoreTally>, (heads, weights): (usize, &[f32]), sequences: &[DocumentTokens]) {
    tallies.resize_with(heads, ScoreTally::default);
    let map = weights.len() / (heads * sequences.len()).max(1);
    // Parallel over heads, and sequential over sequences within a head: the sums do not depend on the number of threads.
    tallies.par_iter_mut().enumerate().for_each(|(head, tally)| {
        for (sequence, documents) in sequences.iter().enumerate() {
            let start = (sequence * heads + head) * map;
            for &(first, tokens) in documents {
                add(tally, &weights[start..start + map], first, tokens);
            }
        }
    });
}

/// Adds one document: the `tokens` from position `first` on, with a head's `weights` over the entire sequence,
/// `[query, key]` in row-major order. Rows and columns after the last token are of other documents or padding.
fn add(tally: &mut ScoreTally, weights: &[f32], first: usize, tokens: &[u32]) {
    let rows = weights.chunks(weights.len().isqrt().max(1)).skip(first).map(|row| &row[first..]);
    for (query, row) in rows.take(tokens.len()).enumerate() {
        let weight = |key: usize| f64::from(row[key]);
        let mut add = |score: Score, value: f64| tally[score as usize].add(value);
        let visible = (0..=query).filter(|&key| row[key] > 0.0);
        add(Score::Entropy, visible.clone().map(|key| -weight(key) * weight(key).ln()).sum());
        // A sink takes a part of the weight, which is at no distance.
        let total: f64 = visible.clone().map(weight).sum();
        let distances: f64 = visible.map(|key| weight(key) * (query - key) as f64).sum();
        add(Score::Distance, distances / total.max(f64::MIN_POSITIVE));
        for (score, value) in query_weights(row, tokens, query) {
            value.into_iter().for_each(|value| add(score, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Role;

    fn scores(weights: &[f32], tokens: &[u32]) -> HeadScores {
        let mut tallies = HeadTallies::default();
        tallies.add(&[vec![weights.to_vec()]], vec![(0, tokens)]);
        tallies.scores()[0][0]
    }

    fn assert_close(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-6), "{value:?} {expected}");
    }

    #[test]
    fn head_scores_match_hand_computed_means() {
        let tokens = [5, 7, 5, 7];
        let weights =
            [[1.0, 0.0, 0.0, 0.0], [0.25, 0.75, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]]
                .concat();
        let scores = scores(&weights, &tokens);
        assert_close(scores[Score::Itself], (1.0 + 0.75 + 0.25 + 0.4) / 4.0);
        assert_close(scores[Score::Previous], (0.25 + 0.25 + 0.3) / 3.0);
        assert_close(scores[Score::First], (0.25 + 0.5 + 0.1) / 3.0);
        // Token 5 at query 2 occurs earlier at 0, followed by position 1. Token 7 at query 3 occurs earlier at 1,
        // followed by position 2.
        assert_close(scores[Score::Induction], (0.25 + 0.3) / 2.0);
        assert_close(scores[Score::Duplicate], (0.5 + 0.2) / 2.0);
        assert_close(
            scores[Score::Distance],
            (0.0 + 0.25 + (2.0 * 0.5 + 0.25) + (0.3 + 2.0 * 0.2 + 0.3)) / 4.0,
        );
        let entropy = |row: &[f64]| row.iter().map(|w| -w * w.ln()).sum::<f64>();
        let rows = entropy(&[0.25, 0.75]) + entropy(&[0.5, 0.25, 0.25]) + entropy(&[0.1, 0.2, 0.3, 0.4]);
        assert_close(scores[Score::Entropy], rows / 4.0);
    }

    #[test]
    fn chance_is_even_attention_within_each_document() {
        let sample = |inputs: &[u32], documents: Option<Vec<u32>>| Sample {
            inputs: inputs.to_vec(),
            targets: inputs.to_vec(),
            roles: vec![Role::Unknown; inputs.len()],
            source: None,
            documents,
        };
        // Token 5 recurs at query 2, which sees 3 keys: one follows the earlier occurrence, and one is the occurrence.
        let single = HeadTallies::chance(&[sample(&[5, 7, 5], None)], None);
        assert_close(single[Score::Induction], 1.0 / 3.0);
        assert_close(single[Score::Duplicate], 1.0 / 3.0);
        assert_close(single[Score::Itself], (1.0 + 1.0 / 2.0 + 1.0 / 3.0) / 3.0);
        assert_close(single[Score::Entropy], (2f64.ln() + 3f64.ln()) / 3.0);
        assert_eq!(single[Score::Ablation], None);
        let apart = HeadTallies::chance(&[sample(&[5, 7, 5], Some(vec![0, 0, 1]))], None);
        assert_eq!(apart[Score::Induction], None);
        assert_close(apart[Score::Previous], 0.5);
        assert_eq!(HeadTallies::chance(&[], None), HeadScores::default());
        // With a window of two keys, the last query sees only one of the keys before it.
        let windowed = HeadTallies::chance(&[sample(&[5, 7, 5], None)], Some(2));
        assert_close(windowed[Score::Induction], 1.0 / 2.0);
        assert_close(windowed[Score::Duplicate], 0.0);
        assert_close(windowed[Score::Itself], (1.0 + 1.0 / 2.0 + 1.0 / 2.0) / 3.0);
        assert_close(windowed[Score::Entropy], 2.0 * 2f64.ln() / 3.0);
    }

    #[test]
    fn values_of_queries_average_to_the_score() {
        let (tokens, time) = ([5, 7, 5, 7, 5], 6);
        // A padded map of the documents `5 7 5` and `7 5`.
        let weights: Vec<f32> = (0..time * time).map(|at| (at as f32).sin().abs()).collect();
        let documents = [(0, &tokens[..3]), (3, &tokens[3..])];
        let mut tallies = HeadTallies::default();
        tallies.add(&[vec![weights.clone()]], documents.to_vec());
        let found = tallies.scores()[0][0];
        for (score, positions) in [
            (Score::Itself, &[0, 1, 2, 3, 4][..]),
            (Score::Previous, &[1, 2, 4]),
            (Score::First, &[1, 2, 4]),
            (Score::Induction, &[2]),
            (Score::Duplicate, &[2]),
        ] {
            let values = values_by_query(score, &weights, &documents);
            assert!(values.iter().map(|(position, _)| position).eq(positions), "{values:?}");
            let mean = values.iter().map(|(_, value)| value).sum::<f64>() / positions.len() as f64;
            assert_close(found[score], mean);
        }
    }

    #[test]
    fn distance_is_over_the_weight_that_tokens_get() {
        let mut tallies = HeadTallies::default();
        // A sink takes a half of the second row.
        tallies.add(&[vec![vec![1.0, 0.0, 0.25, 0.25]]], vec![(0, &[3, 5][..])]);
        assert_close(tallies.scores()[0][0][Score::Distance], (0.0 + 0.5) / 2.0);
    }

    #[test]
    fn every_earlier_occurrence_counts() {
        let row = |weights: [f32; 5]| weights.to_vec();
        let weights = [
            row([1.0, 0.0, 0.0, 0.0, 0.0]),
            row([0.5, 0.5, 0.0, 0.0, 0.0]),
            row([0.25, 0.5, 0.25, 0.0, 0.0]),
            row([0.25; 5]),
            row([0.1, 0.3, 0.05, 0.5, 0.05]),
        ];
        let scores = scores(&weights.concat(), &[3, 4, 3, 5, 3]);
        // Query 2 has one earlier 3, at 0, followed by position 1. Query 4 has two, at 0 and 2, followed by 1 and 3.
        assert_close(scores[Score::Induction], (0.5 + (0.3 + 0.5)) / 2.0);
        assert_close(scores[Score::Duplicate], (0.25 + (0.1 + 0.05)) / 2.0);
    }

    #[test]
    fn padded_batches_match_single_sequences() {
        let map = |seed: f32, time: usize| -> Vec<f32> {
            (0..time * time).map(|index| ((index as f32 + seed).sin().abs()) / time as f32).collect()
        };
        let sequences: [(&[u32], f32); 3] = [(&[1, 2, 1, 2], 0.0), (&[3, 3], 5.0), (&[4, 5, 4], 9.0)];
        let (mut one_by_one, mut batch) = (HeadTallies::default(), HeadTallies::default());
        let layer_heads = [2, 3];
        let mut layers = layer_heads.map(|heads| (heads, Vec::new()));
        for (tokens, seed) in sequences {
            let time = tokens.len();
            let attention: Vec<Vec<Vec<f32>>> = layer_heads
                .iter()
                .map(|heads| (0..*heads).map(|head| map(seed + head as f32, time)).collect())
                .collect();
            for ((_, weights), heads) in layers.iter_mut().zip(&attention) {
                for map in heads {
                    let mut padded = vec![7.0; 16];
                    for (row, values) in map.chunks(time).enumerate() {
                        padded[row * 4..row * 4 + time].copy_from_slice(values);
                    }
                    weights.extend(padded);
                }
            }
            one_by_one.add(&attention, vec![(0, tokens)]);
        }
        batch.add_batch(&layers, &sequences.map(|(tokens, _)| vec![(0, tokens)]));
        assert_eq!(batch.scores(), one_by_one.scores());
    }

    #[test]
    fn documents_score_as_they_do_alone() {
        let (first, second) = ([1.0, 0.0, 0.25, 0.75], [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.2, 0.5, 0.3]);
        let (tokens, others) = ([4, 4], [4, 5, 4]);
        let mut packed = vec![0.0; 25];
        first.chunks(2).enumerate().for_each(|(query, row)| packed[5 * query..][..2].copy_from_slice(row));
        second.chunks(3).enumerate().for_each(|(query, row)| {
            packed[5 * (query + 2) + 2..][..3].copy_from_slice(row);
        });
        let (mut alone, mut together) = (HeadTallies::default(), HeadTallies::default());
        alone.add(&[vec![first.to_vec()]], vec![(0, &tokens)]);
        alone.add(&[vec![second.to_vec()]], vec![(0, &others)]);
        together.add(&[vec![packed]], vec![(0, &tokens), (2, &others)]);
        assert_eq!(together.scores(), alone.scores());
    }

    #[test]
    fn scores_without_applicable_queries_are_none() {
        let scores = scores(&[1.0, 0.0, 0.5, 0.5], &[1, 2]);
        assert_eq!(
            (scores[Score::Induction], scores[Score::Duplicate]),
            (None, None),
            "no token occurs twice"
        );
        let alone = self::scores(&[1.0], &[1]);
        assert_eq!((alone[Score::Previous], alone[Score::First]), (None, None));
        assert_eq!(alone[Score::Entropy], Some(0.0));
    }

    #[test]
    fn all_queries_have_the_same_weight() {
        let induction = vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 0.0];
        let flat = vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.2, 0.4, 0.4];
        let attention = [vec![flat.clone(), induction.clone()]];
        let short = [vec![vec![1.0], vec![1.0]]];
        let mut tallies = HeadTallies::default();
        tallies.add(&attention, vec![(0, &[3, 4, 3])]);
        tallies.add(&short, vec![(0, &[3])]);
        let all = tallies.scores();
        assert_close(all[0][1][Score::Induction], 1.0);
        assert_close(all[0][0][Score::Itself], (1.0 + 0.5 + 0.4 + 1.0) / 4.0);
    }
}
