//! Named rows of values over the tokens of a sequence, such as a logit lens.

use plotters::style::RGBColor;

use crate::draw::color::GRID;
use crate::draw::{
    Axis, HEADING, Interval, MARGIN, Picture, Rect, Scale, Text, TokenAxis, WIDTH, draw_color_bar, stride_of,
};

/// The minimum and maximum widths of the row names, and the width of the colour bar.
const ROW_NAMES_WIDTH: f64 = 190.0;
const MAX_ROW_NAMES_WIDTH: f64 = 320.0;
const BAR_WIDTH: f64 = 80.0;
const MAX_ROW_HEIGHT: f64 = 20.0;
const MAX_HEIGHT: f64 = 900.0;

/// A matrix with named rows of values over the tokens of a sequence.
#[derive(Debug, Clone)]
pub struct TokenMatrix<'a> {
    /// The rows from top to bottom, each with at least one value per token.
    pub rows: Vec<(String, &'a [f64])>,
    /// The tokens.
    pub tokens: &'a [String],
    /// The role of the tokens, such as "target".
    pub role: &'a str,
    /// The colour at a fraction of the scale.
    pub color: fn(f64) -> RGBColor,
}

impl TokenMatrix<'_> {
    /// Draws the matrix in colours that span `range`, with values in `unit`.
    pub fn picture(
        self,
        name: &'static str,
        title: &str,
        note: &str,
        (unit, range): (&str, Interval),
    ) -> Picture {
        let Self { rows, tokens, role, color } = self;
        let style = Text::new(10.0).right();
        let widest = rows.iter().map(|(name, _)| style.width(name)).fold(0.0, f64::max) + 9.0;
        let names_width = widest.clamp(ROW_NAMES_WIDTH, MAX_ROW_NAMES_WIDTH);
        let width = WIDTH - 2.0 * MARGIN - names_width - BAR_WIDTH;
        let axis = TokenAxis::new(tokens, 60.0, width, true);
        let height = (MAX_HEIGHT / rows.len() as f64).min(MAX_ROW_HEIGHT);
        let total_height = height * rows.len() as f64;
        let area = Rect { left: MARGIN + names_width, top: HEADING + 6.0, width, height: total_height };
        // The colour bar is taller than the area if there are few rows.
        let bar = Rect { left: area.right() + 10.0, width: 12.0, height: total_height.max(90.0), ..area };
        let below = (area.bottom() + axis.depth()).max(bar.bottom()) + MARGIN;
        let mut picture = Picture::new(name, below, title, note);
        for (row, (name, _)) in rows.iter().enumerate().step_by(stride_of(height, 12.0)) {
            let origin = (area.left - 8.0, area.top + (row as f64 + 0.5) * height);
            picture.text(&style.fit(name, names_width - 8.0), origin, &style);
        }
        let values: Vec<Vec<f64>> = rows.iter().map(|(_, row)| row[..tokens.len()].to_vec()).collect();
        picture.cells(area, [tokens.len(), values.len()], move |across, down| {
            let row = &values[((down * values.len() as f64) as usize).min(values.len() - 1)];
            let value = row[((across * row.len() as f64) as usize).min(row.len() - 1)];
            color((value - range.start) / range.length())
        });
        picture.frame(area, GRID, 1.0);
        axis.draw(&mut picture, area, role);
        draw_color_bar(&mut picture, bar, color, &Axis::new(unit, range, Scale::Linear));
        picture
    }
}
