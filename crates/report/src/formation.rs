//! `formation`: the scores of heads by step, below the loss and on the same step axis, to compare the steps at which
//! heads form with the steps at which the loss falls.

use plotters::style::RGBColor;

use crate::draw::color::{GRID, line_color};
use crate::draw::{Axis, HEADING, Interval, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, Text};
use crate::head_scores;
use crate::loss::LossCurve;
use crate::numbers::thousands;
use crate::reading::head_name;
use crate::scores::{HeadScores, ScoreKind, ScoredStep};

const LOSS_HEIGHT: f64 = 200.0;
const PANEL_HEIGHT: f64 = 130.0;
const GAP: f64 = 34.0;
/// The width of the heads' names on the right of the panels, and of their short names in pictures narrower than this.
const NAMES_WIDTH: f64 = 104.0;
const SHORT_NAMES_WIDTH: f64 = 66.0;
const MIN_WIDTH_FOR_NAMES: f64 = 500.0;
/// The maximum number of heads per panel that are coloured and named.
const MAX_NAMED_HEADS: usize = 6;
/// The minimum rise of a score for a head to count as forming.
const MIN_RISE: f64 = 0.25;

/// The scores of one head by step.
struct ScoreCurve {
    layer: usize,
    head: usize,
    /// The steps and values; NaN where the value is missing.
    points: Vec<(f64, f64)>,
    highest: f64,
    last: f64,
    /// The step at which the value first exceeds half of its rise; `None` if it rises too little.
    formed: Option<f64>,
}

/// Returns the curves of all heads, highest value first; empty if no head has the score.
fn curves(score: &ScoreKind, steps: &[ScoredStep]) -> Vec<ScoreCurve> {
    let layers = steps.iter().take(1).flat_map(|first| first.heads.iter().enumerate());
    let heads = layers.flat_map(|(layer, heads)| (0..heads.len()).map(move |head| (layer, head)));
    let curve = |(layer, head): (usize, usize)| {
        let value = |scored: &ScoredStep| scored.heads.get(layer)?.get(head)?.get(score);
        let point = |scored: &ScoredStep| (scored.step as f64, value(scored).unwrap_or(f64::NAN));
        let points: Vec<(f64, f64)> = steps.iter().map(point).collect();
        let known: Vec<(f64, f64)> = points.iter().copied().filter(|point| point.1.is_finite()).collect();
        let (first, last) = (known.first()?.1, known.last()?.1);
        let highest = known.iter().fold(first, |highest, point| highest.max(point.1));
        let lowest = known.iter().fold(first, |lowest, point| lowest.min(point.1));
        let midpoint = known.iter().find(|point| point.1 > (first + highest) / 2.0);
        let formed = midpoint.filter(|_| highest - lowest >= MIN_RISE).map(|point| point.0);
        Some(ScoreCurve { layer, head, points, highest, last, formed })
    };
    let mut curves: Vec<ScoreCurve> = heads.filter_map(curve).collect();
    curves.sort_by(|a, b| b.highest.total_cmp(&a.highest));
    curves
}

