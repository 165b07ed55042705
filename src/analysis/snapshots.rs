//! `snapshots.jsonl`: attention and predictions on one validation sequence at several steps of a run, which show how
//! heads form.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use causal_attention_report::reading::{AttentionKind, AttentionMaps};
use serde::{Deserialize, Serialize};

use super::step_log::{AtStep, StepLog};
use super::{Sample, View};
use crate::config::Config;
use crate::data::Sequences;
use crate::error::{Error, Result};

/// The maximum number of decoder self-attention weights in a snapshot. A longer sequence is truncated.
const MAX_SNAPSHOT_WEIGHTS: usize = 1 << 16;
/// The quantisation level of weight 1. A byte holds the level of the square root of a weight, as on the page.
const MAX_LEVEL: f32 = 254.0;
/// The quantisation level of weight 0 if weights are signed. They have as many levels on both sides.
const SIGNED_ZERO: f32 = MAX_LEVEL / 2.0;

/// Attention and predictions on one sequence at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number of completed steps.
    pub step: usize,
    /// The argmax token at each position, and its probability.
    pub most_likely: Vec<(u32, f32)>,
    /// The probability of the true next token.
    pub truth: Vec<f32>,
    /// The weights of all maps: one byte per weight, zlib-compressed, in base64.
    weights: String,
    /// The largest absolute weight if weights are signed, as in differential attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed_limit: Option<f32>,
}

impl Snapshot {
    /// Creates the snapshot of a sample at `step` from the model's view of it.
    pub fn new(step: usize, sample: &Sample, view: &View) -> Self {
        let finite = |probability: f32| if probability.is_finite() { probability } else { 0.0 };
        let most_likely = |row: &Vec<f32>| {
            let larger = |best: (u32, f32), next: (u32, f32)| if next.1 > best.1 { next } else { best };
            (0..).zip(row.iter().copied().map(finite)).fold((0, 0.0), larger)
        };
        let truth = view.probabilities.iter().zip(&sample.targets);
        let lengths = [sample.inputs.len(), sample.source.as_ref().map_or(0, Vec::len)];
        let signed_limit = view.maps.signed_limit();
        let byte = |weight: f32| level(weight, signed_limit).round() as u8;
        let maps = AttentionKind::ALL.into_iter().flat_map(|kind| {
            let maps = view.maps.of(kind).iter().flatten();
            maps.flat_map(move |map| stored_weights(kind, lengths).map(|(index, _)| map[index]))
        });
        let bytes: Vec<u8> = maps.map(byte).collect();
        Self {
            step,
            most_likely: view.probabilities.iter().map(most_likely).collect(),
            truth: truth.map(|(row, &target)| finite(row[target as usize])).collect(),
            weights: STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 6)),
            signed_limit,
        }
    }

    /// Returns the attention maps. `like` holds the maps of a model with the same heads, and `source` is the number of
    /// source tokens. Returns `None` if the number of stored weights differs.
    pub fn maps(&self, like: &AttentionMaps, source: usize) -> Option<AttentionMaps> {
        let lengths = [self.truth.len(), source];
        let weights = |kind: AttentionKind| {
            like.of(kind).iter().flatten().count() * stored_weights(kind, lengths).count()
        };
        let all = AttentionKind::ALL.into_iter().map(weights).sum();
        let deflated = STANDARD.decode(&self.weights).ok()?;
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&deflated, all).ok()?;
        let mut bytes = Some(bytes).filter(|bytes| bytes.len() == all)?.into_iter();
        let [attention, cross, encoder] = AttentionKind::ALL.map(|kind| {
            let mut map = |_| {
                let mut map = Vec::new();
                for (index, end) in stored_weights(kind, lengths) {
                    map.resize(end, 0.0);
                    map[index] = bytes.next().map_or(0.0, |byte| weight(byte.into(), self.signed_limit));
                }
                map
            };
            like.of(kind).iter().map(|heads| heads.iter().map(&mut map).collect()).collect()
        });
        Some(AttentionMaps { attention, cross, encoder, visible: like.visible.clone() })
    }
}

