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
        let data = embedded::data(self)?;
        let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + script.len() + data.len());
        let mut rest = TEMPLATE;
        // In the order of the template, so that nothing filled in is ever searched for a mark.
        for (mark, text) in [
            ("{{title}}", escaped(&self.run)),
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
        Ok(page)
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

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::score::Score;
    use crate::report::series::Point;

    /// A page of a few samples; weights fall off with the distance, evenly where `sharpness` is 0.
    pub(super) fn page(layers: usize, heads: usize, time: usize, samples: usize) -> Page {
        let map = |sharpness: f64| -> Vec<f32> {
            let row = move |query: usize| {
                let weight = move |key: usize| (-sharpness * (query - key) as f64).exp();
                let sum: f64 = (0..=query).map(weight).sum();
                (0..time).map(move |key| if key <= query { (weight(key) / sum) as f32 } else { 0.0 })
            };
            (0..time).flat_map(row).collect()
        };
        let sample = |index: usize| PageSample {
            name: format!("validation sequence {index}"),
            inputs: (0..time).map(|i| ((i * 5 + index) % 7).to_string()).collect(),
            predictions: (0..time)
                .map(|i| PagePrediction {
                    truth: Some(((i * 5 + 5 + index) % 7).to_string()),
                    truth_probability: Some(0.123_456_789),
                    determined: i > 2,
                    probable: vec![TokenProbability { token: (i % 7).to_string(), probability: 0.9 }],
                })
                .collect(),
            attention: (0..layers)
                .map(|layer| (0..heads).map(|head| map((layer * heads + head) as f64 / 3.0)).collect())
                .collect(),
        };
        let grid = vec![vec![Some(0.25); heads]; layers];
        Page {
            run: "golden".to_string(),
            summary: vec![("loss".to_string(), "0.5 nats".to_string())],
            config: "[run]\nname = \"golden\"\n".to_string(),
            loss: LossCurve {
                training: (1..=100).map(|step| Point { step, value: 1.0 / step as f64 }).collect(),
                ..LossCurve::default()
            },
            samples: (0..samples).map(sample).collect(),
            measured_on: "3 sequences".to_string(),
            scores: vec![HeadValues { score: Score::Induction, values: grid.clone() }],
            scored_steps: vec![10, 100],
            score_history: vec![ScoreHistory { score: Score::Induction, values: vec![grid; 2] }],
            color_map: ColorMap::default(),
        }
    }

    /// The data element of a page, as its script reads it.
    fn data(html: &str) -> serde_json::Value {
        let (_, rest) = html.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn a_page_of_the_usual_size_is_below_three_megabytes() {
        assert!(page(2, 4, 64, 8).html().unwrap().len() < 3_000_000);
    }

    #[test]
    fn a_page_loads_nothing() {
        let html = page(1, 2, 3, 1).html().unwrap();
        assert!(html.contains("default-src 'none'"));
        let addresses = html.matches("://").count();
        let names = html.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, names, "the name of SVG is the only address");
        assert!(!html.contains("{{"));
    }

    #[test]
    fn text_of_a_run_is_data_and_never_markup() {
        let plain = page(1, 2, 5, 1);
        let mut hostile = plain.clone();
        let texts = [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "{{script}}",
            "\u{2028}\u{0}\\\"'",
            "&lt;",
        ];
        hostile.samples[0].inputs = texts.map(str::to_string).to_vec();
        hostile.samples[0].predictions[0].probable[0].token = texts[0].to_string();
        hostile.samples[0].name = texts[0].to_string();
        hostile.run = "</title><script>alert(2)</script>{{data}}&amp;".to_string();
        hostile.config = "# </script><img src=x>".to_string();
        hostile.summary[0].1 = texts[0].to_string();
        hostile.measured_on = texts[0].to_string();
        let (plain, html) = (plain.html().unwrap(), hostile.html().unwrap());
        for markup in ["<", "<script", "</script", "<!--", "<img"] {
            assert_eq!(html.matches(markup).count(), plain.matches(markup).count(), "{markup}");
        }
        assert!(
            html.contains(
                "<title>&lt;/title&gt;&lt;script&gt;alert(2)&lt;/script&gt;{{data}}&amp;amp;</title>"
            )
        );
        let data = data(&html);
        let token = |position: usize| {
            let number = data["samples"][0]["inputs"][position].as_u64().unwrap();
            data["tokens"][number as usize].as_str().unwrap()
        };
        assert_eq!([0, 1, 2, 3, 4].map(token), texts);
        assert_eq!(data["run"].as_str().unwrap(), hostile.run);
        assert_eq!(data["config"].as_str().unwrap(), hostile.config);
    }

    #[test]
    fn data_that_contradict_themselves_are_refused_in_one_line() {
        let refused = |change: fn(&mut Page)| {
            let mut page = page(2, 3, 5, 2);
            change(&mut page);
            page.html().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|page| page.samples.clear()),
            "a page needs the attention of at least one sample and head"
        );
        assert_eq!(
            refused(|page| page.samples[1].attention[1][2].truncate(24)),
            "validation sequence 1, layer 1, head 2: 24 weights do not fit 5 tokens, which need [5, 5]"
        );
        assert_eq!(
            refused(|page| drop(page.samples[1].predictions.pop())),
            "validation sequence 1: 4 predictions do not fit 5 tokens"
        );
        assert!(
            refused(|page| drop(page.samples[1].attention.pop()))
                .starts_with("validation sequence 1: 5 tokens")
        );
        assert!(refused(|page| drop(page.scores[0].values.pop())).starts_with("the values of induction"));
        assert_eq!(refused(|page| page.scored_steps = vec![1]), "2 values of induction do not fit 1 steps");
    }

    #[test]
    fn a_page_is_written_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let page = page(1, 1, 1, 1);
        page.write(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("</html>\n"));
        let message = page.write(folder.path()).unwrap_err().to_string();
        assert!(message.starts_with("cannot write `"), "{message}");
    }
}
