//! Line charts: curves, dots and columns in a frame with axes.

use plotters::style::RGBColor;

use super::axis::{Axis, MIN_SIZE};
use super::color::{BACKGROUND, GRID};
use super::picture::{Coordinates, HEADING, LEGEND_LINE, MARGIN, Picture, Rect};
use super::text::Text;

/// A chart: its frame, its axes and its series.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// The frame.
    pub area: Rect,
    /// The x axis, below the frame.
    pub x: Axis,
    /// The y axis, on the left of the frame.
    pub y: Axis,
    /// The series, from back to front.
    pub series: Vec<Series>,
}

/// Points that belong together, ordered by x.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name in a legend; empty to omit the series from it.
    pub name: String,
    /// The colour.
    pub color: RGBColor,
    /// The mark of each point, or the line through all points.
    pub mark: Mark,
    /// The values on both axes.
    pub points: Vec<(f64, f64)>,
}

/// A mark of points. Points with a value that is not finite are not drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    /// A curve of this width, clipped at the frame.
    Line(f64),
    /// A straight dashed line between two points.
    Dashed(f64),
    /// Filled circles of this radius.
    Dot(f64),
    /// Empty circles: their radius and line width.
    Ring(f64, f64),
    /// Diagonal crosses: their radius and line width.
    Cross(f64, f64),
    /// A horizontal line of this width through each point, about three quarters of a unit of the x axis long.
    Level(f64),
    /// Columns, each from the previous point to its own.
    Column,
    /// Empty squares of this width.
    Frame(f64),
}

impl Series {
    /// Creates a series of points.
    pub fn new(
        name: &str,
        color: RGBColor,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { name: name.to_string(), color, mark, points: points.into_iter().collect() }
    }
}

impl LineChart {
    /// Creates an empty chart as wide as `picture`.
    pub fn new(picture: &Picture, (top, height): (f64, f64), x: Axis, y: Axis) -> Self {
        let left = MARGIN + y.width(height);
        let area = Rect { left, top, width: picture.width() - left - MARGIN, height };
        Self { area, x, y, series: Vec::new() }
    }

    /// Creates an empty chart that fills a picture below a one-line legend.
    pub fn filling(picture: &Picture, x: Axis, y: Axis) -> Self {
        Self::new(picture, (HEADING + 30.0, picture.height - HEADING - 82.0), x, y)
    }

    /// Returns the coordinates of a value. They are outside the area for a value outside the axes, and NaN for a value
    /// without a logarithm.
    pub fn point(&self, x: f64, y: f64) -> Coordinates {
        let area = self.area;
        (area.left + self.x.at(x) * area.width, area.bottom() - self.y.at(y) * area.height)
    }

    /// Draws the axes and the series.
    pub fn draw(&self, picture: &mut Picture) {
        self.y.draw_left(picture, self.area);
        self.x.draw_below(picture, self.area);
        self.draw_series(picture);
    }

    /// Draws the chart, with a legend of its series above.
    pub fn draw_with_legend(&self, picture: &mut Picture) {
        self.draw(picture);
        legend(picture, (self.area.left, HEADING + 8.0), self.named());
    }

    /// Draws the series without the axes.
    pub fn draw_series(&self, picture: &mut Picture) {
        self.series.iter().for_each(|series| self.draw_one(picture, series));
    }

    /// Returns the series in the order of a legend: curves first.
    pub fn named(&self) -> Vec<&Series> {
        let mut named: Vec<&Series> = self.series.iter().collect();
        named.sort_by_key(|series| !matches!(series.mark, Mark::Line(_)));
        named
    }

