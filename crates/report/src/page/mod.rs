//! `report.html`: a single file that opens from disk, shows a run and lets the reader explore every head.
//!
//! The page is plain HTML, CSS and JavaScript (`page/` of this crate), filled with the data of [`Page`]. Its content
//! security policy forbids external resources. Text of a run, such as its tokens, is embedded as data and never as
//! markup.

mod embedded;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::draw::{Picture, WeightColors, color::CONTROL_POINTS};
use crate::loss::LossCurve;
use crate::reading::{Reading, ShownHeads};
use crate::scores::{HeadScores, ScoreKind, ScoredStep};
use crate::{attention, attention_over_time, head_scores, heads, prediction};

/// The data of a run that `report.html` shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Page {
    /// The run's name.
    pub run: String,
    /// The results of the run: names and values, displayed unchanged.
    pub summary: Vec<(String, String)>,
    /// The run's config as text.
    pub config: String,
    /// The loss curve of the run.
    pub loss: LossCurve,
    /// Sequences with their predictions; at least one.
    pub readings: Vec<Reading>,
    /// The index of the sequence shown first.
    pub sample: usize,
    /// The heads.
    #[serde(flatten)]
    pub heads: Heads,
    /// The circuit in the format of the page's script, if one was found.
    pub circuit: Option<Value>,
    /// The head scores during the run, ordered by step; may be empty.
    pub history: Vec<ScoredStep>,
    /// The readings, over the course of the run, of the sequence shown first, each with its number of completed steps.
    #[serde(skip)]
    pub film: Vec<(usize, Reading)>,
    /// The phases of the training, in the order of steps: chapters of `film`. May be empty.
    pub chapters: Vec<Chapter>,
    /// The model itself, or the reason why the page has none.
    #[serde(skip)]
    pub model: Option<Result<LiveModel, String>>,
}

/// A phase of the training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chapter {
    /// The number of completed steps at its start and at its end.
    pub steps: [usize; 2],
    /// The layer and the head of decoder self-attention that changed most, if one changed.
    pub head: Option<[usize; 2]>,
    /// What happened in it, as sentences.
    pub sentences: Vec<String>,
}

/// The heads of a model, `[layer][head]`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Heads {
    /// The data on which the scores were measured, such as "512 validation sequences".
    pub measured_on: String,
    /// The scores.
    #[serde(rename = "heads")]
    pub scores: Vec<Vec<HeadScores>>,
    /// The chance level of each score by layer: the scores of a head that attends to all visible keys equally.
    pub chance: Vec<HeadScores>,
    /// The head of each layer that is shown first, by kind of attention. [`Page::new`] chooses missing ones.
    pub shown: ShownHeads,
    /// The kinds of scores, in the order in which they are displayed.
    #[serde(skip)]
    pub kinds: Vec<ScoreKind>,
    /// A note on the shown head of each layer of causal self-attention.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The colours of attention weights in pictures; the page offers all.
    #[serde(skip)]
    pub colors: WeightColors,
}

/// A model that the page runs.
#[derive(Debug, Clone)]
pub struct LiveModel {
    /// The model without its weights, in the format of the page's script.
    pub description: Value,
    /// The values of all tensors, little-endian.
    pub numbers: Vec<u8>,
    /// The sequences offered as inputs.
    pub starts: Vec<Value>,
}

const TEMPLATE: &str = include_str!("../../page/page.html");
const STYLE: &str = include_str!("../../page/style.css");
/// The scripts of the page in loading order: later scripts use earlier ones.
const SCRIPTS: [&str; 35] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/maps.js"),
    include_str!("../../page/curves.js"),
    include_str!("../../page/matrix.js"),
    include_str!("../../page/tokens.js"),
    include_str!("../../page/heads.js"),
    include_str!("../../page/lines.js"),
    include_str!("../../page/pair.js"),
    include_str!("../../page/predictions.js"),
    include_str!("../../page/film.js"),
    include_str!("../../page/model/component.js"),
    include_str!("../../page/model/tokenizer.js"),
    include_str!("../../page/model/live.js"),
    include_str!("../../page/live/session.js"),
    include_str!("../../page/live/try.js"),
    include_str!("../../page/live/writing.js"),
    include_str!("../../page/live/generate.js"),
    include_str!("../../page/live/intervene.js"),
    include_str!("../../page/live/weight.js"),
    include_str!("../../page/live/flow_drawing.js"),
    include_str!("../../page/live/flow.js"),
    include_str!("../../page/live/ablation.js"),
    include_str!("../../page/live/circuit_drawing.js"),
    include_str!("../../page/live/circuit.js"),
    include_str!("../../page/live/patching.js"),
    include_str!("../../page/live/strips.js"),
    include_str!("../../page/live/address.js"),
    include_str!("../../page/live/explain.js"),
    include_str!("../../page/live/tour.js"),
    include_str!("../../page/live/start.js"),
    include_str!("../../page/save.js"),
    include_str!("../../page/panels.js"),
    include_str!("../../page/page.js"),
];

