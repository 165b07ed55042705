//! A picture: its title and its shapes, in logical pixels. `render` writes it to a file.

use image::{Rgb, RgbImage};
use plotters::style::RGBColor;

use super::color::MUTED;
use super::text::Text;

/// The default width of pictures in logical pixels, which is their width in a README.
pub const WIDTH: f64 = 900.0;
/// The empty margin around every picture.
pub const MARGIN: f64 = 18.0;
/// The vertical position at which a picture's content begins, below the title.
pub const HEADING: f64 = 64.0;
/// The margin above the content of a picture without title.
const UNTITLED_MARGIN: f64 = 12.0;
/// The distances between two lines of the title, of the note, and of a legend.
const TITLE_LINE: f64 = 22.0;
const NOTE_LINE: f64 = 17.0;
pub(crate) const LEGEND_LINE: f64 = 17.0;

/// A position in logical pixels, measured from the upper left corner.
pub type Coordinates = (f64, f64);

/// A rectangle in logical pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    /// The left edge, measured from the picture's left edge.
    pub left: f64,
    /// The upper edge, measured from the picture's upper edge.
    pub top: f64,
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
}

impl Rect {
    /// Returns the right edge.
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    /// Returns the lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Returns the centre.
    pub fn center(&self) -> Coordinates {
        (self.left + self.width / 2.0, self.top + self.height / 2.0)
    }
}

/// A function that returns the colour at a point of an image, given in fractions of its width and height.
pub(super) type Pixels = Box<dyn Fn(f64, f64) -> RGBColor>;

/// A shape of a picture.
pub(super) enum Shape {
    Rect {
        rect: Rect,
        color: RGBColor,
    },
    Line {
        points: Vec<Coordinates>,
        color: RGBColor,
        width: f64,
    },
    Dot {
        center: Coordinates,
        radius: f64,
        color: RGBColor,
    },
    Text {
        text: String,
        point: Coordinates,
        style: Text,
    },
    /// Pixels, of which `cells` columns and rows differ if it is known.
    Image {
        rect: Rect,
        cells: Option<[u32; 2]>,
        pixels: Pixels,
    },
}

/// A picture, whose later shapes cover earlier ones.
pub struct Picture {
    /// The file name without its extension, such as `loss`.
    pub name: &'static str,
    /// The width in logical pixels.
    width: f64,
    /// The height below the vertical position 0: the heading with one line of note, and the content.
    pub(super) height: f64,
    /// The height above the vertical position 0, which holds the title if title and note have several lines.
    above: f64,
    /// The height of the lines of a legend above the first position of its last line.
    legend: f64,
    /// The title and the note.
    heading: Vec<Shape>,
    pub(super) shapes: Vec<Shape>,
}

impl Picture {
    /// Creates an empty picture of the given width and height, with a title and a note below it. Long titles and notes
    /// take several lines.
    pub fn new(name: &'static str, (width, height): (f64, f64), title: &str, note: &str) -> Self {
        let (bold, muted) = (Text::new(17.0).bold(), Text::new(12.0).color(MUTED));
        let [title, note] =
            [bold.lines(title, width - 2.0 * MARGIN), muted.lines(note, width - 2.0 * MARGIN)];
        let further = |lines: &[String]| lines.len().saturating_sub(1) as f64;
        let (heading, shapes) = (Vec::new(), Vec::new());
        let mut picture = Self { name, width, height, above: 0.0, legend: 0.0, heading, shapes };
        let note_top = 46.0 - NOTE_LINE * further(&note);
        for (i, line) in note.iter().enumerate() {
            picture.text(line, (MARGIN, note_top + NOTE_LINE * i as f64), &muted);
        }
        let title_top = note_top - 22.0 - TITLE_LINE * further(&title);
        for (i, line) in title.iter().enumerate() {
            picture.text(line, (MARGIN, title_top + TITLE_LINE * i as f64), &bold);
        }
        picture.above = 24.0 - title_top;
        picture.heading = std::mem::take(&mut picture.shapes);
        picture
    }

    /// Returns the width in logical pixels.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Makes room for further lines of a legend above its last line, by moving the title and the note upwards.
    pub(crate) fn raise_heading(&mut self, lines: usize) {
        let height = LEGEND_LINE * lines as f64;
        for shape in &mut self.heading {
            if let Shape::Text { point, .. } = shape {
                point.1 -= height;
            }
        }
        self.above += height;
        self.legend += height;
    }

