//! The first of three marks: curves, dots and columns in a frame with axes.

use plotters::style::RGBColor;

use super::axis::Axis;
use super::canvas::{Canvas, Place, Rect};
use super::color::GRID;
use super::picture::{MARGIN, WIDTH};
use super::text::Text;

/// A chart: its frame, its axes, and what is drawn in it, from back to front.
#[derive(Debug, Clone)]
pub(crate) struct LineChart {
    pub area: Rect,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// Points that belong together, in the order of x.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// What a legend calls it; empty where it says nothing.
    pub name: String,
    pub color: RGBColor,
    pub mark: Mark,
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn. A point whose value is not finite is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    /// A curve of this width, cut where it leaves the frame.
    Line(f64),
    /// A straight dashed line between two points.
    Dashed(f64),
    /// Filled circles of this radius.
    Dot(f64),
    /// Empty circles of this radius, and the width of their line.
    Ring(f64, f64),
    /// Diagonal crosses of this radius, and the width of their line.
    Cross(f64, f64),
    /// A level line of this width below or above each point, nearly as wide as one on the x axis.
    Level(f64),
    /// Columns that each reach from the point before to their own.
    Column,
}

impl Series {
    pub fn new(
        name: impl Into<String>,
        color: RGBColor,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { name: name.into(), color, mark, points: points.into_iter().collect() }
    }

    /// Its sign and name in a legend.
    fn entry(&self) -> Option<Entry> {
        let sign = match self.mark {
            Mark::Line(_) => Sign::Line,
            Mark::Dashed(_) | Mark::Level(_) => Sign::Dashed,
            Mark::Dot(_) => Sign::Dot,
            Mark::Ring(..) => Sign::Ring,
            Mark::Cross(..) => Sign::Cross,
            Mark::Column => Sign::Square,
        };
        (!self.name.is_empty()).then(|| Entry { sign, color: self.color, text: self.name.clone() })
    }
}

impl LineChart {
    /// The place of a value: not a number where it has none, outside the area where it lies outside the axes.
    pub fn place(&self, x: f64, y: f64) -> Place {
        let area = self.area;
        (area.left + self.x.at(x) * area.width, area.bottom() - self.y.at(y) * area.height)
    }

    /// Draws the axes on the left and below, and the series.
    pub fn draw(&self, canvas: &mut Canvas) {
        self.y.draw_left(canvas, self.area);
        self.x.draw_below(canvas, self.area);
        self.draw_series(canvas);
    }

    /// Draws the series alone.
    pub fn draw_series(&self, canvas: &mut Canvas) {
        self.series.iter().for_each(|series| self.series(canvas, series));
    }

    /// What a legend says of the series: curves first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.series.iter().filter_map(Series::entry).collect::<Vec<_>>();
        entries.sort_by_key(|entry| entry.sign != Sign::Line);
        entries
    }

    fn series(&self, canvas: &mut Canvas, series: &Series) {
        let Series { color, mark, .. } = *series;
        let places = || series.points.iter().map(|&(x, y)| self.place(x, y));
        let (top, bottom) = (self.area.top, self.area.bottom());
        // Rounding alone brings nothing outside.
        let inside = || places().filter(|place| (top - 1e-6..=bottom + 1e-6).contains(&place.1));
        match mark {
            Mark::Line(width) => {
                let places = places().collect::<Vec<_>>();
                let is_drawn = |place: &Place| place.0.is_finite() && place.1.is_finite();
                for stretch in places.split(|place| !is_drawn(place)).filter(|stretch| !stretch.is_empty()) {
                    self.stretch(canvas, stretch, color, width);
                }
            }
            Mark::Dashed(width) => {
                let ends = inside().collect::<Vec<_>>();
                if let [from, to] = ends[..] {
                    canvas.dashed(from, to, color, width);
                }
            }
            Mark::Dot(radius) => inside().for_each(|place| canvas.dot(place, radius, color)),
            Mark::Ring(radius, width) => inside().for_each(|place| canvas.ring(place, radius, color, width)),
            Mark::Cross(radius, width) => {
                inside().for_each(|place| canvas.cross(place, radius, color, width))
            }
            Mark::Level(width) => {
                let half = 0.38 / self.x.range.length() * self.area.width;
                inside().for_each(|(x, y)| canvas.line(&[(x - half, y), (x + half, y)], color, width));
            }
            Mark::Column => {
                let mut left = self.area.left;
                for (right, y) in places().filter(|place| place.1.is_finite()) {
                    let y = y.clamp(top, bottom);
                    canvas.rect(Rect { left, top: y, width: right - left, height: bottom - y }, color);
                    left = right;
                }
            }
        }
    }

    /// A curve without gaps, cut where it leaves the frame.
    fn stretch(&self, canvas: &mut Canvas, places: &[Place], color: RGBColor, width: f64) {
        let (top, bottom) = (self.area.top, self.area.bottom());
        if let &[place] = places {
            if (top..=bottom).contains(&place.1) {
                canvas.dot(place, width.max(2.0), color);
            }
            return;
        }
        let mut inside: Vec<Place> = Vec::new();
        for pair in thin(places).windows(2) {
            let Some((from, to)) = clip(pair[0], pair[1], top, bottom) else {
                canvas.line(&std::mem::take(&mut inside), color, width);
                continue;
            };
            if inside.last() != Some(&from) {
                canvas.line(&std::mem::take(&mut inside), color, width);
                inside.push(from);
            }
            inside.push(to);
        }
        canvas.line(&inside, color, width);
    }
}

