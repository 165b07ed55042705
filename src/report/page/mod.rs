//! `report.html`: one file that shows a whole run, opens from disk and lets a reader look into every
//! head.
//!
//! The page is plain HTML, CSS and JavaScript (`assets/report/`), filled with the data of [`Page`]. It
//! loads nothing, and forbids itself to. Text of a run, as its tokens, reaches it as data alone and is
//! never markup.

mod embedded;
mod run;

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::loss::LossCurve;
use super::reading::TokenProbability;
use crate::analysis::{AttentionKind, HeadScores, ScoredStep};
use crate::error::{Error, Result};

/// What `report.html` shows of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
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
    /// The scores of all heads, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
    /// The head of each layer that is shown first.
    pub shown: Vec<usize>,
    /// The scores along the run, in the order of steps; may be empty.
    pub history: Vec<ScoredStep>,
}

/// One sequence, and what the model makes of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PageSample {
    /// Which sequence it is, as "validation sequence 0".
    pub name: String,
    /// The text of each token that an encoder reads, where there is one.
    pub source: Option<Vec<String>>,
    /// The text of each input token.
    pub inputs: Vec<String>,
    /// What was predicted after each input.
    pub predictions: Vec<PagePrediction>,
    /// The attention of each kind that the model has, the decoder's own first.
    pub attention: Vec<PageMaps>,
}

/// What was predicted after one input.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PagePrediction {
    /// The text of the true next token, where it is known.
    pub truth: Option<String>,
    /// The probability that the model gave it.
    pub truth_probability: Option<f64>,
    /// Whether the tokens before it determine the true one; none where no rule says so.
    pub determined: Option<bool>,
    /// The likeliest tokens, the most probable first.
    pub probable: Vec<TokenProbability>,
}

/// The attention of all heads over one sequence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageMaps {
    /// Whose attention it is.
    pub kind: AttentionKind,
    /// The weights, `[layer][head]`, each `[query, key]` row by row.
    pub weights: Vec<Vec<Vec<f32>>>,
}

const TEMPLATE: &str = include_str!("../../../assets/report/page.html");
const STYLE: &str = include_str!("../../../assets/report/style.css");
/// In the order in which they read: what stands on the others comes last.
const SCRIPTS: [&str; 10] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/maps.js"),
    include_str!("../../../assets/report/course.js"),
    include_str!("../../../assets/report/matrix.js"),
    include_str!("../../../assets/report/tokens.js"),
    include_str!("../../../assets/report/heads.js"),
    include_str!("../../../assets/report/predictions.js"),
    include_str!("../../../assets/report/page.js"),
];

impl Page {
    /// Writes the page to `path`, whose folder exists.
    ///
    /// # Errors
    /// If the data contradict themselves, or the file cannot be written.
    pub fn write(self, path: &Path) -> Result<()> {
        fs::write(path, self.html()?).map_err(|source| Error::io("write", path, source))
    }

    /// The page's text.
    fn html(self) -> Result<String> {
        let run = self.run.clone();
        Ok(filled(TEMPLATE, &run, embedded::data(self)?, SCRIPTS.join("\n")))
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
