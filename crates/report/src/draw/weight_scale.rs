//! The scale of attention weights: the weights that the colours of a picture span.

use std::borrow::Borrow;

use plotters::style::RGBColor;

use super::axis::{Axis, Scale};
use super::color::{GRID, color, diverging};
use super::heat_map::{HeatMap, draw_color_bar, finite};
use super::number::{Interval, round_up};
use super::picture::{Picture, Rect};

/// The colours of attention weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WeightColors {
    /// Proportional to the weight, on one scale for all maps of a picture.
    #[default]
    Linear,
    /// Proportional to the square root of the weight, which shows small weights.
    SquareRoot,
    /// Proportional to the weight, on a scale for each head.
    PerHead,
}

/// The range of weights that the colours of a picture span, the same for all its maps unless each head has its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightScale {
    /// The weight at the last colour.
    pub top: f64,
    /// True if larger weights occur; they share the last colour.
    pub is_clipped: bool,
    /// True if weights can be negative, as in differential attention. The colours then diverge from white at zero.
    pub is_signed: bool,
    /// The spacing of colours.
    pub colors: WeightColors,
}

impl WeightScale {
    /// Returns the scale that resolves the weights of all `maps`.
    pub fn of(maps: impl IntoIterator<Item: Borrow<HeatMap>>, colors: WeightColors) -> Self {
        let (mut to_resolve, mut largest, mut is_signed) = (0f64, 0f64, false);
        for map in maps {
            to_resolve = to_resolve.max(map.borrow().largest_to_resolve());
            is_signed |= finite(&map.borrow().values).any(|weight| weight < 0.0);
            largest = finite(&map.borrow().values).map(f64::abs).fold(largest, f64::max);
        }
        let top = if to_resolve > 0.5 { 1.0 } else { round_up(to_resolve) };
        WeightScale { top, is_clipped: largest > top * 1.0001, is_signed, colors }
    }

    /// Returns the colour at a fraction of the scale, from its lowest weight to its highest. There are at most 251 colours,
    /// which keeps vector files small.
    fn color(self) -> fn(f64) -> RGBColor {
        const STEPS: f64 = 250.0;
        match (self.colors, self.is_signed) {
            (WeightColors::Linear | WeightColors::PerHead, false) => {
                |fraction| color((fraction * STEPS).round() / STEPS)
            }
            (WeightColors::SquareRoot, false) => |fraction| color((fraction.sqrt() * STEPS).round() / STEPS),
            (WeightColors::Linear | WeightColors::PerHead, true) => {
                |fraction| diverging((fraction * STEPS).round() / STEPS)
            }
            (WeightColors::SquareRoot, true) => |fraction| {
                let share = 2.0 * fraction - 1.0;
                let root = share.abs().sqrt().copysign(share);
                diverging(((root + 1.0) / 2.0 * STEPS).round() / STEPS)
            },
        }
    }

    /// Returns the weights between which the colours span.
    fn range(self, top: f64) -> Interval {
        Interval { start: if self.is_signed { -top } else { 0.0 }, end: top }
    }

    /// Draws the cells of a map; keys invisible to a query stay white.
    pub fn draw(self, picture: &mut Picture, area: Rect, map: &HeatMap) {
        let top = match self.colors {
            WeightColors::PerHead => Self::of([map], self.colors).top,
            WeightColors::Linear | WeightColors::SquareRoot => self.top,
        };
        let range = self.range(top);
        let fraction = |weight: f64| (weight - range.start) / range.length();
        map.draw_in(picture, area, |weight| self.color()(fraction(weight)), (2, ""));
        picture.frame(area, GRID, 1.0);
    }

