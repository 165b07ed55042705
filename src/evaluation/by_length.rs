//! Evaluation at any length, which may differ from the trained length, by two protocols.
//!
//! Early targets of a window have little context, so longer windows lower the loss of any model that uses its context.
//! To measure length extrapolation, these targets must not count (Press, Smith and Lewis, 2021, arXiv 2108.12409,
//! appendix B). In the sliding protocol, windows therefore overlap, and only the last targets of each window count.

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{Tally, scores};
use crate::data::{Role, Sequences};
use crate::hooks::NoHooks;
use crate::model::Model;

/// The choice of targets that count in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Adjacent windows; all targets count.
    Windows,
    /// Windows with a stride of an eighth of the length, of which the last eighth counts. Each counted target is thus
    /// predicted from at least seven eighths of the length. The last window ends with the text and counts only the
    /// remaining targets. Only the targets in the first seven eighths of the first window never count. Sequences of a
    /// task are independent, so the last eighth of each counts.
    Sliding,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 2] = [Self::Windows, Self::Sliding];

    /// Returns the distance between the starts of two windows of this length, which is also the number of targets that
    /// count in a window.
    pub fn stride(self, length: usize) -> usize {
        match self {
            Self::Windows => length,
            Self::Sliding => (length / 8).max(1),
        }
    }
}

/// The scores of a model at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtLength {
    /// The number of targets of a window.
    pub length: usize,
    /// The protocol that selects the counted targets.
    pub protocol: Protocol,
    /// The number of targets at the end of a window that count.
    pub stride: usize,
    /// The mean loss over the counted targets, in nats.
    pub loss: f64,
    /// The loss of the optimal predictor on the same targets, if it is known.
    pub floor: Option<f64>,
    /// The difference between the loss and the floor.
    pub gap: Option<f64>,
    /// The fraction of the counted targets that are the argmax of the logits.
    pub accuracy: f64,
    /// The accuracy over the targets that the optimal predictor knows; `None` if there are none.
    pub determined_accuracy: Option<f64>,
    /// The number of counted targets.
    pub tokens: u64,
}

