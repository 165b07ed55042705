//! One axis of a chart: what it measures, its range, its ticks and their labels.

use std::iter;

use plotters::style::RGBColor;

use super::color::{GRID, INK, MUTED};
use super::number::{Interval, is_short, labels, log_ticks, tick_labels};
use super::picture::{Picture, Rect, WIDTH};
use super::text::Text;

/// The size of tick labels.
pub(crate) const LABEL: f64 = 11.0;
/// The size of an axis's title.
const TITLE: f64 = 12.0;
/// Between an axis and its labels, and between these and the title.
const GAP: f64 = 7.0;
/// The least width of labels and title of a y axis, which aligns charts below each other.
const LEAST_WIDTH: f64 = 58.0;

/// An axis of a chart or a colour bar.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity and its unit.
    pub title: String,
    /// The ends; of a logarithmic axis those of the decimal logarithms.
    pub range: Interval,
    /// The spacing of values.
    pub scale: Scale,
    /// The values that are labelled, with their labels; the round ones where there are none.
    pub labels: Option<Vec<(f64, String)>>,
    /// True where title and labels are drawn, and not the grid lines alone.
    pub has_words: bool,
    /// The colour of title and labels on the right of a chart, as that of the curve.
    pub color: Option<RGBColor>,
    /// True where values above the end are drawn at the end, which gives the last label a ≥.
    pub is_exceeded: bool,
}

/// The spacing of values along an axis, and which of them are labelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Evenly, with labels at round values.
    Linear,
    /// Evenly, with labels at round whole values, as of what is counted.
    Whole,
    /// By their decimal logarithms.
    Logarithmic,
}

impl Axis {
    /// An axis with a title and round labels.
    pub fn new(title: &str, range: Interval, scale: Scale) -> Self {
        let title = title.to_string();
        Self { title, range, scale, labels: None, has_words: true, color: None, is_exceeded: false }
    }

