//! The palette of line charts and the colour map of heat maps.

pub use plotters::style::RGBColor;

use super::number::Interval;

/// The background.
pub const BACKGROUND: RGBColor = RGBColor(255, 255, 255);
/// Titles and axes.
pub const INK: RGBColor = RGBColor(31, 36, 48);
/// Secondary text.
pub const MUTED: RGBColor = RGBColor(100, 108, 122);
/// Grid lines and frames.
pub const GRID: RGBColor = RGBColor(226, 229, 234);
/// A tinted area behind data.
pub const SHADE: RGBColor = RGBColor(240, 241, 244);

// Data colours after Okabe and Ito, "Color Universal Design" (2008), which are distinguishable with every kind of
// colour vision.
/// Training, and correct predictions.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// Validation, and wrong predictions.
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// The entropy floor.
pub const GREEN: RGBColor = RGBColor(0, 138, 101);
/// The learning rate.
pub const PURPLE: RGBColor = RGBColor(184, 120, 160);
/// An additional curve in a comparison.
pub const ORANGE: RGBColor = RGBColor(201, 138, 0);
/// An additional curve in a comparison.
pub const SKY: RGBColor = RGBColor(62, 152, 204);

/// The control points of Viridis as `0xRRGGBB`, evenly spaced from the lowest value to the highest. This colour map is
/// perceptually uniform, also in greyscale and with colour blindness. Colours between control points are interpolated
/// linearly.
pub(crate) const CONTROL_POINTS: [u32; 10] =
    [0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e, 0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725];

/// Returns the Viridis colour at `fraction`, clamped to 0..=1.
pub fn color(fraction: f64) -> RGBColor {
    let position = fraction.clamp(0.0, 1.0) * (CONTROL_POINTS.len() - 1) as f64;
    let below = (position as usize).min(CONTROL_POINTS.len() - 2);
    mix(rgb(CONTROL_POINTS[below]), rgb(CONTROL_POINTS[below + 1]), position - below as f64)
}

/// Returns the colour of a thin line: Viridis without its bright end, which is invisible on white.
pub fn line_color(fraction: f64) -> RGBColor {
    const MAX_FRACTION: f64 = 0.88;
    color(fraction.clamp(0.0, 1.0) * MAX_FRACTION)
}

/// Returns a shade of blue above the middle of a scale, and a shade of vermilion below it.
pub fn diverging(fraction: f64) -> RGBColor {
    mix(BACKGROUND, if fraction < 0.5 { VERMILION } else { BLUE }, (2.0 * fraction - 1.0).abs().min(1.0))
}

/// Returns the colours of a range of values: diverging around zero if some are negative, else Viridis.
pub(crate) fn of_values(range: Interval) -> impl Fn(f64) -> RGBColor + Copy {
    let most = range.start.abs().max(range.end.abs());
    move |value| match range.start < 0.0 {
        true => diverging(0.5 + value / (2.0 * most)),
        false => color((value - range.start) / range.length()),
    }
}

fn rgb(code: u32) -> RGBColor {
    let [_, red, green, blue] = code.to_be_bytes();
    RGBColor(red, green, blue)
}

/// Mixes `from` with `to`; `share` is the share of `to`, from 0 to 1.
pub fn mix(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let channel =
        |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8;
    RGBColor(channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}

/// Returns a paler form of a data colour.
pub fn pale(color: RGBColor) -> RGBColor {
    mix(color, BACKGROUND, 0.68)
}

/// Returns dark or white ink, whichever is more readable on `color`.
pub fn contrast(color: RGBColor) -> RGBColor {
    if luminance(color) > 0.36 { INK } else { BACKGROUND }
}

/// Returns the relative luminance, 0 to 1 (ITU-R BT.709 weights on a gamma of 2.2).
fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
    let linear = |channel: u8| (f64::from(channel) / 255.0).powf(2.2);
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_weights_have_brighter_colours() {
        let steps: Vec<f64> = (0..=40).map(|i| luminance(color(f64::from(i) / 40.0))).collect();
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
    }

    #[test]
    fn color_scale_clamps_to_its_ends() {
        assert_eq!(color(-1.0), RGBColor(0x44, 0x01, 0x54));
        assert_eq!(color(2.0), RGBColor(0xfd, 0xe7, 0x25));
    }

    #[test]
    fn zero_weight_is_drawn_dark() {
        assert!(luminance(color(0.0)) < 0.1);
    }
}
