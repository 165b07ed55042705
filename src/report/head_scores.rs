//! `head_scores`: what each head does, layer by head, a panel for each score.

use super::axis::Axis;
use super::canvas::{Canvas, Rect};
use super::color::{MUTED, SHADE, color};
use super::heat_map::{HeatMap, WRITTEN_CELL, color_bar};
use super::picture::{HEADING, MARGIN, Picture, WIDTH};
use super::range::counted;
use super::score::{self, head_name};
use super::text::Text;
use super::token::round_stride;
use super::weights::Bins;
use crate::analysis::{HeadScores, Score};

/// Around the cells of a panel: numbers of layers on the left, the colour bar on the right, the
/// title above, numbers of heads below.
const LEFT: f64 = 40.0;
const BAR: f64 = 74.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 46.0;
/// The widest cell.
const WIDEST: f64 = 64.0;
/// The least height of a colour bar.
const BAR_HEIGHT: f64 = 52.0;
const SIZE: f64 = 10.0;

/// The scores of all heads, `[layer][head]`, taken on what `measured_on` says, as "128 validation sequences".
/// None where no score says anything.
pub fn head_scores(run: &str, measured_on: &str, heads: &[Vec<HeadScores>]) -> Option<Picture> {
    let is_known = |score: &Score| heads.iter().flatten().any(|head| head[*score].is_some());
    let scores: Vec<Score> = Score::ALL.into_iter().filter(is_known).collect();
    let most = heads.iter().map(Vec::len).max()?.max(1);
    let columns = if most <= 4 { 3 } else { 2 }.min(scores.len());
    if columns == 0 {
        return None;
    }
    let panel = (WIDTH - 2.0 * MARGIN) / columns as f64;
    let width = ((panel - LEFT - BAR) / most as f64).min(WIDEST).floor().max(2.0);
    let height = if width >= WRITTEN_CELL { 26.0 } else { width.min(20.0) };
    let cells = (width * most as f64, height * heads.len() as f64);
    let row = ABOVE + cells.1.max(BAR_HEIGHT) + BELOW;

    let all = heads.iter().map(Vec::len).sum();
    let (layers, all) = (counted(heads.len(), "layer"), counted(all, "head"));
    let note = format!("{layers}, {all}; measured on {measured_on}");
    let rows = scores.len().div_ceil(columns) as f64;
    let title = format!("{run}: scores of heads");
    let mut picture = Picture::new("head_scores", HEADING + rows * row + 4.0, &title, &note);
    for (i, &score) in scores.iter().enumerate() {
        let (left, top) =
            (MARGIN + (i % columns) as f64 * panel + LEFT, HEADING + (i / columns) as f64 * row);
        let area = Rect { left, top: top + ABOVE, width: cells.0, height: cells.1 };
        let value =
            |layer: usize, head: usize| heads[layer].get(head)?[score].filter(|value| value.is_finite());
        let canvas = &mut picture.canvas;

        let (name, note) = (Text::new(13.0).bold(), Text::new(11.0).color(MUTED));
        let places = || (0..heads.len()).flat_map(|layer| (0..most).map(move |head| (layer, head)));
        let known = || places().filter_map(|(layer, head)| Some((layer, head, value(layer, head)?)));
        let text = match known().max_by(|a, b| a.2.total_cmp(&b.2)) {
            // Where values are written, they are seen.
            Some((layer, head, highest)) if width < WRITTEN_CELL => {
                format!("{}; highest {}: {}", score.unit(), score.text(highest), head_name(layer, head))
            }
            _ => score.unit().to_string(),
        };
        let after = name.width(score.name()) + 8.0;
        canvas.text(score.name(), (left, top + 10.0), &name);
        canvas.text(&note.fit(&text, panel - LEFT - after - 8.0), (left + after, top + 10.0), &note);

        let bins = |positions| Bins { positions, size: 1 };
        let range = score::range(score, known().map(|(.., value)| value));
        HeatMap {
            area,
            rows: bins(heads.len()),
            columns: bins(most),
            value: &value,
            range,
            text: &|value| score.text(value),
            blank: (SHADE, "–"),
        }
        .draw(canvas);
        labels(canvas, area, heads.len(), most);
        let bar = Rect { left: area.right() + 8.0, width: 10.0, height: cells.1.max(BAR_HEIGHT), ..area };
        color_bar(canvas, bar, color, &Axis::new("", range));
    }
    Some(picture)
}

/// The numbers of layers and heads, every second or fewer where cells are too small for all.
fn labels(canvas: &mut Canvas, area: Rect, layers: usize, heads: usize) {
    let look = Text::new(SIZE).color(MUTED);
    let (width, height) = (area.width / heads as f64, area.height / layers as f64);
    let every = |pitch: f64| round_stride((13.0 / pitch).ceil() as usize);
    for layer in (0..layers).step_by(every(height)) {
        let y = area.top + (layer as f64 + 0.5) * height;
        canvas.text(&layer.to_string(), (area.left - 6.0, y), &look.right());
    }
    for head in (0..heads).step_by(every(width)) {
        let x = area.left + (head as f64 + 0.5) * width;
        canvas.text(&head.to_string(), (x, area.bottom() + 9.0), &look.centered());
    }
    let title = Text::new(11.0).centered();
    let (x, y) = area.center();
    canvas.text("head", (x, area.bottom() + 24.0), &title);
    // One or two layers are lower than the word.
    canvas.text("layer", (area.left - 30.0, y.max(area.top + 14.0)), &title.upward());
}
