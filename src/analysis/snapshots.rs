//! `snapshots.jsonl`: attention and predictions on one validation sequence at several steps of a run. They show how
//! heads form.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use causal_attention_report::reading::{AttentionKind, AttentionMaps};
use serde::{Deserialize, Serialize};

use super::step_log::{AtStep, StepLog};
use super::{Sample, View};
use crate::error::{Error, Result};

/// The maximum number of decoder self-attention weights in a snapshot. A longer sequence is truncated.
const MOST_WEIGHTS: usize = 1 << 16;
/// The number of quantisation levels: a byte holds the square root of a weight, as in the page.
const STEPS: f32 = 254.0;

/// Attention and predictions on one sequence at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number of completed steps.
    pub step: usize,
    /// The argmax token at each position, and its probability.
    pub likeliest: Vec<(u32, f32)>,
    /// The probability of the true next token.
    pub truth: Vec<f32>,
    /// The weights of all maps, one byte each, deflated, in base64.
    weights: String,
}

impl Snapshot {
    /// Creates the snapshot of a sample at `step` from the model's view of it.
    pub fn new(step: usize, sample: &Sample, view: &View) -> Self {
        let finite = |probability: f32| if probability.is_finite() { probability } else { 0.0 };
        let likeliest = |row: &Vec<f32>| {
            let larger = |best: (u32, f32), next: (u32, f32)| if next.1 > best.1 { next } else { best };
            (0..).zip(row.iter().copied().map(finite)).fold((0, 0.0), larger)
        };
        let truth = view.probabilities.iter().zip(&sample.targets);
        let lengths = [sample.inputs.len(), sample.source.as_ref().map_or(0, Vec::len)];
        let byte = |weight: f32| (weight.clamp(0.0, 1.0).sqrt() * STEPS).round() as u8;
        let maps = AttentionKind::ALL.into_iter().flat_map(|kind| {
            let maps = view.maps.of(kind).iter().flatten();
            maps.flat_map(move |map| kept(kind, lengths).map(|(place, _)| map[place]))
        });
        let bytes: Vec<u8> = maps.map(byte).collect();
        Self {
            step,
            likeliest: view.probabilities.iter().map(likeliest).collect(),
            truth: truth.map(|(row, &target)| finite(row[target as usize])).collect(),
            weights: STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 6)),
        }
    }

    /// Returns the attention maps of a model with the same heads as `like`, which reads a source of `source` tokens.
    /// Returns `None` if the snapshot holds another number of weights.
    pub fn maps(&self, like: &AttentionMaps, source: usize) -> Option<AttentionMaps> {
        let lengths = [self.truth.len(), source];
        let weights =
            |kind: AttentionKind| like.of(kind).iter().flatten().count() * kept(kind, lengths).count();
        let all = AttentionKind::ALL.into_iter().map(weights).sum();
        let deflated = STANDARD.decode(&self.weights).ok()?;
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&deflated, all).ok()?;
        let mut bytes = Some(bytes).filter(|bytes| bytes.len() == all)?.into_iter();
        let [attention, cross, encoder] = AttentionKind::ALL.map(|kind| {
            let mut map = |_| {
                let mut map = Vec::new();
                for (place, end) in kept(kind, lengths) {
                    map.resize(end, 0.0);
                    map[place] = bytes.next().map_or(0.0, |byte| (f32::from(byte) / STEPS).powi(2).min(1.0));
                }
                map
            };
            like.of(kind).iter().map(|heads| heads.iter().map(&mut map).collect()).collect()
        });
        Some(AttentionMaps { attention, cross, encoder, visible: like.visible.clone() })
    }
}

/// Returns the stored positions of a map, each with the end of its row. Causal rows are stored up to the query.
fn kept(kind: AttentionKind, [time, source]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    let [queries, keys] = kind.sides(time, source);
    (0..queries).flat_map(move |query| {
        let seen = if kind == AttentionKind::Decoder { query + 1 } else { keys };
        (0..seen).map(move |key| (query * keys + key, (query + 1) * keys))
    })
}

/// Returns the sequence to take snapshots of: the one that the pictures show, truncated if it is long. Returns `None`
/// if the encoder's source does not fit.
pub fn watched(sample: Sample, heads: usize) -> Option<Sample> {
    let longest = (2 * MOST_WEIGHTS / heads.max(1)).isqrt().max(1);
    let is_short = sample.source.as_ref().is_none_or(|source| source.len() <= longest);
    is_short.then(|| sample.beginning(longest))
}

/// Returns true if a snapshot is taken after `step` of `total` steps, given that `count` are requested. The first is
/// taken before the first step, and the others at logarithmically spaced steps up to the last.
pub fn is_taken(step: usize, total: usize, count: usize) -> bool {
    let spaces = count.saturating_sub(2).max(1) as f64;
    let taken = |index: usize| (total as f64).powf(index as f64 / spaces).round() as usize;
    match count {
        0 => false,
        1 => step == total,
        _ => step == 0 || (0..count - 1).any(|index| taken(index) == step) || step == total,
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
                let problem = format!("is no snapshot of a run: {error}; without the file they are left out");
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
        let roles = vec![Role::Unknown; inputs.len()];
        Sample { targets: inputs.iter().map(|token| (token + 1) % 5).collect(), roles, inputs, source }
    }

    #[test]
    fn snapshot_steps_are_log_spaced_with_both_ends() {
        let steps =
            |total, count| (0..=total).filter(|&step| is_taken(step, total, count)).collect::<Vec<_>>();
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
        assert_eq!(snapshot.truth, [0.25, 0.9, 0.0], "what is no number is none");
        assert_eq!(snapshot.likeliest, [(2, 0.3), (2, 0.9), (0, 0.0)]);
        let again = snapshot.maps(&view.maps, 2).unwrap();
        for kind in AttentionKind::ALL {
            let [found, wanted] = [&again, &view.maps].map(|maps| maps.of(kind).concat().concat());
            assert_eq!(found.len(), wanted.len(), "{kind:?}");
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a.sqrt() - b.sqrt()).abs() <= 0.51 / STEPS));
        }
        assert_eq!(snapshot.maps(&view.maps, 3), None, "maps of another source do not fit");
    }

    #[test]
    fn reopening_restores_entries_and_drops_later_steps() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("snapshots.jsonl");
        let mut snapshots = Snapshots::open(&path, 0).unwrap();
        let view = AttentionMaps { attention: vec![vec![vec![1.0]]], ..AttentionMaps::default() };
        let view = View { maps: view, probabilities: vec![vec![0.1, 0.9, 0.0, 0.0, 0.0]] };
        for step in [0, 1, 5] {
            snapshots.push(Snapshot::new(step, &sample(vec![0], None), &view)).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"step\":9"].concat()).unwrap();
        let mut again = Snapshots::open(&path, 1).unwrap();
        assert!(again.holds(1) && !again.holds(5));
        again.cut().unwrap();
        again.push(snapshots.all[2].clone()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), whole, "byte for byte");
        std::fs::write(&path, "{}\n").unwrap();
        let error = Snapshots::open(&path, 1).unwrap_err().to_string();
        assert!(error.contains("snapshots.jsonl:1") && error.contains("no snapshot"), "{error}");
    }
}