    /// Removes the title and the note, for a document with a caption.
    pub fn remove_title(&mut self) {
        self.heading.clear();
        self.above = UNTITLED_MARGIN - HEADING + self.legend;
    }

    /// Returns the width and height in logical pixels.
    pub fn size(&self) -> (u32, u32) {
        (self.width.ceil() as u32, (self.above + self.height).ceil() as u32)
    }

    /// Returns the height above the vertical position 0; negative without a title.
    pub(super) fn above(&self) -> f64 {
        self.above
    }

    /// Returns the shapes from back to front.
    pub(super) fn all_shapes(&self) -> impl Iterator<Item = &Shape> {
        self.heading.iter().chain(&self.shapes)
    }

    /// Draws a filled rectangle.
    pub fn rect(&mut self, rect: Rect, color: RGBColor) {
        self.shapes.push(Shape::Rect { rect, color });
    }

    /// Draws the outline of a rectangle.
    pub fn frame(&mut self, rect: Rect, color: RGBColor, width: f64) {
        let Rect { left, top, .. } = rect;
        let (right, bottom) = (rect.right(), rect.bottom());
        self.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], color, width);
    }

    /// Draws a line through all `points`; draws nothing if there are fewer than two.
    pub fn line(&mut self, points: &[Coordinates], color: RGBColor, width: f64) {
        self.shapes.push(Shape::Line { points: points.to_vec(), color, width });
    }

    /// Draws a dashed straight line.
    pub fn dashed(&mut self, from: Coordinates, to: Coordinates, color: RGBColor, width: f64) {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let point = |distance: f64| (from.0 + dx * distance / length, from.1 + dy * distance / length);
        for dash in 0..(length / (DASH + GAP)).ceil() as u32 {
            let start = f64::from(dash) * (DASH + GAP);
            self.line(&[point(start), point((start + DASH).min(length))], color, width);
        }
    }

    /// Draws a filled circle.
    pub fn dot(&mut self, center: Coordinates, radius: f64, color: RGBColor) {
        self.shapes.push(Shape::Dot { center, radius, color });
    }

    /// Draws a text with its anchor at `point`: horizontally by its alignment, vertically at half the height of its
    /// capitals.
    pub fn text(&mut self, text: &str, point: Coordinates, style: &Text) {
        // Control characters would make an SVG ill-formed.
        let text = text.replace(char::is_control, "\u{fffd}");
        self.shapes.push(Shape::Text { text, point, style: *style });
    }

    /// Draws a bold name with a note next to it. If both are wider than `width`, the last parts of the note, which
    /// semicolons separate, are left out.
    pub fn panel_name(&mut self, name: &str, note: &str, (x, y): Coordinates, width: f64) {
        let (bold, muted) = (Text::new(13.0).bold(), Text::new(11.0).color(MUTED));
        let name = bold.fit(name, width);
        let after = bold.width(&name) + 8.0;
        self.text(&name, (x, y), &bold);
        let ends = note.rmatch_indices("; ").map(|(end, _)| end);
        let shorter = ends.map(|end| &note[..end]);
        let fits = |note: &&str| muted.width(note) <= width - after;
        if let Some(note) = std::iter::once(note).chain(shorter).find(fits) {
            self.text(note, (x + after, y), &muted);
        }
    }

    /// Fills a rectangle pixel by pixel.
    pub fn image(&mut self, rect: Rect, pixels: impl Fn(f64, f64) -> RGBColor + 'static) {
        self.shapes.push(Shape::Image { rect, cells: None, pixels: Box::new(pixels) });
    }

    /// Fills a rectangle with `columns` times `rows` cells of equal size, of one colour each.
    pub fn cells(
        &mut self,
        rect: Rect,
        [columns, rows]: [usize; 2],
        pixels: impl Fn(f64, f64) -> RGBColor + 'static,
    ) {
        let cells = Some([columns, rows].map(|count| count.max(1) as u32));
        self.shapes.push(Shape::Image { rect, cells, pixels: Box::new(pixels) });
    }
}

/// Returns an image with these columns and rows.
pub(super) fn sampled([columns, rows]: [u32; 2], pixels: &Pixels) -> RgbImage {
    RgbImage::from_fn(columns, rows, |x, y| {
        let at = |pixel: u32, length: u32| (f64::from(pixel) + 0.5) / f64::from(length);
        let RGBColor(red, green, blue) = pixels(at(x, columns), at(y, rows));
        Rgb([red, green, blue])
    })
}

