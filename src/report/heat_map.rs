//! The second of three marks: a map of coloured cells, and the colour bar beside it.

use plotters::style::RGBColor;

use super::axis::{Axis, ticks_on_the_right};
use super::canvas::{Canvas, Rect};
use super::color::{BACKGROUND, MUTED, color, contrast};
use super::range::{Range, tick_labels};
use super::text::Text;
use super::weights::{Bins, WeightScale};

/// Cells this wide are told apart by lines.
const LINED_CELL: f64 = 7.0;
/// Cells this wide have their value written in them.
pub(crate) const WRITTEN_CELL: f64 = 34.0;
const VALUE: f64 = 10.0;

/// Cells of one size, row by row, each in the colour of its value.
pub(crate) struct HeatMap<'a> {
    pub area: Rect,
    pub rows: Bins,
    pub columns: Bins,
    /// The value of the cell in a row and a column, where there is one.
    pub value: &'a dyn Fn(usize, usize) -> Option<f64>,
    /// The values of the first and the last colour.
    pub range: Range,
    /// A value as it is written into a wide cell.
    pub text: &'a dyn Fn(f64) -> String,
    /// The colour of a cell without a value, and what is written there.
    pub blank: (RGBColor, &'a str),
}

impl HeatMap<'_> {
    pub fn draw(&self, canvas: &mut Canvas) {
        let (rows, columns, area) = (self.rows, self.columns, self.area);
        let cells =
            || (0..rows.count()).flat_map(|row| (0..columns.count()).map(move |column| (row, column)));
        let fill = |value: Option<f64>| match value {
            Some(value) if value.is_finite() => color((value - self.range.start) / self.range.length()),
            Some(_) => MUTED,
            None => self.blank.0,
        };
        let colors: Vec<_> = cells().map(|(row, column)| fill((self.value)(row, column))).collect();
        let pixels = colors.clone();
        canvas.image(area, move |across, down| pixels[rows.at(down) * columns.count() + columns.at(across)]);
        if rows.size > 1 || columns.size > 1 {
            return;
        }
        let (width, height) = (area.width / columns.positions as f64, area.height / rows.positions as f64);
        let line = if width >= WRITTEN_CELL { 1.0 } else { 0.5 };
        if width.min(height) >= LINED_CELL {
            for column in 1..columns.positions {
                let x = area.left + column as f64 * width;
                canvas.line(&[(x, area.top), (x, area.bottom())], BACKGROUND, line);
            }
            for row in 1..rows.positions {
                let y = area.top + row as f64 * height;
                canvas.line(&[(area.left, y), (area.right(), y)], BACKGROUND, line);
            }
        }
        for ((row, column), color) in cells().zip(colors) {
            let place = (area.left + (column as f64 + 0.5) * width, area.top + (row as f64 + 0.5) * height);
            let look = Text::new(VALUE).color(contrast(color)).centered();
            match (self.value)(row, column) {
                Some(value) if width >= WRITTEN_CELL => canvas.text(&(self.text)(value), place, &look),
                None if width >= look.width(self.blank.1) => canvas.text(self.blank.1, place, &look),
                _ => {}
            }
        }
    }
}

/// Draws a colour bar, `color` from the bottom up, with the values of `axis` on its right.
pub(crate) fn color_bar(canvas: &mut Canvas, bar: Rect, color: fn(f64) -> RGBColor, axis: &Axis) {
    canvas.image(bar, move |_, down| color(1.0 - down));
    axis.draw_right(canvas, bar);
}

/// The axis of a colour bar of attention weights, whose last label says where larger weights share a colour.
pub(crate) fn weight_axis(scale: WeightScale, height: f64) -> Axis {
    let range = Range { start: 0.0, end: scale.top };
    let ticks = range.ticks(ticks_on_the_right(height));
    let labels = tick_labels(&ticks).into_iter().zip(&ticks).map(|(label, &tick)| {
        let is_capped = scale.exceeded && tick > scale.top * 0.999;
        (tick, if is_capped { format!("≥{label}") } else { label })
    });
    Axis::labelled("attention weight", range, labels.collect())
}
