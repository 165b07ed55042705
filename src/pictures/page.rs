//! The run as a page to explore.

use super::Story;
use super::reading::Reading;
use crate::analysis::{HeadScores, shown_head};
use crate::config::Config;
use crate::report::{LossCurve, Page, Style};
use crate::terminal::{clock, thousands};

/// The page of a whole run.
pub(super) fn of_run(story: &Story, style: &Style) -> Page {
    Page {
        run: story.folder.name(),
        summary: summary(story),
        config: story.config.to_toml(),
        loss: story.loss_curve(),
        samples: story.readings.iter().map(Reading::page_sample).collect(),
        measured_on: story.measured_on.clone(),
        shown: shown_heads(&story.heads, story.config.analysis.head),
        heads: story.heads.clone(),
        history: story.history.steps().to_vec(),
        color_map: style.color_map,
    }
}

impl Reading {
    /// The page of this sequence alone, its heads by their `scores`; `head` is the one to show in every layer.
    pub fn page(
        &self,
        scores: &[Vec<HeadScores>],
        head: Option<usize>,
        config: &Config,
        style: &Style,
    ) -> Page {
        Page {
            run: self.run.clone(),
            config: config.to_toml(),
            loss: LossCurve { run: self.run.clone(), ..LossCurve::default() },
            samples: vec![self.page_sample()],
            measured_on: self.sequence.clone(),
            shown: shown_heads(scores, head),
            heads: scores.to_vec(),
            color_map: style.color_map,
            ..Page::default()
        }
    }
}

/// The head of each layer that is shown first: `head` where one is asked for.
fn shown_heads(scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<usize> {
    scores.iter().map(|layer| head.unwrap_or_else(|| shown_head(layer))).collect()
}

fn summary(story: &Story) -> Vec<(String, String)> {
    let summary = &story.summary;
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
