//! `report.html`: one file that shows a whole run, opens from disk and lets a reader look into every
//! head.
//!
//! The page is plain HTML, CSS and JavaScript (`assets/report/`), filled with the data of [`Page`]. It
//! loads nothing, and forbids itself to. Text of a run, as its tokens, reaches it as data alone and is
//! never markup.

mod embedded;
mod live;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::draw::{Picture, color::CONTROL_POINTS};
use super::loss::LossCurve;
use super::reading::Reading;
use super::{attention, attention_over_time, head_scores, heads, prediction};
use crate::analysis::circuit::Explanation;
use crate::analysis::{AttentionKind, HeadScores, Sample, ScoredStep};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::terminal::{clock, fixed, thousands};
use crate::training::Summary;
use crate::weights::file::WeightsFile;
use live::Live;
pub(super) use live::MOST_STARTS;

/// What `report.html` shows: the data of a run as they are.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Page {
    /// The run's name.
    pub(super) run: String,
    /// How the run ended, as names and values to be shown as they are.
    pub(super) summary: Vec<(&'static str, String)>,
    /// The run's `config.toml`, with the names of its files instead of their paths.
    pub(super) config: String,
    /// The loss along the run.
    pub(super) loss: LossCurve,
    /// Sequences and what was predicted along them; at least one.
    pub(super) readings: Vec<Reading>,
    /// The sequence that is shown first.
    pub(super) sample: usize,
    /// What the scores were taken on, as "512 validation sequences".
    pub(super) measured_on: String,
    /// The scores of all heads, `[layer][head]`.
    pub(super) heads: Vec<Vec<HeadScores>>,
    /// The head of each layer that is shown first, for each kind of attention.
    pub(super) shown: BTreeMap<AttentionKind, Vec<usize>>,
    /// Which parts make the predictions, where that was found; as [`circuit`] tells it.
    pub(super) circuit: Option<Value>,
    /// The scores along the run, in the order of steps; may be empty.
    pub(super) history: Vec<ScoredStep>,
    /// What the model did with the sequence that is shown first, along the run, with the steps done.
    #[serde(skip)]
    pub(super) film: Vec<(usize, Reading)>,
    /// The model itself, or why the page has none.
    #[serde(skip)]
    pub(super) live: Option<Result<Live, String>>,
    /// The head to show in every layer, where one was asked for.
    #[serde(skip)]
    pub(super) head: Option<usize>,
}

const TEMPLATE: &str = include_str!("../../../assets/report/page.html");
const STYLE: &str = include_str!("../../../assets/report/style.css");
/// In the order in which they read: what stands on the others comes last.
const SCRIPTS: [&str; 21] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/maps.js"),
    include_str!("../../../assets/report/course.js"),
    include_str!("../../../assets/report/matrix.js"),
    include_str!("../../../assets/report/tokens.js"),
    include_str!("../../../assets/report/heads.js"),
    include_str!("../../../assets/report/predictions.js"),
    include_str!("../../../assets/report/film.js"),
    include_str!("../../../assets/report/model/tokenizer.js"),
    include_str!("../../../assets/report/model/live.js"),
    include_str!("../../../assets/report/live/session.js"),
    include_str!("../../../assets/report/live/try.js"),
    include_str!("../../../assets/report/live/generate.js"),
    include_str!("../../../assets/report/live/intervene.js"),
    include_str!("../../../assets/report/live/address.js"),
    include_str!("../../../assets/report/live/explain.js"),
    include_str!("../../../assets/report/live/tour.js"),
    include_str!("../../../assets/report/live/start.js"),
    include_str!("../../../assets/report/page.js"),
];

/// What the page's worker computes with, in the order in which it reads.
const ENGINE: [&str; 7] = [
    include_str!("../../../assets/report/model/linear.js"),
    include_str!("../../../assets/report/model/norm.js"),
    include_str!("../../../assets/report/model/position.js"),
    include_str!("../../../assets/report/model/changes.js"),
    include_str!("../../../assets/report/model/attention.js"),
    include_str!("../../../assets/report/model/feed_forward.js"),
    include_str!("../../../assets/report/model/model.js"),
];

/// A page with what follows from it.
#[derive(Serialize)]
struct Whole<'a, T> {
    #[serde(flatten)]
    page: &'a Page,
    #[serde(flatten)]
    derived: T,
}

