//! One attention map with tokens on both axes, and the colour bar beside it.

use plotters::backend::DrawingBackend;

use super::axis::LABEL;
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, GRID, MUTED, contrast};
use super::range::{Range, tick_labels};
use super::text::Text;
use super::token::{Labels, round_stride, size_that_fits};
use super::weights::{Binned, WeightScale};
use crate::error::Result;

/// The narrowest cell in logical pixels; longer sequences are binned.
const NARROWEST_CELL: f64 = 1.0;
/// Cells this wide are told apart by lines.
const LINED_CELL: f64 = 7.0;
/// Cells are not wider than this, however short the sequence.
const WIDEST_CELL: f64 = 64.0;
/// Maps of one or two tokens are not narrower than this.
const NARROWEST_MAP: f64 = 150.0;
/// The widest label, as a share of the map's width.
const WIDEST_LABEL: f64 = 0.2;
/// Cells this wide have their weight written in them.
const WRITTEN_CELL: f64 = 34.0;

/// The size of token labels, where the cells are wide enough for it.
const TOKEN: f64 = 10.0;
/// The size of position labels beside token labels.
const POSITION: f64 = 8.5;
/// Longer sequences have positions beside their tokens: nobody counts so far.
const COUNTED: usize = 16;

/// How a map of a given width is laid out: the square of its cells, and the labels around it.
#[derive(Debug, Clone)]
pub(crate) struct MapLayout {
    tokens: Vec<String>,
    size: f64,
    widest: f64,
    /// Positions in a bin.
    pub bin: usize,
    /// From the left edge to the cells.
    pub left: f64,
    /// The width and height of the square of cells.
    pub side: f64,
    /// From the cells to the bottom edge.
    pub below: f64,
    across: Labels,
    down: Labels,
}

impl MapLayout {
    /// Fits a map of `tokens`, in their visible form, into `width` logical pixels.
    pub fn new(tokens: &[String], width: f64) -> Self {
        let look = Text::new(TOKEN);
        let tokens: Vec<String> = tokens.iter().map(|token| look.fit(token, width * WIDEST_LABEL)).collect();
        let time = tokens.len().max(1) as f64;
        let bare = 30.0;
        let positions = Text::new(POSITION).width(&tokens.len().to_string()) + 8.0;
        let positions = if tokens.len() > COUNTED { positions } else { 0.0 };
        let widest = |look: &Text| tokens.iter().map(|token| look.width(token)).fold(0.0, f64::max);
        // The size of the labels depends on the width that they leave.
        let size = size_that_fits((width - bare - positions - widest(&look)) / time, TOKEN);
        let look = Text::new(size);
        let widest = widest(&look);
        let left = bare + widest + positions;
        let bin = round_stride((time * NARROWEST_CELL / (width - left)).ceil() as usize);
        let left = if bin > 1 { bare + Text::new(LABEL).width("1,000") } else { left };
        let side = (width - left).min((time * WIDEST_CELL).max(NARROWEST_MAP)).floor();
        let across = Labels::across(&tokens, side / time, &look, size);
        let down = Labels::down(side / time, size);
        let tall = if across.upward { widest } else { size };
        let below = match (bin, tokens.len() > COUNTED) {
            (1, false) => tall + 28.0,
            (1, true) => tall + 40.0,
            _ => 42.0,
        };
        MapLayout { tokens, size, widest, bin, left, side, below, across, down }
    }

    /// The width of the map with its labels.
    pub fn width(&self) -> f64 {
        self.left + self.side
    }

    /// Draws a map whose upper left, labels included, is `(left, top)`.
    pub fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        (left, top): (f64, f64),
        map: &Binned,
        scale: WeightScale,
    ) -> Result<()> {
        let cells = Rect { left: left + self.left, top, width: self.side, height: self.side };
        draw_cells(canvas, cells, map, scale)?;
        if self.bin == 1 {
            self.token_labels(canvas, left, cells)
        } else {
            self.position_labels(canvas, left, cells)
        }
    }

    fn token_labels<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        left: f64,
        cells: Rect,
    ) -> Result<()> {
        let cell = self.side / self.tokens.len() as f64;
        let counted = self.tokens.len() > COUNTED;
        let token = Text::new(self.size).right();
        let position = Text::new(POSITION).color(MUTED).right();
        let (mut rows, mut columns) = ("query", "key");
        // Digits are flat: their labels may need a wider stride than upward tokens.
        let width = Text::new(POSITION).width(&self.tokens.len().to_string()) + 6.0;
        let common = self.across.stride.max(self.down.stride);
        let every = common * round_stride((width / (cell * common as f64)).ceil() as usize);
        for query in (0..self.tokens.len()).step_by(self.down.stride) {
            let y = cells.top + (query as f64 + 0.5) * cell;
            canvas.text(&self.tokens[query], (cells.left - 6.0, y), &token)?;
            if counted && query % every == 0 {
                canvas.text(&query.to_string(), (cells.left - 6.0 - self.widest - 6.0, y), &position)?;
            }
        }
        let bottom = cells.bottom();
        let tall = if self.across.upward { self.widest } else { self.size };
        for key in (0..self.tokens.len()).step_by(self.across.stride) {
            let x = cells.left + (key as f64 + 0.5) * cell;
            if self.across.upward {
                canvas.text(&self.tokens[key], (x, bottom + 6.0), &token.upward())?;
            } else {
                canvas.text(
                    &self.tokens[key],
                    (x, bottom + 6.0 + self.size / 2.0),
                    &Text::new(self.size).centered(),
                )?;
            }
        }
        if counted {
            for key in (0..self.tokens.len()).step_by(every) {
                let place = (cells.left + (key as f64 + 0.5) * cell, bottom + tall + 13.0);
                canvas.text(&key.to_string(), place, &Text::new(POSITION).color(MUTED).centered())?;
            }
            (rows, columns) = ("query: position and token", "key: token and position");
        }
        self.titles(canvas, left, cells, rows, columns)
    }

    fn position_labels<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        left: f64,
        cells: Rect,
    ) -> Result<()> {
        let time = self.tokens.len() as f64;
        let ticks = Range { start: 0.0, end: time }.whole_ticks((self.side / 45.0) as usize);
        let look = Text::new(LABEL).color(MUTED);
        for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
            let along = tick / time * self.side;
            let (x, y) = (cells.left + along, cells.top + along);
            canvas.line(&[(cells.left - 4.0, y), (cells.left, y)], MUTED, 1.0)?;
            canvas.text(&label, (cells.left - 7.0, y), &look.right())?;
            canvas.line(&[(x, cells.bottom()), (x, cells.bottom() + 4.0)], MUTED, 1.0)?;
            canvas.text(&label, (x, cells.bottom() + 12.0), &look.centered())?;
        }
        let bins = format!("in bins of {}", self.bin);
        self.titles(canvas, left, cells, &format!("query position, {bins}"), &format!("key position, {bins}"))
    }

    fn titles<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        left: f64,
        cells: Rect,
        rows: &str,
        columns: &str,
    ) -> Result<()> {
        let half = self.side / 2.0;
        let look = Text::new(11.5).centered();
        canvas.text(rows, (left + 7.0, cells.top + half), &look.upward())?;
        canvas.text(columns, (cells.left + half, cells.bottom() + self.below - 10.0), &look)
    }
}

