//! `attention_over_time`: attention weight by key position, one line for every second query.

use std::ops::Range;

use crate::attention::title_of;
use crate::draw::color::line_color;
use crate::draw::{
    Axis, HEADING, Interval, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, TokenAxis,
    draw_color_bar, round_up, significant, stride_of,
};
use crate::numbers::counted;
use crate::reading::{Layer, Reading};

/// The maximum number of lines; more would be unreadable.
const MAX_LINES: f64 = 32.0;
/// The width of the colour bar with its labels.
const BAR_WIDTH: f64 = 94.0;
/// The minimum width of a panel in a row of several.
const MIN_PANEL_WIDTH: f64 = 220.0;
/// The margins around a panel's area: its axis on the left, its title above.
const AXIS_WIDTH: f64 = 58.0;
const TITLE_HEIGHT: f64 = 28.0;
const GAP: f64 = 14.0;

/// Draws the maps of the picture `attention` as curves: for every second query, the weight on each key position. Long
/// sequences have fewer curves, and the note reports the stride. The picture has this width.
pub fn picture(run: &str, reading: &Reading, layers: &[Layer<'_>], picture_width: f64) -> Picture {
    let (columns, height) = match layers.len() {
        0..=1 => (1, 330.0),
        2..=3 => (1, 210.0),
        4..=6 => (2, 210.0),
        _ => (3, 150.0),
    };
    let room = picture_width - 2.0 * MARGIN - BAR_WIDTH;
    let columns = columns.min((room / MIN_PANEL_WIDTH) as usize).max(1);
    let width = (room / columns as f64 - AXIS_WIDTH).floor();
    let axis = |layer: &Layer<'_>| TokenAxis::new(layer.tokens[1], f64::INFINITY, width, true);
    let axes: Vec<TokenAxis> = layers.iter().map(axis).collect();
    let below = axes.iter().map(TokenAxis::depth).fold(0.0, f64::max);
    let row = TITLE_HEIGHT + height + below + GAP;
    let longest = layers.iter().map(|layer| layer.tokens[0].len()).max().unwrap_or(1);
    let stride = stride_of(MAX_LINES, longest as f64).max(2);
    let interval = if stride == 2 { "for every second query" } else { &format!("every {stride} queries") };
    let title = format!("{run}: attention by key position, {}", title_of(layers));
    let tokens = counted(reading.inputs.len(), "token");
    let ends = if reading.source.is_some() { "" } else { ", ending at the query itself" };
    let top = largest_weight(layers, stride, true);
    let is_clipped = largest_weight(layers, stride, false) > top * 1.0001;
    let clipped =
        if is_clipped { format!("; weights above {} are clipped", significant(top)) } else { String::new() };
    let note = format!("{}, {tokens}; one line {interval}{ends}{clipped}", reading.sequence);
    let rows = layers.len().div_ceil(columns) as f64;
    let mut picture =
        Picture::new("attention_over_time", (picture_width, HEADING + rows * row), &title, &note);

    for (i, (layer, axis)) in layers.iter().zip(&axes).enumerate() {
        let keys = layer.tokens[1].len();
        let left = MARGIN + AXIS_WIDTH + (i % columns) as f64 * (width + AXIS_WIDTH);
        let area = Rect { left, top: HEADING + TITLE_HEIGHT + (i / columns) as f64 * row, width, height };
        let title = (area.left - AXIS_WIDTH, area.top - 15.0);
        layer.draw_title(&mut picture, title, AXIS_WIDTH, AXIS_WIDTH + width - 8.0);
        let title = if i % columns == 0 { "weight" } else { "" };
        let weights = Interval { start: lowest_weight(layers, top), end: top };
        let y = Axis { is_clipped, ..Axis::new(title, weights, Scale::Linear) };
        let positions = Interval { start: -0.5, end: keys as f64 - 0.5 };
        let x = Axis { is_labelled: false, ..Axis::new("", positions, Scale::Integer) };
        LineChart { area, x, y, series: curves(layer, stride) }.draw(&mut picture);
        axis.draw(&mut picture, area, "key");
    }
    let (left, height) = (picture_width - MARGIN - BAR_WIDTH + 18.0, height.max(200.0));
    let bar = Rect { left, top: HEADING + TITLE_HEIGHT, width: 14.0, height };
    let queries = Interval { start: 0.0, end: (longest.max(2) - 1) as f64 };
    draw_color_bar(&mut picture, bar, line_color, &Axis::new("query position", queries, Scale::Integer));
    picture
}

/// Returns the weights of every `stride`-th query of the shown head by key position, with a dot at the query's own position
/// in causal attention.
fn curves(layer: &Layer<'_>, stride: usize) -> Vec<Series> {
    let [queries, keys] = layer.tokens.map(<[String]>::len);
    let line = if keys > 100 { 0.9 } else { 1.3 };
    let of_query = |query: usize| {
        let color = line_color(query as f64 / (queries.max(2) - 1) as f64);
        let weights = &layer.heads[layer.shown][query * keys..(query + 1) * keys];
        let point = |key: usize| (key as f64, f64::from(weights[key]));
        // A line spans the keys visible to the query, and masked keys with a nonzero weight.
        let Range { start, end } = layer.visible[query].clone();
        let start = weights.iter().position(|&weight| weight != 0.0).unwrap_or(start).min(start);
        let end = weights.iter().rposition(|&weight| weight != 0.0).map_or(0, |last| last + 1).max(end);
        let own_position =
            layer.is_causal().then(|| Series::new("", color, Mark::Dot(line * 1.6), [point(query)]));
        [Some(Series::new("", color, Mark::Line(line), (start..end).map(point))), own_position]
            .into_iter()
            .flatten()
    };
    (0..queries).step_by(stride).flat_map(of_query).collect()
}

/// Returns the start of the weight axis of all panels: zero, unless weights are negative.
fn lowest_weight(layers: &[Layer<'_>], top: f64) -> f64 {
    let lowest = layers.iter().flat_map(|layer| &layer.heads[layer.shown]).copied().fold(0.0, f32::min);
    if lowest < 0.0 { -top.min(round_up(f64::from(-lowest))) } else { 0.0 }
}

/// Returns the largest weight of the drawn queries, rounded up. The end of the weight axis skips the early queries of a
/// decoder, which have few keys.
fn largest_weight(layers: &[Layer<'_>], stride: usize, skips_early: bool) -> f64 {
    let drawn = layers.iter().flat_map(|layer| {
        let [queries, keys] = layer.tokens.map(<[String]>::len);
        let first = if skips_early && layer.is_causal() { queries / 8 } else { 0 };
        let rows = layer.heads[layer.shown].chunks_exact(keys);
        rows.step_by(stride).skip(first.div_ceil(stride)).flatten()
    });
    let largest = drawn.copied().filter(|weight| weight.is_finite()).fold(0.0, f32::max);
    if largest > 0.5 { 1.0 } else { round_up(f64::from(largest)) }
}