/// Returns the quantisation level of a weight, not rounded.
fn level(weight: f32, signed_limit: Option<f32>) -> f32 {
    match signed_limit {
        None => weight.clamp(0.0, 1.0).sqrt() * MAX_LEVEL,
        Some(limit) => {
            let root = (weight.abs() / limit).min(1.0).sqrt();
            SIGNED_ZERO + (root * SIGNED_ZERO).round().copysign(weight)
        }
    }
}

/// Returns the weight of a quantisation level.
fn weight(level: f32, signed_limit: Option<f32>) -> f32 {
    match signed_limit {
        None => (level / MAX_LEVEL).powi(2).min(1.0),
        Some(limit) => {
            let root = level / SIGNED_ZERO - 1.0;
            limit * (root * root).min(1.0).copysign(root)
        }
    }
}

/// Returns the index of each stored weight of a map, and the end of its row. Causal rows are stored up to the query.
fn stored_weights(kind: AttentionKind, [time, source]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    let [queries, keys] = kind.sides(time, source);
    (0..queries).flat_map(move |query| {
        let visible = if kind == AttentionKind::Decoder { query + 1 } else { keys };
        (0..visible).map(move |key| (query * keys + key, (query + 1) * keys))
    })
}

/// Returns the validation sequence of a run's snapshots, truncated to their maximum length. Returns `None` if there is
/// none, or if the encoder's source is too long.
pub fn snapshot_sample(set: &Sequences, config: &Config) -> Option<Sample> {
    let sample = Sample::first(set, config.analysis.sample + 1).pop()?;
    let heads = config.model.layers * config.model.heads;
    let max_length = (2 * MAX_SNAPSHOT_WEIGHTS / heads.max(1)).isqrt().max(1);
    let is_short = sample.source.as_ref().is_none_or(|source| source.len() <= max_length);
    is_short.then(|| sample.truncated(max_length))
}

/// Returns true if one of `count` snapshots is taken after `step` of `total` steps. The first is taken before training,
/// the others at logarithmically spaced steps up to the last one.
pub fn is_snapshot_step(step: usize, total: usize, count: usize) -> bool {
    let intervals = count.saturating_sub(2).max(1) as f64;
    let step_of = |index: usize| (total as f64).powf(index as f64 / intervals).round() as usize;
    match count {
        0 => false,
        1 => step == total,
        _ => step == 0 || (0..count - 1).any(|index| step_of(index) == step) || step == total,
    }
}

/// The snapshots of a run.
pub type Snapshots = StepLog<Snapshot>;

impl AtStep for Snapshot {
    fn step(&self) -> usize {
        self.step
    }

    fn lines(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("a snapshot holds plain values");
        (json + "\n").into_bytes()
    }

