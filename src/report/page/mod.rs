//! `report.html`: one file that holds a run's story, opens from disk and lets a reader look into
//! every head.
//!
//! The page is plain HTML, CSS and JavaScript (`assets/report/`), filled with the data of [`Page`].
//! It loads nothing, and forbids itself to. Text of a run, as its tokens, reaches it as data alone
//! and is never markup.

mod embedded;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::color::ColorMap;
use super::formation::ScoreHistory;
use super::loss::LossCurve;
use super::score::{HeadValues, head_name};
use crate::error::{Error, Result};

/// What `report.html` shows of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Page {
    /// The run's name.
    pub run: String,
    /// How the run ended, as names and values to be shown as they are.
    pub summary: Vec<(String, String)>,
    /// The run's `config.toml`.
    pub config: String,
    /// The loss along the run. Very many points are thinned to what a screen can show.
    pub loss: LossCurve,
    /// Sequences, what was predicted along them and what every head attended to; at least one.
    pub samples: Vec<PageSample>,
    /// What the scores were taken on, as "512 validation sequences".
    pub measured_on: String,
    /// The scores of all heads; may be empty.
    pub scores: Vec<HeadValues>,
    /// The steps at which heads were scored along the run, in order; may be empty.
    pub scored_steps: Vec<u64>,
    /// The scores at these steps.
    pub score_history: Vec<ScoreHistory>,
    /// The colours of attention weights.
    #[serde(default)]
    pub color_map: ColorMap,
}

/// One sequence, and what the model makes of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageSample {
    /// Which sequence it is, as "validation sequence 0".
    pub name: String,
    /// The text of each token that an encoder reads, where there is one.
    pub source: Option<Vec<String>>,
    /// The text of each input token.
    pub inputs: Vec<String>,
    /// What was predicted after each input.
    pub predictions: Vec<PagePrediction>,
    /// The weights, `[layer][head]`, each `[query, key]` row by row.
    pub attention: Vec<Vec<Vec<f32>>>,
}

/// What was predicted after one input.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PagePrediction {
    /// The text of the true next token, where it is known.
    pub truth: Option<String>,
    /// The probability that the model gave it.
    pub truth_probability: Option<f64>,
    /// Whether the tokens before it determine the true one.
    pub determined: bool,
    /// The likeliest tokens, the most probable first.
    pub probable: Vec<TokenProbability>,
}

/// A token and how probable it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenProbability {
    /// The token's text.
    pub token: String,
    /// Its probability, 0 to 1.
    pub probability: f64,
}

const TEMPLATE: &str = include_str!("../../../assets/report/page.html");
const STYLE: &str = include_str!("../../../assets/report/style.css");
/// In the order in which they read: what stands on the others comes last.
const SCRIPTS: [&str; 8] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/course.js"),
    include_str!("../../../assets/report/matrix.js"),
    include_str!("../../../assets/report/tokens.js"),
    include_str!("../../../assets/report/heads.js"),
    include_str!("../../../assets/report/predictions.js"),
];
const MAIN: &str = include_str!("../../../assets/report/page.js");

impl Page {
    /// Writes the page to `path`, whose folder exists.
    ///
    /// # Errors
    /// If the data contradict themselves, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.html()?).map_err(|source| Error::io("write", path, source))
    }

    /// The page's text.
    fn html(&self) -> Result<String> {
        self.check()?;
        let script = [&SCRIPTS[..], &[MAIN]].concat().join("\n");
        Ok(filled(TEMPLATE, &self.run, embedded::data(self)?, script))
    }

    /// The number of heads in each layer.
    fn layers(&self) -> Vec<usize> {
        self.samples.first().map_or_else(Vec::new, |sample| sample.attention.iter().map(Vec::len).collect())
    }

    fn check(&self) -> Result<()> {
        let layers = self.layers();
        if layers.is_empty() || layers.contains(&0) {
            return Err(Error::Shape(
                "a page needs the attention of at least one sample and head".to_string(),
            ));
        }
        for sample in &self.samples {
            sample.check(&layers)?;
        }
        self.scores.iter().try_for_each(|scores| scores.check(&layers))?;
        self.score_history.iter().try_for_each(|history| history.check(self.scored_steps.len(), &layers))
    }
}

impl PageSample {
    fn check(&self, layers: &[usize]) -> Result<()> {
        let time = self.inputs.len();
        let found: Vec<usize> = self.attention.iter().map(Vec::len).collect();
        if found != layers || time == 0 {
            return Err(Error::Shape(format!(
                "{}: {time} tokens and heads by layer {found:?}, where at least one token and {layers:?} are shown",
                self.name
            )));
        }
        if !self.predictions.is_empty() && self.predictions.len() != time {
            return Err(Error::Shape(format!(
                "{}: {} predictions do not fit {time} tokens",
                self.name,
                self.predictions.len()
            )));
        }
        for (layer, heads) in self.attention.iter().enumerate() {
            for (head, weights) in heads.iter().enumerate() {
                if weights.len() != time * time {
                    return Err(Error::Shape(format!(
                        "{}, {}: {} weights do not fit {time} tokens, which need [{time}, {time}]",
                        self.name,
                        head_name(layer, head),
                        weights.len(),
                    )));
                }
            }
        }
        Ok(())
    }
}

/// A template with its title, style, data and script.
pub(super) fn filled(template: &str, title: &str, data: String, script: String) -> String {
    let mut page = String::with_capacity(template.len() + STYLE.len() + script.len() + data.len());
    let mut rest = template;
    // In the order of the template, so that nothing filled in is ever searched for a mark.
    for (mark, text) in [
        ("{{title}}", escaped(title)),
        ("{{style}}", STYLE.to_string()),
        ("{{data}}", data),
        ("{{script}}", script),
    ] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(&text);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// JSON that can stand in a script element: there only `</script` and `<!--` mean anything, and without
/// `<` there is neither.
pub(super) fn harmless(json: String) -> String {
    json.replace('<', "\\u003c")
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