impl Page {
    /// The page of sequences, of which `sample` is shown first, by a model whose heads have these scores, taken there
    /// alone; `head` is the one to show in every layer.
    pub fn new(
        run: String,
        (readings, sample): (Vec<Reading>, usize),
        heads: Vec<Vec<HeadScores>>,
        head: Option<usize>,
        config: &Config,
    ) -> Self {
        let mut shown = BTreeMap::<_, Vec<usize>>::new();
        for layer in readings[sample].layers(&heads, head) {
            shown.entry(layer.kind).or_default().push(layer.shown);
        }
        let (config, measured_on) = (config.to_shared_toml(), readings[sample].sequence.clone());
        Self { run, config, readings, sample, measured_on, heads, shown, head, ..Self::default() }
    }

    /// The pictures of the attention and the predictions of the sequence that is shown first, and of the scores
    /// of heads.
    pub fn pictures(&self) -> Vec<Picture> {
        let (run, reading) = (&self.run, &self.readings[self.sample]);
        let layers = reading.layers(&self.heads, self.head);
        let curves = attention_over_time::picture(run, reading, &layers);
        let maps = [attention::picture(run, reading, &layers), curves, heads::picture(run, reading, &layers)];
        let scores = head_scores::picture(run, &self.measured_on, &self.heads);
        let known = [prediction::picture(run, reading), scores];
        maps.into_iter().chain(known.into_iter().flatten()).collect()
    }

    /// All that the page shows, with what every head attended to in `views`, one a sequence.
    pub fn whole(&self) -> impl Serialize {
        let views: Vec<_> = self.readings.iter().map(|reading| &reading.view).collect();
        Whole { page: self, derived: BTreeMap::from([("views", views)]) }
    }

    /// The page with the model whose weights a file holds, so far as it has room for it, and with sequences to start
    /// from.
    ///
    /// # Errors
    /// If the weights cannot be read.
    pub fn with_model(
        self,
        weights: &WeightsFile,
        vocabulary: &Vocabulary,
        starts: &[Sample],
    ) -> crate::error::Result<Self> {
        Ok(Self { live: Some(Live::new(weights, vocabulary, starts)?), ..self })
    }

    /// The page's text.
    pub fn html(self) -> String {
        let run = self.run.clone();
        // Its text is what the worker is made of; a function can be called above the place where it stands.
        let engine = format!("function engine() {{\n{}\nreturn {{ Model }};\n}}", ENGINE.join("\n"));
        filled(TEMPLATE, &run, embedded::data(self), SCRIPTS.join("\n") + "\n" + &engine)
    }
}

/// What the page tells of a run's circuit, and leads its reader along. Losses are in nats per token.
pub(super) fn circuit(found: &Explanation) -> Value {
    let Explanation { loss, no_circuit, components, edges, sentences, .. } = found;
    json!({
        "loss": loss,
        "no_circuit": no_circuit,
        "components": components,
        "edges": edges,
        "sentences": sentences,
    })
}

/// How a run ended, in words.
pub(super) fn summary(summary: &Summary) -> Vec<(&'static str, String)> {
    let nats = |loss: f64| format!("{} nats", fixed(loss, 4));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let count = |count: f64| Some(thousands(count));
    let lines = [
        ("ended", Some(summary.ended.describe().to_string())),
        ("validation loss", summary.best_valid_loss.map(nats)),
        ("floor", summary.floor.map(nats)),
        ("best step", summary.best_step.and_then(|step| count(step as f64))),
        ("accuracy", summary.accuracy.map(percent)),
        ("accuracy on determined targets", summary.determined_accuracy.map(percent)),
        ("parameters", count(summary.parameters as f64)),
        ("steps", count(summary.steps as f64)),
        ("tokens", count(summary.tokens as f64)),
        ("time", Some(clock(summary.seconds))),
        ("tokens per second", count(summary.tokens_per_second)),
        ("backend", Some(summary.backend.clone())),
        ("device", Some(summary.device.clone())),
        ("seed", Some(summary.seed.to_string())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A template with what its marks stand for: title, style, data and script, in this order. Nothing that is filled
/// in is searched for a mark.
pub(super) fn filled(template: &str, title: &str, data: String, script: String) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_string();
    for (piece, text) in pieces.zip([escaped(title), STYLE.to_string(), data, script]) {
        page += &text;
        page += piece.split_once("}}").map_or(piece, |(_, after)| after);
    }
    page
}

/// JSON that can stand in a script element: there only `</script` and `<!--` mean anything, and without
/// `<` there is neither.
pub(super) fn harmless(json: String) -> String {
    json.replace('<', "\\u003c")
}

/// The colours of attention weights, as CSS writes them.
pub(super) fn colors() -> Vec<String> {
    CONTROL_POINTS.map(|point| format!("#{point:06x}")).to_vec()
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
