//! Runs compared with each other, as pictures and as a page.

mod shared;

use std::collections::BTreeSet;

use causal_attention_report::Picture;
use causal_attention_report::comparison::{self as plain, Validation, XAxisQuantity};
use causal_attention_report::scores::HeadScores;
use serde_json::json;

use super::scores::{by_kind, chance, kinds};
use crate::Result;
use crate::analysis::{Sample, Score};
use crate::comparison::{ComparedRun, ComparedSetting, Comparison, Measure};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::training::{Row, RunFolder};

/// The scores that the picture shows, which distinguish heads best; the page shows all scores.
const SHOWN_SCORES: [Score; 4] = [Score::Ablation, Score::Previous, Score::Induction, Score::Duplicate];

/// Draws the losses of a comparison, and the scores of heads for runs that have them, in pictures of this width.
pub fn comparison_pictures(comparison: &Comparison, along: XAxisQuantity, width: f64) -> Vec<Picture> {
    let mut plain = plain_comparison(&shared::without_folders(comparison));
    for (shown, run) in
        plain.runs.iter_mut().zip(&comparison.runs).filter(|(shown, _)| !shown.heads.is_empty())
    {
        // A run may lack its samples.
        shown.chance = chance_of(run).unwrap_or_default();
    }
    plain::pictures(&plain, along, &SHOWN_SCORES.map(Score::about), width)
}

/// Returns the chance level of each score in the layers of a run, on its stored samples.
fn chance_of(run: &ComparedRun) -> Result<Vec<HeadScores>> {
    let folder = RunFolder::open(&run.path)?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let samples = Sample::read(&folder.samples(), vocabulary.size())?;
    Ok(chance(&samples, &Config::load_own(&folder.config())?.model))
}

/// Returns the page of a comparison.
pub fn comparison_page(comparison: &Comparison) -> String {
    let comparison = &shared::without_folders(comparison);
    plain::page(&plain_comparison(comparison), json!(comparison), &kinds())
}

fn plain_comparison(comparison: &Comparison) -> plain::Comparison {
    let measure = comparison.measure;
    let setting = |(index, setting): (usize, &ComparedSetting)| {
        let mean = setting.measured(measure);
        let runs = comparison.runs.iter().filter(|run| run.setting == index);
        let reasons: BTreeSet<String> = runs.map(ComparedRun::excluded_because).collect();
        plain::Setting {
            excluded: mean.is_none().then(|| Vec::from_iter(reasons).join(", ")),
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
        chance: Vec::new(),
    };
    plain::Comparison {
        settings: comparison.settings.iter().enumerate().map(setting).collect(),
        runs: comparison.runs.iter().map(run).collect(),
        is_above_floor: measure == Measure::AboveFloor,
    }
}