/// Returns the bytes of an image of `columns` times `rows` pixels, computing the colour of each cell once.
pub(super) fn magnified(cells: Option<[u32; 2]>, [columns, rows]: [u32; 2], pixels: &Pixels) -> Vec<u8> {
    let cells = match cells {
        Some(cells) if cells[0] <= columns && cells[1] <= rows => sampled(cells, pixels),
        _ => return sampled([columns, rows], pixels).into_raw(),
    };
    let cell = |pixel: u32, pixels: u32, cells: u32| {
        (2 * u64::from(pixel) + 1) * u64::from(cells) / (2 * u64::from(pixels))
    };
    let across: Vec<usize> = (0..columns).map(|x| 3 * cell(x, columns, cells.width()) as usize).collect();
    let row = 3 * columns as usize;
    let mut bytes = Vec::with_capacity(row * rows as usize);
    let mut drawn = None;
    for y in 0..rows {
        let down = cell(y, rows, cells.height()) as usize;
        if drawn.replace(down) == Some(down) {
            bytes.extend_from_within(bytes.len() - row..);
            continue;
        }
        let colors = &cells.as_raw()[3 * down * cells.width() as usize..];
        for &at in &across {
            bytes.extend_from_slice(&colors[at..at + 3]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Picture {
        /// Returns the texts that are smaller than 6 points, reach beyond the picture, or cover each other, at this number of
        /// points per logical pixel.
        pub fn text_problems(&self, points: f64) -> Vec<String> {
            let (width, height) = self.size();
            let texts = self.all_shapes().filter_map(|shape| match shape {
                Shape::Text { text, point, style } if !text.is_empty() => {
                    Some((text, style, style.area(text, *point)))
                }
                _ => None,
            });
            let texts: Vec<(&String, &Text, Rect)> = texts.collect();
            let mut problems = Vec::new();
            for (i, (text, style, area)) in texts.iter().enumerate() {
                if style.size * points < 5.999 {
                    problems.push(format!("`{text}` has {:.2} points", style.size * points));
                }
                let is_cut = area.left < -0.5
                    || area.right() > f64::from(width) + 0.5
                    || area.top < -self.above - 0.5
                    || area.bottom() > f64::from(height) - self.above + 0.5;
                if is_cut {
                    problems.push(format!("`{text}` is cut: {area:?}"));
                }
                let covers = |other: &Rect| {
                    let across = area.right().min(other.right()) - area.left.max(other.left);
                    let down = area.bottom().min(other.bottom()) - area.top.max(other.top);
                    across > 0.5 && down > 0.5
                };
                let covered = texts[..i].iter().filter(|(.., other)| covers(other));
                problems.extend(covered.map(|(other, ..)| format!("`{text}` covers `{other}`")));
            }
            problems
        }

        /// Moves the texts that equal `text`; there is at least one.
        pub fn move_text(&mut self, text: &str, (right, down): Coordinates) {
            let mut count = 0;
            for shape in &mut self.shapes {
                if let Shape::Text { text: found, point, .. } = shape
                    && found == text
                {
                    *point = (point.0 + right, point.1 + down);
                    count += 1;
                }
            }
            assert!(count > 0, "no text is `{text}`");
        }

        /// Replaces a colour of lines, dots, rectangles and texts, or removes these shapes.
        pub fn recolor(&mut self, from: RGBColor, to: Option<RGBColor>) {
            self.shapes.retain_mut(|shape| {
                let color = match shape {
                    Shape::Rect { color, .. } | Shape::Line { color, .. } | Shape::Dot { color, .. } => color,
                    Shape::Text { style, .. } => &mut style.color,
                    Shape::Image { .. } => return true,
                };
                let is_other = *color != from;
                *color = if is_other { *color } else { to.unwrap_or(from) };
                is_other || to.is_some()
            });
        }
    }

    #[test]
    fn cells_drawn_once_give_the_same_pixels() {
        let columns = [3, 7];
        let pixels: Pixels = Box::new(move |across, down| {
            let [x, y] = [across * f64::from(columns[0]), down * f64::from(columns[1])];
            RGBColor(x as u8, y as u8, 200)
        });
        for size in [[3, 7], [11, 17], [60, 35], [2, 50]] {
            assert_eq!(
                magnified(Some(columns), size, &pixels),
                sampled(size, &pixels).into_raw(),
                "{size:?}"
            );
        }
    }
}
