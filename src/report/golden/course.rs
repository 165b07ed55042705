//! The pictures of a run's course, and of what it writes.

use image::RgbImage;

use super::{Pixels, drawn};
use crate::analysis::{Analysis, FreeRunning};
use crate::data::Vocabulary;
use crate::report::draw::{Outcome, Picture, color, tint};
use crate::report::{generated, gradients, positions};
use crate::training::{Row, Split};

fn analysis(losses: Vec<Option<f64>>, floor: bool) -> Analysis {
    Analysis {
        floor_by_position: match floor {
            true => losses.iter().map(|loss| loss.unwrap_or(f64::NAN) - 0.25).collect(),
            false => Vec::new(),
        },
        loss_by_position: losses,
        ..Analysis::default()
    }
}

fn by_position(length: usize) -> Vec<Option<f64>> {
    (0..length).map(|i| Some(2.0 - 1.5 * i as f64 / length as f64)).collect()
}

fn picture(losses: Vec<Option<f64>>, floor: bool) -> Picture {
    positions::picture("golden", &analysis(losses, floor)).unwrap()
}

#[test]
fn the_floor_lies_below_the_loss_at_every_position() {
    for length in [5, 64, 257] {
        let raster = drawn(&picture(by_position(length), true));
        // The plots begin right of the axis, below the legend.
        let lowest = |color, x: usize| (90..350).filter(|&y| raster.pixel(x, y) == color).max();
        let columns: Vec<(usize, usize)> =
            (80..880).filter_map(|x| Some((lowest(color::BLUE, x)?, lowest(color::GREEN, x)?))).collect();
        assert!(columns.len() > 300, "{length}: {}", columns.len());
        assert!(columns.iter().all(|(loss, floor)| loss < floor), "{columns:?}");
        assert_eq!(drawn(&picture(by_position(length), false)).count(color::GREEN), 0);
    }
}

#[test]
fn positions_without_targets_are_drawn_as_gaps() {
    let mut losses = by_position(11);
    losses[4] = None;
    losses[7] = Some(f64::INFINITY);
    drawn(&picture(losses, true));
    let legend = drawn(&picture(vec![None; 11], false));
    assert_eq!(legend.bounds(color::BLUE).unwrap()[3], 72, "the legend alone");
}

/// Rows of which the first half is clipped.
fn half_clipped() -> Vec<Row> {
    let row = |step: usize| Row {
        step,
        epoch: 1,
        split: Split::Train,
        loss: 1.0,
        accuracy: 0.5,
        learning_rate: 1e-3,
        gradient_norm: Some(if step <= 50 { 4.0 } else { 0.25 }),
        tokens: 0,
        seconds: 0.0,
        clip_rate: Some(if step <= 50 { 1.0 } else { 0.0 }),
        objective: None,
    };
    (1..=100).map(row).collect()
}

#[test]
fn the_clip_limit_lies_between_what_is_cut_and_what_is_not() {
    let raster = drawn(&gradients::picture("golden", &half_clipped(), 1.0, 0.5).unwrap());
    // Rows of the norms' area.
    let rows = |raster: &RgbImage, color, x: usize| -> Vec<usize> {
        (94..334).filter(|&y| raster.pixel(x, y) == color).collect()
    };
    let limit: Vec<usize> = (80..880).flat_map(|x| rows(&raster, color::VERMILION, x)).collect();
    assert!(limit.len() > 400, "a dashed line across");
    assert!(limit.iter().all(|y| y.abs_diff(limit[0]) <= 2));
    assert!(rows(&raster, color::BLUE, 200).iter().all(|&y| y < limit[0] - 50), "cut");
    assert!(rows(&raster, color::BLUE, 800).iter().all(|&y| y > limit[0] + 50), "not cut");
    let columns = color::mix(color::VERMILION, color::BACKGROUND, 0.45);
    let [left, _, right, _] = raster.bounds(columns).unwrap();
    assert!(left < 80 && right.abs_diff(479) < 5, "half of the steps are cut: {left} to {right}");
    let free = drawn(&gradients::picture("golden", &half_clipped(), 0.0, 0.5).unwrap());
    assert_eq!((free.count(color::VERMILION), free.count(columns)), (0, 0));
    assert!(free.height() < raster.height());
}

#[test]
fn norms_that_vanish_or_overflow_are_drawn_around() {
    let mut rows = half_clipped();
    for (row, norm) in [(3, 0.0), (4, f64::INFINITY), (5, f64::NAN)] {
        rows[row].gradient_norm = Some(norm);
    }
    drawn(&gradients::picture("golden", &rows, 1.0, 0.5).unwrap());
    drawn(&gradients::picture("golden", &rows[3..4], 1.0, 0.5).unwrap());
    assert!(gradients::picture("golden", &[], 1.0, 0.5).is_none());
}

fn continuation(vocabulary: &Vocabulary, written: &[u32], truth: &[u32]) -> Picture {
    let free = FreeRunning { prompt: vec![3, 5, 1], generated: written.to_vec(), truth: truth.to_vec() };
    generated::picture("golden", "validation sequence 0", &free, vocabulary).unwrap()
}

#[test]
fn the_prompt_is_shaded_and_what_differs_from_the_truth_is_marked() {
    let symbols = ["a", "b", "c", " d", "e", "f", "g"].map(str::to_string).to_vec();
    for (vocabulary, mark) in [
        (Vocabulary::integers(7, &[]), color::VERMILION),
        (Vocabulary::symbols(symbols, None).unwrap(), tint(Outcome::Miss)),
    ] {
        let (truth, other) = ([5, 2, 5], [5, 2, 4]);
        let same = drawn(&continuation(&vocabulary, &truth, &truth));
        assert_eq!(same.count(mark), 0);
        assert!(same.count(color::SHADE) > 200, "the prompt");
        assert!(drawn(&continuation(&vocabulary, &other, &truth)).count(mark) > 50);
        // A user's own prompt has no true continuation.
        let free = drawn(&continuation(&vocabulary, &other, &[]));
        assert_eq!(free.count(mark), 0);
        assert!(free.count(color::SHADE) > 200);
    }
}

#[test]
fn what_holds_nothing_has_no_picture() {
    let nothing = FreeRunning { prompt: vec![1], generated: Vec::new(), truth: Vec::new() };
    assert!(generated::picture("golden", "", &nothing, &Vocabulary::integers(3, &[])).is_none());
    assert!(positions::picture("golden", &analysis(Vec::new(), false)).is_none());
}
