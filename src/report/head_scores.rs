//! `head_scores`: what each head does, layer by head, a panel for each score.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, WIDTH, heading};
use super::canvas::{Canvas, Rect};
use super::color::{MUTED, SHADE, contrast};
use super::heat_map::{BarValues, color_bar};
use super::picture::Picture;
use super::range::counted;
use super::score::{self, HeadValues, head_name};
use super::text::Text;
use super::token::round_stride;
use crate::error::{Error, Result};

/// The scores of all heads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeadScoreGrid {
    /// The run's name.
    pub run: String,
    /// What the scores were taken on, as "512 validation sequences".
    pub measured_on: String,
    /// One score a panel, all for the same layers and heads.
    pub scores: Vec<HeadValues>,
}

/// Around the cells of a panel: numbers of layers on the left, the colour bar on the right, the
/// title above, numbers of heads below.
const LEFT: f64 = 40.0;
const BAR: f64 = 74.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 46.0;
/// The widest cell.
const WIDEST: f64 = 64.0;
/// Cells from this width on have their value written in them.
const WRITTEN: f64 = 34.0;
/// The least height of a colour bar.
const BAR_HEIGHT: f64 = 52.0;
const SIZE: f64 = 10.0;

/// The cells of every panel.
struct Layout {
    columns: usize,
    /// The width of a panel.
    panel: f64,
    cell: (f64, f64),
    layers: usize,
    heads: usize,
}

impl Layout {
    fn row(&self) -> f64 {
        ABOVE + (self.layers as f64 * self.cell.1).max(BAR_HEIGHT) + BELOW
    }
}

impl HeadScoreGrid {
    fn layout(&self) -> Layout {
        let layers = self.scores.first().map_or(1, |score| score.values.len());
        let heads = self.scores.iter().flat_map(|score| score.values.iter().map(Vec::len)).max();
        let heads = heads.unwrap_or(1).max(1);
        let columns = if heads <= 4 { 3 } else { 2 }.min(self.scores.len().max(1));
        let panel = (f64::from(WIDTH) - 2.0 * MARGIN) / columns as f64;
        let width = ((panel - LEFT - BAR) / heads as f64).min(WIDEST).floor().max(2.0);
        let height = if width >= WRITTEN { 26.0 } else { width.min(20.0) };
        Layout { columns, panel, cell: (width, height), layers, heads }
    }

    fn panel<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        scores: &HeadValues,
        (left, top): (f64, f64),
        layout: &Layout,
    ) -> Result<()> {
        let (name, note) = (Text::new(13.0).bold(), Text::new(11.0).color(MUTED));
        let (width, height) = layout.cell;
        let unit = scores.score.unit();
        let text = match scores.highest() {
            // Where values are written, they are seen.
            Some((layer, head, value)) if width < WRITTEN => {
                format!("{unit}; highest {}: {}", scores.score.text(value), head_name(layer, head))
            }
            _ => unit.to_string(),
        };
        let after = name.width(scores.score.name()) + 8.0;
        canvas.text(scores.score.name(), (left + LEFT, top + 10.0), &name)?;
        let room = layout.panel - LEFT - after - 8.0;
        canvas.text(&note.fit(&text, room), (left + LEFT + after, top + 10.0), &note)?;

        let (left, top) = (left + LEFT, top + ABOVE);
        let range = score::range(scores.score, scores.known().map(|(.., value)| value));
        for (layer, heads) in scores.values.iter().enumerate() {
            for (head, value) in heads.iter().enumerate() {
                let rect = Rect {
                    left: left + head as f64 * width,
                    top: top + layer as f64 * height,
                    width: width - 1.0,
                    height: height - 1.0,
                };
                let middle = (rect.left + rect.width / 2.0, rect.top + rect.height / 2.0);
                let value = value.filter(|value| value.is_finite());
                let color = value
                    .map_or(SHADE, |value| canvas.color_map().color((value - range.start) / range.length()));
                canvas.rect(rect, color)?;
                let text = value.map_or_else(|| "–".to_string(), |value| scores.score.text(value));
                let look = Text::new(SIZE).color(contrast(color)).centered();
                if width >= WRITTEN || value.is_none() {
                    canvas.text(&text, middle, &look)?;
                }
            }
        }
        self.labels(canvas, (left, top), layout)?;
        let bar = Rect {
            left: left + layout.heads as f64 * width + 8.0,
            top,
            width: 10.0,
            height: (layout.layers as f64 * height).max(BAR_HEIGHT),
        };
        color_bar(canvas, bar, BarValues::Scores(range))
    }

    /// The numbers of layers and heads, every second or fewer where cells are too small for all.
    fn labels<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        (left, top): (f64, f64),
        layout: &Layout,
    ) -> Result<()> {
        let (width, height) = layout.cell;
        let look = Text::new(SIZE).color(MUTED);
        let every = |pitch: f64| round_stride((13.0 / pitch).ceil() as usize);
        for layer in (0..layout.layers).step_by(every(height)) {
            let y = top + (layer as f64 + 0.5) * height;
            canvas.text(&layer.to_string(), (left - 6.0, y), &look.right())?;
        }
        let bottom = top + layout.layers as f64 * height;
        for head in (0..layout.heads).step_by(every(width)) {
            let x = left + (head as f64 + 0.5) * width;
            canvas.text(&head.to_string(), (x, bottom + 9.0), &look.centered())?;
        }
        let title = Text::new(11.0).centered();
        let middle = (left + layout.heads as f64 * width / 2.0, top + layout.layers as f64 * height / 2.0);
        canvas.text("head", (middle.0, bottom + 24.0), &title)?;
        // One or two layers are lower than the word.
        let middle = middle.1.max(top + 14.0);
        canvas.text("layer", (left - 30.0, middle), &title.upward())
    }
}

impl Picture for HeadScoreGrid {
    const NAME: &'static str = "head_scores";

    fn size(&self) -> (u32, u32) {
        let layout = self.layout();
        let rows = self.scores.len().div_ceil(layout.columns) as f64;
        (WIDTH, (HEADING + rows * layout.row() + 4.0).ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        let Some(first) = self.scores.first() else {
            return Err(Error::Shape("head scores need at least one score".to_string()));
        };
        let expected: Vec<usize> = first.values.iter().map(Vec::len).collect();
        self.scores.iter().try_for_each(|scores| scores.check(&expected))
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let layout = self.layout();
        heading(
            canvas,
            &format!("{}: scores of heads", self.run),
            &format!(
                "{}, {}; measured on {}",
                counted(layout.layers, "layer"),
                counted(
                    self.scores.first().map_or(0, |score| score.values.iter().map(Vec::len).sum()),
                    "head"
                ),
                self.measured_on
            ),
        )?;
        for (i, scores) in self.scores.iter().enumerate() {
            let left = MARGIN + (i % layout.columns) as f64 * layout.panel;
            let top = HEADING + (i / layout.columns) as f64 * layout.row();
            self.panel(canvas, scores, (left, top), &layout)?;
        }
        Ok(())
    }
}
