//! `attention_over_time`: attention weight by key position, one line for every second query.

use plotters::backend::DrawingBackend;

use super::attention::{AttentionMaps, HeadMap};
use super::axis::{HEADING, LABEL, MARGIN, Plot, WIDTH, heading};
use super::canvas::{Canvas, Rect};
use super::color::{GRID, MUTED};
use super::heat_map::{BarValues, color_bar};
use super::picture::Picture;
use super::range::{Range, counted, round_up, tick_labels};
use super::text::Text;
use super::token::{Labels, round_stride};
use crate::error::Result;

/// Draws the same maps as curves: for every second query the weight on each key position. Of long
/// sequences fewer queries are drawn, which the picture says.
#[derive(Debug, Clone, Copy)]
pub struct AttentionOverTime<'a>(pub &'a AttentionMaps);

/// More lines than this cannot be followed.
const MOST_LINES: usize = 32;
/// The width of the colour bar with its labels.
const BAR: f64 = 94.0;
/// Around a panel's area: its axis on the left, its title above, its labels below.
const LEFT: f64 = 58.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 34.0;
const GAP: f64 = 14.0;
const TOKEN: f64 = 10.0;
/// Position labels below token labels: their size, and the height of their row.
const POSITION: f64 = 8.5;
const POSITIONS: f64 = 12.0;

impl AttentionOverTime<'_> {
    fn columns(&self) -> usize {
        match self.0.maps.len() {
            0..=3 => 1,
            4..=6 => 2,
            _ => 3,
        }
    }

    fn area(&self) -> (f64, f64) {
        let columns = self.columns() as f64;
        let width = (f64::from(WIDTH) - 2.0 * MARGIN - BAR) / columns - LEFT;
        let height = match self.0.maps.len() {
            0..=1 => 330.0,
            2..=6 => 210.0,
            _ => 150.0,
        };
        (width.floor(), height)
    }

    fn row(&self) -> f64 {
        ABOVE + self.area().1 + self.below() + GAP
    }

    /// Labels below a panel need as much height as the widest token, where they are turned.
    fn below(&self) -> f64 {
        let tokens = self.0.visible_tokens();
        let look = Text::new(TOKEN);
        let widest = tokens.iter().map(|token| look.width(token)).fold(0.0, f64::max);
        let labels = Labels::across(&tokens, self.area().0 / tokens.len() as f64, &look, TOKEN);
        match (labels.stride, labels.upward) {
            (1, true) => BELOW + widest - TOKEN + POSITIONS,
            (1, false) => BELOW + POSITIONS,
            _ => BELOW,
        }
    }

    /// Every how many queries one is drawn.
    fn stride(&self) -> usize {
        round_stride(self.0.tokens.len().div_ceil(MOST_LINES)).max(2)
    }

    /// The top of all panels' weight axes: the largest weight of the drawn queries, without the
    /// first ones, which have little choice.
    fn top(&self) -> f64 {
        let time = self.0.tokens.len();
        let weights = self.0.maps.iter().flat_map(|map| &map.weights[time * (time / 8)..]);
        let largest = weights.copied().filter(|weight| weight.is_finite()).fold(0.0, f32::max);
        if largest > 0.5 { 1.0 } else { round_up(f64::from(largest)) }
    }

    fn panel<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, plot: &Plot, map: &HeadMap) -> Result<()> {
        let time = self.0.tokens.len();
        map.title(canvas, plot.area.left - LEFT, LEFT, LEFT + plot.area.width, plot.area.top - 15.0)?;
        plot.y_axis(canvas, if plot.area.left < MARGIN + LEFT + 1.0 { "weight" } else { "" })?;
        let bottom = plot.area.bottom();
        canvas.line(&[(plot.area.left, bottom), (plot.area.right(), bottom)], MUTED, 1.0)?;
        let width = if time > 100 { 0.9 } else { 1.3 };
        for query in (0..time).step_by(self.stride()) {
            let color = canvas.color_map().line_color(query as f64 / (time - 1).max(1) as f64);
            let row = &map.weights[query * time..(query + 1) * time];
            // A query sees the keys up to itself; its line ends there, at a dot.
            let last = row.iter().rposition(|&weight| weight != 0.0).unwrap_or(0).max(query);
            let seen = row.iter().enumerate().take(last + 1);
            plot.curve(canvas, seen.map(|(key, &weight)| (key as f64, f64::from(weight))), color, width)?;
            let end = f64::from(row[query]);
            if (plot.y.start..=plot.y.end).contains(&end) {
                canvas.dot(plot.place(query as f64, end), width * 1.6, color)?;
            }
        }
        Ok(())
    }

    fn key_labels<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        plot: &Plot,
        tokens: &[String],
    ) -> Result<()> {
        let bottom = plot.area.bottom();
        let look = Text::new(TOKEN);
        let labels = Labels::across(tokens, plot.area.width / tokens.len() as f64, &look, TOKEN);
        let title = if labels.stride == 1 {
            for (key, token) in tokens.iter().enumerate() {
                let (x, _) = plot.place(key as f64, 0.0);
                if labels.upward {
                    canvas.text(token, (x, bottom + 6.0), &look.right().upward())?;
                } else {
                    canvas.text(token, (x, bottom + 12.0), &look.centered())?;
                }
            }
            let muted = Text::new(POSITION).color(MUTED).centered();
            let width = Text::new(POSITION).width(&tokens.len().to_string()) + 6.0;
            let stride = round_stride((width * tokens.len() as f64 / plot.area.width).ceil() as usize);
            for key in (0..tokens.len()).step_by(stride) {
                let (x, _) = plot.place(key as f64, 0.0);
                canvas.text(&key.to_string(), (x, bottom + self.below() - 20.0), &muted)?;
            }
            "key: token and position"
        } else {
            let ticks = plot.x.whole_ticks((plot.area.width / 60.0) as usize);
            for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
                let (x, _) = plot.place(*tick, 0.0);
                canvas.line(&[(x, bottom), (x, bottom + 4.0)], GRID, 1.0)?;
                canvas.text(&label, (x, bottom + 12.0), &Text::new(LABEL).color(MUTED).centered())?;
            }
            "key position"
        };
        let place = (plot.area.left + plot.area.width / 2.0, bottom + self.below() - 8.0);
        canvas.text(title, place, &Text::new(11.5).centered())
    }
}

