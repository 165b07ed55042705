//! An axis of a chart: its title, range, ticks and labels.

use std::iter;

use plotters::style::RGBColor;

use super::color::{GRID, INK, MUTED};
use super::number::{Interval, is_short, labels, log_ticks, tick_labels};
use super::picture::{MARGIN, Picture, Rect};
use super::text::Text;

/// The font size of tick labels.
pub(crate) const LABEL_SIZE: f64 = 11.0;
/// The font size of axis titles.
const TITLE_SIZE: f64 = 12.0;
/// The font size to which a title shrinks at most, so that a PDF has it in 6 points.
pub(crate) const MIN_SIZE: f64 = 8.0;
/// The space between an axis and its labels, and between the labels and the title.
const GAP: f64 = 7.0;
/// The minimum width of labels and title of a y axis. It aligns charts below each other.
const MIN_WIDTH: f64 = 58.0;

/// An axis of a chart or a colour bar.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity with its unit, and the scale if it is logarithmic.
    pub title: String,
    /// The range of values; on a logarithmic axis, the range of their decimal logarithms.
    pub range: Interval,
    /// The spacing of values.
    pub scale: Scale,
    /// The labelled values with their labels; round values if `None`.
    pub labels: Option<Vec<(f64, String)>>,
    /// True if the title and labels are drawn; otherwise only the grid lines are.
    pub is_labelled: bool,
    /// The colour of the title and labels on the right of a chart, to match a curve.
    pub color: Option<RGBColor>,
    /// True if larger values are drawn at the end of the axis; its last label then starts with ≥.
    pub is_clipped: bool,
}

/// The spacing of values along an axis, and which of them are labelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Evenly spaced, with labels at round values.
    Linear,
    /// Evenly spaced, with labels at round integers, for counts.
    Integer,
    /// Spaced by their decimal logarithms.
    Logarithmic,
}

impl Axis {
    /// Creates an axis with a title and round labels. The title of a logarithmic axis names its scale.
    pub fn new(title: &str, range: Interval, scale: Scale) -> Self {
        let title = match (scale, title.strip_suffix(')')) {
            (Scale::Logarithmic, Some(with_unit)) => format!("{with_unit}, log scale)"),
            (Scale::Logarithmic, None) => format!("{title} (log scale)"),
            (Scale::Linear | Scale::Integer, _) => title.to_string(),
        };
        Self { title, range, scale, labels: None, is_labelled: true, color: None, is_clipped: false }
    }

    /// Returns the position of a value as a fraction of the axis. The result is below 0 or above 1 outside the axis,
    /// and NaN for a value without a logarithm.
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

    /// Returns the value clamped to the axis. A value without a logarithm on a logarithmic axis is unchanged.
    pub fn clamped(&self, value: f64) -> f64 {
        let fraction = self.at(value);
        let is_inside = (0.0..=1.0).contains(&fraction) || fraction.is_nan();
        if is_inside { value } else { self.value_at(fraction.clamp(0.0, 1.0)) }
    }

    /// Returns the labelled values: the given ones, or about `max_ticks` round ones.
    fn ticks(&self, max_ticks: usize) -> Vec<(f64, String)> {
        if let Some(labels) = &self.labels {
            return labels.clone();
        }
        self.labelled(match self.scale {
            Scale::Logarithmic => log_ticks(self.range),
            Scale::Linear => self.range.several_ticks(max_ticks),
            Scale::Integer => self.range.integer_ticks(max_ticks),
        })
    }

