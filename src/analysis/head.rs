//! Scores that say what a head does, from its attention weights alone.
//!
//! Each is a mean over the queries of a set of sequences, over those queries that have what is
//! asked for: every query has a first token, few have an earlier occurrence of their own.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The scores of one head; none where no query could tell. Shares of attention lie from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadScores {
    /// Entropy of the weights over the keys, in nats.
    pub entropy: Option<f64>,
    /// Tokens from the query back to the keys, weighed by attention.
    pub distance: Option<f64>,
    /// Weight on the query itself.
    #[serde(rename = "self")]
    pub itself: Option<f64>,
    /// Weight on the token before.
    pub previous: Option<f64>,
    /// Weight on the first token of the sequence, over the later ones.
    pub first: Option<f64>,
    /// Weight on the token after the last earlier occurrence of the query's token: what an induction
    /// head attends to (Olsson et al., 2022, arXiv 2209.11895).
    pub induction: Option<f64>,
    /// Weight on earlier occurrences of the query's token.
    pub duplicate: Option<f64>,
    /// Rise of the loss when the head's output is zeroed, in nats; none where it was not tried.
    pub ablation: Option<f64>,
}

/// Sums over queries, from which the scores of one head are made.
#[derive(Debug, Clone, Default)]
pub struct HeadTally {
    entropy: Mean,
    distance: Mean,
    itself: Mean,
    previous: Mean,
    first: Mean,
    induction: Mean,
    duplicate: Mean,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    queries: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.queries += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.queries > 0).then(|| self.sum / self.queries as f64)
    }
}

impl HeadTally {
    /// Adds one sequence: the head's `weights` `[query, key]`, row by row, over its `tokens`. Rows and
    /// columns behind the last token are padding.
    pub fn add(&mut self, weights: &[f32], tokens: &[u32]) {
        for (query, row) in weights.chunks(weights.len().isqrt().max(1)).take(tokens.len()).enumerate() {
            let weight = |key: usize| f64::from(row[key]);
            let seen = (0..=query).filter(|&key| row[key] > 0.0);
            self.entropy.add(seen.clone().map(|key| -weight(key) * weight(key).ln()).sum());
            self.distance.add(seen.map(|key| weight(key) * (query - key) as f64).sum());
            self.itself.add(weight(query));
            if query == 0 {
                continue;
            }
            self.previous.add(weight(query - 1));
            self.first.add(weight(0));
            let mut earlier = (0..query).filter(|&key| tokens[key] == tokens[query]).peekable();
            if earlier.peek().is_some() {
                let (mut last, mut duplicates) = (0, 0.0);
                for key in earlier {
                    (last, duplicates) = (key, duplicates + weight(key));
                }
                self.duplicate.add(duplicates);
                self.induction.add(weight(last + 1));
            }
        }
    }

    /// The means, without an ablation.
    pub fn scores(&self) -> HeadScores {
        HeadScores {
            entropy: self.entropy.value(),
            distance: self.distance.value(),
            itself: self.itself.value(),
            previous: self.previous.value(),
            first: self.first.value(),
            induction: self.induction.value(),
            duplicate: self.duplicate.value(),
            ablation: None,
        }
    }
}

/// The tallies of all heads, `[layer][head]`: sequences are added one by one, so that the weights of
/// one alone need to be held.
#[derive(Debug, Clone, Default)]
pub struct HeadTallies(Vec<Vec<HeadTally>>);

impl HeadTallies {
    /// Adds one sequence: the `attention` of all heads, `[layer][head]`, over its `tokens`.
    pub fn add(&mut self, attention: &[Vec<Vec<f32>>], tokens: &[u32]) {
        self.0.resize_with(attention.len(), Vec::new);
        for (tallies, heads) in self.0.iter_mut().zip(attention) {
            tallies.resize_with(heads.len(), HeadTally::default);
            for (tally, weights) in tallies.iter_mut().zip(heads) {
                tally.add(weights, tokens);
            }
        }
    }

    /// Adds a batch: the `attention` of each layer, `[sequence, head, query, key]`, with the number of its
    /// heads, over the `tokens` of each sequence. Sequences that are shorter than the longest are padded.
    pub fn add_batch(&mut self, attention: &[(usize, Vec<f32>)], tokens: &[&[u32]]) {
        self.0.resize_with(attention.len(), Vec::new);
        let tallies = self.0.iter_mut().zip(attention).flat_map(|(tallies, (heads, weights))| {
            tallies.resize_with(*heads, HeadTally::default);
            let map = weights.len() / (heads * tokens.len()).max(1);
            tallies.iter_mut().enumerate().map(move |(head, tally)| (tally, (head, *heads, map), weights))
        });
        // Heads side by side, and each over the sequences in their order: the same sums on any number of
        // threads.
        tallies.collect::<Vec<_>>().into_par_iter().for_each(|(tally, (head, heads, map), weights)| {
            for (sequence, tokens) in tokens.iter().enumerate() {
                let start = (sequence * heads + head) * map;
                tally.add(&weights[start..start + map], tokens);
            }
        });
    }

