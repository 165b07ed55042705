//! The page of a run, and of one sequence.

use super::{Page, PageMaps, PagePrediction, PageSample};
use crate::analysis::{HeadScores, shown_head};
use crate::config::Config;
use crate::data::Role;
use crate::report::loss::LossCurve;
use crate::report::reading::Reading;
use crate::report::run_data::RunData;
use crate::terminal::{clock, thousands};

impl Page {
    /// The page of a whole run.
    pub fn of_run(run: &RunData) -> Self {
        Self {
            run: run.folder.name(),
            summary: summary(run),
            config: run.config.to_toml(),
            loss: run.loss(),
            samples: run.readings.iter().map(page_sample).collect(),
            measured_on: run.measured_on.clone(),
            shown: shown_heads(&run.heads, run.config.analysis.head),
            heads: run.heads.clone(),
            history: run.history.steps().to_vec(),
        }
    }

    /// The page of one sequence alone, the heads by their `scores`; `head` is the one to show in every layer.
    pub fn of_reading(
        run: &str,
        reading: &Reading,
        scores: &[Vec<HeadScores>],
        head: Option<usize>,
        config: &Config,
    ) -> Self {
        Self {
            run: run.to_string(),
            config: config.to_toml(),
            loss: LossCurve { run: run.to_string(), ..LossCurve::default() },
            samples: vec![page_sample(reading)],
            measured_on: reading.sequence.clone(),
            shown: shown_heads(scores, head),
            heads: scores.to_vec(),
            ..Self::default()
        }
    }
}

/// The head of each layer that is shown first: `head` where one is asked for.
fn shown_heads(scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<usize> {
    scores.iter().map(|layer| head.unwrap_or_else(|| shown_head(layer))).collect()
}

fn page_sample(reading: &Reading) -> PageSample {
    let predictions =
        reading.targets.iter().zip(&reading.likeliest).map(|(target, likeliest)| PagePrediction {
            truth: target.as_ref().map(|target| target.text.clone()),
            truth_probability: target.as_ref().map(|target| target.probability),
            determined: target
                .as_ref()
                .filter(|target| target.role != Role::Unknown)
                .map(|target| target.role == Role::Determined),
            probable: likeliest.clone(),
        });
    PageSample {
        name: reading.sequence.clone(),
        source: reading.source.clone(),
        inputs: reading.inputs.clone(),
        predictions: predictions.collect(),
        attention: reading
            .kinds()
            .map(|kind| PageMaps { kind, weights: reading.view.maps(kind).to_vec() })
            .collect(),
    }
}

fn summary(run: &RunData) -> Vec<(String, String)> {
    let summary = &run.summary;
    let nats = |loss: f64| format!("{loss:.4} nats");
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut lines = vec![("ended", summary.ended.describe().to_string())];
    let mut known = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    known("validation loss", summary.best_valid_loss.map(nats));
    known("floor", summary.floor.map(nats));
    known("best step", summary.best_step.map(|step| thousands(step as f64)));
    known("accuracy", summary.accuracy.map(percent));
    known("accuracy, of what can be known", summary.determined_accuracy.map(percent));
    lines.extend([
        ("parameters", thousands(summary.parameters as f64)),
        ("steps", thousands(summary.steps as f64)),
        ("tokens", thousands(summary.tokens as f64)),
        ("time", clock(summary.seconds)),
        ("tokens per second", thousands(summary.tokens_per_second)),
        ("backend", summary.backend.clone()),
        ("device", summary.device.clone()),
        ("seed", summary.seed.to_string()),
    ]);
    lines.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}
