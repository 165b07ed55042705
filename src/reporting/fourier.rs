//! The Fourier analysis of a run in its picture.

use causal_attention_report::{FourierCurves, Picture, Point};

use crate::training::{FourierAnalysis, ProgressMeasures, StageKind, TrainingStage};

/// Draws the Fourier analysis of a run, `width` logical pixels wide.
pub fn fourier_picture(run: &str, found: &FourierAnalysis, width: f64) -> Picture {
    let curve = |value: fn(&ProgressMeasures) -> f64| -> Vec<Point> {
        let point = |it: &ProgressMeasures| Point { step: it.step as u64, value: value(it) };
        found.progress.iter().map(point).collect()
    };
    let keys: Vec<String> = found.keys.iter().map(usize::to_string).collect();
    let curves = FourierCurves {
        run: run.to_string(),
        training: curve(|it| it.training),
        validation: curve(|it| it.validation),
        restricted: curve(|it| it.restricted),
        excluded: curve(|it| it.excluded),
        stages: found.stages.iter().map(stage).collect(),
        embedding: found.embedding.clone(),
        logits: found.logits.clone(),
        note: match keys.len() {
            1..=12 => format!("key frequencies of the logits: {}", keys.join(", ")),
            count => format!("{count} key frequencies of the logits"),
        },
    };
    curves.picture(width)
}

fn stage(stage: &TrainingStage) -> (String, [u64; 2]) {
    let name = match stage.kind {
        StageKind::Memorisation => "memorisation",
        StageKind::CircuitFormation => "circuit formation",
        StageKind::Cleanup => "cleanup",
    };
    (name.to_string(), [stage.start.step as u64, stage.end.step as u64])
}
