//! Pieces of line charts: frames with axes, curves, legends, and the heading of every picture.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use super::canvas::{Canvas, Place, Rect};
use super::color::{BLUE, GRID, INK, MUTED, pale};
use super::range::{Range, tick_labels};
use super::series::{FEWEST_TO_SMOOTH, Point, smooth, values};
use super::text::Text;
use crate::error::Result;

/// The width of every picture in logical pixels: the width in which a README shows it.
pub(crate) const WIDTH: u32 = 900;
/// The empty border of every picture.
pub(crate) const MARGIN: f64 = 18.0;
/// Below this line a picture's content begins; its heading is above.
pub(crate) const HEADING: f64 = 64.0;

/// A chart's frame: where its data lie, and their ranges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plot {
    pub area: Rect,
    pub x: Range,
    pub y: Range,
}

/// The size of tick labels.
pub(crate) const LABEL: f64 = 11.0;

impl Plot {
    /// The place of a value; outside the area for values outside the ranges.
    pub fn place(&self, x: f64, y: f64) -> Place {
        let across = (x - self.x.start) / self.x.length();
        let up = (y - self.y.start) / self.y.length();
        (self.area.left + across * self.area.width, self.area.bottom() - up * self.area.height)
    }

    /// Grid lines and labels of the y axis on the left, its title beside them.
    pub fn y_axis<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, title: &str) -> Result<()> {
        let ticks = self.y.ticks(((self.area.height / 42.0) as usize).max(2));
        self.y_axis_at(canvas, title, &ticks, &tick_labels(&ticks))
    }

    /// The same at given values with given labels.
    pub fn y_axis_at<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        title: &str,
        ticks: &[f64],
        labels: &[String],
    ) -> Result<()> {
        let look = Text::new(LABEL).color(MUTED).right();
        for (tick, label) in ticks.iter().zip(labels) {
            let (_, y) = self.place(self.x.start, *tick);
            canvas.line(&[(self.area.left, y), (self.area.right(), y)], GRID, 0.75)?;
            canvas.text(label, (self.area.left - 7.0, y), &look)?;
        }
        let middle = self.area.top + self.area.height / 2.0;
        let look = Text::new(12.0).centered().upward();
        canvas.text(title, (self.area.left - 50.0, middle), &look)
    }

    /// Labels of the x axis at whole numbers below the area, its title under them.
    pub fn x_axis<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>, title: &str) -> Result<()> {
        let ticks = self.x.whole_ticks((self.area.width / 90.0) as usize);
        self.x_axis_at(canvas, title, &ticks, &tick_labels(&ticks))
    }

    /// The same at given values with given labels.
    pub fn x_axis_at<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        title: &str,
        ticks: &[f64],
        labels: &[String],
    ) -> Result<()> {
        let bottom = self.area.bottom();
        canvas.line(&[(self.area.left, bottom), (self.area.right(), bottom)], MUTED, 1.0)?;
        let look = Text::new(LABEL).color(MUTED).centered();
        for (tick, label) in ticks.iter().zip(labels) {
            let (x, _) = self.place(*tick, self.y.start);
            canvas.line(&[(x, bottom), (x, bottom + 4.0)], MUTED, 1.0)?;
            // A wide last label would be cut at the picture's edge.
            let x = x.min(f64::from(WIDTH) - 4.0 - look.width(label) / 2.0);
            canvas.text(label, (x, bottom + 14.0), &look)?;
        }
        let middle = self.area.left + self.area.width / 2.0;
        canvas.text(title, (middle, bottom + 34.0), &Text::new(12.0).centered())
    }

    /// A curve through `points` in the order of x, cut where it leaves the y range; values that are
    /// not finite interrupt it.
    pub fn curve<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        points: impl IntoIterator<Item = (f64, f64)>,
        color: RGBColor,
        width: f64,
    ) -> Result<()> {
        let mut stretch: Vec<Place> = Vec::new();
        for (x, y) in points {
            if y.is_finite() {
                stretch.push(self.place(x, y));
            } else {
                self.stretch(canvas, &std::mem::take(&mut stretch), color, width)?;
            }
        }
        self.stretch(canvas, &stretch, color, width)
    }

    /// The values of single steps, and where they are many and scatter, their course over them.
    /// Returns what a legend says of them.
    pub fn noisy_curve<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        points: &[Point],
        name: &str,
    ) -> Result<Vec<(Sign, String)>> {
        let smoothed = smooth(points, self.y.end);
        if smoothed.len() < FEWEST_TO_SMOOTH {
            self.curve(canvas, values(points), BLUE, 2.0)?;
            return Ok(vec![(Sign::Line(BLUE), name.to_string())]);
        }
        self.curve(canvas, values(points), pale(BLUE), 0.75)?;
        self.curve(canvas, values(&smoothed), BLUE, 2.0)?;
        Ok(vec![
            (Sign::Line(BLUE), format!("{name}, smoothed")),
            (Sign::Line(pale(BLUE)), "single steps".to_string()),
        ])
    }

    fn stretch<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        places: &[Place],
        color: RGBColor,
        width: f64,
    ) -> Result<()> {
        let (top, bottom) = (self.area.top, self.area.bottom());
        if let &[place] = places {
            let within = (top..=bottom).contains(&place.1);
            return if within { canvas.dot(place, width.max(2.0), color) } else { Ok(()) };
        }
        let mut inside: Vec<Place> = Vec::new();
        for pair in thin(places).windows(2) {
            let Some((from, to)) = clip(pair[0], pair[1], top, bottom) else {
                canvas.line(&std::mem::take(&mut inside), color, width)?;
                continue;
            };
            if inside.last() != Some(&from) {
                canvas.line(&std::mem::take(&mut inside), color, width)?;
                inside.push(from);
            }
            inside.push(to);
        }
        canvas.line(&inside, color, width)
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

/// The sign of a legend's entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sign {
    Line(RGBColor),
    Dashed(RGBColor),
    Dot(RGBColor),
    Ring(RGBColor),
    Cross(RGBColor),
    Square(RGBColor),
}

