//! The phases of a run in its picture and on its page.

use causal_attention_report::page::Chapter;
use causal_attention_report::{PhaseCurves, Picture, Point};

use crate::analysis::Score;
use crate::numbers::counted;
use crate::training::{
    FoundPhases, Phase, PhaseChange, PhaseCurve, RecordedCurve, StoredPhase, StoredPhases,
};

/// Draws the phases of a run, `width` logical pixels wide. Returns `None` without a phase.
pub fn phases_picture(run: &str, found: &FoundPhases, width: f64) -> Option<Picture> {
    let (phases, curves) = (&found.phases.phases, &found.curves);
    let of = |curve: PhaseCurve| {
        curves.iter().find(|recorded| recorded.curve == curve).map_or(Vec::new(), |it| points(&it.points))
    };
    let losses = || phases.iter().flat_map(|phase| &phase.losses);
    let kind = |value: fn(&crate::analysis::phases::LossByTarget) -> Option<f64>| {
        let point = |it: &crate::training::MeasuredLoss| {
            Some(Point { step: it.step as u64, value: value(&it.loss)? })
        };
        losses().filter_map(point).collect()
    };
    let is_located = phases.iter().all(|phase| phase.steps.is_some());
    let note = match is_located {
        true => "the bands are from a tenth to nine tenths of the change, located by replaying the run",
        false => "the bands are the recorded steps before and after the changes",
    };
    let picture = PhaseCurves {
        run: run.to_string(),
        steps: found.phases.steps as u64,
        training: of(PhaseCurve::TrainingLoss),
        validation: of(PhaseCurve::ValidationLoss),
        determined: kind(|loss| loss.determined),
        undetermined: kind(|loss| loss.undetermined),
        scores: scores(phases, curves),
        bands: phases.iter().map(band).collect(),
        note: format!("{}; {note}", counted(phases.len(), "phase")),
    };
    picture.picture(width)
}

/// Returns the phases of a run as chapters of its page.
pub(super) fn chapters(stored: StoredPhases) -> Vec<Chapter> {
    let chapter = |phase: StoredPhase| Chapter {
        steps: phase.steps.map_or(phase.between, |[tenth, _, most]| [tenth, most]),
        head: phase.changes.iter().find_map(|change| Some([change.layer?, change.head?])),
        sentences: phase.sentences,
    };
    stored.phases.into_iter().map(chapter).collect()
}

fn points(curve: &[(usize, f64)]) -> Vec<Point> {
    curve.iter().map(|&(step, value)| Point { step: step as u64, value }).collect()
}

fn band(phase: &Phase) -> [u64; 2] {
    let [from, until] = phase.steps.map_or(phase.between, |[tenth, _, most]| [tenth, most]);
    [from as u64, until as u64]
}

/// Returns the attention scores that change in the phases, each once, as recorded and as measured by the replay.
fn scores(phases: &[Phase], curves: &[RecordedCurve]) -> Vec<(String, Vec<Point>)> {
    let mut shown: Vec<(String, Vec<Point>)> = Vec::new();
    for change in phases.iter().flat_map(|phase| &phase.changes) {
        let PhaseCurve::HeadScore { layer, head, score } = change.curve else { continue };
        let about = Score::ALL.map(Score::about).into_iter().find(|about| about.key == score);
        let Some(about) = about.filter(|about| about.is_weight) else { continue };
        let name = format!("head {layer}.{head}, {}", about.name);
        if !shown.iter().any(|(other, _)| *other == name) {
            shown.push((name, curve(change, curves)));
        }
    }
    shown
}

/// Returns the recorded values of the curve of a change, with the measured ones in the phase.
fn curve(change: &PhaseChange, curves: &[RecordedCurve]) -> Vec<Point> {
    let recorded = curves.iter().find(|recorded| recorded.curve == change.curve);
    let mut all = recorded.map_or(Vec::new(), |recorded| recorded.points.clone());
    all.extend(&change.measured);
    all.sort_by_key(|point| point.0);
    all.dedup_by_key(|point| point.0);
    points(&all)
}
