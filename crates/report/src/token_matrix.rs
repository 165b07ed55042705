//! Named rows of values over the tokens of a sequence, such as a logit lens.

use plotters::style::RGBColor;

use crate::draw::color::{GRID, INK, contrast};
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
/// The length of the strokes of a sign, as a share of the shorter side of its cell, and the maximum length.
const SIGN_SHARE: f64 = 0.5;
const MAX_SIGN: f64 = 6.0;

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
    /// The positions whose columns are framed.
    pub framed: &'a [usize],
}

impl TokenMatrix<'_> {
    /// Draws the matrix in colours that span `range`, with values in `unit`, in a picture of this width. Cells with values
    /// beyond the range have the colour of its end, and a sign: + above it, − below it.
    pub fn picture(
        self,
        (name, picture_width): (&'static str, f64),
        title: &str,
        note: &str,
        (unit, range): (&str, Interval),
    ) -> Picture {
        let Self { rows, tokens, role, color, framed } = self;
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
            let (part, signs) = (part.to_vec(), signs(part, area, range));
            picture.cells(area, [tokens.len(), part.len()], move |across, down| {
                let row = &part[((down * part.len() as f64) as usize).min(part.len() - 1)];
                let value = row[((across * row.len() as f64) as usize).min(row.len() - 1)];
                color((value - range.start) / range.length())
            });
            for (stroke, is_above) in signs {
                picture.line(&stroke, contrast(color(f64::from(u8::from(is_above)))), 1.0);
            }
            picture.frame(area, GRID, 1.0);
            let column = area.width / tokens.len() as f64;
            for run in framed.chunk_by(|one, next| one + 1 == *next) {
                let (left, width) = (area.left + run[0] as f64 * column, run.len() as f64 * column);
                picture.frame(Rect { left, width, ..area }, INK, 1.0);
            }
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

/// A stroke of a sign, and true if the sign is a plus.
type SignStroke = ([(f64, f64); 2], bool);

/// Returns the strokes of the signs of all values beyond the range.
fn signs(values: &[Vec<f64>], area: Rect, range: Interval) -> Vec<SignStroke> {
    // The ends of a scale are rounded.
    let (range, mut strokes) = (range.padded(1e-3, 1e-3), Vec::new());
    for (row, of_row) in values.iter().enumerate() {
        let (width, height) = (area.width / of_row.len() as f64, area.height / values.len() as f64);
        let half = (SIGN_SHARE * width.min(height)).min(MAX_SIGN) / 2.0;
        for (at, value) in of_row.iter().enumerate() {
            let (x, y) = (area.left + (at as f64 + 0.5) * width, area.top + (row as f64 + 0.5) * height);
            let is_above = *value > range.end;
            if is_above || *value < range.start {
                strokes.push(([(x - half, y), (x + half, y)], is_above));
            }
            if is_above {
                strokes.push(([(x, y - half), (x, y + half)], is_above));
            }
        }
    }
    strokes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_range_have_signs() {
        let (area, range) =
            (Rect { left: 10.0, top: 20.0, width: 30.0, height: 14.0 }, Interval { start: -2.0, end: 2.0 });
        let strokes = signs(&[vec![1.0, 2.0, 3.0], vec![-2.0, -5.0, 0.0]], area, range);
        let centre = |[from, to]: [(f64, f64); 2]| ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
        assert_eq!((centre(strokes[0].0), strokes[0].1), ((35.0, 23.5), true));
        assert_eq!(centre(strokes[1].0), (35.0, 23.5));
        assert_eq!((centre(strokes[2].0), strokes[2].1, strokes.len()), ((25.0, 30.5), false, 3));
    }
}
