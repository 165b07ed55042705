//! What is drawn, in logical pixels: lines, shapes, text and images, kept in their order. [`super::render`]
//! turns them into a file.

use plotters::style::RGBColor;

use super::color;
use super::text::Text;

/// A place in logical pixels, from the upper left.
pub(crate) type Place = (f64, f64);

/// A rectangle in logical pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The place in its middle.
    pub fn center(&self) -> Place {
        (self.left + self.width / 2.0, self.top + self.height / 2.0)
    }
}

/// The colour at a place within an image, which is given as fractions of its width and height.
pub(crate) type Pixels = Box<dyn Fn(f64, f64) -> RGBColor>;

/// Something drawn.
pub(crate) enum Shape {
    /// A filled rectangle.
    Rect { rect: Rect, color: RGBColor },
    /// A line through places.
    Line { places: Vec<Place>, color: RGBColor, width: f64 },
    /// A filled circle.
    Dot { center: Place, radius: f64, color: RGBColor },
    /// A text whose anchor, by its alignment, is `place`, in the middle of the capitals.
    Text { text: String, place: Place, look: Text },
    /// A rectangle filled pixel by pixel.
    Image { rect: Rect, pixels: Pixels },
}

/// A surface to draw on.
#[derive(Default)]
pub(crate) struct Canvas {
    pub(super) shapes: Vec<Shape>,
}

impl Canvas {
    /// A filled rectangle.
    pub fn rect(&mut self, rect: Rect, color: RGBColor) {
        self.shapes.push(Shape::Rect { rect, color });
    }

    /// The outline of a rectangle.
    pub fn frame(&mut self, rect: Rect, color: RGBColor, width: f64) {
        let Rect { left, top, .. } = rect;
        let (right, bottom) = (rect.right(), rect.bottom());
        self.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], color, width);
    }

    /// A line through all `places`; nothing where there are fewer than two.
    pub fn line(&mut self, places: &[Place], color: RGBColor, width: f64) {
        self.shapes.push(Shape::Line { places: places.to_vec(), color, width });
    }

    /// A dashed straight line.
    pub fn dashed(&mut self, from: Place, to: Place, color: RGBColor, width: f64) {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let at = |along: f64| (from.0 + dx * along / length, from.1 + dy * along / length);
        let mut start = 0.0;
        while start < length {
            self.line(&[at(start), at((start + DASH).min(length))], color, width);
            start += DASH + GAP;
        }
    }

    /// A filled circle.
    pub fn dot(&mut self, center: Place, radius: f64, color: RGBColor) {
        self.shapes.push(Shape::Dot { center, radius, color });
    }

    /// An empty circle.
    pub fn ring(&mut self, center: Place, radius: f64, color: RGBColor, width: f64) {
        self.dot(center, radius + width / 2.0, color);
        self.dot(center, radius - width / 2.0, color::BACKGROUND);
    }

    /// A diagonal cross.
    pub fn cross(&mut self, (x, y): Place, radius: f64, color: RGBColor, width: f64) {
        self.line(&[(x - radius, y - radius), (x + radius, y + radius)], color, width);
        self.line(&[(x - radius, y + radius), (x + radius, y - radius)], color, width);
    }

    /// A text whose anchor, by its alignment, is `place`, in the middle of the capitals.
    pub fn text(&mut self, text: &str, place: Place, look: &Text) {
        // An SVG with control characters is not well-formed.
        let text = text.replace(char::is_control, "\u{fffd}");
        self.shapes.push(Shape::Text { text, place, look: *look });
    }

    /// Fills a rectangle pixel by pixel.
    pub fn image(&mut self, rect: Rect, pixels: impl Fn(f64, f64) -> RGBColor + 'static) {
        self.shapes.push(Shape::Image { rect, pixels: Box::new(pixels) });
    }
}