    /// Returns the ticks of a colour bar of the given height: both ends, and between them evenly spaced round values
    /// or, without such values, zero if there is room. If an end is not round, only round values are labelled.
    fn ticks_of_bar(&self, height: f64) -> Vec<(f64, String)> {
        let max_ticks = ((height / 50.0) as usize).clamp(2, 6);
        let ticks = self.range.even_ticks(max_ticks, self.scale == Scale::Integer).unwrap_or_else(|| {
            if [self.range.start, self.range.end].iter().any(|&end| !is_short(end)) {
                return self.range.ticks(max_ticks + 1);
            }
            let margin = 1.3 * LABEL_SIZE / height;
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
        let style = Text::new(LABEL_SIZE);
        self.ticks_upward(height).iter().map(|(_, label)| style.width(label)).fold(0.0, f64::max)
    }

    /// Returns the sign of the label at the end of a clipped axis.
    fn sign(&self, tick: f64) -> &'static str {
        if self.is_clipped && tick > self.range.end * 0.999 { "≥" } else { "" }
    }

    /// Returns the width of the labels and title next to a chart of the given height.
    pub fn width(&self, height: f64) -> f64 {
        (self.widest_label(height) + 2.0 * GAP + TITLE_SIZE).max(MIN_WIDTH)
    }

    /// Draws grid lines across `area`, with labels and title on its left.
    pub fn draw_left(&self, picture: &mut Picture, area: Rect) {
        let style = Text::new(LABEL_SIZE).color(MUTED).right();
        for (tick, label) in self.ticks_upward(area.height) {
            let y = area.bottom() - self.at(tick) * area.height;
            picture.line(&[(area.left, y), (area.right(), y)], GRID, 0.75);
            if self.is_labelled {
                picture.text(&format!("{}{label}", self.sign(tick)), (area.left - GAP, y), &style);
            }
        }
        if self.is_labelled {
            let title = (self.widest_label(area.height) + 2.0 * GAP + TITLE_SIZE / 2.0).max(50.0);
            let style = Text::new(TITLE_SIZE).shrunk(&self.title, area.height, MIN_SIZE).centered().upward();
            picture.text(&self.title, (area.left - title, area.center().1), &style);
        }
    }

    /// Draws ticks, labels and title on the right of `area`.
    pub fn draw_right(&self, picture: &mut Picture, area: Rect) {
        let (right, color) = (area.right(), self.color.unwrap_or(MUTED));
        let style = Text::new(LABEL_SIZE).color(color);
        let mut widest = 0f64;
        for (tick, label) in self.ticks_of_bar(area.height) {
            let y = area.bottom() - self.at(tick) * area.height;
            picture.line(&[(right, y), (right + 4.0, y)], color, 1.0);
            // The ≥ sign fits into the space before the title.
            picture.text(&format!("{}{label}", self.sign(tick)), (right + GAP, y), &style);
            widest = widest.max(style.width(&label));
        }
        let style = Text::new(TITLE_SIZE).color(self.color.unwrap_or(INK)).centered().upward();
        picture.text(&self.title, (right + widest + 27.0, area.center().1), &style);
    }

    /// Draws the line below `area`, with ticks, labels and title under it.
    pub fn draw_below(&self, picture: &mut Picture, area: Rect) {
        let bottom = area.bottom();
        picture.line(&[(area.left, bottom), (area.right(), bottom)], MUTED, 1.0);
        if !self.is_labelled {
            return;
        }
        let style = Text::new(LABEL_SIZE).color(MUTED).centered();
        let mut end = f64::NEG_INFINITY;
        for (tick, label) in self.ticks(((area.width / 90.0) as usize).max(2)) {
            let (x, half) = (area.left + self.at(tick) * area.width, style.width(&label) / 2.0);
            picture.line(&[(x, bottom), (x, bottom + 4.0)], MUTED, 1.0);
            // The edge of the picture would cut a wide last label.
            let x = x.min(picture.width() - 4.0 - half);
            // Labels given by the caller can be too many for the width.
            if x - half > end {
                picture.text(&label, (x, bottom + 14.0), &style);
                end = x + half + 3.0;
            }
        }
        let room = picture.width() - MARGIN;
        let style = Text::new(TITLE_SIZE).shrunk(&self.title, room, MIN_SIZE).centered();
        // A title wider than its axis stays within the picture.
        let half = style.width(&self.title) / 2.0 + 4.0;
        let x = area.center().0.min(picture.width() - half).max(half);
        picture.text(&self.title, (x, bottom + 34.0), &style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_axes_name_their_scale() {
        let title = |title, scale| Axis::new(title, Interval { start: 0.0, end: 1.0 }, scale).title;
        assert_eq!(title("loss (nats)", Scale::Logarithmic), "loss (nats, log scale)");
        assert_eq!(title("gradient norm", Scale::Logarithmic), "gradient norm (log scale)");
        assert_eq!(title("loss (nats)", Scale::Linear), "loss (nats)");
    }

    #[test]
    fn titles_clear_the_widest_label() {
        let range = Interval { start: 0.0, end: 9_000_000.0 };
        let wide = Axis::new("loss", range, Scale::Linear);
        let (width, labels) = (wide.width(300.0), wide.widest_label(300.0));
        assert!(labels > 55.0 && width >= labels + GAP + TITLE_SIZE, "{labels}, {width}");
        let narrow = Axis::new("loss", Interval { start: 0.0, end: 1.0 }, Scale::Linear);
        assert_eq!(narrow.width(300.0), 58.0);
    }

    #[test]
    fn bar_ticks_are_even_and_label_round_ends() {
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
        let labels = Axis::new("position", Interval { start: 0.0, end: 63.0 }, Scale::Integer);
        let labels = labels.ticks_of_bar(300.0).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels, ["0", "21", "42", "63"]);
    }

    #[test]
    fn log_axis_maps_nonpositive_values_to_nan() {
        let axis = Axis::new("rate", Interval { start: -3.0, end: -1.0 }, Scale::Logarithmic);
        assert_eq!([axis.at(1e-2), axis.at(1e-3)], [0.5, 0.0]);
        assert!(axis.at(0.0).is_nan() && axis.at(-1.0).is_nan());
    }

    #[test]
    fn axes_have_two_distinct_labels() {
        let lengths = [1e-7, 1e-4, 0.003, 0.02, 0.1, 0.31, 0.55, 0.9, 1.7, 2.49, 2.51, 4.0, 8.1, 17.0];
        for start in (-90..90).map(|i| f64::from(i) * 0.0837) {
            let ranges = lengths.iter().map(|length| Interval { start, end: start + length });
            let scales = [Scale::Linear, Scale::Logarithmic];
            for (range, scale) in ranges.flat_map(|range| scales.map(|scale| (range, scale))) {
                let axis = Axis::new("rate", range, scale);
                let ticks = axis.ticks(2);
                let labels: std::collections::BTreeSet<_> = ticks.iter().map(|(_, label)| label).collect();
                assert!(labels.len() == ticks.len() && ticks.len() >= 2, "{range:?}: {ticks:?}");
                let inside = |&(tick, _): &(f64, String)| (-1e-6..1.0 + 1e-6).contains(&axis.at(tick));
                assert!(ticks.iter().all(inside), "{range:?}: {ticks:?}");
            }
        }
    }

    #[test]
    fn log_tick_labels_share_decimals_except_across_decades() {
        let labels = |low: f64, high: f64| {
            let axis = Axis::new("loss", Interval::new(low.log10(), high.log10()), Scale::Logarithmic);
            axis.ticks(5).into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(1.88, 2.02), ["1.90", "1.95", "2.00"]);
        assert_eq!(labels(0.4, 2.1), ["0.5", "1.0", "2.0"]);
        assert_eq!(labels(0.009, 11.0), ["0.01", "0.1", "1", "10"]);
    }
}
