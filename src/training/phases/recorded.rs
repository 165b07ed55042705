//! The phases in the recorded curves of a run: changes at the same time belong to one phase.

use super::found::{Phase, PhaseChange, PhaseCurve};
use crate::analysis::phases::{ChangeCriterion, changes, num_windows};
use crate::analysis::{Score, ScoredStep};
use crate::training::metrics::{Row, Split};

/// The minimum change of a loss as a share of its range.
const MIN_LOSS_SHARE: f64 = 0.05;
/// The minimum change of a score as a share of its range.
const MIN_SCORE_SHARE: f64 = 0.5;
/// The minimum change of an attention weight.
const MIN_WEIGHT_CHANGE: f64 = 0.1;
/// The minimum change of an entropy, in nats.
const MIN_ENTROPY_CHANGE: f64 = 0.3;
/// The minimum change of a distance as a share of the length of the sequences.
const MIN_DISTANCE_SHARE: f64 = 0.05;

/// A recorded curve of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCurve {
    /// What was recorded.
    pub curve: PhaseCurve,
    /// The steps and values; only finite ones.
    pub points: Vec<(usize, f64)>,
}

/// Returns the curves that a run recorded: its losses, and each score of each head.
pub fn curves(rows: &[Row], scored: &[ScoredStep]) -> Vec<RecordedCurve> {
    let loss = |curve: PhaseCurve, split: Split| {
        let rows = rows.iter().filter(|row| row.split == split);
        finite(curve, rows.map(|row| (row.step, Some(row.loss))))
    };
    let mut curves =
        vec![loss(PhaseCurve::TrainingLoss, Split::Train), loss(PhaseCurve::ValidationLoss, Split::Valid)];
    for (layer, heads) in scored.first().map_or(&[][..], |first| &first.heads).iter().enumerate() {
        for head in 0..heads.len() {
            for score in Score::ALL {
                let value = |step: &ScoredStep| step.heads.get(layer)?.get(head)?[score];
                let points = scored.iter().map(|step| (step.step, value(step)));
                curves.push(finite(PhaseCurve::HeadScore { layer, head, score: score.about().key }, points));
            }
        }
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn finite(curve: PhaseCurve, points: impl Iterator<Item = (usize, Option<f64>)>) -> RecordedCurve {
    let points = points.filter_map(|(step, value)| Some((step, value.filter(|value| value.is_finite())?)));
    let mut points: Vec<(usize, f64)> = points.collect();
    points.dedup_by_key(|point| point.0);
    RecordedCurve { curve, points }
}

/// Returns the steps between scorings of the heads.
pub fn spacing(scored: &[ScoredStep]) -> usize {
    scored.windows(2).map(|pair| pair[1].step.saturating_sub(pair[0].step)).next().unwrap_or(0)
}

/// Returns the phases of a run with these curves, whose sequences have `length` tokens. Losses and attention weights
/// begin a phase. An entropy or a distance only belongs to one in whose steps it changes.
pub fn phases(curves: &[RecordedCurve], length: usize) -> Vec<Phase> {
    let tests = curves.iter().map(|curve| num_windows(curve.points.len())).sum();
    let found = curves.iter().flat_map(|curve| of_curve(curve, length, tests));
    let (mut beginning, others): (Vec<PhaseChange>, Vec<PhaseChange>) =
        found.partition(|change| rank(change) >= 1.0);
    beginning.sort_by_key(|change| change.between);
    let mut phases: Vec<Phase> = Vec::new();
    for change in beginning {
        match phases.last_mut().filter(|phase| change.between[0] < phase.between[1]) {
            Some(phase) => {
                phase.between[1] = phase.between[1].max(change.between[1]);
                phase.changes.push(change);
            }
            None => {
                phases.push(Phase {
                    between: change.between,
                    steps: None,
                    losses: Vec::new(),
                    changes: vec![change],
                    circuits: None,
                    end: None,
                    sentences: Vec::new(),
                });
            }
        }
    }
    for change in others {
        let [from, until] = change.between;
        let within = |phase: &&mut Phase| phase.between[0] <= from && until <= phase.between[1];
        if let Some(phase) = phases.iter_mut().find(within) {
            phase.changes.push(change);
        }
    }
    for phase in &mut phases {
        phase.changes.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    }
    phases
}

fn of_curve(curve: &RecordedCurve, length: usize, tests: usize) -> Vec<PhaseChange> {
    let [min_change, min_share] = match &curve.curve {
        PhaseCurve::TrainingLoss | PhaseCurve::ValidationLoss => [0.0, MIN_LOSS_SHARE],
        PhaseCurve::HeadScore { score, .. } => [min_change(score, length), MIN_SCORE_SHARE],
    };
    let found = changes(&curve.points, ChangeCriterion { min_change, min_share, tests });
    let change = |found: &crate::analysis::phases::CurveChange| PhaseChange {
        curve: curve.curve.clone(),
        between: found.between,
        values: found.values,
        steps: None,
        measured: Vec::new(),
    };
    found.iter().map(change).collect()
}

/// Returns the minimum change of a score, given its key.
fn min_change(key: &str, length: usize) -> f64 {
    match Score::ALL.into_iter().find(|score| score.about().key == key) {
        Some(Score::Entropy) => MIN_ENTROPY_CHANGE,
        Some(Score::Distance) => MIN_DISTANCE_SHARE * length as f64,
        Some(score) if score.about().is_weight => MIN_WEIGHT_CHANGE,
        _ => 0.0,
    }
}

/// Returns the rank of a change in its phase: losses, then attention weights, then other scores, each by the size of the
/// change.
fn rank(change: &PhaseChange) -> f64 {
    let size = (change.values[1] - change.values[0]).abs();
    let share = size / (1.0 + size);
    match &change.curve {
        PhaseCurve::TrainingLoss => 4.0,
        PhaseCurve::ValidationLoss => 3.0,
        PhaseCurve::HeadScore { score, .. } => {
            let is_weight = |it: &Score| it.about().key == *score && it.about().is_weight;
            if Score::ALL.iter().any(is_weight) { 1.0 + share } else { share }
        }
    }
}
