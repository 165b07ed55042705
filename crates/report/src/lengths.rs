//! `lengths`: the loss by sequence length, up to lengths beyond the training context (length extrapolation).

use plotters::style::RGBColor;

use crate::draw::color::{BLUE, GREEN, INK, MUTED, PURPLE, VERMILION};
use crate::draw::{
    Axis, HEADING, Interval, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, Text, legend, significant,
};

/// The minimum width of a chart with its axis, next to other charts.
const MIN_PANEL_WIDTH: f64 = 240.0;
/// The minimum distance from the floor at which losses are drawn.
const MIN_DISTANCE_FROM_FLOOR: f64 = 1e-4;

/// Curves in the order of a legend: a name, and the loss by length.
pub type Curves = Vec<(String, Vec<(usize, f64)>)>;

/// A chart of the loss by sequence length.
#[derive(Debug, Clone, Default)]
pub struct LengthPanel {
    /// The name above the chart.
    pub name: String,
    /// The sequence length used in training.
    pub trained: usize,
    /// The curves.
    pub curves: Curves,
}

/// Draws charts next to each other with one loss axis: logarithmic for losses above the floor if `is_above_floor`, else
/// linear for losses. The picture has this width, and as many charts in a row as fit.
pub fn picture(
    name: &'static str,
    title: &str,
    note: &str,
    panels: &[LengthPanel],
    (is_above_floor, picture_width): (bool, f64),
) -> Picture {
    let fitting = ((picture_width - 2.0 * MARGIN) / MIN_PANEL_WIDTH) as usize;
    let columns = panels.len().clamp(1, fitting.clamp(1, 3));
    let rows = panels.len().div_ceil(columns);
    let (top, chart_height) = (HEADING + 30.0, if columns == 1 { 300.0 } else { 190.0 });
    let (name_height, below) = (if panels.len() <= 1 { 0.0 } else { 22.0 }, 50.0);
    let height = top + rows as f64 * (name_height + chart_height + below);
    let mut picture = Picture::new(name, (picture_width, height), title, note);

    let drawn = |value: f64| if is_above_floor { value.max(MIN_DISTANCE_FROM_FLOOR) } else { value };
    let all = panels.iter().flat_map(|panel| panel.curves.iter().flat_map(|(_, points)| points));
    let heights = all.map(|&(_, value)| if is_above_floor { drawn(value).log10() } else { value });
    let range = Interval::of(heights).map_or(Interval::new(0.0, 1.0), |range| range.padded(0.05, 0.05));
    let (axis_title, scale) = match is_above_floor {
        true => ("loss above the floor (nats)", Scale::Logarithmic),
        false => ("loss (nats per token)", Scale::Linear),
    };
    let y = Axis::new(axis_title, range, scale);
    let first = MARGIN + y.width(chart_height);
    let gap = 16.0;
    let width = (picture_width - MARGIN - first - gap * (columns - 1) as f64) / columns as f64;

    let mut all_series = Vec::new();
    for (index, panel) in panels.iter().enumerate() {
        let (column, row) = (index % columns, index / columns);
        let area = Rect {
            left: first + column as f64 * (width + gap),
            top: top + row as f64 * (name_height + chart_height + below) + name_height,
            width,
            height: chart_height,
        };
        if name_height > 0.0 {
            picture.text(&panel.name, (area.left, area.top - 12.0), &Text::new(13.0).bold());
        }
        let y = Axis { is_labelled: column == 0, ..y.clone() };
        let mut chart = LineChart { area, x: lengths_axis(panel), y, series: Vec::new() };
        let trained = panel.trained as f64;
        let ends = [range.start, range.end].map(|end| if is_above_floor { 10f64.powf(end) } else { end });
        let mark = ends.map(|end| (trained, end));
        chart.series.push(Series::new("trained length", MUTED, Mark::Dashed(1.0), mark));
        for (index, (name, points)) in panel.curves.iter().enumerate() {
            let (color, radius) = (color_of(index), 2.5);
            let points = points.iter().map(|&(length, value)| (length as f64, drawn(value)));
            chart.series.push(Series::new(name, color, Mark::Line(1.75), points.clone()));
            chart.series.push(Series::new("", color, Mark::Dot(radius), points));
        }
        chart.draw(&mut picture);
        all_series.extend(chart.series);
    }
    all_series.sort_by_key(|series| !matches!(series.mark, Mark::Line(_)));
    legend(&mut picture, (first, HEADING + 8.0), &all_series);
    picture
}

/// Returns the logarithmic axis of all lengths of a panel, including the trained length. Every length with enough room
/// is labelled.
fn lengths_axis(panel: &LengthPanel) -> Axis {
    let mut lengths: Vec<usize> =
        panel.curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0)).collect();
    lengths.push(panel.trained);
    lengths.sort_unstable();
    lengths.dedup();
    let logarithm = |length: Option<&usize>| (*length.unwrap_or(&1) as f64).log10();
    let range = Interval::new(logarithm(lengths.first()), logarithm(lengths.last())).padded(0.04, 0.04);
    let labels = lengths.iter().map(|&length| (length as f64, significant(length as f64))).collect();
    Axis { labels: Some(labels), ..Axis::new("length", range, Scale::Logarithmic) }
}

/// Returns the colour of a curve, from the Okabe-Ito palette like all data colours. Further curves share the last
/// colour.
fn color_of(index: usize) -> RGBColor {
    const OTHERS: [RGBColor; 2] = [RGBColor(86, 180, 233), RGBColor(230, 159, 0)];
    let colors = [BLUE, VERMILION, GREEN, PURPLE, OTHERS[0], OTHERS[1], INK];
    colors[index.min(colors.len() - 1)]
}
