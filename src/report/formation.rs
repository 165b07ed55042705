//! `formation`: the scores of heads along a run below the loss, on one time axis, so that the moment
//! a head forms is seen where the loss falls.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, Plot, Sign, WIDTH, heading, legend};
use super::canvas::{Canvas, Rect};
use super::color::{GRID, INK, MUTED};
use super::loss::LossCurve;
use super::picture::Picture;
use super::range::{Range, whole};
use super::score::{self, head_name};
use super::text::Text;
use crate::analysis::Score;
use crate::error::{Error, Result};

/// The loss, and the scores of all heads at some steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Formation {
    /// The loss along the run, whose name titles the picture. Its learning rate is not drawn.
    pub loss: LossCurve,
    /// The steps at which the heads were scored, in order.
    pub steps: Vec<u64>,
    /// A panel each, for the same layers and heads.
    pub scores: Vec<ScoreHistory>,
}

/// One score along a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreHistory {
    /// What was measured.
    pub score: Score,
    /// `[step][layer][head]`, at the steps of the [`Formation`].
    pub values: Vec<Vec<Vec<Option<f64>>>>,
}

/// The curve of one head.
struct Course {
    layer: usize,
    head: usize,
    /// A value for each step; not a number where there is none.
    values: Vec<f64>,
}

impl Course {
    fn highest(&self) -> f64 {
        self.values.iter().copied().filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max)
    }

    /// How far the course reaches from its lowest to its highest value.
    fn reach(&self) -> f64 {
        let finite = self.values.iter().copied().filter(|value| value.is_finite());
        finite.clone().fold(f64::NEG_INFINITY, f64::max) - finite.fold(f64::INFINITY, f64::min)
    }

    /// The first step at which the value is nearer to its highest than to its first one.
    fn half_way(&self) -> Option<usize> {
        let first = self.values.iter().copied().find(|value| value.is_finite())?;
        let middle = (first + self.highest()) / 2.0;
        self.values.iter().position(|&value| value > middle)
    }
}

impl ScoreHistory {
    /// Refuses values for other steps, layers or heads than there are.
    pub(crate) fn check(&self, steps: usize, layers: &[usize]) -> Result<()> {
        if self.values.len() != steps {
            return Err(Error::Shape(format!(
                "{} values of {} do not fit {steps} steps",
                self.values.len(),
                self.score.name(),
            )));
        }
        self.values.iter().try_for_each(|values| score::check(self.score, values, layers))
    }

    /// The courses of all heads, the one with the highest value first.
    fn courses(&self) -> Vec<Course> {
        let Some(grid) = self.values.first() else { return Vec::new() };
        let heads = grid
            .iter()
            .enumerate()
            .flat_map(|(layer, heads)| (0..heads.len()).map(move |head| (layer, head)));
        let mut courses: Vec<Course> = heads
            .map(|(layer, head)| Course {
                layer,
                head,
                values: self.values.iter().map(|step| step[layer][head].unwrap_or(f64::NAN)).collect(),
            })
            .collect();
        courses.sort_by(|a, b| b.highest().total_cmp(&a.highest()));
        courses
    }
}

const LOSS: f64 = 200.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 34.0;
const LEFT: f64 = MARGIN + 58.0;
/// To the right of the panels stand the names of heads.
const NAMES: f64 = 104.0;
/// So many heads of a panel are named and drawn in colour.
const MOST_NAMED: usize = 6;
/// A rise of a share of attention by less than this is no head that forms.
const LEAST_RISE: f64 = 0.25;

impl Formation {
    fn steps_range(&self) -> Range {
        let range = self.loss.steps();
        Range { end: range.end.max(self.steps.last().copied().unwrap_or(1) as f64), ..range }
    }

    fn layers(&self) -> usize {
        self.scores.iter().flat_map(|score| score.values.iter().map(Vec::len)).max().unwrap_or(1)
    }

    /// The highest head of a panel, where it rose, and the step at which it was half-way.
    fn formed(&self, score: &ScoreHistory, courses: &[Course]) -> Option<(usize, usize, u64)> {
        let leading = courses.first()?;
        let forms = match score.score {
            Score::Previous | Score::First | Score::Induction | Score::Duplicate | Score::Itself => true,
            Score::Entropy | Score::Distance | Score::Ablation => false,
        };
        if !forms || leading.reach() < LEAST_RISE {
            return None;
        }
        let step = self.steps[leading.half_way()?];
        Some((leading.layer, leading.head, step))
    }