    fn read(lines: &[u8], path: &Path) -> Result<Vec<Self>> {
        let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let snapshot = |(index, line)| {
            serde_json::from_slice(line).map_err(|error| {
                let problem =
                    format!("is not a valid snapshot: {error}; remove the file to omit the snapshots");
                Error::in_file(path, Some(index + 1), None, problem)
            })
        };
        lines.enumerate().map(snapshot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Role;

    fn sample(inputs: Vec<u32>, source: Option<Vec<u32>>) -> Sample {
        let (roles, documents) = (vec![Role::Unknown; inputs.len()], None);
        Sample {
            targets: inputs.iter().map(|token| (token + 1) % 5).collect(),
            roles,
            inputs,
            source,
            documents,
        }
    }

    #[test]
    fn snapshot_steps_are_log_spaced_with_both_ends() {
        let steps = |total, count| {
            (0..=total).filter(|&step| is_snapshot_step(step, total, count)).collect::<Vec<_>>()
        };
        assert_eq!(steps(1_000, 5), [0, 1, 10, 100, 1_000]);
        assert_eq!(steps(4_000, 12).len(), 12);
        assert_eq!((steps(9, 0), steps(9, 1), steps(9, 2)), (vec![], vec![9], vec![0, 1, 9]));
        assert_eq!(steps(3, 12), [0, 1, 2, 3], "no step twice");
    }

    #[test]
    fn snapshots_restore_quantized_maps_and_predictions() {
        let sample = sample(vec![3, 1, 4], Some(vec![2, 0]));
        let maps = AttentionMaps {
            attention: vec![vec![vec![1.0, 0.0, 0.0, 0.3, 0.7, 0.0, 0.2, 0.3, 0.5]; 2]; 3],
            cross: vec![vec![vec![0.9, 0.1, 0.4, 0.6, 1.0, 0.0]; 2]; 3],
            encoder: vec![vec![vec![0.9, 0.1, 0.4, 0.6]; 2]],
            visible: Vec::new(),
        };
        let view = View {
            maps,
            probabilities: vec![
                vec![0.1, 0.2, 0.3, 0.15, 0.25],
                vec![0.0, 0.0, 0.9, 0.1, 0.0],
                vec![f32::NAN; 5],
            ],
        };
        let snapshot = Snapshot::new(7, &sample, &view);
        assert_eq!(snapshot.truth, [0.25, 0.9, 0.0], "NaN is stored as 0");
        assert_eq!(snapshot.most_likely, [(2, 0.3), (2, 0.9), (0, 0.0)]);
        let restored = snapshot.maps(&view.maps, 2).unwrap();
        for kind in AttentionKind::ALL {
            let [found, expected] = [&restored, &view.maps].map(|maps| maps.of(kind).concat().concat());
            assert_eq!(found.len(), expected.len(), "{kind:?}");
            assert!(
                found.iter().zip(&expected).all(|(a, b)| (a.sqrt() - b.sqrt()).abs() <= 0.51 / MAX_LEVEL)
            );
        }
        assert_eq!(snapshot.maps(&view.maps, 3), None, "a source of another length does not match");
    }

    #[test]
    fn snapshots_restore_signed_weights() {
        let weights = vec![1.2, 0.0, -0.4, 0.6];
        let maps = AttentionMaps { attention: vec![vec![weights.clone()]], ..AttentionMaps::default() };
        let view = View { maps, probabilities: vec![vec![0.2; 5]; 2] };
        let snapshot = Snapshot::new(7, &sample(vec![3, 1], None), &view);
        assert_eq!(snapshot.signed_limit, Some(1.2));
        let restored = snapshot.maps(&view.maps, 0).unwrap().attention.concat().concat();
        assert_eq!((restored[0], restored[1]), (1.2, 0.0));
        for (found, expected) in restored.iter().zip(&weights) {
            assert!((found - expected).abs() < 0.01 && found.signum() == expected.signum(), "{restored:?}");
        }
    }

    #[test]
    fn reopening_restores_entries_and_drops_later_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots.jsonl");
        let mut snapshots = Snapshots::open(&path, 0).unwrap();
        let view = AttentionMaps { attention: vec![vec![vec![1.0]]], ..AttentionMaps::default() };
        let view = View { maps: view, probabilities: vec![vec![0.1, 0.9, 0.0, 0.0, 0.0]] };
        for step in [0, 1, 5] {
            snapshots.push(Snapshot::new(step, &sample(vec![0], None), &view)).unwrap();
        }
        let complete = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&complete[..], b"{\"step\":9"].concat()).unwrap();
        let mut reopened = Snapshots::open(&path, 1).unwrap();
        assert!(reopened.ends_at(1) && !reopened.ends_at(5));
        reopened.rewrite().unwrap();
        reopened.push(snapshots.all[2].clone()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), complete, "byte for byte");
        std::fs::write(&path, "{}\n").unwrap();
        let error = Snapshots::open(&path, 1).unwrap_err().to_string();
        assert!(error.contains("snapshots.jsonl:1") && error.contains("not a valid snapshot"), "{error}");
    }
}
