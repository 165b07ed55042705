//! The steps of each phase, from the measurements of a replay.

use super::found::{MeasuredLoss, MeasuredStep, Phase, PhaseChange, PhaseCurve, Phases};
use crate::analysis::Score;
use crate::analysis::phases::crossings;

/// Locates each phase and its changes that were measured at all of their steps.
pub fn locate(phases: &mut Phases, measured: &[MeasuredStep]) {
    for phase in &mut phases.phases {
        let steps = within(measured, phase.between);
        for change in &mut phase.changes {
            change.measured = scores(change, within(steps, change.between));
            let is_complete = is_complete(change.measured.len(), change.between);
            change.steps = is_complete.then(|| crossings(&change.measured)).flatten();
        }
        let losses = steps.iter().map(|step| MeasuredLoss { step: step.step, loss: step.loss });
        phase.losses = losses.collect();
        phase.steps = phase_steps(phase);
    }
}

/// Returns the measurements between two steps, inclusive.
fn within(measured: &[MeasuredStep], [from, until]: [usize; 2]) -> &[MeasuredStep] {
    let first = measured.partition_point(|step| step.step < from);
    let end = measured.partition_point(|step| step.step <= until);
    &measured[first..end.max(first)]
}

/// Returns true if all steps between two steps were measured.
fn is_complete(measured: usize, [from, until]: [usize; 2]) -> bool {
    measured == until - from + 1
}

/// Returns the measured scores of the head of a change; empty if the change is of a loss.
fn scores(change: &PhaseChange, steps: &[MeasuredStep]) -> Vec<(usize, f64)> {
    let PhaseCurve::HeadScore { layer, head, score } = change.curve else { return Vec::new() };
    let Some(score) = Score::ALL.into_iter().find(|it| it.about().key == score) else { return Vec::new() };
    let value = |step: &MeasuredStep| Some((step.step, step.heads.get(layer)?.get(head)?[score]?));
    steps.iter().filter_map(value).collect()
}

fn phase_steps(phase: &Phase) -> Option<[usize; 3]> {
    if !phase.changes_loss() {
        return phase.changes.first().and_then(|change| change.steps);
    }
    let curve: Vec<(usize, f64)> = phase.losses.iter().map(|loss| (loss.step, loss.loss.all)).collect();
    is_complete(curve.len(), phase.between).then(|| crossings(&curve)).flatten()
}