    /// The scores of all heads, without an ablation.
    pub fn scores(&self) -> Vec<Vec<HeadScores>> {
        self.0.iter().map(|heads| heads.iter().map(HeadTally::scores).collect()).collect()
    }
}

/// The head of a layer with the highest induction score. Heads that come within a tenth of it count as
/// equal: of twins, the one without which the loss rises most, where that is known, and else the
/// first.
pub fn most_inductive(layer: &[HeadScores]) -> usize {
    let induction = |scores: &HeadScores| scores.induction.unwrap_or(0.0);
    let best = layer.iter().map(induction).fold(0.0, f64::max);
    let twins = layer.iter().enumerate().filter(|(_, scores)| induction(scores) >= 0.9 * best);
    let worth = |scores: &HeadScores| scores.ablation.unwrap_or(f64::NEG_INFINITY);
    // The first of equals: `max_by` takes the last.
    twins.rev().max_by(|(_, a), (_, b)| worth(a).total_cmp(&worth(b))).map_or(0, |(head, _)| head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(weights: &[f32], tokens: &[u32]) -> HeadScores {
        let mut tally = HeadTally::default();
        tally.add(weights, tokens);
        tally.scores()
    }

    fn close(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-6), "{value:?} {expected}");
    }

    #[test]
    fn each_score_is_the_mean_weight_where_it_looks() {
        let tokens = [5, 7, 5, 7];
        let weights =
            [[1.0, 0.0, 0.0, 0.0], [0.25, 0.75, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]]
                .concat();
        let scores = scores(&weights, &tokens);
        close(scores.itself, (1.0 + 0.75 + 0.25 + 0.4) / 4.0);
        close(scores.previous, (0.25 + 0.25 + 0.3) / 3.0);
        close(scores.first, (0.25 + 0.5 + 0.1) / 3.0);
        // Query 2 (token 5, last at 0) is followed by what stands at 1; query 3 (token 7, last at 1) by 2.
        close(scores.induction, (0.25 + 0.3) / 2.0);
        close(scores.duplicate, (0.5 + 0.2) / 2.0);
        close(scores.distance, (0.0 + 0.25 + (2.0 * 0.5 + 0.25) + (0.3 + 2.0 * 0.2 + 0.3)) / 4.0);
        let entropy = |row: &[f64]| row.iter().map(|w| -w * w.ln()).sum::<f64>();
        let rows = entropy(&[0.25, 0.75]) + entropy(&[0.5, 0.25, 0.25]) + entropy(&[0.1, 0.2, 0.3, 0.4]);
        close(scores.entropy, rows / 4.0);
    }

    #[test]
    fn a_padded_batch_counts_as_its_sequences_one_by_one() {
        let map = |seed: f32, time: usize| -> Vec<f32> {
            (0..time * time).map(|place| ((place as f32 + seed).sin().abs()) / time as f32).collect()
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
            one_by_one.add(&attention, tokens);
        }
        batch.add_batch(&layers, &sequences.map(|(tokens, _)| tokens));
        assert_eq!(batch.scores(), one_by_one.scores());
    }

    #[test]
    fn what_no_query_can_tell_is_none() {
        let scores = scores(&[1.0, 0.0, 0.5, 0.5], &[1, 2]);
        assert_eq!((scores.induction, scores.duplicate), (None, None), "nothing comes twice");
        let alone = self::scores(&[1.0], &[1]);
        assert_eq!((alone.previous, alone.first), (None, None));
        assert_eq!(alone.entropy, Some(0.0));
    }

    #[test]
    fn queries_of_all_sequences_weigh_alike_and_the_inductive_head_is_found() {
        let induction = vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 0.0];
        let flat = vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.2, 0.4, 0.4];
        let attention = [vec![flat.clone(), induction.clone()]];
        let short = [vec![vec![1.0], vec![1.0]]];
        let mut tallies = HeadTallies::default();
        tallies.add(&attention, &[3, 4, 3]);
        tallies.add(&short, &[3]);
        let all = tallies.scores();
        close(all[0][1].induction, 1.0);
        close(all[0][0].itself, (1.0 + 0.5 + 0.4 + 1.0) / 4.0);
        assert_eq!(most_inductive(&all[0]), 1);

        let head = |induction, ablation| HeadScores {
            induction: Some(induction),
            ablation,
            ..HeadTally::default().scores()
        };
        let twins = [head(0.1, Some(5.0)), head(0.49, Some(0.1)), head(0.47, Some(3.3))];
        assert_eq!(most_inductive(&twins), 2, "of twins, the one that counts");
        assert_eq!(most_inductive(&[head(0.4, None), head(0.41, None), head(0.2, None)]), 0);
    }
}
