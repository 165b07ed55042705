//! How good a model is at a length, which may be another than it was trained on, by two protocols.
//!
//! Early targets of a window have little context, so that longer windows lower the loss of any model that reads at
//! all. Whether a scheme reads *far* shows where these do not weigh (Press, Smith and Lewis, 2021, arXiv 2108.12409,
//! appendix B): windows then overlap, and of each only the last targets count.

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{Tally, scores};
use crate::data::{Role, Sequences};
use crate::model::Model;

/// Which targets of a window of some length count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Windows side by side: all.
    Windows,
    /// Windows that start an eighth of the length apart: the last eighth, so that each target is predicted
    /// from seven eighths of the length at least. A last window ends with the stream and counts the targets that
    /// are left, so that only those before the first seven eighths count in no window. Sequences that a task draws
    /// stand by themselves: of each the last eighth counts.
    Sliding,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Windows, Self::Sliding];

    /// From the start of a window of this length to that of the next: so many of its last targets count.
    pub fn stride(self, length: usize) -> usize {
        match self {
            Self::Windows => length,
            Self::Sliding => (length / 8).max(1),
        }
    }
}

/// A model's scores at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtLength {
    /// Targets of a window.
    pub length: usize,
    /// Which of them count.
    pub protocol: Protocol,
    /// How many of its last targets these are.
    pub stride: usize,
    /// Mean loss over the counted targets, in nats.
    pub loss: f64,
    /// That of the optimal predictor on the same targets, where it is known.
    pub floor: Option<f64>,
    /// The loss above the floor.
    pub gap: Option<f64>,
    /// Share of the counted targets that were the likeliest token.
    pub accuracy: f64,
    /// The same over the targets that the optimal predictor knows; none where there are none.
    pub determined_accuracy: Option<f64>,
    /// Counted targets.
    pub tokens: u64,
}

