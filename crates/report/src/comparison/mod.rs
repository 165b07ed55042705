//! `losses` and `heads`: runs compared with each other, as pictures and as a page.

mod heads;
mod losses;

use plotters::style::RGBColor;
use serde_json::{Value, json};

use crate::draw::color::{BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILION};
use crate::draw::{Picture, extremes};
use crate::page::{colors, filled, harmless};
use crate::scores::{HeadScores, ScoreKind};

/// Runs that are compared.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The settings, the best first.
    pub settings: Vec<Setting>,
    /// The runs of all settings, in the order of these.
    pub runs: Vec<ComparedRun>,
    /// True where runs are compared by their loss above the floor, and not by their loss.
    pub is_above_floor: bool,
}

/// A setting that one or more runs share.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The name, as `model.heads = 4`.
    pub name: String,
    /// The mean result of the runs.
    pub mean: Option<f64>,
    /// The confidence interval of the mean.
    pub interval: Option<[f64; 2]>,
}

/// One of the runs.
#[derive(Debug, Clone, Default)]
pub struct ComparedRun {
    /// The name.
    pub name: String,
    /// The number of the setting.
    pub setting: usize,
    /// The lowest validation loss, above the floor where runs are compared by that; none that is not finite.
    pub result: Option<f64>,
    /// The loss of the optimal predictor, where it is known.
    pub floor: Option<f64>,
    /// The validations.
    pub curve: Vec<Validation>,
    /// The scores of the heads, `[layer][head]`; empty where they were not measured.
    pub heads: Vec<Vec<HeadScores>>,
}

/// A validation along a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// The steps done.
    pub step: usize,
    /// The targets trained on.
    pub tokens: u64,
    /// The seconds of training.
    pub seconds: f64,
    /// The loss in nats per token.
    pub loss: f64,
}

/// The quantity along which losses are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Steps done.
    Steps,
    /// Targets trained on.
    Tokens,
    /// Seconds of training.
    Seconds,
}

impl Along {
    fn of(self, validation: &Validation) -> f64 {
        match self {
            Self::Steps => validation.step as f64,
            Self::Tokens => validation.tokens as f64,
            Self::Seconds => validation.seconds,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Steps => "step",
            Self::Tokens => "tokens trained on",
            Self::Seconds => "seconds of training",
        }
    }
}

impl Comparison {
    /// Returns the quantity by which runs are compared, in words.
    fn measure(&self) -> &'static str {
        if self.is_above_floor { "loss above the floor" } else { "loss" }
    }
}

/// Draws the losses, and the scores of `kinds` where runs have them.
pub fn pictures(comparison: &Comparison, along: Along, kinds: &[ScoreKind]) -> Vec<Picture> {
    [losses::picture(comparison, along)].into_iter().chain(heads::picture(comparison, kinds)).collect()
}

/// Data colours of the best settings; all others are grey.
const COLORS: [RGBColor; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK];

/// The colour of a setting.
fn color(setting: usize) -> RGBColor {
    COLORS.get(setting).copied().unwrap_or(MUTED)
}

const TEMPLATE: &str = include_str!("../../page/compare.html");
/// In the order in which they read.
const SCRIPTS: [&str; 5] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/table.js"),
    include_str!("../../page/compare.js"),
];
/// A curve of the page has about so many points at most.
const MOST_POINTS: usize = 800;

/// Returns a curve as the page reads it: a list for each column, where a loss that is not finite is none.
fn curve(run: &ComparedRun) -> Value {
    let together = run.curve.len().div_ceil(MOST_POINTS / 4).max(1);
    let rows: Vec<&Validation> = run.curve.iter().collect();
    let kept: Vec<&Validation> =
        rows.chunks(together).flat_map(|rows| extremes(rows, |row| row.loss)).collect();
    let column = |of: fn(&Validation) -> Value| kept.iter().map(|row| of(row)).collect::<Vec<_>>();
    json!({
        "step": column(|row| json!(row.step)), "tokens": column(|row| json!(row.tokens)),
        "seconds": column(|row| json!(row.seconds)), "loss": column(|row| json!(row.loss)),
    })
}

/// Returns the page of a comparison: the differences in words, curves over each other, a table to be sorted, and the
/// scores of heads. `all` is the comparison as the page's script reads it, and `kinds` are those of all its scores.
pub fn page(comparison: &Comparison, all: Value, kinds: &[ScoreKind]) -> String {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02x}{green:02x}{blue:02x}");
    let names: Vec<&String> = comparison.settings.iter().map(|setting| &setting.name).collect();
    let data = json!({
        "comparison": all,
        "names": names,
        "curves": comparison.runs.iter().map(curve).collect::<Vec<_>>(),
        "scores": kinds,
        "setting_colors": (0..names.len()).map(|setting| hex(color(setting))).collect::<Vec<_>>(),
        "colors": colors(),
    });
    let title = format!("{} runs compared", comparison.runs.len());
    filled(TEMPLATE, &title, harmless(data.to_string()), SCRIPTS.join("\n"))
}