/// Draws the loss, and below it one panel per score of `kinds` with the values of all heads by step and the score of a head
/// that attends to all visible keys equally (`chance`, by layer). The picture has this width. Returns `None` if the
/// scores were measured fewer than twice, or no score is known.
pub fn picture(
    loss: &LossCurve,
    (kinds, chance): (&[ScoreKind], &[HeadScores]),
    scored: &[ScoredStep],
    width: f64,
) -> Option<Picture> {
    let panels = kinds.iter().map(|score| (score, curves(score, scored)));
    let panels: Vec<_> = panels.filter(|(_, curves)| !curves.is_empty()).collect();
    if scored.len() < 2 || panels.is_empty() {
        return None;
    }
    let title = format!("{}: head scores by step", loss.run);
    let height = HEADING + 30.0 + LOSS_HEIGHT + panels.len() as f64 * (GAP + PANEL_HEIGHT) + 52.0;
    let mut picture = Picture::new("formation", (width, height), &title, &loss.note());

    let last = loss.steps().end.max(scored[scored.len() - 1].step as f64);
    let mut top = loss.chart(&picture, Interval { start: 0.0, end: last }, (HEADING + 30.0, LOSS_HEIGHT));
    let names = if width < MIN_WIDTH_FOR_NAMES { SHORT_NAMES_WIDTH } else { NAMES_WIDTH };
    top.area.width = width - top.area.left - MARGIN - names;
    let x = top.x.clone();
    top.x.is_labelled = false;
    let panel = |i: usize| {
        let top_edge = top.area.bottom() + GAP + i as f64 * (GAP + PANEL_HEIGHT);
        Rect { top: top_edge, height: PANEL_HEIGHT, ..top.area }
    };
    let layers = scored[0].heads.len();
    let color = |layer: usize| line_color(0.12 + 0.88 * layer as f64 / (layers - 1).max(1) as f64);
    // The lines at the steps where heads form cross all panels, but not the titles between them.
    for (leading, step) in panels.iter().filter_map(|(_, curves)| Some((&curves[0], curves[0].formed?))) {
        let (x, _) = top.point(step, 0.0);
        for area in (0..panels.len()).map(panel).chain([top.area]) {
            picture.dashed((x, area.top), (x, area.bottom()), color(leading.layer), 1.0);
        }
    }
    top.draw_with_legend(&mut picture);
    for (i, (score, curves)) in panels.iter().enumerate() {
        let area = panel(i);
        let head = head_name(curves[0].layer, curves[0].head);
        let formed = |step| format!("; {head} reaches half of its rise at step {}", thousands(step));
        let formed = curves[0].formed.map_or_else(String::new, formed);
        let chance =
            head_scores::chance_in_words(score, chance).map_or_else(String::new, |it| format!("; {it}"));
        let note = format!("{}{chance}{formed}", score.meaning);
        picture.panel_name(score.name, &note, (area.left, area.top - 13.0), area.width + names);
        let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
        let range = head_scores::range(score, values);
        let x = Axis { is_labelled: i + 1 == panels.len(), ..x.clone() };
        let ranked = curves.iter().enumerate().rev();
        let series = ranked.map(|(rank, curve)| {
            let (color, width) =
                if rank < MAX_NAMED_HEADS { (color(curve.layer), 1.75) } else { (GRID, 0.75) };
            Series::new("", color, Mark::Line(width), curve.points.iter().copied())
        });
        let chart = LineChart { area, x, y: Axis::new("", range, Scale::Linear), series: series.collect() };
        chart.draw(&mut picture);
        draw_names(&mut picture, &chart, &curves[..curves.len().min(MAX_NAMED_HEADS)], &color);
    }
    Some(picture)
}

/// Draws names next to the ends of the curves, far enough apart that they do not touch.
fn draw_names(
    picture: &mut Picture,
    chart: &LineChart,
    curves: &[ScoreCurve],
    color: &impl Fn(usize) -> RGBColor,
) {
    const LINE_HEIGHT: f64 = 14.0;
    // The curves, with the height of their ends and the height of their names.
    let ends = curves.iter().map(|curve| (curve, chart.point(0.0, curve.last).1));
    let mut names: Vec<(&ScoreCurve, f64, f64)> = ends.map(|(curve, end)| (curve, end, end)).collect();
    names.sort_by(|a, b| a.1.total_cmp(&b.1));
    for i in 1..names.len() {
        names[i].2 = names[i].2.max(names[i - 1].2 + LINE_HEIGHT);
    }
    let mut lowest = chart.area.bottom() + 2.0;
    for (_, _, height) in names.iter_mut().rev() {
        *height = height.min(lowest);
        lowest = *height - LINE_HEIGHT;
    }
    let right = chart.area.right();
    for (curve, end, height) in names {
        picture.line(&[(right + 3.0, end), (right + 12.0, height)], color(curve.layer), 1.0);
        let name = match picture.width() < MIN_WIDTH_FOR_NAMES {
            true => format!("head {}.{}", curve.layer, curve.head),
            false => head_name(curve.layer, curve.head),
        };
        picture.text(&name, (right + 15.0, height), &Text::new(10.0));
    }
}
