//! The page of a run.

use causal_attention_report::page::Page;
use causal_attention_report::reading::Reading;
use causal_attention_report::scores;
use serde_json::{Value, json};

use super::scores::heads;
use crate::analysis::HeadScores;
use crate::analysis::circuit::Explanation;
use crate::config::Config;
use crate::numbers::{clock, fixed, thousands};
use crate::training::Summary;

/// Returns a page of sequences; `sample` is shown first, and the heads' scores were measured on it alone, with the chance
/// level of each layer. If `head` is given, it is shown in every layer. Otherwise the circuit tells which heads are
/// important, if they were not ablated.
pub fn page(
    run: String,
    (readings, sample): (Vec<Reading>, usize),
    scores: (&[Vec<HeadScores>], Vec<scores::HeadScores>),
    (head, circuit): (Option<usize>, Option<&Explanation>),
    config: &Config,
) -> Page {
    let shown = &readings[sample];
    let heads = heads(shown.sequence.clone(), scores, shown, (head, circuit));
    Page { config: config.to_shared_toml(), ..Page::new(run, (readings, sample), heads) }
}

/// Returns a circuit in the format of the page's script. Losses are in nats per token.
pub(super) fn circuit(found: &Explanation) -> Value {
    let Explanation { basis, gain, components, edges, sentences, .. } = found;
    json!({
        "sequences": basis.sequences,
        "loss": gain.model,
        "no_circuit": gain.no_circuit,
        "components": components,
        "edges": edges,
        "sentences": sentences,
    })
}

/// Returns the results of a run as names and values.
pub(super) fn summary(summary: &Summary) -> Vec<(String, String)> {
    let nats = |loss: f64| format!("{} nats", fixed(loss, 4));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let count = |count: f64| Some(thousands(count));
    let lines = [
        ("ended", Some(summary.ended.describe().to_string())),
        ("validation loss", summary.losses.best_valid_loss.map(nats)),
        ("floor", summary.losses.floor.map(nats)),
        ("best step", summary.losses.best_step.and_then(|step| count(step as f64))),
        ("accuracy", summary.losses.accuracy.map(percent)),
        ("accuracy on determined targets", summary.losses.determined_accuracy.map(percent)),
        ("parameters", count(summary.work.parameters as f64)),
        ("steps", count(summary.work.steps as f64)),
        ("tokens", count(summary.work.tokens as f64)),
        ("time", Some(clock(summary.work.seconds))),
        ("tokens per second", count(summary.work.tokens_per_second)),
        ("backend", Some(summary.machine.backend.clone())),
        ("device", Some(summary.machine.device.clone())),
        ("seed", Some(summary.seed.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}