    /// Returns the position of a value as a fraction of the axis: below 0 or above 1 outside of it, NaN where the
    /// value has no logarithm.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Logarithmic { value.log10() } else { value };
        let fraction = (value - self.range.start) / self.range.length();
        if fraction.is_finite() { fraction } else { f64::NAN }
    }

    /// Returns the value at a fraction of the axis.
    pub fn value_at(&self, fraction: f64) -> f64 {
        let value = self.range.start + fraction * self.range.length();
        if self.scale == Scale::Logarithmic { 10f64.powf(value) } else { value }
    }

    /// Returns the nearest value on the axis; NaN where there is none.
    pub fn clamped(&self, value: f64) -> f64 {
        let at = self.at(value);
        if (0.0..=1.0).contains(&at) || at.is_nan() { value } else { self.value_at(at.clamp(0.0, 1.0)) }
    }

    /// The labelled values, at most `most` of them where they are not given.
    fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        if let Some(labels) = &self.labels {
            return labels.clone();
        }
        self.labelled(match self.scale {
            Scale::Logarithmic => log_ticks(self.range),
            Scale::Linear => self.range.ticks(most),
            Scale::Whole => self.range.whole_ticks(most),
        })
    }

    /// The ticks of a bar of this height: its ends, evenly spaced values between them where these are round, and else zero
    /// where it has room. Ends that are not round are not labelled.
    fn ticks_of_bar(&self, height: f64) -> Vec<(f64, String)> {
        let most = ((height / 50.0) as usize).clamp(2, 6);
        let ticks = self.range.even_ticks(most, self.scale == Scale::Whole).unwrap_or_else(|| {
            if [self.range.start, self.range.end].iter().any(|&end| !is_short(end)) {
                return self.range.ticks(most + 1);
            }
            let margin = 1.3 * LABEL / height;
            let zero = Some(0.0).filter(|&zero| (margin..1.0 - margin).contains(&self.at(zero)));
            iter::once(self.range.start).chain(zero).chain([self.range.end]).collect()
        });
        self.labelled(ticks)
    }

    fn labelled(&self, ticks: Vec<f64>) -> Vec<(f64, String)> {
        let labels = if self.scale == Scale::Logarithmic { labels(&ticks) } else { tick_labels(&ticks) };
        ticks.into_iter().zip(labels).collect()
    }

    fn ticks_upward(&self, height: f64) -> Vec<(f64, String)> {
        self.ticks(((height / 42.0) as usize).max(2))
    }

    fn widest_label(&self, height: f64) -> f64 {
        let look = Text::new(LABEL);
        self.ticks_upward(height).iter().map(|(_, label)| look.width(label)).fold(0.0, f64::max)
    }

    /// The width of labels and title next to a chart of this height.
    pub fn width(&self, height: f64) -> f64 {
        (self.widest_label(height) + 2.0 * GAP + TITLE).max(LEAST_WIDTH)
    }

    /// Draws grid lines across `area`, labels on its left, and the title next to them.
    pub fn draw_left(&self, picture: &mut Picture, area: Rect) {
        let look = Text::new(LABEL).color(MUTED).right();
        for (tick, label) in self.ticks_upward(area.height) {
            let y = area.bottom() - self.at(tick) * area.height;
            picture.line(&[(area.left, y), (area.right(), y)], GRID, 0.75);
            if self.has_words {
                picture.text(&label, (area.left - GAP, y), &look);
            }
        }
        if self.has_words {
            let title = (self.widest_label(area.height) + 2.0 * GAP + TITLE / 2.0).max(50.0);
            let look = Text::new(TITLE).centered().upward();
            picture.text(&self.title, (area.left - title, area.center().1), &look);
        }
    }

    /// Draws ticks and labels on the right of `area`, and the title next to them.
    pub fn draw_right(&self, picture: &mut Picture, area: Rect) {
        let (right, color) = (area.right(), self.color.unwrap_or(MUTED));
        let look = Text::new(LABEL).color(color);
        let mut widest = 0f64;
        for (tick, label) in self.ticks_of_bar(area.height) {
            let y = area.bottom() - self.at(tick) * area.height;
            let sign = if self.is_exceeded && tick > self.range.end * 0.999 { "≥" } else { "" };
            picture.line(&[(right, y), (right + 4.0, y)], color, 1.0);
            picture.text(&format!("{sign}{label}"), (right + GAP, y), &look);
            // The sign has its room before the title.
            widest = widest.max(look.width(&label));
        }
        let look = Text::new(TITLE).color(self.color.unwrap_or(INK)).centered().upward();
        picture.text(&self.title, (right + widest + 27.0, area.center().1), &look);
    }

    /// Draws the line below `area`, its ticks and labels, and the title under them.
    pub fn draw_below(&self, picture: &mut Picture, area: Rect) {
        let bottom = area.bottom();
        picture.line(&[(area.left, bottom), (area.right(), bottom)], MUTED, 1.0);
        if !self.has_words {
            return;
        }
        let look = Text::new(LABEL).color(MUTED).centered();
        let mut end = f64::NEG_INFINITY;
        for (tick, label) in self.ticks(((area.width / 90.0) as usize).max(2)) {
            let (x, half) = (area.left + self.at(tick) * area.width, look.width(&label) / 2.0);
            picture.line(&[(x, bottom), (x, bottom + 4.0)], MUTED, 1.0);
            // A wide last label would be cut at the picture's edge.
            let x = x.min(WIDTH - 4.0 - half);
            // Labels that were given can be too many.
            if x - half > end {
                picture.text(&label, (x, bottom + 14.0), &look);
                end = x + half + 3.0;
            }
        }
        picture.text(&self.title, (area.center().0, bottom + 34.0), &Text::new(TITLE).centered());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_stand_beside_the_widest_label() {
        let range = Interval { start: 0.0, end: 9_000_000.0 };
        let wide = Axis::new("loss", range, Scale::Linear);
        let (width, labels) = (wide.width(300.0), wide.widest_label(300.0));
        assert!(labels > 55.0 && width >= labels + GAP + TITLE, "{labels}, {width}");
        let narrow = Axis::new("loss", Interval { start: 0.0, end: 1.0 }, Scale::Linear);
        assert_eq!(narrow.width(300.0), 58.0);
    }

    #[test]
    fn both_ends_of_a_bar_are_labelled_and_what_lies_evenly_between() {
        let labels = |start: f64, end: f64, height: f64| {
            let axis = Axis::new("weight", Interval { start, end }, Scale::Linear);
            axis.ticks_of_bar(height).into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(0.0, 0.25, 52.0), ["0", "0.25"]);
        assert_eq!(labels(0.0, 0.15, 52.0), ["0", "0.075", "0.150"]);
        assert_eq!(labels(0.0, 0.08, 52.0), ["0", "0.04", "0.08"]);
        assert_eq!(labels(-0.02, 2.0, 52.0), ["−0.02", "2.00"]);
        assert_eq!(labels(-0.025, 0.06, 52.0), ["−0.025", "0", "0.060"]);
        assert_eq!(labels(-2.5e8, 1e8, 52.0), ["−2.5e8", "0", "1e8"]);
        assert_eq!(labels(0.0, 0.4, 300.0), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(0.0, 1.727062, 90.0), ["0", "1"], "an end that is not round has no label");
        assert_eq!(labels(-0.15, 1.727062, 200.0), ["0", "0.5", "1.0", "1.5"]);
        for end in (1..400).map(|i| 0.0137 * f64::from(i)) {
            let labels = labels(0.0, end, 52.0);
            assert!(labels.len() >= 2 && labels.iter().all(|label| label.len() < 7), "{end}: {labels:?}");
        }
        let places = Axis::new("position", Interval { start: 0.0, end: 63.0 }, Scale::Whole);
        let places = places.ticks_of_bar(300.0).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(places, ["0", "21", "42", "63"]);
    }

    #[test]
    fn a_logarithmic_axis_has_no_place_for_what_has_no_logarithm() {
        let axis = Axis::new("rate", Interval { start: -3.0, end: -1.0 }, Scale::Logarithmic);
        assert_eq!([axis.at(1e-2), axis.at(1e-3)], [0.5, 0.0]);
        assert!(axis.at(0.0).is_nan() && axis.at(-1.0).is_nan());
    }

    #[test]
    fn a_logarithmic_axis_has_two_distinct_labels() {
        for start in (-90..90).map(|i| f64::from(i) * 0.0837) {
            for length in [1e-7, 1e-4, 0.003, 0.02, 0.1, 0.31, 0.55, 0.9, 1.7, 2.49, 2.51, 4.0, 8.1, 17.0] {
                let range = Interval { start, end: start + length };
                let axis = Axis::new("rate", range, Scale::Logarithmic);
                let ticks = axis.ticks(2);
                let labels: std::collections::BTreeSet<_> = ticks.iter().map(|(_, label)| label).collect();
                assert!(labels.len() == ticks.len() && ticks.len() >= 2, "{range:?}: {ticks:?}");
                let inside = |&(tick, _): &(f64, String)| (-1e-6..1.0 + 1e-6).contains(&axis.at(tick));
                assert!(ticks.iter().all(inside), "{range:?}: {ticks:?}");
            }
        }
    }

    #[test]
    fn ticks_of_one_axis_have_the_same_digits_and_over_decades_those_that_they_need() {
        let labels = |low: f64, high: f64| {
            let axis = Axis::new("loss", Interval::new(low.log10(), high.log10()), Scale::Logarithmic);
            axis.ticks(5).into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(1.88, 2.02), ["1.90", "1.95", "2.00"]);
        assert_eq!(labels(0.4, 2.1), ["0.5", "1.0", "2.0"]);
        assert_eq!(labels(0.009, 11.0), ["0.01", "0.1", "1", "10"]);
    }
}
