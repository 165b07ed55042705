//! Runs compared with each other, as pictures and as a page.

mod shared;

use causal_attention_report::Picture;
use causal_attention_report::comparison::{self as plain, Validation, XAxisQuantity};
use serde_json::json;

use super::scores::{by_kind, kinds};
use crate::analysis::Score;
use crate::comparison::{ComparedRun, ComparedSetting, Comparison, Measure};
use crate::training::Row;

/// The scores that the picture shows, which distinguish heads best; the page shows all scores.
const SHOWN_SCORES: [Score; 4] = [Score::Ablation, Score::Previous, Score::Induction, Score::Duplicate];

/// Draws the losses of a comparison, and the scores of heads for runs that have them.
pub fn comparison_pictures(comparison: &Comparison, along: XAxisQuantity) -> Vec<Picture> {
    plain::pictures(
        &plain_comparison(&shared::without_folders(comparison)),
        along,
        &SHOWN_SCORES.map(Score::about),
    )
}

/// Returns the page of a comparison.
pub fn comparison_page(comparison: &Comparison) -> String {
    let comparison = &shared::without_folders(comparison);
    plain::page(&plain_comparison(comparison), json!(comparison), &kinds())
}

fn plain_comparison(comparison: &Comparison) -> plain::Comparison {
    let measure = comparison.measure;
    let setting = |setting: &ComparedSetting| {
        let mean = setting.measured(measure);
        plain::Setting {
            name: setting.name(),
            mean: mean.map(|mean| mean.mean),
            interval: mean.and_then(|mean| mean.interval),
        }
    };
    let validation =
        |row: &Row| Validation { step: row.step, tokens: row.tokens, seconds: row.seconds, loss: row.loss };
    let run = |run: &ComparedRun| plain::ComparedRun {
        name: run.name.clone(),
        setting: run.setting,
        result: measure.of(run),
        floor: run.losses.floor,
        curve: run.curve.iter().map(validation).collect(),
        heads: by_kind(&run.heads),
    };
    plain::Comparison {
        settings: comparison.settings.iter().map(setting).collect(),
        runs: comparison.runs.iter().map(run).collect(),
        is_above_floor: measure == Measure::AboveFloor,
    }
}
