//! One axis of a chart: what it measures, its range, its ticks and their labels.

use plotters::style::RGBColor;

use super::canvas::{Canvas, Rect};
use super::color::{GRID, INK, MUTED};
use super::picture::{MARGIN, WIDTH};
use super::range::{Range, log_ticks, tick_labels};
use super::text::Text;

/// The size of tick labels.
pub(crate) const LABEL: f64 = 11.0;
/// The size of an axis's title.
const TITLE: f64 = 12.0;
/// Between an axis and its labels, and between these and the title.
const GAP: f64 = 7.0;
/// What labels and title of a y axis take at least, so that charts below each other stand in line.
const LEAST_WIDTH: f64 = 58.0;

/// An axis.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub title: String,
    /// Its ends; of a logarithmic axis, those of the decimal logarithms.
    pub range: Range,
    is_logarithmic: bool,
    ticks: Ticks,
    has_words: bool,
    color: Option<RGBColor>,
}

#[derive(Debug, Clone)]
enum Ticks {
    /// At round values, or at round whole ones.
    Round { whole: bool },
    /// At these values.
    At(Vec<(f64, String)>),
}

impl Axis {
    /// An axis labelled at round values.
    pub fn new(title: &str, range: Range) -> Self {
        let ticks = Ticks::Round { whole: false };
        Self { title: title.to_string(), range, is_logarithmic: false, ticks, has_words: true, color: None }
    }

    /// An axis labelled at round whole values, as one that counts.
    pub fn whole(title: &str, range: Range) -> Self {
        Self { ticks: Ticks::Round { whole: true }, ..Self::new(title, range) }
    }

    /// A logarithmic axis, whose range is that of the decimal logarithms of its values.
    pub fn logarithmic(title: &str, logarithms: Range) -> Self {
        Self { is_logarithmic: true, ..Self::new(title, logarithms) }
    }