/// Evaluates a model with both protocols on a set whose windows or sequences all have the [same
/// length](Sequences::time). `floor` holds the entropy floor of each position, if it is known. A batch holds at
/// most `max_tokens` tokens, but at least one window. `done` receives the number of sequences of each finished batch;
/// these sum to [`sequences_at_length`].
///
/// # Panics
/// Panics if the model cannot read sequences of this length; [`Model::check`] returns an error for them beforehand.
pub fn at_length<B: Backend>(
    model: &Model<B>,
    set: &Sequences,
    floor: &[f64],
    max_tokens: usize,
    device: &B::Device,
    mut done: impl FnMut(usize),
) -> [AtLength; 2] {
    let length = set.time();
    let rows = (max_tokens / length).max(1);
    let mut tallies = [Tally::default(), Tally::default()];
    for Pass { starts, counted } in passes(set) {
        for starts in starts.chunks(rows) {
            let mut batch = set.batch(starts.iter().copied());
            let (losses, most_likely) = scores(model, &mut NoHooks, &batch, device);
            for &(protocol, last) in &counted {
                for row in batch.roles.chunks_mut(length) {
                    let early = (length - last).min(row.len());
                    row[..early].fill(Role::Padding);
                }
                tallies[protocol as usize].add(&batch, &losses, &most_likely);
            }
            done(starts.len());
        }
    }
    Protocol::ALL.map(|protocol| {
        let evaluation = tallies[protocol as usize].evaluation();
        let stride = protocol.stride(length);
        // The sequences of a task have one length, so all positions have the same weight.
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

/// A pass over sequences, and the targets that count in it.
struct Pass {
    /// The starts of the windows, or the indices of the sequences.
    starts: Vec<usize>,
    /// The number of targets that each protocol counts at the end of a sequence, in descending order.
    counted: Vec<(Protocol, usize)>,
}

/// Returns the passes over a set that both protocols need.
fn passes(set: &Sequences) -> Vec<Pass> {
    let (length, stride) = (set.time(), Protocol::Sliding.stride(set.time()));
    let adjacent: Vec<usize> = (0..set.len()).map(|sample| set.offset(sample)).collect();
    let (windows, sliding) = ((Protocol::Windows, length), (Protocol::Sliding, stride));
    let Some(starts) = set.window_starts() else {
        return vec![Pass { starts: adjacent, counted: vec![windows, sliding] }];
    };
    let last = starts.end - 1;
    let mut passes = vec![
        Pass { starts: adjacent, counted: vec![windows] },
        Pass { starts: starts.step_by(stride).collect(), counted: vec![sliding] },
    ];
    if !last.is_multiple_of(stride) {
        passes.push(Pass { starts: vec![last], counted: vec![(Protocol::Sliding, last % stride)] });
    }
    passes
}

/// Returns the number of sequences that [`at_length`] reads.
pub fn sequences_at_length(set: &Sequences) -> usize {
    passes(set).iter().map(|pass| pass.starts.len()).sum()
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
    fn windows_score_all_targets_and_sliding_the_last() {
        let data = DataConfig {
            task: Task::Sort,
            length: 16,
            train_samples: 1,
            valid_samples: 7,
            ..DataConfig::default()
        };
        let dataset = load(&data, 3).unwrap();
        let (model, device) = (model(), Default::default());
        let full = evaluate(&model, dataset.valid.batches(7), &device);
        // Batches of two sequences, and of one.
        for max_tokens in [33, 1] {
            let [windows, sliding] =
                at_length(&model, &dataset.valid, &dataset.floor_by_position, max_tokens, &device, |_| {});
            assert!((windows.loss - full.loss).abs() < 1e-6, "{} {}", windows.loss, full.loss);
            assert_eq!((windows.accuracy, windows.tokens), (full.accuracy, 7 * 16));
            let floor = dataset.floor.unwrap().valid;
            assert!((windows.floor.unwrap() - floor).abs() < 1e-12);
            let last = full.loss_by_position[14..].iter().map(|loss| loss.unwrap()).sum::<f64>() / 2.0;
            assert!((sliding.loss - last).abs() < 1e-6, "{} {last}", sliding.loss);
            // All targets of the answer are determined.
            assert_eq!((sliding.stride, sliding.tokens, sliding.floor), (2, 14, Some(0.0)));
            assert_eq!(sliding.gap, Some(sliding.loss));
        }
    }

    #[test]
    fn sliding_windows_give_each_target_long_context() {
        let mut rows = Rows::default();
        let ids: Vec<u32> = (0..60).map(|i| i * i % 17).collect();
        rows.push(&ids);
        let rows = Arc::new(rows);
        let (model, device) = (model(), Default::default());
        let set = Sequences::windows(rows.clone(), 0..60, 16);
        let [windows, sliding] = at_length(&model, &set, &[], 64, &device, |_| {});
        assert_eq!((windows.tokens, windows.floor), (59, None));
        // Windows that start at 0, 2, ... 42 add two targets each, and the window that starts at 43 adds the last one.
        // The targets before the fifteenth never count.
        assert_eq!((sliding.stride, sliding.tokens), (2, 2 * 22 + 1));
        let last_losses = |start: usize| {
            let window = Sequences::windows(rows.clone(), start..start + 17, 16);
            let losses = evaluate(&model, window.batches(1), &device).loss_by_position;
            [14, 15].map(|position| losses[position].unwrap())
        };
        let sum: f64 = (0..=42).step_by(2).flat_map(last_losses).sum();
        let expected = (sum + last_losses(43)[1]) / 45.0;
        assert!((sliding.loss - expected).abs() < 1e-6, "{} {expected}", sliding.loss);
    }
}
