//! Studies: their trials as pictures and as a page, and sweeps over learning rates.

use std::path::PathBuf;

use causal_attention_report::study::{self as plain, SettingValue, StudyPage, TrialEnd};
use causal_attention_report::{Picture, Style};
use serde_json::json;

use super::save_all;
use crate::config::Config;
use crate::error::Result;
use crate::files::write_atomically;
use crate::numbers::{clock, thousands};
use crate::tuning::{Findings, RateSweep, Study, Trial, Verdict, best, number, shown};

/// Draws a study into its `plots/`, writes its `report.html`, and returns the paths of the pictures. Draws nothing if
/// no trial has a loss yet.
///
/// # Errors
/// Returns an error if the files cannot be written.
pub fn draw_study(study: &Study, style: &Style) -> Result<Vec<PathBuf>> {
    let Some(findings) = study.findings() else { return Ok(Vec::new()) };
    let drawn_study = plain_study(&findings);
    let drawn =
        save_all(&plain::pictures(&drawn_study, style.logical_width()), &study.folder.plots(), style)?;
    let texts = [study.folder.config(), best(&study.folder)];
    // The page may be shared, so it omits the paths of this machine.
    let [config, best] = texts.map(|path| {
        Config::load(Some(&path), &[]).map_or_else(|_| String::new(), |config| config.to_shared_toml())
    });
    let pages = findings.trials.iter().filter_map(|trial| Some((trial.trial, study.page(trial)?))).collect();
    let page = StudyPage { result: json!(findings), summary: summary(&findings), config, best, pages };
    write_atomically(&study.folder.report(), page.html(&drawn_study).as_bytes())?;
    Ok(drawn)
}

/// Draws the sweep over learning rates of the config called `name` in a picture of this width. Returns `None` if
/// nothing was swept.
pub fn rate_finder(name: &str, sweep: &RateSweep, width: f64) -> Option<Picture> {
    let marks = match sweep.verdict {
        Verdict::Minimum { rate, suggested } => Some([rate, suggested]),
        Verdict::NeverFalls | Verdict::NeverRises => None,
    };
    plain::rate_finder(name, &sweep.points, marks, (&sweep.verdict.describe(), width))
}

/// The key whose values have a picture of their own.
const LEARNING_RATE: &str = "training.learning_rate";

fn plain_study(findings: &Findings) -> plain::Study {
    let Findings { study, keys, trials, floor, seeds } = findings;
    plain::Study {
        name: study.clone(),
        keys: keys.clone(),
        learning_rate: keys.iter().find(|key| *key == LEARNING_RATE).cloned(),
        trials: trials.iter().map(plain_trial).collect(),
        floor: *floor,
        seeds: *seeds,
    }
}

fn plain_trial(trial: &Trial) -> plain::Trial {
    let value = |value: &toml::Value| SettingValue { text: shown(value), number: number(value) };
    plain::Trial {
        number: trial.trial,
        stage: trial.stage,
        setting: trial.setting.iter().map(|(key, it)| (key.clone(), value(it))).collect(),
        ended: trial.ended,
        loss: trial.score.loss,
        accuracy: trial.score.accuracy,
        tokens: trial.cost.tokens,
        operations: trial.cost.operations,
        curve: trial.curve.clone(),
    }
}

/// Returns the results of a study as names and values.
fn summary(findings: &Findings) -> Vec<(String, String)> {
    let trials = &findings.trials;
    let mut lines = Vec::new();
    if let Some(best) = trials.first() {
        lines.push(("best trial", format!("{:03}", best.trial)));
        lines.extend(best.score.loss.map(|loss| ("best loss", format!("{loss:.4} nats"))));
        lines.extend(best.score.floor.map(|floor| ("floor", format!("{floor:.4} nats"))));
        lines.extend(
            best.score
                .accuracy
                .map(|accuracy| ("accuracy of the best trial", format!("{:.1} %", accuracy * 100.0))),
        );
    }
    for (ended, name) in TrialEnd::NAMED {
        let count = trials.iter().filter(|trial| trial.ended == ended).count();
        lines.extend((count > 0).then(|| (name, thousands(count as f64))));
    }
    lines.push(("steps", thousands(trials.iter().map(|trial| trial.cost.steps).sum::<usize>() as f64)));
    lines.push(("training time", clock(trials.iter().map(|trial| trial.cost.seconds).sum())));
    lines.into_iter().map(|(name, value)| (name.replace('_', " "), value)).collect()
}