impl Picture for AttentionOverTime<'_> {
    const NAME: &'static str = "attention_over_time";

    fn size(&self) -> (u32, u32) {
        let rows = self.0.maps.len().div_ceil(self.columns()) as f64;
        (WIDTH, (HEADING + rows * self.row()).ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        self.0.check_shapes()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let time = self.0.tokens.len();
        let every = match self.stride() {
            2 => "for every second query".to_string(),
            stride => format!("every {stride} queries"),
        };
        heading(
            canvas,
            &format!("{}: attention by key position, {}", self.0.run, self.0.shown()),
            &format!(
                "{}, {}; one line {every}, ending at the query itself",
                self.0.sequence,
                counted(time, "token")
            ),
        )?;
        let tokens = self.0.visible_tokens();
        let (width, height) = self.area();
        let columns = self.columns();
        for (i, map) in self.0.maps.iter().enumerate() {
            let area = Rect {
                left: MARGIN + LEFT + (i % columns) as f64 * (width + LEFT),
                top: HEADING + ABOVE + (i / columns) as f64 * self.row(),
                width,
                height,
            };
            let x = Range { start: -0.5, end: time as f64 - 0.5 };
            let plot = Plot { area, x, y: Range { start: 0.0, end: self.top() } };
            self.panel(canvas, &plot, map)?;
            self.key_labels(canvas, &plot, &tokens)?;
        }
        let bar = Rect {
            left: f64::from(WIDTH) - MARGIN - BAR + 18.0,
            top: HEADING + ABOVE,
            width: 14.0,
            height: height.max(200.0),
        };
        color_bar(canvas, bar, BarValues::Queries(time - 1))
    }
}
