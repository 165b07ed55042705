//! Runs side by side as pictures and as a page.

mod heads;
mod losses;
mod shared;

use clap::ValueEnum;
use plotters::style::RGBColor;
use serde_json::{Value, json};

use super::draw::color::{BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILION};
use super::draw::{Picture, extremes};
use super::page::{colors, filled, harmless};
use crate::analysis::Score;
use crate::comparison::{ComparedRun, Comparison};
use crate::training::Row;

/// By what losses are drawn along runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Along {
    /// Steps done.
    Steps,
    /// Targets trained on.
    Tokens,
    /// Seconds of training.
    Seconds,
}

impl Along {
    fn of(self, row: &Row) -> f64 {
        match self {
            Self::Steps => row.step as f64,
            Self::Tokens => row.tokens as f64,
            Self::Seconds => row.seconds,
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

/// The pictures of a comparison: losses, and the scores of heads where runs have them.
pub fn comparison_pictures(comparison: &Comparison, along: Along) -> Vec<Picture> {
    let comparison = &shared::without_folders(comparison);
    [losses::picture(comparison, along)].into_iter().chain(heads::picture(comparison)).collect()
}

/// Data colours of the best settings; all others are grey.
const COLORS: [RGBColor; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK];

/// The colour of a setting.
fn color(setting: usize) -> RGBColor {
    COLORS.get(setting).copied().unwrap_or(MUTED)
}

const TEMPLATE: &str = include_str!("../../../assets/report/compare.html");
/// In the order in which they read.
const SCRIPTS: [&str; 5] = [
    include_str!("../../../assets/report/data.js"),
    include_str!("../../../assets/report/color.js"),
    include_str!("../../../assets/report/chart.js"),
    include_str!("../../../assets/report/table.js"),
    include_str!("../../../assets/report/compare.js"),
];
/// A curve of the page has about so many points at most.
const MOST_POINTS: usize = 800;

/// A curve as the page reads it: a list for each column, where a loss that is not finite is none.
fn curve(run: &ComparedRun) -> Value {
    let together = run.curve.len().div_ceil(MOST_POINTS / 4).max(1);
    let rows: Vec<&Row> = run.curve.iter().collect();
    let kept: Vec<&Row> = rows.chunks(together).flat_map(|rows| extremes(rows, |row| row.loss)).collect();
    let column = |of: fn(&Row) -> Value| kept.iter().map(|row| of(row)).collect::<Vec<_>>();
    json!({
        "step": column(|row| json!(row.step)), "tokens": column(|row| json!(row.tokens)),
        "seconds": column(|row| json!(row.seconds)), "loss": column(|row| json!(row.loss)),
    })
}

/// The page of a comparison: what differs in words, curves over each other, a table to be sorted, and the scores of
/// heads.
pub fn comparison_page(comparison: &Comparison) -> String {
    let comparison = &shared::without_folders(comparison);
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02x}{green:02x}{blue:02x}");
    let names: Vec<String> = comparison.settings.iter().map(|setting| setting.name()).collect();
    let data = json!({
        "comparison": comparison,
        "names": names,
        "curves": comparison.runs.iter().map(curve).collect::<Vec<_>>(),
        "scores": Score::ALL.map(Score::about),
        "setting_colors": (0..names.len()).map(|setting| hex(color(setting))).collect::<Vec<_>>(),
        "colors": colors(),
    });
    let title = format!("{} runs compared", comparison.runs.len());
    filled(TEMPLATE, &title, harmless(data.to_string()), SCRIPTS.join("\n"))
}
