//! `heads`: the scores of all heads, one row per run and one panel per score.

use super::Comparison;
use crate::draw::color::{MUTED, of_values};
use crate::draw::{
    Axis, HEADING, HeatMap, LABEL_SIZE, MARGIN, Picture, Rect, Scale, Text, draw_color_bar, stride_of,
};
use crate::head_scores::{chance_in_words, range};
use crate::numbers::counted;
use crate::scores::ScoreKind;

const ROW_HEIGHT: f64 = 22.0;
/// The maximum width of the names of runs, also as a fraction of the picture's width.
const MAX_NAME_WIDTH: f64 = 190.0;
const MAX_NAME_FRACTION: f64 = 0.3;
const BAR_WIDTH: f64 = 80.0;
/// The minimum height of a colour bar.
const MIN_BAR_HEIGHT: f64 = 52.0;
/// The space above and below the map of a panel.
const ABOVE_MAP: f64 = 34.0;
const BELOW_MAP: f64 = 22.0;
const MAX_CELL_WIDTH: f64 = 56.0;
/// The maximum number of runs drawn, best first.
const MAX_RUNS: usize = 24;

/// Draws the scores of `kinds`. Returns `None` if fewer than two runs have scores.
pub fn picture(comparison: &Comparison, kinds: &[ScoreKind], picture_width: f64) -> Option<Picture> {
    let mut runs: Vec<_> = comparison.runs.iter().filter(|run| !run.heads.is_empty()).collect();
    if runs.len() < 2 {
        return None;
    }
    let omitted = runs.len().saturating_sub(MAX_RUNS);
    runs.truncate(MAX_RUNS);
    let layers = runs.iter().map(|run| run.heads.len()).max()?;
    let heads =
        |layer: usize| runs.iter().filter_map(|run| run.heads.get(layer)).map(Vec::len).max().unwrap_or(0);
    let columns: Vec<(usize, usize)> =
        (0..layers).flat_map(|layer| (0..heads(layer)).map(move |head| (layer, head))).collect();
    let style = Text::new(LABEL_SIZE);
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let names = style.fit_distinct(&names, MAX_NAME_WIDTH.min(MAX_NAME_FRACTION * picture_width));
    let left = MARGIN + names.iter().map(|name| style.width(name)).fold(0.0, f64::max) + 10.0;
    let width = ((picture_width - left - MARGIN - BAR_WIDTH) / columns.len() as f64).min(MAX_CELL_WIDTH);
    let rows = ROW_HEIGHT * runs.len() as f64;
    let panel = ABOVE_MAP + rows.max(MIN_BAR_HEIGHT) + BELOW_MAP;
    let is_measured = |score: &&ScoreKind| {
        runs.iter().any(|run| run.heads.iter().flatten().any(|head| head.get(score).is_some()))
    };
    let scores: Vec<&ScoreKind> = kinds.iter().filter(is_measured).collect();
    let height = HEADING + panel * scores.len() as f64 + 8.0;
    let mut note =
        "columns are heads (layer.head); best setting first; an empty cell is a head that the run lacks"
            .to_string();
    if omitted > 0 {
        note += &format!("; the page has {}", counted(omitted, "more run"));
    }
    let mut picture = Picture::new("heads", (picture_width, height), "Head scores by run", &note);
    for (number, &score) in scores.iter().enumerate() {
        let top = HEADING + panel * number as f64;
        let area = Rect { left, top: top + ABOVE_MAP, width: width * columns.len() as f64, height: rows };
        let chance = chance_in_words(score, runs.iter().flat_map(|run| &run.chance));
        let note =
            format!("{}{}", score.meaning, chance.map_or_else(String::new, |chance| format!("; {chance}")));
        picture.panel_name(score.name, &note, (MARGIN, top + 8.0), picture_width - 2.0 * MARGIN);
        let values: Vec<Option<f64>> = runs
            .iter()
            .flat_map(|run| columns.iter().map(|&(layer, head)| run.heads.get(layer)?.get(head)?.get(score)))
            .collect();
        let range = range(score, values.iter().flatten().copied());
        let map = HeatMap { positions: [runs.len(), columns.len()], bins: [1, 1], values };
        map.draw(&mut picture, area, range, score.digits, "");
        for (row, name) in names.iter().enumerate() {
            picture.text(name, (left - 8.0, area.top + (row as f64 + 0.5) * ROW_HEIGHT), &style.right());
        }
        let small = Text::new(10.0).color(MUTED).centered();
        for column in (0..columns.len()).step_by(stride_of(width, 24.0)) {
            let (layer, head) = columns[column];
            let x = area.left + (column as f64 + 0.5) * width;
            picture.text(&format!("{layer}.{head}"), (x, area.top - 9.0), &small);
        }
        let bar = Rect { left: area.right() + 10.0, width: 10.0, height: rows.max(MIN_BAR_HEIGHT), ..area };
        let shade = move |fraction: f64| of_values(range)(range.start + fraction * range.length());
        draw_color_bar(&mut picture, bar, shade, &Axis::new("", range, Scale::Linear));
    }
    Some(picture)
}