    fn draw_one(&self, picture: &mut Picture, series: &Series) {
        let Series { color, mark, .. } = *series;
        let points: Vec<Coordinates> = series.points.iter().map(|&(x, y)| self.point(x, y)).collect();
        let (top, bottom) = (self.area.top, self.area.bottom());
        // Rounding must not drop a point on the edge.
        let is_inside = |point: &Coordinates| (top - 1e-6..=bottom + 1e-6).contains(&point.1);
        let inside: Vec<Coordinates> = points.iter().copied().filter(is_inside).collect();
        match mark {
            Mark::Line(width) => {
                let is_drawn = |point: &Coordinates| point.0.is_finite() && point.1.is_finite();
                for part in points.split(|point| !is_drawn(point)).filter(|part| !part.is_empty()) {
                    self.draw_curve(picture, part, color, width);
                }
            }
            Mark::Dashed(width) => {
                if let [from, to] = inside[..] {
                    picture.dashed(from, to, color, width);
                }
            }
            Mark::Level(width) => {
                let half = 0.38 / self.x.range.length() * self.area.width;
                for (x, y) in inside {
                    picture.line(&[(x - half, y), (x + half, y)], color, width);
                }
            }
            Mark::Column => {
                let mut left = self.area.left;
                for (right, y) in points.into_iter().filter(|point| point.1.is_finite()) {
                    let y = y.clamp(top, bottom);
                    picture.rect(Rect { left, top: y, width: right - left, height: bottom - y }, color);
                    left = right;
                }
            }
            mark => inside.into_iter().for_each(|point| draw_mark(picture, mark, point, color)),
        }
    }

    /// Draws a curve without gaps, clipped at the frame.
    fn draw_curve(&self, picture: &mut Picture, points: &[Coordinates], color: RGBColor, width: f64) {
        let (top, bottom) = (self.area.top, self.area.bottom());
        if let &[point] = points {
            if (top..=bottom).contains(&point.1) {
                picture.dot(point, width.max(2.0), color);
            }
            return;
        }
        let mut inside: Vec<Coordinates> = Vec::new();
        for pair in thin(points).windows(2) {
            let Some((from, to)) = clip(pair[0], pair[1], top, bottom) else { continue };
            if inside.last() != Some(&from) {
                picture.line(&inside, color, width);
                inside = vec![from];
            }
            inside.push(to);
        }
        picture.line(&inside, color, width);
    }
}

/// Draws a mark at a point.
fn draw_mark(picture: &mut Picture, mark: Mark, (x, y): Coordinates, color: RGBColor) {
    match mark {
        Mark::Dot(radius) => picture.dot((x, y), radius, color),
        Mark::Ring(radius, width) => {
            picture.dot((x, y), radius + width / 2.0, color);
            picture.dot((x, y), radius - width / 2.0, BACKGROUND);
        }
        Mark::Cross(radius, width) => {
            picture.line(&[(x - radius, y - radius), (x + radius, y + radius)], color, width);
            picture.line(&[(x - radius, y + radius), (x + radius, y - radius)], color, width);
        }
        Mark::Frame(width) => {
            let half = width / 2.0;
            picture.frame(Rect { left: x - half, top: y - half, width, height: width }, color, 1.0);
        }
        Mark::Column => {
            let square = Rect { left: x - 6.0, top: y - 6.0, width: 12.0, height: 12.0 };
            picture.rect(square, color);
            picture.frame(square, GRID, 0.75);
        }
        Mark::Line(_) => picture.line(&[(x - 12.0, y), (x + 12.0, y)], color, 2.0),
        Mark::Dashed(_) | Mark::Level(_) => picture.dashed((x - 12.0, y), (x + 14.0, y), color, 1.5),
    }
}

/// Draws each name of series once, next to its mark, in rows between `point` and the picture's right margin. The last row
/// is at `point`; further rows are above it, and move the title and the note upwards.
pub fn legend<'a>(picture: &mut Picture, point: Coordinates, named: impl IntoIterator<Item = &'a Series>) {
    let right = picture.width() - MARGIN;
    let (mut names, mut entries, mut row, mut x) = (vec![""], Vec::new(), 0, point.0);
    for Series { name, color, mark, .. } in named {
        if names.contains(&name.as_str()) {
            continue;
        }
        names.push(name);
        let (mark, width) = legend_mark(*mark);
        // A name wider than the picture is smaller or truncated.
        let room = right - point.0 - width - 6.0;
        let style = Text::new(11.5).shrunk(name, room, MIN_SIZE);
        let name = style.fit(name, room);
        let entry_width = width + 6.0 + style.width(&name);
        if x > point.0 && x + entry_width > right {
            (x, row) = (point.0, row + 1);
        }
        entries.push((mark, *color, width, (name, style), x, row));
        x += entry_width + 20.0;
    }
    picture.raise_heading(row);
    for (mark, color, width, (name, style), x, at) in entries {
        let y = point.1 - LEGEND_LINE * (row - at) as f64;
        draw_mark(picture, mark, (x + width / 2.0, y), color);
        picture.text(&name, (x + width + 6.0, y), &style);
    }
}

