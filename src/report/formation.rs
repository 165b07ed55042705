//! `formation`: the scores of heads along a run below the loss, on one time axis, so that the moment
//! a head forms is seen where the loss falls.

use plotters::style::RGBColor;

use super::axis::Axis;
use super::canvas::{Canvas, Rect};
use super::color::{GRID, INK, MUTED, line_color};
use super::line_chart::{LineChart, Mark, Series, legend};
use super::loss::LossCurve;
use super::picture::{HEADING, MARGIN, Picture, WIDTH};
use super::range::{Range, whole};
use super::score::{self, head_name};
use super::text::Text;
use crate::analysis::{Score, ScoredStep};

/// The scores whose course shows a head being formed.
const FORMED: [Score; 3] = [Score::Induction, Score::Previous, Score::Duplicate];
const LOSS: f64 = 200.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 34.0;
/// To the right of the panels stand the names of heads.
const NAMES: f64 = 104.0;
/// So many heads of a panel are named and drawn in colour.
const MOST_NAMED: usize = 6;
/// A rise of a share of attention by less than this is no head that forms.
const LEAST_RISE: f64 = 0.25;

/// The curve of one head.
struct Course {
    layer: usize,
    head: usize,
    /// Steps and values; not a number where there is none.
    points: Vec<(f64, f64)>,
}

impl Course {
    fn finite(&self) -> impl DoubleEndedIterator<Item = f64> + Clone {
        self.points.iter().map(|point| point.1).filter(|value| value.is_finite())
    }

    fn highest(&self) -> f64 {
        self.finite().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The step at which the value is first nearer to its highest than to its first one, where it rises much.
    fn formed(&self) -> Option<f64> {
        let (first, highest) = (self.finite().next()?, self.highest());
        let middle = (first + highest) / 2.0;
        let half_way = self.points.iter().find(|point| point.1 > middle)?;
        (highest - self.finite().fold(highest, f64::min) >= LEAST_RISE).then_some(half_way.0)
    }
}

/// The courses of all heads, the one with the highest value first; none where the score says nothing.
fn courses(score: Score, steps: &[ScoredStep]) -> Vec<Course> {
    let Some(first) = steps.first() else { return Vec::new() };
    let layers = first.heads.iter().enumerate();
    let heads = layers.flat_map(|(layer, heads)| (0..heads.len()).map(move |head| (layer, head)));
    let mut courses: Vec<Course> = heads
        .map(|(layer, head)| {
            let value = |scored: &ScoredStep| scored.heads.get(layer)?.get(head)?[score];
            let point = |scored: &ScoredStep| (scored.step as f64, value(scored).unwrap_or(f64::NAN));
            Course { layer, head, points: steps.iter().map(point).collect() }
        })
        .collect();
    courses.sort_by(|a, b| b.highest().total_cmp(&a.highest()));
    courses.retain(|course| course.finite().next().is_some());
    courses
}

/// The loss, and below it the scores of all heads at the steps at which they were taken. None where they were
/// not taken twice, or no score says anything, as of sequences of one token.
pub fn formation(loss: &LossCurve, scored: &[ScoredStep]) -> Option<Picture> {
    let panels = FORMED.map(|score| (score, courses(score, scored)));
    let panels: Vec<_> = panels.into_iter().filter(|(_, courses)| !courses.is_empty()).collect();
    if scored.len() < 2 || panels.is_empty() {
        return None;
    }
    let title = format!("{}: what heads become while the loss falls", loss.run);
    let height = HEADING + 30.0 + LOSS + panels.len() as f64 * (GAP + PANEL) + 52.0;
    let mut picture = Picture::new("formation", height, &title, &loss.note());
    let canvas = &mut picture.canvas;

    let last = loss.steps().end.max(scored[scored.len() - 1].step as f64);
    let mut top = loss.chart(Range { start: 0.0, end: last }, HEADING + 30.0, LOSS, None);
    top.area.width = WIDTH - top.area.left - MARGIN - NAMES;
    let x = top.x.clone();
    top.x = x.without_words();
    let panel = |i: usize| {
        let top_edge = top.area.bottom() + GAP + i as f64 * (GAP + PANEL);
        Rect { top: top_edge, height: PANEL, ..top.area }
    };
    let layers = scored[0].heads.len();
    let color = |layer: usize| line_color(0.12 + 0.88 * layer as f64 / (layers - 1).max(1) as f64);
    // The moments at which heads form cross all panels, but not the titles between them.
    for (leading, step) in panels.iter().filter_map(|(_, courses)| Some((&courses[0], courses[0].formed()?)))
    {
        let (at, _) = top.place(step, 0.0);
        for area in (0..panels.len()).map(panel).chain([top.area]) {
            canvas.dashed((at, area.top), (at, area.bottom()), color(leading.layer), 1.0);
        }
    }
    top.draw(canvas);
    legend(canvas, (top.area.left, HEADING + 8.0), &top.entries());
    for (i, (score, courses)) in panels.iter().enumerate() {
        let area = panel(i);
        panel_title(canvas, area, *score, &courses[0]);
        let range = score::range(*score, courses.iter().flat_map(Course::finite));
        let x = if i + 1 == panels.len() { x.clone() } else { x.without_words() };
        let ranked = courses.iter().enumerate().rev();
        let series = ranked.map(|(rank, course)| {
            let is_named = rank < MOST_NAMED;
            let (color, width) = if is_named { (color(course.layer), 1.75) } else { (GRID, 0.75) };
            Series::new("", color, Mark::Line(width), course.points.iter().copied())
        });
        let chart = LineChart { area, x, y: Axis::new("", range), series: series.collect() };
        chart.draw(canvas);
        names(canvas, &chart, &courses[..courses.len().min(MOST_NAMED)], &color);
    }
    Some(picture)
}

fn panel_title(canvas: &mut Canvas, area: Rect, score: Score, leading: &Course) {
    let (name, note) = (Text::new(13.0).bold(), Text::new(11.0).color(MUTED));
    let above = area.top - 13.0;
    canvas.text(score.name(), (area.left, above), &name);
    let mut text = score.meaning().to_string();
    if let Some(step) = leading.formed() {
        let head = head_name(leading.layer, leading.head);
        text += &format!("; {head} half-way up at step {}", whole(step as u64));
    }
    let after = name.width(score.name()) + 8.0;
    canvas.text(&note.fit(&text, area.width - after), (area.left + after, above), &note);
}

/// Names beside the ends of the curves, moved apart where they would touch.
fn names(canvas: &mut Canvas, chart: &LineChart, courses: &[Course], color: &impl Fn(usize) -> RGBColor) {
    const LINE: f64 = 14.0;
    let end = |course: &Course| course.finite().next_back().map(|value| chart.place(0.0, value).1);
    let mut names: Vec<(f64, &Course)> =
        courses.iter().filter_map(|course| Some((end(course)?, course))).collect();
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut heights: Vec<f64> = names.iter().map(|name| name.0).collect();
    for i in 1..heights.len() {
        heights[i] = heights[i].max(heights[i - 1] + LINE);
    }
    let mut lowest = chart.area.bottom() + 2.0;
    for height in heights.iter_mut().rev() {
        *height = height.min(lowest);
        lowest = *height - LINE;
    }
    let right = chart.area.right();
    for ((end, course), height) in names.iter().zip(heights) {
        canvas.line(&[(right + 3.0, *end), (right + 12.0, height)], color(course.layer), 1.0);
        let name = head_name(course.layer, course.head);
        canvas.text(&name, (right + 15.0, height), &Text::new(10.0).color(INK));
    }
}