    /// The colour of a layer: its place on the scale of thin lines.
    fn color<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>, layer: usize) -> RGBColor {
        let last = (self.layers() - 1).max(1) as f64;
        canvas.color_map().line_color(0.12 + 0.88 * layer as f64 / last)
    }

    fn panel<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        area: Rect,
        score: &ScoreHistory,
        courses: &[Course],
    ) -> Result<()> {
        let (name, note) = (Text::new(13.0).bold(), Text::new(11.0).color(MUTED));
        let title = area.top - 13.0;
        canvas.text(score.score.name(), (area.left, title), &name)?;
        let mut text = score.score.meaning().to_string();
        if let Some((layer, head, step)) = self.formed(score, courses) {
            text += &format!("; {} half-way up at step {}", head_name(layer, head), whole(step));
        }
        let after = name.width(score.score.name()) + 8.0;
        canvas.text(&note.fit(&text, area.width - after), (area.left + after, title), &note)?;

        let all = courses.iter().flat_map(|course| course.values.iter().copied());
        let plot = Plot { area, x: self.steps_range(), y: score::range(score.score, all) };
        plot.y_axis(canvas, "")?;
        let bottom = area.bottom();
        canvas.line(&[(area.left, bottom), (area.right(), bottom)], MUTED, 1.0)?;
        let points = |course: &Course| {
            let places = self.steps.iter().zip(&course.values);
            places.map(|(&step, &value)| (step as f64, value)).collect::<Vec<_>>()
        };
        for course in courses.iter().skip(MOST_NAMED).rev() {
            plot.curve(canvas, points(course), GRID, 0.75)?;
        }
        for course in courses.iter().take(MOST_NAMED).rev() {
            let color = self.color(canvas, course.layer);
            plot.curve(canvas, points(course), color, 1.75)?;
        }
        self.names(canvas, &plot, &courses[..courses.len().min(MOST_NAMED)])
    }

    /// Names beside the ends of the curves, moved apart where they would touch.
    fn names<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        plot: &Plot,
        courses: &[Course],
    ) -> Result<()> {
        const LINE: f64 = 14.0;
        let end = |course: &Course| {
            let value = course.values.iter().rev().copied().find(|value| value.is_finite())?;
            Some(plot.place(0.0, value).1)
        };
        let mut names: Vec<(f64, &Course)> =
            courses.iter().filter_map(|course| Some((end(course)?, course))).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut heights: Vec<f64> = names.iter().map(|name| name.0).collect();
        for i in 1..heights.len() {
            heights[i] = heights[i].max(heights[i - 1] + LINE);
        }
        let mut lowest = plot.area.bottom() + 2.0;
        for height in heights.iter_mut().rev() {
            *height = height.min(lowest);
            lowest = *height - LINE;
        }
        let right = plot.area.right();
        for ((end, course), height) in names.iter().zip(heights) {
            let color = self.color(canvas, course.layer);
            canvas.line(&[(right + 3.0, *end), (right + 12.0, height)], color, 1.0)?;
            let name = head_name(course.layer, course.head);
            canvas.text(&name, (right + 15.0, height), &Text::new(10.0).color(INK))?;
        }
        Ok(())
    }
}

impl Picture for Formation {
    const NAME: &'static str = "formation";

    fn size(&self) -> (u32, u32) {
        let panels = self.scores.len() as f64 * (GAP + PANEL);
        (WIDTH, (HEADING + 30.0 + LOSS + panels + 52.0).ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        let Some(grid) = self.scores.first().and_then(|score| score.values.first()) else {
            return Err(Error::Shape("scores along a run need at least one score and step".to_string()));
        };
        let expected: Vec<usize> = grid.iter().map(Vec::len).collect();
        self.scores.iter().try_for_each(|history| history.check(self.steps.len(), &expected))
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let width = f64::from(WIDTH) - LEFT - MARGIN - NAMES;
        let area = Rect { left: LEFT, top: HEADING + 30.0, width, height: LOSS };
        let loss = Plot { area, x: self.steps_range(), y: self.loss.losses() };
        let title = format!("{}: what heads become while the loss falls", self.loss.run);
        heading(canvas, &title, &self.loss.summary(&loss))?;
        loss.y_axis(canvas, "loss (nats)")?;
        canvas.line(&[(area.left, area.bottom()), (area.right(), area.bottom())], MUTED, 1.0)?;

        let courses: Vec<Vec<Course>> = self.scores.iter().map(ScoreHistory::courses).collect();
        let panel = |i: usize| {
            let top = area.bottom() + GAP + i as f64 * (GAP + PANEL);
            Rect { top, height: PANEL, ..area }
        };
        // The moments at which heads form cross all panels, but not the titles between them.
        let areas: Vec<Rect> = (0..self.scores.len()).map(panel).chain([area]).collect();
        for (score, courses) in self.scores.iter().zip(&courses) {
            let Some((layer, _, step)) = self.formed(score, courses) else { continue };
            let (x, color) = (loss.place(step as f64, 0.0).0, self.color(canvas, layer));
            for area in &areas {
                canvas.dashed((x, area.top), (x, area.bottom()), color, 1.0)?;
            }
        }
        let entries: Vec<(Sign, String)> = self.loss.curves(canvas, &loss)?;
        legend(canvas, (LEFT, HEADING + 8.0), &entries)?;
        for ((score, courses), area) in self.scores.iter().zip(&courses).zip(&areas) {
            self.panel(canvas, *area, score, courses)?;
        }
        Plot { area: panel(self.scores.len() - 1), ..loss }.x_axis(canvas, "step")
    }
}