    /// Draws the colour bar of the maps. Its last label starts with ≥ if larger weights share the last colour.
    pub fn draw_bar(self, picture: &mut Picture, bar: Rect) {
        let (title, end) = match self.colors {
            WeightColors::PerHead => ("fraction of the scale of the head", 1.0),
            WeightColors::Linear | WeightColors::SquareRoot => ("attention weight", self.top),
        };
        let axis = Axis::new(title, self.range(end), Scale::Linear);
        let is_clipped = self.is_clipped || self.colors == WeightColors::PerHead;
        draw_color_bar(picture, bar, self.color(), &Axis { is_clipped, ..axis });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::color::{BACKGROUND, BLUE, VERMILION};
    use crate::draw::heat_map::tests::{square, uniform};
    use crate::draw::picture::Shape;

    #[test]
    fn color_scale_resolves_diffuse_heads() {
        for time in [11, 64, 101] {
            let map = square(&uniform(time), time, 1);
            let scale = WeightScale::of(std::slice::from_ref(&map), WeightColors::Linear);
            let saturated = map.values.iter().flatten().filter(|&&weight| weight > scale.top).count();
            assert!(saturated * 50 <= time * (time + 1) / 2, "{time}: {saturated} above {}", scale.top);
            assert!(time == 11 || scale.top < 0.5 && scale.is_clipped, "{scale:?}");
        }
    }

    #[test]
    fn one_sharp_map_sets_the_scale_of_all() {
        let time = 7;
        let sharp: Vec<f32> =
            (0..time * time).map(|i| if i % time == i / time { 1.0 } else { 0.0 }).collect();
        let maps = [square(&uniform(time), time, 1), square(&sharp, time, 1)];
        let scale = WeightScale::of(&maps, WeightColors::Linear);
        assert_eq!(
            scale,
            WeightScale { top: 1.0, is_clipped: false, is_signed: false, colors: WeightColors::Linear }
        );
    }

    #[test]
    fn square_roots_and_scales_per_head_show_small_weights() {
        let time = 23;
        let sharp: Vec<f32> =
            (0..time * time).map(|i| if i % time == i / time { 1.0 } else { 0.0 }).collect();
        let maps = [square(&uniform(time), time, 1), square(&sharp, time, 1)];
        let area = Rect { left: 0.0, top: 0.0, width: 92.0, height: 92.0 };
        // The colour of the last query of the uniform map, whose weights are 1 / 23.
        let drawn = |colors| {
            let mut picture = Picture::new("map", (90.0, 100.0), "", "");
            WeightScale::of(&maps, colors).draw(&mut picture, area, &maps[0]);
            let pixel = picture.all_shapes().find_map(|shape| match shape {
                Shape::Image { pixels, .. } => Some(pixels(0.5, 0.99)),
                _ => None,
            });
            pixel.unwrap()
        };
        let near = |found: RGBColor, fraction: f64| {
            let RGBColor(red, green, blue) = color(fraction);
            assert!(
                found.0.abs_diff(red).max(found.1.abs_diff(green)).max(found.2.abs_diff(blue)) <= 2,
                "{found:?}"
            );
        };
        near(drawn(WeightColors::Linear), 1.0 / 23.0);
        near(drawn(WeightColors::SquareRoot), (1.0f64 / 23.0).sqrt());
        let top = WeightScale::of(&maps[..1], WeightColors::PerHead).top;
        assert!(top < 0.5, "{top}");
        near(drawn(WeightColors::PerHead), 1.0 / 23.0 / top);
    }
    #[test]
    fn signed_weights_diverge_from_white_at_zero() {
        for colors in [WeightColors::Linear, WeightColors::SquareRoot, WeightColors::PerHead] {
            let map = HeatMap::of_weights(&[0.9, -0.9, 0.0, 0.3], [2, 2], [1, 1], &[]);
            let scale = WeightScale::of([&map], colors);
            assert_eq!((scale.top, scale.is_signed), (1.0, true));
            let [low, zero, high] = [0.0, 0.5, 1.0].map(scale.color());
            assert_eq!((low, zero, high), (VERMILION, BACKGROUND, BLUE));
        }
    }
}
