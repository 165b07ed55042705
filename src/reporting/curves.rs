//! Curves: over the steps of a run from the rows of `metrics.csv`, over sequence lengths, and over numbers of workers.

use causal_attention_report::gradients::GradientCurve;
use causal_attention_report::lengths::{self, LengthPanel};
use causal_attention_report::scaling::{self, Efficiency};
use causal_attention_report::{LossCurve, Picture, Point};

use crate::evaluation::{AtLength, Protocol};
use crate::scaling::Prediction;
use crate::training::{Ended, Row, Split, Summary};

/// Returns the values of a split's rows, ordered by step.
fn points(rows: &[Row], split: Split, value: impl Fn(&Row) -> Option<f64>) -> Vec<Point> {
    let rows = rows.iter().filter(|row| row.split == split);
    rows.filter_map(|row| Some(Point { step: row.step as u64, value: value(row)? })).collect()
}

/// Builds the loss curve of a run.
pub(super) fn loss_curve(run: String, rows: &[Row], summary: &Summary) -> LossCurve {
    let last = rows.last().map_or(0, |row| row.step) as f64;
    // The epochs of a run that resumed with another batch size have different lengths, so their ends are not marked.
    let epoch_of = |row: &Row| (row.step as f64 / summary.work.steps_per_epoch).ceil().max(1.0);
    let are_equal = rows.iter().all(|row| row.epoch as f64 == epoch_of(row));
    let epochs = if are_equal { (last / summary.work.steps_per_epoch).floor() as u64 } else { 0 };
    let epoch_end = |epoch: u64| (epoch as f64 * summary.work.steps_per_epoch).ceil() as u64;
    LossCurve {
        run,
        training: points(rows, Split::Train, |row| Some(row.loss)),
        objective: points(rows, Split::Train, |row| row.objective),
        validation: points(rows, Split::Valid, |row| Some(row.loss)),
        learning_rate: points(rows, Split::Train, |row| Some(row.learning_rate)),
        epoch_ends: (1..=epochs).map(epoch_end).collect(),
        floor: summary.losses.floor,
        diverged: (summary.ended == Ended::Diverged)
            .then(|| summary.diverged_step.unwrap_or(summary.work.steps) as u64),
        weights: None,
    }
}

/// Builds the gradient curve of a run whose gradient norm is clipped to `limit`.
pub(super) fn gradient_curve(rows: &[Row], limit: f64, summary: &Summary) -> GradientCurve {
    GradientCurve {
        norms: points(rows, Split::Train, |row| row.gradient_norm),
        clip_rates: points(rows, Split::Train, |row| row.clip_rate),
        limit,
        clipped: summary.work.clip_rate,
    }
}

/// Draws the loss of a run by sequence length for both protocols, above the floor if the floor is known. `trained` is
/// the trained length, and `width` the width of the picture.
pub fn lengths_picture(run: &str, losses: &[AtLength], trained: usize, width: f64) -> Picture {
    let is_above_floor = losses.iter().all(|at| at.gap.is_some());
    let curves = [(Protocol::Windows, "non-overlapping windows"), (Protocol::Sliding, "sliding windows")];
    let curves = curves.map(|(protocol, name)| {
        let of_protocol = losses.iter().filter(|at| at.protocol == protocol);
        (name.to_string(), of_protocol.map(|at| (at.length, at.gap.unwrap_or(at.loss))).collect())
    });
    let panel = LengthPanel { name: String::new(), trained, curves: curves.into() };
    let note = "non-overlapping windows: every target counts; sliding windows: only the last eighth of each window \
                counts, with at least 7/8 of the length as context";
    lengths::picture("lengths", &format!("{run}: loss by length"), note, &[panel], (is_above_floor, width))
}

/// Draws the predicted efficiency by number of workers for the config called `name`; `note` names the link,
/// and `width` is the width of the picture.
pub fn scaling_picture(name: &str, scaled: &[Prediction], note: &str, width: f64) -> Picture {
    let efficiency = |scaled: &Prediction| Efficiency {
        workers: scaled.workers,
        weak_scaling: scaled.growing.efficiency,
        strong_scaling: scaled.shared.map(|shared| shared.efficiency),
    };
    scaling::picture(name, &scaled.iter().map(efficiency).collect::<Vec<_>>(), note, width)
}