/// Returns the mark of a series in a legend, with its width.
fn legend_mark(mark: Mark) -> (Mark, f64) {
    match mark {
        Mark::Line(_) | Mark::Dashed(_) | Mark::Level(_) => (mark, 24.0),
        Mark::Dot(_) => (Mark::Dot(3.5), 12.0),
        Mark::Ring(..) => (Mark::Ring(4.5, 1.25), 12.0),
        Mark::Cross(..) => (Mark::Cross(4.0, 1.75), 12.0),
        Mark::Column | Mark::Frame(_) => (mark, 12.0),
    }
}

/// Returns the part of a segment with `top <= y <= bottom`.
fn clip(from: Coordinates, to: Coordinates, top: f64, bottom: f64) -> Option<(Coordinates, Coordinates)> {
    let point_at = |y: f64| (from.0 + (to.0 - from.0) * (y - from.1) / (to.1 - from.1), y);
    let cut = |point: Coordinates| match point.1.clamp(top, bottom) {
        inside if inside == point.1 => point,
        edge => point_at(edge),
    };
    let outside = (from.1 < top && to.1 < top) || (from.1 > bottom && to.1 > bottom);
    (!outside).then(|| (cut(from), cut(to)))
}

/// Returns the visible points of a dense curve: of points within half a logical pixel horizontally, only the extremes.
fn thin(points: &[Coordinates]) -> Vec<Coordinates> {
    let columns = points.chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor());
    columns.flat_map(|column| extremes(column, |point| point.1)).collect()
}

/// Returns the first, lowest, highest and last point, in order; all points if there are at most four.
pub(crate) fn extremes<T: Copy>(points: &[T], value: impl Fn(&T) -> f64) -> Vec<T> {
    if points.len() <= 4 {
        return points.to_vec();
    }
    let by_value = |&a: &usize, &b: &usize| value(&points[a]).total_cmp(&value(&points[b]));
    let lowest = (0..points.len()).min_by(by_value).unwrap_or(0);
    let highest = (0..points.len()).max_by(by_value).unwrap_or(0);
    let mut kept = [0, lowest.min(highest), lowest.max(highest), points.len() - 1].to_vec();
    kept.dedup();
    kept.into_iter().map(|index| points[index]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_clipped_at_the_frame() {
        assert_eq!(clip((0.0, -10.0), (20.0, 10.0), 0.0, 5.0), Some(((10.0, 0.0), (15.0, 5.0))));
        assert_eq!(clip((0.0, -10.0), (20.0, -1.0), 0.0, 5.0), None);
    }

    #[test]
    fn legends_stay_within_the_picture() {
        use crate::draw::picture::Shape;
        let mut picture = Picture::new("chart", (328.0, 300.0), "chart", "");
        let before = picture.shapes.len();
        let name = "model.position = random_sinusoidal, ".repeat(9);
        let series =
            [name.as_str(), "short", "another"].map(|name| Series::new(name, GRID, Mark::Line(1.0), []));
        legend(&mut picture, (90.0, 72.0), &series);
        let mut names = 0;
        for shape in &picture.shapes[before..] {
            if let Shape::Text { text, point, style } = shape {
                assert!(point.0 + style.width(text) <= 328.0 - MARGIN, "{text}");
                names += 1;
            }
        }
        assert_eq!(names, 3);
        assert!(picture.size().1 > 300, "a second row adds height");
    }

    #[test]
    fn thinning_keeps_the_extremes_of_a_dense_curve() {
        let points: Vec<Coordinates> = (0..10_000)
            .map(|i| (f64::from(i) * 1e-3, if i == 5_003 { 99.0 } else { f64::from(i % 7) }))
            .collect();
        let kept = thin(&points);
        assert!(kept.len() <= 4 * 21, "{}", kept.len());
        assert!(
            kept.contains(&points[5_003]) && kept.first() == points.first() && kept.last() == points.last()
        );
    }
}
