//! A study's pictures and its page, from what its trials say.

use std::path::PathBuf;

use crate::error::Result;
use crate::report::{
    StudyPage, StudyResult, StudyTrial, Style, SweepCurve, SweepPoint, TrialEnding, Value, cost, key_effects,
    learning_rate, save_all, trial_curves,
};
use crate::terminal::{clock, thousands};
use crate::tuning::{RateSweep, Study, Trial, TrialEnd, Verdict, ranked};

/// What the report draws of a study; `None` where no trial has a loss yet.
pub fn of_study(study: &Study) -> Option<StudyResult> {
    let trials = study.results().trials().cloned().collect::<Vec<_>>();
    let keys = study.outline().proposer().keys();
    trials.iter().any(|trial| trial.loss.is_some()).then(|| StudyResult {
        study: study.folder().name(),
        trials: ranked(&trials).into_iter().map(|trial| of_trial(trial, &keys)).collect(),
        floor: trials.iter().find_map(|trial| trial.floor),
        seeds: study.outline().seeds(),
        keys,
    })
}

fn of_trial(trial: &Trial, keys: &[String]) -> StudyTrial {
    let value = |key: &String| match trial.setting.get(key) {
        Some(toml::Value::Integer(number)) => Value::Number(*number as f64),
        Some(toml::Value::Float(number)) => Value::Number(*number),
        Some(toml::Value::String(name)) => Value::Name(name.clone()),
        other => Value::Name(other.map(ToString::to_string).unwrap_or_default()),
    };
    StudyTrial {
        trial: trial.trial,
        stage: trial.stage.map(str::to_string),
        values: keys.iter().map(value).collect(),
        ended: match trial.ended {
            TrialEnd::Completed | TrialEnd::EarlyStopped => TrialEnding::Finished,
            TrialEnd::Pruned => TrialEnding::Pruned,
            TrialEnd::Unfinished => TrialEnding::Unfinished,
            TrialEnd::Diverged => TrialEnding::Diverged,
            TrialEnd::Failed => TrialEnding::Failed,
        },
        loss: trial.loss,
        loss_spread: trial.loss_spread,
        accuracy: trial.accuracy,
        train_spread: trial.train_spread,
        spikes: trial.spikes,
        parameters: trial.parameters,
        steps: trial.steps,
        seconds: trial.seconds,
        operations: trial.operations,
        curve: trial.curve.clone(),
    }
}

/// Draws a study into its `plots/`, writes its `report.html`, and says where the pictures are.
///
/// # Errors
/// If they cannot be written.
pub fn draw_study(study: &Study, style: &Style) -> Result<Vec<PathBuf>> {
    let Some(result) = of_study(study) else { return Ok(Vec::new()) };
    let mut pictures = vec![trial_curves(&result), key_effects(&result), cost(&result)];
    pictures.extend(learning_rate(&result));
    let drawn = save_all(&pictures, &study.folder().plots(), style)?;
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let page = StudyPage {
        summary: summary(study),
        config: text(study.folder().config()),
        best: text(study.folder().best()),
        result,
    };
    page.write(&study.folder().report())?;
    Ok(drawn)
}

fn summary(study: &Study) -> Vec<(String, String)> {
    let trials = study.results().trials().cloned().collect::<Vec<_>>();
    let count = |ended: TrialEnd| trials.iter().filter(|trial| trial.ended == ended).count();
    let mut lines = Vec::new();
    if let Some(best) = ranked(&trials).first() {
        lines.push(("best trial", format!("{:03}", best.trial)));
        lines.extend(best.loss.map(|loss| ("its loss", format!("{loss:.4} nats"))));
        lines.extend(best.floor.map(|floor| ("floor", format!("{floor:.4} nats"))));
        lines.extend(best.accuracy.map(|accuracy| ("its accuracy", format!("{:.1} %", accuracy * 100.0))));
    }
    let ends = [
        TrialEnd::Completed,
        TrialEnd::EarlyStopped,
        TrialEnd::Pruned,
        TrialEnd::Diverged,
        TrialEnd::Failed,
        TrialEnd::Unfinished,
    ];
    let ends = ends.into_iter().filter(|&ended| count(ended) > 0);
    lines.extend(ends.map(|ended| (ended.name(), thousands(count(ended) as f64))));
    lines.push(("steps", thousands(trials.iter().map(|trial| trial.steps).sum::<usize>() as f64)));
    lines.push(("time of training", clock(trials.iter().map(|trial| trial.seconds).sum())));
    lines.into_iter().map(|(name, value)| (name.replace('_', " "), value)).collect()
}

/// What the report draws of a sweep over learning rates.
pub fn of_sweep(run: String, sweep: &RateSweep) -> SweepCurve {
    let (lowest, suggested) = match sweep.verdict {
        Verdict::Minimum { rate, suggested } => (Some(rate), Some(suggested)),
        Verdict::NeverFalls | Verdict::NeverRises => (None, None),
    };
    let point = |point: &crate::tuning::RatePoint| SweepPoint {
        rate: point.rate,
        loss: point.loss,
        smoothed: point.smoothed,
    };
    SweepCurve {
        run,
        points: sweep.points.iter().map(point).collect(),
        lowest,
        suggested,
        verdict: sweep.verdict.finding(),
    }
}