/// Scores a model on a set whose windows, or whose sequences all, have the [same length](Sequences::time), by both
/// protocols. `floor` is that of each position, where it is known. No batch holds more than `most_tokens`, or one
/// window.
///
/// # Panics
/// If the model cannot read so many tokens: [`Model::check`] says so before.
pub fn at_length<B: Backend>(
    model: &Model<B>,
    set: &Sequences,
    floor: &[f64],
    most_tokens: usize,
    device: &B::Device,
) -> [AtLength; 2] {
    let length = set.time();
    let rows = (most_tokens / length).max(1);
    let side_by_side: Vec<usize> = (0..set.len()).map(|sample| set.place(sample)).collect();
    let mut tallies = [Tally::default(), Tally::default()];
    // Each protocol with how many of the last targets of a row it counts, the one that counts most first.
    let mut read = |places: &[usize], counted: &[(Protocol, usize)]| {
        for places in places.chunks(rows) {
            let mut batch = set.batch(places.iter().copied());
            let (losses, likeliest) = scores(model, &batch, device);
            for &(protocol, last) in counted {
                for row in batch.roles.chunks_mut(length) {
                    let early = (length - last).min(row.len());
                    row[..early].fill(Role::Padding);
                }
                tallies[protocol as usize].add(&batch, &losses, &likeliest);
            }
        }
    };
    let stride = Protocol::Sliding.stride(length);
    let windows = (Protocol::Windows, length);
    match set.window_starts() {
        None => read(&side_by_side, &[windows, (Protocol::Sliding, stride)]),
        Some(starts) => {
            read(&side_by_side, &[windows]);
            let last = starts.end - 1;
            let overlapping: Vec<usize> = starts.step_by(stride).collect();
            read(&overlapping, &[(Protocol::Sliding, stride)]);
            if !last.is_multiple_of(stride) {
                read(&[last], &[(Protocol::Sliding, last % stride)]);
            }
        }
    }
    Protocol::ALL.map(|protocol| {
        let evaluation = tallies[protocol as usize].evaluation();
        let stride = protocol.stride(length);
        // The sequences of a task have one length, so each position weighs alike.
        let counted = floor.len().checked_sub(stride).map(|first| &floor[first..]);
        let floor = counted.map(|floor| floor.iter().sum::<f64>() / floor.len() as f64);
        AtLength {
            length,
            protocol,
            stride,
            loss: evaluation.loss,
            floor,
            gap: floor.map(|floor| evaluation.loss - floor),
            accuracy: evaluation.accuracy,
            determined_accuracy: evaluation.determined_accuracy,
            tokens: evaluation.tokens,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn_ndarray::NdArray;

    use super::*;
    use crate::data::sequences::Rows;
    use crate::data::{DataConfig, Task, load};
    use crate::evaluation::evaluate;
    use crate::model::{ModelConfig, Sizes};
    use crate::ops;

    type B = NdArray;

    fn model() -> Model<B> {
        let sizes = Sizes { vocab: 17, context: 16, source_context: None };
        let config = ModelConfig { d_model: 12, heads: 2, layers: 1, ..ModelConfig::default() };
        ops::seed::<B>(&Default::default(), 5);
        config.init(sizes, &Default::default()).unwrap()
    }

    #[test]
    fn windows_are_the_whole_set_and_sliding_is_the_end_of_each_sequence() {
        let data = DataConfig {
            task: Task::Sort,
            length: 16,
            train_samples: 1,
            valid_samples: 7,
            ..DataConfig::default()
        };
        let dataset = load(&data, 3).unwrap();
        let (model, device) = (model(), Default::default());
        let whole = evaluate(&model, dataset.valid.batches(7), &device);
        // Batches of two sequences, and of one.
        for most_tokens in [33, 1] {
            let [windows, sliding] =
                at_length(&model, &dataset.valid, &dataset.floor_by_position, most_tokens, &device);
            assert!((windows.loss - whole.loss).abs() < 1e-6, "{} {}", windows.loss, whole.loss);
            assert_eq!((windows.accuracy, windows.tokens), (whole.accuracy, 7 * 16));
            let floor = dataset.floor.unwrap().valid;
            assert!((windows.floor.unwrap() - floor).abs() < 1e-12);
            let last = whole.loss_by_position[14..].iter().map(|loss| loss.unwrap()).sum::<f64>() / 2.0;
            assert!((sliding.loss - last).abs() < 1e-6, "{} {last}", sliding.loss);
            // All of an answer is known.
            assert_eq!((sliding.stride, sliding.tokens, sliding.floor), (2, 14, Some(0.0)));
            assert_eq!(sliding.gap, Some(sliding.loss));
        }
    }

    #[test]
    fn each_target_of_a_stream_is_read_with_nearly_a_full_window_before_it() {
        let mut rows = Rows::default();
        let ids: Vec<u32> = (0..60).map(|place| place * place % 17).collect();
        rows.push(&ids);
        let rows = Arc::new(rows);
        let (model, device) = (model(), Default::default());
        let set = Sequences::windows(rows.clone(), 0..60, 16);
        let [windows, sliding] = at_length(&model, &set, &[], 64, &device);
        assert_eq!((windows.tokens, windows.floor), (59, None));
        // Windows start at 0, 2, ... 42, of which each adds two targets, and at 43, which adds the last one; those
        // before the fifteenth are never counted.
        assert_eq!((sliding.stride, sliding.tokens), (2, 2 * 22 + 1));
        let of_window = |start: usize| {
            let window = Sequences::windows(rows.clone(), start..start + 17, 16);
            let losses = evaluate(&model, window.batches(1), &device).loss_by_position;
            [14, 15].map(|position| losses[position].unwrap())
        };
        let full: f64 = (0..=42).step_by(2).flat_map(of_window).sum();
        let by_hand = (full + of_window(43)[1]) / 45.0;
        assert!((sliding.loss - by_hand).abs() < 1e-6, "{} {by_hand}", sliding.loss);
    }
}
