//! `attention_over_time`: attention weight by key position, one line for every second query.

use super::attention::{map_title, shown};
use super::axis::Axis;
use super::canvas::Rect;
use super::color::line_color;
use super::heat_map::color_bar;
use super::line_chart::{LineChart, Mark, Series};
use super::picture::{HEADING, MARGIN, Picture, WIDTH};
use super::range::{Range, counted, round_up};
use super::reading::{Reading, ShownMap};
use super::token::round_stride;
use super::token_axis::TokenAxis;

/// More lines than this cannot be followed.
const MOST_LINES: usize = 32;
/// The width of the colour bar with its labels.
const BAR: f64 = 94.0;
/// Around a panel's area: its axis on the left, its title above.
const LEFT: f64 = 58.0;
const ABOVE: f64 = 28.0;
const GAP: f64 = 14.0;

/// The same maps as in `attention` as curves: for every second query the weight on each key position. Of long
/// sequences fewer queries are drawn, which the picture says.
pub fn attention_over_time(run: &str, reading: &Reading, maps: &[ShownMap<'_>]) -> Picture {
    let columns = match maps.len() {
        0..=3 => 1,
        4..=6 => 2,
        _ => 3,
    };
    let height = match maps.len() {
        0..=1 => 330.0,
        2..=6 => 210.0,
        _ => 150.0,
    };
    let width = ((WIDTH - 2.0 * MARGIN - BAR) / columns as f64 - LEFT).floor();
    let axes: Vec<TokenAxis> = maps.iter().map(|map| TokenAxis::new(&map.keys, width, 1.0, true)).collect();
    let below = axes.iter().map(TokenAxis::depth).fold(0.0, f64::max);
    let row = ABOVE + height + below + GAP;
    let longest = maps.iter().map(|map| map.queries.len()).max().unwrap_or(1);
    let stride = round_stride(longest.div_ceil(MOST_LINES)).max(2);
    let every = match stride {
        2 => "for every second query".to_string(),
        stride => format!("every {stride} queries"),
    };
    let title = format!("{run}: attention by key position, {}", shown(maps));
    let tokens = counted(reading.inputs.len(), "token");
    let ends = if reading.kinds().count() > 1 { "" } else { ", ending at the query itself" };
    let note = format!("{}, {tokens}; one line {every}{ends}", reading.sequence);
    let rows = maps.len().div_ceil(columns) as f64;
    let mut picture = Picture::new("attention_over_time", HEADING + rows * row, &title, &note);
    let canvas = &mut picture.canvas;

    let y = Axis::new("weight", Range { start: 0.0, end: top(maps, stride) });
    for (i, (map, axis)) in maps.iter().zip(&axes).enumerate() {
        let (keys, last) = (map.keys.len(), map.queries.len().max(2) - 1);
        let area = Rect {
            left: MARGIN + LEFT + (i % columns) as f64 * (width + LEFT),
            top: HEADING + ABOVE + (i / columns) as f64 * row,
            width,
            height,
        };
        map_title(canvas, map, area.left - LEFT, LEFT, LEFT + width, area.top - 15.0);
        let line = if keys > 100 { 0.9 } else { 1.3 };
        let queries = (0..map.queries.len()).step_by(stride);
        let series = queries.flat_map(|query| {
            let color = line_color(query as f64 / last as f64);
            let weights = &map.weights()[query * keys..(query + 1) * keys];
            let point = |key: usize| (key as f64, f64::from(weights[key]));
            // In causal attention a query sees the keys up to itself; its line ends there, at a dot.
            let seen = weights.iter().rposition(|&weight| weight != 0.0).unwrap_or(0).max(query);
            let end = if map.is_causal() { seen + 1 } else { keys };
            let own = map.is_causal().then(|| Series::new("", color, Mark::Dot(line * 1.6), [point(query)]));
            [Some(Series::new("", color, Mark::Line(line), (0..end).map(point))), own].into_iter().flatten()
        });
        let y = if i % columns == 0 { y.clone() } else { y.clone().untitled() };
        let x = Axis::whole("", Range { start: -0.5, end: keys as f64 - 0.5 }).without_words();
        LineChart { area, x, y, series: series.collect() }.draw(canvas);
        axis.draw(canvas, area, "key");
    }
    let bar = Rect {
        left: WIDTH - MARGIN - BAR + 18.0,
        top: HEADING + ABOVE,
        width: 14.0,
        height: height.max(200.0),
    };
    let queries = Range { start: 0.0, end: (longest.max(2) - 1) as f64 };
    color_bar(canvas, bar, line_color, &Axis::whole("query position", queries));
    picture
}

/// The top of all panels' weight axes: the largest weight of the drawn queries, without the
/// first ones, which have little choice.
fn top(maps: &[ShownMap<'_>], stride: usize) -> f64 {
    let drawn = maps.iter().flat_map(|map| {
        let first = if map.is_causal() { map.queries.len() / 8 } else { 0 };
        map.weights().chunks_exact(map.keys.len()).step_by(stride).skip(first.div_ceil(stride)).flatten()
    });
    let largest = drawn.copied().filter(|weight| weight.is_finite()).fold(0.0, f32::max);
    if largest > 0.5 { 1.0 } else { round_up(f64::from(largest)) }
}