/// Draws the square of a map's cells; what a query cannot see stays empty.
pub(crate) fn draw_cells<B: DrawingBackend>(
    canvas: &mut Canvas<'_, B>,
    cells: Rect,
    map: &Binned,
    scale: WeightScale,
) -> Result<()> {
    let colors: Vec<_> = (0..map.bins * map.bins)
        .map(|cell| match map.weight(cell / map.bins, cell % map.bins) {
            Some(weight) if weight.is_finite() => canvas.color_map().color(weight / scale.top),
            Some(_) => MUTED,
            None => BACKGROUND,
        })
        .collect();
    let index = |fraction: f64| ((fraction * map.time as f64) as usize / map.bin).min(map.bins - 1);
    canvas.image(cells, |across, down| colors[index(down) * map.bins + index(across)])?;
    let cell = cells.width / map.time as f64;
    if cell >= LINED_CELL && map.bin == 1 {
        for edge in 1..map.time {
            let (x, y) = (cells.left + edge as f64 * cell, cells.top + edge as f64 * cell);
            canvas.line(&[(x, y), (x, cells.bottom())], BACKGROUND, 0.5)?;
            canvas.line(&[(cells.left, y), (x, y)], BACKGROUND, 0.5)?;
        }
    }
    if cell >= WRITTEN_CELL && map.bin == 1 {
        for (i, color) in colors.iter().enumerate() {
            let (query, key) = (i / map.bins, i % map.bins);
            if let Some(weight) = map.weight(query, key) {
                let place = (cells.left + (key as f64 + 0.5) * cell, cells.top + (query as f64 + 0.5) * cell);
                let look = Text::new(TOKEN).color(contrast(*color)).centered();
                canvas.text(&format!("{weight:.2}"), place, &look)?;
            }
        }
    }
    canvas.frame(cells, GRID, 1.0)
}

/// What the colours of a colour bar stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BarValues {
    /// Attention weights.
    Weights(WeightScale),
    /// The queries of curves, up to the last one.
    Queries(usize),
    /// A score, whose name stands elsewhere.
    Scores(Range),
}

/// Draws a colour bar with its values and its title to the right.
pub(crate) fn color_bar<B: DrawingBackend>(
    canvas: &mut Canvas<'_, B>,
    bar: Rect,
    values: BarValues,
) -> Result<()> {
    let map = canvas.color_map();
    let most = ((bar.height / 40.0) as usize).clamp(2, 6);
    let (range, ticks, title) = match values {
        BarValues::Weights(scale) => {
            canvas.image(bar, |_, down| map.color(1.0 - down))?;
            let range = Range { start: 0.0, end: scale.top };
            (range, range.ticks(most), "attention weight")
        }
        BarValues::Scores(range) => {
            canvas.image(bar, |_, down| map.color(1.0 - down))?;
            (range, range.ticks(most), "")
        }
        BarValues::Queries(last) => {
            canvas.image(bar, |_, down| map.line_color(1.0 - down))?;
            let range = Range { start: 0.0, end: last.max(1) as f64 };
            (range, range.whole_ticks(most), "query position")
        }
    };
    let mut labels = tick_labels(&ticks);
    let widest = labels.iter().map(|label| Text::new(LABEL).width(label)).fold(0.0, f64::max);
    if let (BarValues::Weights(scale), Some(tick), Some(label)) = (values, ticks.last(), labels.last_mut())
        && scale.exceeded
        && *tick > scale.top * 0.999
    {
        label.insert(0, '≥');
    }
    for (tick, label) in ticks.iter().zip(labels) {
        let y = bar.bottom() - (tick - range.start) / range.length() * bar.height;
        canvas.line(&[(bar.right(), y), (bar.right() + 4.0, y)], MUTED, 1.0)?;
        canvas.text(&label, (bar.right() + 7.0, y), &Text::new(LABEL).color(MUTED))?;
    }
    let place = (bar.right() + widest + 27.0, bar.top + bar.height / 2.0);
    canvas.text(title, place, &Text::new(11.5).centered().upward())
}
