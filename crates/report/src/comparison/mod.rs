//! Comparisons of runs: the pictures `losses` and `heads`, and a page.

mod heads;
mod losses;

use plotters::style::RGBColor;
use serde_json::{Value, json};

use crate::draw::color::{BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILION};
use crate::draw::{Picture, extremes};
use crate::page::{colors, escape_json, fill_template};
use crate::scores::{HeadScores, ScoreKind};

/// Several runs to compare.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The settings, the best first.
    pub settings: Vec<Setting>,
    /// The runs of all settings, in the order of the settings.
    pub runs: Vec<ComparedRun>,
    /// True if runs are compared by their loss above the entropy floor instead of their loss.
    pub is_above_floor: bool,
}

/// A setting shared by one or more runs.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The name, such as `model.heads = 4`.
    pub name: String,
    /// The mean result of the runs.
    pub mean: Option<f64>,
    /// The confidence interval of the mean.
    pub interval: Option<[f64; 2]>,
    /// The reason why no run of the setting has a result, such as "diverged"; `None` if one has.
    pub excluded: Option<String>,
}

/// A run of a comparison.
#[derive(Debug, Clone, Default)]
pub struct ComparedRun {
    /// The name.
    pub name: String,
    /// The index of the setting.
    pub setting: usize,
    /// The lowest validation loss, or its distance above the floor if runs are compared by the distance; `None` if it
    /// is not finite.
    pub result: Option<f64>,
    /// The entropy floor, if known.
    pub floor: Option<f64>,
    /// The validations of the run.
    pub curve: Vec<Validation>,
    /// The scores of the heads, `[layer][head]`; empty if they were not measured.
    pub heads: Vec<Vec<HeadScores>>,
    /// The scores, by layer, of a head that attends to all visible keys equally; empty if unknown.
    pub chance: Vec<HeadScores>,
}

/// A validation during a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// The number of completed steps.
    pub step: usize,
    /// The number of targets trained on.
    pub tokens: u64,
    /// The training time in seconds.
    pub seconds: f64,
    /// The loss in nats per token.
    pub loss: f64,
}

/// The quantity on the x axis of the loss curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XAxisQuantity {
    /// Training steps.
    Steps,
    /// Targets trained on.
    Tokens,
    /// Training time in seconds.
    Seconds,
}

impl XAxisQuantity {
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
            Self::Seconds => "training time (s)",
        }
    }
}

impl Comparison {
    /// Returns the name of the quantity by which runs are compared.
    fn measure(&self) -> &'static str {
        if self.is_above_floor { "loss above the floor" } else { "loss" }
    }
}

/// Draws the losses, and the scores of `kinds` for runs that have them, in pictures of this width.
pub fn pictures(
    comparison: &Comparison,
    x_axis: XAxisQuantity,
    kinds: &[ScoreKind],
    width: f64,
) -> Vec<Picture> {
    let losses = losses::picture(comparison, x_axis, width);
    [losses].into_iter().chain(heads::picture(comparison, kinds, width)).collect()
}

/// The colours of the best settings; all others are grey.
const COLORS: [RGBColor; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK];

/// Returns the colour of a setting.
fn color(setting: usize) -> RGBColor {
    COLORS.get(setting).copied().unwrap_or(MUTED)
}

const TEMPLATE: &str = include_str!("../../page/compare.html");
/// The scripts of the page, in dependency order.
const SCRIPTS: [&str; 6] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/table.js"),
    include_str!("../../page/save.js"),
    include_str!("../../page/compare.js"),
];
/// The approximate maximum number of points in a curve of the page.
const MAX_CURVE_POINTS: usize = 800;

/// Returns a curve in the page's format: one list per column. A loss that is not finite is null.
fn curve(run: &ComparedRun) -> Value {
    let group_size = run.curve.len().div_ceil(MAX_CURVE_POINTS / 4).max(1);
    let rows: Vec<&Validation> = run.curve.iter().collect();
    let kept: Vec<&Validation> =
        rows.chunks(group_size).flat_map(|rows| extremes(rows, |row| row.loss)).collect();
    let column = |of: fn(&Validation) -> Value| kept.iter().map(|row| of(row)).collect::<Vec<_>>();
    json!({
        "step": column(|row| json!(row.step)), "tokens": column(|row| json!(row.tokens)),
        "seconds": column(|row| json!(row.seconds)), "loss": column(|row| json!(row.loss)),
    })
}

/// Returns the page of a comparison: a summary of the differences, the loss curves, a sortable table, and the scores of
/// heads. `all` is the comparison in the format of the page's script, and `kinds` are the kinds of all its scores.
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
    fill_template(TEMPLATE, &title, escape_json(data.to_string()), SCRIPTS.join("\n"))
}