    /// An axis labelled at these values.
    pub fn labelled(title: &str, range: Range, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks: Ticks::At(ticks), ..Self::new(title, range) }
    }

    /// The same axis without a word: its grid lines alone.
    pub fn without_words(&self) -> Self {
        Self { has_words: false, ..self.clone() }
    }

    /// The same axis with its labels alone.
    pub fn untitled(self) -> Self {
        Self { title: String::new(), ..self }
    }

    /// The same axis in the colour of its curve.
    pub fn colored(self, color: RGBColor) -> Self {
        Self { color: Some(color), ..self }
    }

    /// The place of a value as a fraction of the axis: below 0 or above 1 where it lies outside, no number
    /// where there is none.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic { value.log10() } else { value };
        let fraction = (value - self.range.start) / self.range.length();
        if fraction.is_finite() { fraction } else { f64::NAN }
    }

    /// The value at a fraction of the axis.
    pub fn value_at(&self, fraction: f64) -> f64 {
        let value = self.range.start + fraction * self.range.length();
        if self.is_logarithmic { 10f64.powf(value) } else { value }
    }

    /// The nearest value that lies on the axis; no number where there is none.
    pub fn clamped(&self, value: f64) -> f64 {
        match self.at(value) {
            below if below < 0.0 => self.value_at(0.0),
            above if above > 1.0 => self.value_at(1.0),
            _ => value,
        }
    }

    /// The labelled values, at most `most` of them where they are not given.
    fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        match &self.ticks {
            Ticks::At(ticks) => ticks.clone(),
            Ticks::Round { .. } if self.is_logarithmic => {
                log_ticks(self.range).into_iter().map(|tick| (tick, tick_labels(&[tick]).concat())).collect()
            }
            Ticks::Round { whole } => {
                let ticks = if *whole { self.range.whole_ticks(most) } else { self.range.ticks(most) };
                let labels = tick_labels(&ticks);
                ticks.into_iter().zip(labels).collect()
            }
        }
    }

    fn ticks_upward(&self, height: f64) -> Vec<(f64, String)> {
        self.ticks(((height / 42.0) as usize).max(2))
    }

    fn widest_label(&self, height: f64) -> f64 {
        let look = Text::new(LABEL);
        self.ticks_upward(height).iter().map(|(_, label)| look.width(label)).fold(0.0, f64::max)
    }

    /// What labels and title take beside a chart of this height.
    pub fn width(&self, height: f64) -> f64 {
        (self.widest_label(height) + 2.0 * GAP + TITLE).max(LEAST_WIDTH)
    }

    /// Draws grid lines across `area`, labels on its left, and the title beside them.
    pub fn draw_left(&self, canvas: &mut Canvas, area: Rect) {
        let look = Text::new(LABEL).color(MUTED).right();
        for (tick, label) in self.ticks_upward(area.height) {
            let y = area.bottom() - self.at(tick) * area.height;
            canvas.line(&[(area.left, y), (area.right(), y)], GRID, 0.75);
            if self.has_words {
                canvas.text(&label, (area.left - GAP, y), &look);
            }
        }
        if !self.has_words {
            return;
        }
        let title = (self.widest_label(area.height) + 2.0 * GAP + TITLE / 2.0).max(50.0);
        let look = Text::new(TITLE).centered().upward();
        canvas.text(&self.title, (area.left - title, area.center().1), &look);
    }

    /// Draws ticks and labels on the right of `area`, and the title beside them.
    pub fn draw_right(&self, canvas: &mut Canvas, area: Rect) {
        let (right, look) = (area.right(), Text::new(LABEL).color(self.color.unwrap_or(MUTED)));
        let mut widest = 0f64;
        for (tick, label) in self.ticks(ticks_on_the_right(area.height)) {
            let y = area.bottom() - self.at(tick) * area.height;
            canvas.line(&[(right, y), (right + 4.0, y)], self.color.unwrap_or(MUTED), 1.0);
            canvas.text(&label, (right + GAP, y), &look);
            // The sign that says that larger values share a colour has its room before the title.
            widest = widest.max(look.width(label.trim_start_matches('≥')));
        }
        let look = Text::new(TITLE).color(self.color.unwrap_or(INK)).centered().upward();
        canvas.text(&self.title, (right + widest + 27.0, area.center().1), &look);
    }

    /// Draws the line below `area`, its ticks and labels, and the title under them.
    pub fn draw_below(&self, canvas: &mut Canvas, area: Rect) {
        let bottom = area.bottom();
        canvas.line(&[(area.left, bottom), (area.right(), bottom)], MUTED, 1.0);
        if !self.has_words {
            return;
        }
        let look = Text::new(LABEL).color(MUTED).centered();
        for (tick, label) in self.ticks((area.width / 90.0) as usize) {
            let x = area.left + self.at(tick) * area.width;
            canvas.line(&[(x, bottom), (x, bottom + 4.0)], MUTED, 1.0);
            // A wide last label would be cut at the picture's edge.
            let x = x.min(WIDTH - 4.0 - look.width(&label) / 2.0);
            canvas.text(&label, (x, bottom + 14.0), &look);
        }
        let look = Text::new(TITLE).color(INK).centered();
        canvas.text(&self.title, (area.center().0, bottom + 34.0), &look);
    }
}

/// How many ticks an axis on the right has at most.
pub(crate) fn ticks_on_the_right(height: f64) -> usize {
    ((height / 50.0) as usize).clamp(2, 6)
}

/// The area of a chart as wide as a picture, with the room that the labels of its axes need.
pub(crate) fn wide_area(top: f64, height: f64, left: &Axis, right: Option<&Axis>) -> Rect {
    let before = MARGIN + left.width(height);
    let after = MARGIN + right.map_or(0.0, |axis| axis.width(height) + 8.0);
    Rect { left: before, top, width: WIDTH - before - after, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_stand_beside_the_widest_label() {
        let range = Range { start: 0.0, end: 9_000_000.0 };
        let wide = Axis::new("loss", range);
        let area = wide_area(0.0, 300.0, &wide, None);
        let labels = wide.widest_label(300.0);
        assert!(labels > 55.0 && area.left - MARGIN >= labels + GAP + TITLE, "{labels}, {area:?}");
        let narrow = Axis::new("loss", Range { start: 0.0, end: 1.0 });
        assert_eq!(wide_area(0.0, 300.0, &narrow, None).left, MARGIN + 58.0);
    }

    #[test]
    fn a_logarithmic_axis_has_no_place_for_what_has_no_logarithm() {
        let axis = Axis::logarithmic("rate", Range { start: -3.0, end: -1.0 });
        assert_eq!([axis.at(1e-2), axis.at(1e-3)], [0.5, 0.0]);
        assert!(axis.at(0.0).is_nan() && axis.at(-1.0).is_nan());
    }
}
