//! A perceptual comparison of two images, which finds the most different small part of them. The mean over an image, as
//! of `image-compare` and other measures of similarity, would hide one shifted label in a large picture.

use image::{Rgb, RgbImage};

use crate::draw::color;

/// The least score that a viewer can see. A difference of three steps of 255 in a whole area is below it; a missing grid
/// line is above it.
pub(super) const VISIBLE: f64 = 0.015;
/// A window has two by two tiles, of this width and height in pixels.
const TILE: u32 = 4;

/// The difference of two images.
pub(super) struct VisibleDifference {
    /// The largest distance of a window of 8 by 8 pixels: the root mean square over its pixels, 0 for equal windows to 1
    /// for a black and a white one.
    pub score: f64,
    /// The upper left corner of that window.
    pub corner: (u32, u32),
}

/// Compares two images; the smaller one is extended in white.
pub(super) fn compare(reference: &RgbImage, drawn: &RgbImage) -> VisibleDifference {
    let [width, height] = joint_size(reference, drawn);
    let (columns, rows) = (width.div_ceil(TILE) + 1, height.div_ceil(TILE) + 1);
    let mut tiles = vec![0.0; (columns * rows) as usize];
    for y in 0..height {
        for x in 0..width {
            tiles[(y / TILE * columns + x / TILE) as usize] += distance(reference, drawn, (x, y)).powi(2);
        }
    }
    let tile = |x: u32, y: u32| tiles[(y * columns + x) as usize];
    let mean = |x, y| (tile(x, y) + tile(x + 1, y) + tile(x, y + 1) + tile(x + 1, y + 1)) / 64.0;
    let corners = (0..rows - 1).flat_map(|y| (0..columns - 1).map(move |x| (x, y)));
    let differences =
        corners.map(|(x, y)| VisibleDifference { score: mean(x, y).sqrt(), corner: (x * TILE, y * TILE) });
    let none = VisibleDifference { score: 0.0, corner: (0, 0) };
    differences.fold(none, |most, next| if next.score > most.score { next } else { most })
}

/// Returns an image that marks different pixels in red on a faded form of the reference.
pub(super) fn marked(reference: &RgbImage, drawn: &RgbImage) -> RgbImage {
    let [width, height] = joint_size(reference, drawn);
    RgbImage::from_fn(width, height, |x, y| {
        let difference = distance(reference, drawn, (x, y));
        let Rgb(faded) = pixel(reference, (x, y));
        match difference > VISIBLE {
            // Small differences are as visible here as large ones.
            true => Rgb([255, (160.0 * (1.0 - difference)) as u8, (160.0 * (1.0 - difference)) as u8]),
            false => Rgb(faded.map(|channel| 191 + channel / 4)),
        }
    })
}

fn joint_size(a: &RgbImage, b: &RgbImage) -> [u32; 2] {
    [a.width().max(b.width()), a.height().max(b.height())]
}

/// Returns a pixel, or the background outside the image.
fn pixel(image: &RgbImage, (x, y): (u32, u32)) -> Rgb<u8> {
    let background = color::BACKGROUND;
    let outside = Rgb([background.0, background.1, background.2]);
    image.get_pixel_checked(x, y).copied().unwrap_or(outside)
}

/// Returns the perceived distance of two pixels, 0 to about 1, in the colour space YIQ (Kotsarenko and Ramos, "Measuring
/// perceived color difference using YIQ NTSC transmission color space in mobile applications", 2010).
fn distance(reference: &RgbImage, drawn: &RgbImage, at: (u32, u32)) -> f64 {
    let (Rgb(from), Rgb(to)) = (pixel(reference, at), pixel(drawn, at));
    if from == to {
        return 0.0;
    }
    let [red, green, blue] = [0, 1, 2].map(|i| (f64::from(to[i]) - f64::from(from[i])) / 255.0);
    let y = 0.298_895_31 * red + 0.586_622_47 * green + 0.114_482_23 * blue;
    let i = 0.595_977_99 * red - 0.274_176_10 * green - 0.321_801_89 * blue;
    let q = 0.211_470_17 * red - 0.522_617_11 * green + 0.311_146_94 * blue;
    // The weights are those of the paper, scaled so that black and white have a distance of 1.
    (y * y + (0.299 * i * i + 0.1957 * q * q) / 0.5053).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::color::{BLUE, GRID, MUTED, SKY};
    use crate::draw::{Picture, WIDTH, raster};
    use crate::golden::loss;

    /// Returns the score of a picture of the loss after a change.
    fn score_after(change: impl FnOnce(&mut Picture)) -> f64 {
        let mut picture = loss(Some(0.5)).picture(WIDTH);
        let reference = raster(&picture, 1).unwrap();
        change(&mut picture);
        compare(&reference, &raster(&picture, 1).unwrap()).score
    }

    #[test]
    fn visible_changes_have_high_scores() {
        let scores = [
            ("a label shifted by 3 pixels", score_after(|it| it.move_text("300", (3.0, 0.0)))),
            ("a label over another", score_after(|it| it.move_text("300", (-130.0, 0.0)))),
            ("no grid", score_after(|it| it.recolor(GRID, None))),
            ("no axis", score_after(|it| it.recolor(MUTED, None))),
            ("another colour", score_after(|it| it.recolor(BLUE, Some(SKY)))),
        ];
        assert!(scores.iter().all(|(_, score)| *score > 2.0 * VISIBLE), "{scores:?}");
    }

    #[test]
    fn invisible_changes_have_low_scores() {
        let reference = raster(&loss(Some(0.5)).picture(WIDTH), 1).unwrap();
        let mut brighter = reference.clone();
        brighter.iter_mut().for_each(|channel| *channel = channel.saturating_add(1));
        let score = compare(&reference, &brighter).score;
        assert!(score > 0.0 && score < 0.5 * VISIBLE, "{score}");
        assert_eq!(compare(&reference, &reference).score, 0.0);
    }

    #[test]
    fn most_different_window_is_located() {
        let white = RgbImage::from_pixel(50, 30, Rgb([255; 3]));
        let mut changed = white.clone();
        (40..48).for_each(|x| (12..20).for_each(|y| changed.put_pixel(x, y, Rgb([0; 3]))));
        let found = compare(&white, &changed);
        assert_eq!(found.corner, (40, 12));
        assert!((found.score - 1.0).abs() < 1e-6, "{}", found.score);
    }
}
