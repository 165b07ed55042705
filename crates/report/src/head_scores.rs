//! `head_scores`: the scores of heads, layer by head, one panel per kind of score.

use crate::draw::color::{MUTED, of_values};
use crate::draw::{
    Axis, HEADING, HeatMap, Interval, MARGIN, MIN_VALUE_CELL, Picture, Rect, Scale, Text, draw_color_bar,
    round_up, stride_of,
};
use crate::numbers::counted;
use crate::reading::head_name;
use crate::scores::{HeadScores, ScoreKind, known as known_kinds};

/// The margins around the cells of a panel: layer numbers on the left, the colour bar on the right, the title above,
/// head numbers below.
const LEFT: f64 = 40.0;
const BAR_WIDTH: f64 = 74.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 46.0;
/// The maximum width of a cell.
const MAX_CELL_WIDTH: f64 = 64.0;
/// The minimum height of a colour bar.
const MIN_BAR_HEIGHT: f64 = 52.0;
/// The minimum width of a panel in a row of several.
const MIN_PANEL_WIDTH: f64 = 230.0;
const LABEL_SIZE: f64 = 10.0;

/// Draws the scores of all heads, `[layer][head]`, with one panel per kind of score, next to the score of a head that
/// attends to all visible keys equally (`chance`, by layer). `measured_on` names the data, such as "128 validation sequences".
/// The picture has this width. Returns `None` if no score is known.
pub fn picture(
    run: &str,
    measured_on: &str,
    kinds: &[ScoreKind],
    (heads, chance): (&[Vec<HeadScores>], &[HeadScores]),
    picture_width: f64,
) -> Option<Picture> {
    let scores = known_kinds(kinds, heads);
    let max_heads = heads.iter().map(Vec::len).max()?.max(1);
    let columns = if max_heads <= 4 { 3 } else { 2 }.min(scores.len());
    if columns == 0 {
        return None;
    }
    let room = picture_width - 2.0 * MARGIN;
    let columns = columns.min((room / MIN_PANEL_WIDTH) as usize).max(1);
    let panel = room / columns as f64;
    let width = ((panel - LEFT - BAR_WIDTH) / max_heads as f64).min(MAX_CELL_WIDTH).floor().max(2.0);
    let height = if width >= MIN_VALUE_CELL { 26.0 } else { width.min(20.0) };
    let cells = (width * max_heads as f64, height * heads.len() as f64);
    let row = ABOVE + cells.1.max(MIN_BAR_HEIGHT) + BELOW;

    let all = heads.iter().map(Vec::len).sum();
    let (layers, all) = (counted(heads.len(), "layer"), counted(all, "head"));
    let note = format!("{layers}, {all}; measured on {measured_on}");
    let rows = scores.len().div_ceil(columns) as f64;
    let title = format!("{run}: head scores");
    let mut picture = Picture::new("head_scores", (picture_width, HEADING + rows * row + 4.0), &title, &note);
    for (i, score) in scores.iter().enumerate() {
        let (left, top) =
            (MARGIN + (i % columns) as f64 * panel + LEFT, HEADING + (i / columns) as f64 * row);
        let area = Rect { left, top: top + ABOVE, width: cells.0, height: cells.1 };
        let positions = || (0..heads.len()).flat_map(|layer| (0..max_heads).map(move |head| (layer, head)));
        let value = |(layer, head): (usize, usize)| {
            heads[layer].get(head)?.get(score).filter(|value| value.is_finite())
        };
        let known = || positions().filter_map(|position| Some((position, value(position)?)));
        let unit = unit_and_chance(score, chance);
        let note = match known().max_by(|a, b| a.1.total_cmp(&b.1)) {
            // Wide cells are labelled with their values, so the title does not repeat the highest one.
            Some(((layer, head), highest)) if width < MIN_VALUE_CELL => {
                format!("{unit}; highest {} ({})", score.text(highest), head_name(layer, head))
            }
            _ => unit,
        };
        picture.panel_name(score.name, &note, (left, top + 10.0), panel - LEFT - 8.0);

        let values = positions().map(value).collect();
        let map = HeatMap { positions: [heads.len(), max_heads], bins: [1, 1], values };
        let range = range(score, known().map(|(_, value)| value));
        map.draw(&mut picture, area, range, score.digits, "–");
        draw_labels(&mut picture, area, heads.len(), max_heads);
        let bar = Rect { left: area.right() + 8.0, width: 10.0, height: cells.1.max(MIN_BAR_HEIGHT), ..area };
        let shade = move |fraction: f64| of_values(range)(range.start + fraction * range.length());
        draw_color_bar(&mut picture, bar, shade, &Axis::new("", range, Scale::Linear));
    }
    Some(picture)
}

