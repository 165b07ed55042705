//! Golden tests of the pictures of losses by position, gradients and generated tokens.

use image::RgbImage;

use super::{Pixels, drawn};
use crate::draw::{ComparedToken, Outcome, Picture, WIDTH, color, tint};
use crate::gradients::GradientCurve;
use crate::{Point, generated, gradients, positions};

pub(super) fn by_position(length: usize) -> Vec<Option<f64>> {
    (0..length).map(|i| Some(2.0 - 1.5 * i as f64 / length as f64)).collect()
}

fn picture(losses: &[Option<f64>], has_floor: bool) -> Picture {
    let floor = losses.iter().filter(|_| has_floor).map(|loss| loss.unwrap_or(f64::NAN) - 0.25);
    positions::picture("golden", losses, &floor.collect::<Vec<_>>(), WIDTH).unwrap()
}

#[test]
fn floor_is_below_loss_at_every_position() {
    for length in [5, 64, 257] {
        let raster = drawn(&picture(&by_position(length), true));
        // The chart is to the right of the axis and below the legend.
        let lowest = |color, x: usize| (90..350).filter(|&y| raster.pixel(x, y) == color).max();
        let columns: Vec<(usize, usize)> =
            (80..880).filter_map(|x| Some((lowest(color::BLUE, x)?, lowest(color::GREEN, x)?))).collect();
        assert!(columns.len() > 300, "{length}: {}", columns.len());
        assert!(columns.iter().all(|(loss, floor)| loss < floor), "{columns:?}");
        assert_eq!(drawn(&picture(&by_position(length), false)).count(color::GREEN), 0);
    }
}

#[test]
fn positions_without_targets_are_drawn_as_gaps() {
    let mut losses = by_position(11);
    losses[4] = None;
    losses[7] = Some(f64::INFINITY);
    drawn(&picture(&losses, true));
    let legend = drawn(&picture(&[None; 11], false));
    assert_eq!(legend.bounds(color::BLUE).unwrap()[3], 72, "only the legend");
}

/// Returns gradients whose first half is clipped to `limit`.
pub(super) fn half_clipped(limit: f64) -> GradientCurve {
    let curve = |first: f64, second: f64| {
        let value = move |step| if step <= 50 { first } else { second };
        (1..=100).map(|step| Point { step, value: value(step) }).collect()
    };
    GradientCurve { norms: curve(4.0, 0.25), clip_rates: curve(1.0, 0.0), limit, clipped: 0.5 }
}

#[test]
fn clip_limit_separates_clipped_and_unclipped_norms() {
    let raster = drawn(&gradients::picture("golden", &half_clipped(1.0), WIDTH).unwrap());
    // The rows of the chart of norms whose pixel in column `x` has the given colour.
    let rows = |raster: &RgbImage, color, x: usize| -> Vec<usize> {
        (94..334).filter(|&y| raster.pixel(x, y) == color).collect()
    };
    let limit: Vec<usize> = (80..880).flat_map(|x| rows(&raster, color::VERMILION, x)).collect();
    assert!(limit.len() > 400, "a dashed line across the chart");
    assert!(limit.iter().all(|y| y.abs_diff(limit[0]) <= 2));
    assert!(rows(&raster, color::BLUE, 200).iter().all(|&y| y < limit[0] - 50), "clipped");
    assert!(rows(&raster, color::BLUE, 800).iter().all(|&y| y > limit[0] + 50), "not clipped");
    let columns = color::mix(color::VERMILION, color::BACKGROUND, 0.45);
    let [left, _, right, _] = raster.bounds(columns).unwrap();
    assert!(left < 80 && right.abs_diff(479) < 5, "half of the steps are clipped: {left} to {right}");
    let free = drawn(&gradients::picture("golden", &half_clipped(0.0), WIDTH).unwrap());
    assert!(free.height() < raster.height());
}

#[test]
fn zero_and_nonfinite_norms_are_skipped() {
    let mut curve = half_clipped(1.0);
    for (index, norm) in [(3, 0.0), (4, f64::INFINITY), (5, f64::NAN)] {
        curve.norms[index].value = norm;
    }
    drawn(&gradients::picture("golden", &curve, WIDTH).unwrap());
    let [norms, clip_rates] = [&curve.norms, &curve.clip_rates].map(|points| points[3..4].to_vec());
    let alone = GradientCurve { norms, clip_rates, ..curve };
    drawn(&gradients::picture("golden", &alone, WIDTH).unwrap());
    assert!(gradients::picture("golden", &GradientCurve::default(), WIDTH).is_none());
}

/// Draws the tokens generated after a prompt of three tokens, compared with the true tokens where there are any.
fn continuation(generated: &[&str], truth: &[&str]) -> Picture {
    let [prompt, generated, truth] = [&["3", "5", "1"], generated, truth]
        .map(|tokens| tokens.iter().map(|token| token.to_string()).collect::<Vec<_>>());
    let given = prompt.into_iter().map(|token| ComparedToken {
        truth: Some(token),
        predicted: None,
        outcome: Outcome::Unknown,
    });
    let continued = generated.into_iter().enumerate().map(|(i, token)| {
        let truth = truth.get(i).cloned();
        let outcome = match &truth {
            None => Outcome::Unknown,
            Some(truth) if *truth == token => Outcome::Hit,
            Some(_) => Outcome::Miss,
        };
        ComparedToken { truth, predicted: Some(token), outcome }
    });
    generated::picture("golden", "validation sequence 0", given.chain(continued).collect(), WIDTH).unwrap()
}

#[test]
fn prompt_is_shaded_and_mismatches_are_marked() {
    // Numbers are drawn as a chart, text as cells.
    let numbers = (["5", "2", "5"], ["5", "2", "4"], color::VERMILION);
    let text = (["f", "c", "f"], ["f", "c", "e"], tint(Outcome::Miss));
    for (truth, other, mark) in [numbers, text] {
        let same = drawn(&continuation(&truth, &truth));
        assert_eq!(same.count(mark), 0);
        assert!(same.count(color::SHADE) > 200, "the prompt");
        assert!(drawn(&continuation(&other, &truth)).count(mark) > 50);
        // A user's own prompt comes without a true continuation.
        let free = drawn(&continuation(&other, &[]));
        assert_eq!(free.count(mark), 0);
        assert!(free.count(color::SHADE) > 200);
    }
}

#[test]
fn empty_data_has_no_picture() {
    let given = ComparedToken { truth: Some("1".to_string()), predicted: None, outcome: Outcome::Unknown };
    assert!(generated::picture("golden", "", vec![given], WIDTH).is_none());
    assert!(positions::picture("golden", &[], &[], WIDTH).is_none());
}
