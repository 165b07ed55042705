//! Named rows of values over the tokens of a sequence, such as a logit lens.

use plotters::style::RGBColor;

use crate::draw::color::GRID;
use crate::draw::{
    Axis, HEADING, Interval, MARGIN, Picture, Rect, Scale, Text, TokenAxis, draw_color_bar, stride_of,
};

/// The minimum and maximum widths of the row names, and the width of the colour bar.
const ROW_NAMES_WIDTH: f64 = 190.0;
const MAX_ROW_NAMES_WIDTH: f64 = 320.0;
const BAR_WIDTH: f64 = 80.0;
/// The least width of the matrix next to its names; in a narrower picture, each name is above its row.
const MIN_WIDTH: f64 = 240.0;
const NAME_HEIGHT: f64 = 15.0;
const NAME_SIZE: f64 = 10.0;
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
    /// Draws the matrix in colours that span `range`, with values in `unit`, in a picture of this width.
    pub fn picture(
        self,
        (name, picture_width): (&'static str, f64),
        title: &str,
        note: &str,
        (unit, range): (&str, Interval),
    ) -> Picture {
        let Self { rows, tokens, role, color } = self;
        let layout = Layout::new(&rows, picture_width);
        let Layout { area, .. } = layout;
        let axis = TokenAxis::new(tokens, 60.0, area.width, true);
        // The colour bar is taller than the area if there are few rows.
        let bar = Rect { left: area.right() + 10.0, width: 12.0, height: area.height.max(90.0), ..area };
        let below = (area.bottom() + axis.depth()).max(bar.bottom()) + MARGIN;
        let mut picture = Picture::new(name, (picture_width, below), title, note);
        layout.draw_names(&mut picture, &rows);
        let values: Vec<Vec<f64>> = rows.iter().map(|(_, row)| row[..tokens.len()].to_vec()).collect();
        // Rows with names between them are drawn one by one.
        let parts = if layout.has_names_above { values.chunks(1) } else { values.chunks(values.len()) };
        for (at, part) in parts.enumerate() {
            let area = if layout.has_names_above { layout.row(at) } else { area };
            let part = part.to_vec();
            picture.cells(area, [tokens.len(), part.len()], move |across, down| {
                let row = &part[((down * part.len() as f64) as usize).min(part.len() - 1)];
                let value = row[((across * row.len() as f64) as usize).min(row.len() - 1)];
                color((value - range.start) / range.length())
            });
            picture.frame(area, GRID, 1.0);
        }
        axis.draw(&mut picture, area, role);
        draw_color_bar(&mut picture, bar, color, &Axis::new(unit, range, Scale::Linear));
        picture
    }
}

/// The layout of the rows and of their names.
struct Layout {
    /// The area of all rows.
    area: Rect,
    /// The distance between two rows.
    pitch: f64,
    /// True if names are above their rows, and false if they are on the left.
    has_names_above: bool,
}

impl Layout {
    fn new(rows: &[(String, &[f64])], picture_width: f64) -> Self {
        let widest = rows.iter().map(|(name, _)| Text::new(NAME_SIZE).width(name)).fold(0.0, f64::max) + 9.0;
        let names = widest.clamp(ROW_NAMES_WIDTH, MAX_ROW_NAMES_WIDTH);
        let room = picture_width - 2.0 * MARGIN - BAR_WIDTH;
        let has_names_above = room - names < MIN_WIDTH;
        let row = (MAX_HEIGHT / rows.len() as f64).min(MAX_ROW_HEIGHT);
        let (names, pitch) = if has_names_above { (0.0, NAME_HEIGHT + MAX_ROW_HEIGHT) } else { (names, row) };
        let height = pitch * rows.len() as f64;
        let area = Rect { left: MARGIN + names, top: HEADING + 6.0, width: room - names, height };
        Self { area, pitch, has_names_above }
    }

    fn row(&self, at: usize) -> Rect {
        let above = if self.has_names_above { NAME_HEIGHT } else { 0.0 };
        let top = self.area.top + at as f64 * self.pitch + above;
        Rect { top, height: self.pitch - above, ..self.area }
    }

    fn draw_names(&self, picture: &mut Picture, rows: &[(String, &[f64])]) {
        let style = Text::new(NAME_SIZE);
        for (at, (name, _)) in rows.iter().enumerate().step_by(stride_of(self.pitch, 12.0)) {
            let row = self.row(at);
            if self.has_names_above {
                picture.text(&style.fit(name, row.width), (row.left, row.top - 7.0), &style);
            } else {
                let name = style.fit(name, row.left - MARGIN - 8.0);
                picture.text(&name, (row.left - 8.0, row.center().1), &style.right());
            }
        }
    }
}