/// Returns the unit of a score with its chance level.
fn unit_and_chance(score: &ScoreKind, chance: &[HeadScores]) -> String {
    match chance_in_words(score, chance) {
        // The unit would leave too little room.
        Some(chance) if chance.contains('–') => chance,
        Some(chance) => format!("{}, {chance}", score.unit),
        None => score.unit.to_string(),
    }
}

/// Returns the chance level of a score as text, such as "chance 0.05", or its range if it differs by layer or run. Layers
/// that see more keys have lower ones.
pub(crate) fn chance_in_words<'a>(
    score: &ScoreKind,
    chance: impl IntoIterator<Item = &'a HeadScores>,
) -> Option<String> {
    let levels =
        chance.into_iter().filter_map(|chance| chance.get(score)).filter(|chance| chance.is_finite());
    let (low, high) = levels
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), level| (low.min(level), high.max(level)));
    let [lowest, highest] = [low, high].map(|level| score.text(level));
    match low <= high {
        true if lowest == highest => Some(format!("chance {lowest}")),
        true => Some(format!("chance {lowest}–{highest}")),
        false => None,
    }
}

/// Returns the range in which `values` of a score are drawn. It starts at 0, or below 0 if a value is negative. The
/// range of attention weights ends at 1 if one of them exceeds 0.5.
pub(crate) fn range(score: &ScoreKind, values: impl Iterator<Item = f64> + Clone) -> Interval {
    let finite = values.filter(|value| value.is_finite());
    let highest = finite.clone().fold(0.0, f64::max);
    let lowest = finite.fold(0.0, f64::min);
    let start = if lowest < 0.0 { -round_up(-lowest) } else { 0.0 };
    let end = match highest {
        _ if score.is_weight && highest > 0.5 => highest.max(1.0),
        // If all values are negative, the range ends at zero.
        0.0 if start < 0.0 => 0.0,
        _ => round_up(highest),
    };
    Interval { start, end }
}

/// Labels layers and heads with their numbers; if the cells are too small for all numbers, some are skipped.
fn draw_labels(picture: &mut Picture, area: Rect, layers: usize, heads: usize) {
    let style = Text::new(LABEL_SIZE).color(MUTED);
    let (width, height) = (area.width / heads as f64, area.height / layers as f64);
    for layer in (0..layers).step_by(stride_of(height, 13.0)) {
        let y = area.top + (layer as f64 + 0.5) * height;
        picture.text(&layer.to_string(), (area.left - 6.0, y), &style.right());
    }
    for head in (0..heads).step_by(stride_of(width, 13.0)) {
        let x = area.left + (head as f64 + 0.5) * width;
        picture.text(&head.to_string(), (x, area.bottom() + 9.0), &style.centered());
    }
    let title = Text::new(11.0).centered();
    let (x, y) = area.center();
    picture.text("head", (x, area.bottom() + 24.0), &title);
    // With one or two layers, the rotated title is longer than the area is high.
    picture.text("layer", (area.left - 30.0, y.max(area.top + 14.0)), &title.upward());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a score kind: an attention weight or a rise of the loss.
    fn kind(is_weight: bool) -> ScoreKind {
        ScoreKind { key: "", name: "", unit: "", meaning: "", digits: 2, is_weight }
    }

    #[test]
    fn score_ranges_fit_weights_and_negative_losses() {
        assert_eq!(range(&kind(true), [0.1, 0.7].into_iter()), Interval { start: 0.0, end: 1.0 });
        assert_eq!(range(&kind(true), [0.1, 0.19].into_iter()), Interval { start: 0.0, end: 0.2 });
        assert_eq!(
            range(&kind(false), [-0.02, 1.7, f64::NAN].into_iter()),
            Interval { start: -0.02, end: 2.0 }
        );
        assert_eq!(range(&kind(false), [-0.02, -0.01].into_iter()), Interval { start: -0.02, end: 0.0 });
    }
}