/// Draws legend entries in a row from `place`, going on below where the picture's width ends.
pub(crate) fn legend<B: DrawingBackend>(
    canvas: &mut Canvas<'_, B>,
    place: Place,
    entries: &[(Sign, String)],
) -> Result<()> {
    let look = Text::new(11.5);
    let (mut x, mut y) = place;
    for (sign, text) in entries {
        let width = match sign {
            Sign::Line(_) | Sign::Dashed(_) => 24.0,
            Sign::Dot(_) | Sign::Ring(_) | Sign::Cross(_) | Sign::Square(_) => 12.0,
        };
        let whole = width + 6.0 + look.width(text);
        if x > place.0 && x + whole > f64::from(WIDTH) - MARGIN {
            (x, y) = (place.0, y + 17.0);
        }
        let middle = (x + width / 2.0, y);
        match *sign {
            Sign::Line(color) => canvas.line(&[(x, y), (x + width, y)], color, 2.0)?,
            Sign::Dashed(color) => canvas.dashed((x, y), (x + width + 2.0, y), color, 1.5)?,
            Sign::Dot(color) => canvas.dot(middle, 3.5, color)?,
            Sign::Ring(color) => canvas.ring(middle, 4.5, color, 1.25)?,
            Sign::Cross(color) => canvas.cross(middle, 4.0, color, 1.75)?,
            Sign::Square(color) => {
                let rect = Rect { left: x, top: y - 6.0, width, height: width };
                canvas.rect(rect, color)?;
                canvas.frame(rect, GRID, 0.75)?;
            }
        }
        canvas.text(text, (x + width + 6.0, y), &look)?;
        x += whole + 20.0;
    }
    Ok(())
}

/// Clears the canvas and writes the title, and below it what is to be known about the picture.
pub(crate) fn heading<B: DrawingBackend>(canvas: &mut Canvas<'_, B>, title: &str, below: &str) -> Result<()> {
    let width = f64::from(WIDTH) - 2.0 * MARGIN;
    let look = Text::new(17.0).bold().color(INK);
    canvas.text(&look.fit(title, width), (MARGIN, 24.0), &look)?;
    let look = Text::new(12.0).color(MUTED);
    canvas.text(&look.fit(below, width), (MARGIN, 46.0), &look)
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