/// The scripts of the page's worker in loading order.
const ENGINE: [&str; 12] = [
    include_str!("../../page/model/linear.js"),
    include_str!("../../page/model/norm.js"),
    include_str!("../../page/model/position.js"),
    include_str!("../../page/model/component.js"),
    include_str!("../../page/model/changes.js"),
    include_str!("../../page/model/attention.js"),
    include_str!("../../page/model/feed_forward.js"),
    include_str!("../../page/model/model.js"),
    include_str!("../../page/model/trace.js"),
    include_str!("../../page/model/flow.js"),
    include_str!("../../page/model/circuit.js"),
    include_str!("../../page/model/patching.js"),
];

/// A page with data derived from it.
#[derive(Serialize)]
struct PageWithDerived<'a, T> {
    #[serde(flatten)]
    page: &'a Page,
    #[serde(flatten)]
    derived: T,
}

impl Page {
    /// Creates a page of sequences read by a model with these heads; `sample` is shown first.
    pub fn new(run: String, (readings, sample): (Vec<Reading>, usize), mut heads: Heads) -> Self {
        let mut shown = ShownHeads::new();
        for layer in readings[sample].layers(&heads.shown, &heads.notes) {
            shown.entry(layer.kind).or_default().push(layer.shown);
        }
        heads.shown = shown;
        Self { run, readings, sample, heads, ..Self::default() }
    }

    /// Draws the attention and the predictions of the sequence shown first, and the scores of heads, in pictures of this
    /// width.
    pub fn pictures(&self, width: f64) -> Vec<Picture> {
        let (run, reading, all) = (&self.run, &self.readings[self.sample], &self.heads);
        let layers = reading.layers(&all.shown, &all.notes);
        let curves = attention_over_time::picture(run, reading, &layers, width);
        let map = attention::picture(run, reading, &layers, (all.colors, width));
        let maps = [map, curves, heads::picture(run, reading, &layers, (all.colors, width))];
        // Other kinds of attention have no scores.
        let only =
            if layers.len() > all.scores.len() { "; heads of decoder self-attention only" } else { "" };
        let measured_on = format!("{}{only}", all.measured_on);
        let scores = head_scores::picture(run, &measured_on, &all.kinds, (&all.scores, &all.chance), width);
        let optional = [prediction::picture(run, reading, width), scores];
        maps.into_iter().chain(optional.into_iter().flatten()).collect()
    }

    /// Returns all data of the page, with the attention weights of every sequence.
    pub fn full_data(&self) -> impl Serialize {
        let views: Vec<_> = self.readings.iter().map(|reading| &reading.maps).collect();
        PageWithDerived { page: self, derived: BTreeMap::from([("views", views)]) }
    }

    /// Returns the page as one HTML file.
    pub fn html(self) -> String {
        let run = self.run.clone();
        // The worker is created from this function's text; a hoisted function can be called before its definition.
        let engine = format!("function engine() {{\n{}\nreturn {{ Model }};\n}}", ENGINE.join("\n"));
        fill_template(TEMPLATE, &run, embedded::data(self), SCRIPTS.join("\n") + "\n" + &engine)
    }
}

/// Fills the placeholders of a template: title, style, data and script, in this order. The inserted text is never
/// searched for placeholders.
pub(crate) fn fill_template(template: &str, title: &str, data: String, script: String) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_string();
    for (piece, text) in pieces.zip([escaped(title), STYLE.to_string(), data, script]) {
        page += &text;
        page += piece.split_once("}}").map_or(piece, |(_, after)| after);
    }
    page
}

/// Escapes every `<` in JSON. The result is safe inside a script element, where only `</script` and `<!--` have a
/// special meaning.
pub(crate) fn escape_json(json: String) -> String {
    json.replace('<', "\\u003c")
}

/// Returns the colours of attention weights in CSS notation.
pub(crate) fn colors() -> Vec<String> {
    CONTROL_POINTS.map(|point| format!("#{point:06x}")).to_vec()
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