/// The part of a segment with `top <= y <= bottom`.
fn clip(from: Place, to: Place, top: f64, bottom: f64) -> Option<(Place, Place)> {
    let at = |y: f64| (from.0 + (to.0 - from.0) * (y - from.1) / (to.1 - from.1), y);
    let cut = |place: Place| {
        if place.1 < top {
            at(top)
        } else if place.1 > bottom {
            at(bottom)
        } else {
            place
        }
    };
    let outside = (from.1 < top && to.1 < top) || (from.1 > bottom && to.1 > bottom);
    (!outside).then(|| (cut(from), cut(to)))
}

/// Of all places that fall into one half of a logical pixel's width, the first, the lowest, the
/// highest and the last: no more can be seen.
fn thin(places: &[Place]) -> Vec<Place> {
    places
        .chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor())
        .flat_map(|column| {
            if column.len() <= 4 {
                return column.to_vec();
            }
            let by_height = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
            let lowest = (0..column.len()).min_by(by_height).unwrap_or(0);
            let highest = (0..column.len()).max_by(by_height).unwrap_or(0);
            let mut kept = [0, lowest.min(highest), lowest.max(highest), column.len() - 1].to_vec();
            kept.dedup();
            kept.into_iter().map(|i| column[i]).collect()
        })
        .collect()
}

/// One entry of a legend.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub sign: Sign,
    pub color: RGBColor,
    pub text: String,
}

/// The sign of a legend's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Line,
    Dashed,
    Dot,
    Ring,
    Cross,
    Square,
    /// An empty square.
    Box,
}

impl Entry {
    pub fn new(sign: Sign, color: RGBColor, text: impl Into<String>) -> Self {
        Self { sign, color, text: text.into() }
    }
}

/// Draws legend entries in a row from `place`, going on below where the picture's width ends.
pub(crate) fn legend(canvas: &mut Canvas, place: Place, entries: &[Entry]) {
    let look = Text::new(11.5);
    let (mut x, mut y) = place;
    for Entry { sign, color, text } in entries {
        let color = *color;
        let width = if matches!(sign, Sign::Line | Sign::Dashed) { 24.0 } else { 12.0 };
        let whole = width + 6.0 + look.width(text);
        if x > place.0 && x + whole > WIDTH - MARGIN {
            (x, y) = (place.0, y + 17.0);
        }
        let middle = (x + width / 2.0, y);
        match sign {
            Sign::Line => canvas.line(&[(x, y), (x + width, y)], color, 2.0),
            Sign::Dashed => canvas.dashed((x, y), (x + width + 2.0, y), color, 1.5),
            Sign::Dot => canvas.dot(middle, 3.5, color),
            Sign::Ring => canvas.ring(middle, 4.5, color, 1.25),
            Sign::Cross => canvas.cross(middle, 4.0, color, 1.75),
            Sign::Square => {
                let rect = Rect { left: x, top: y - 6.0, width, height: width };
                canvas.rect(rect, color);
                canvas.frame(rect, GRID, 0.75);
            }
            Sign::Box => canvas.frame(Rect { left: x, top: y - 6.0, width, height: width }, color, 1.0),
        }
        canvas.text(text, (x + width + 6.0, y), &look);
        x += whole + 20.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_cut_where_it_leaves_the_frame() {
        assert_eq!(clip((0.0, -10.0), (20.0, 10.0), 0.0, 5.0), Some(((10.0, 0.0), (15.0, 5.0))));
        assert_eq!(clip((0.0, -10.0), (20.0, -1.0), 0.0, 5.0), None);
    }

    #[test]
    fn thinning_keeps_the_extremes_of_a_dense_curve() {
        let places: Vec<Place> = (0..10_000)
            .map(|i| (f64::from(i) * 1e-3, if i == 5_003 { 99.0 } else { f64::from(i % 7) }))
            .collect();
        let kept = thin(&places);
        assert!(kept.len() <= 4 * 21, "{}", kept.len());
        assert!(
            kept.contains(&places[5_003]) && kept.first() == places.first() && kept.last() == places.last()
        );
    }
}
