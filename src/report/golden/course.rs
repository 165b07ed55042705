//! The pictures of a run's course, and of what it writes.

use super::drawn;
use crate::report::color;
use crate::report::generated::Generation;
use crate::report::gradients::GradientCurve;
use crate::report::picture::{Picture, Raster, Style};
use crate::report::positions::LossByPosition;
use crate::report::schedule::ScheduleCurve;
use crate::report::series::Point;
use crate::report::token_row::{Outcome, tint};

fn points(steps: u64, value: impl Fn(u64) -> f64) -> Vec<Point> {
    (1..=steps).map(|step| Point { step, value: value(step) }).collect()
}

fn positions(length: usize, floor: bool) -> LossByPosition {
    let losses: Vec<_> = (0..length).map(|i| Some(2.0 - 1.5 * i as f64 / length as f64)).collect();
    LossByPosition {
        run: "golden".to_string(),
        measured_on: "512 validation sequences".to_string(),
        floor: if floor {
            losses.iter().map(|loss| loss.map(|loss: f64| loss - 0.25)).collect()
        } else {
            vec![]
        },
        losses,
    }
}

#[test]
fn the_floor_lies_below_the_loss_at_every_position() {
    for length in [5, 64, 257] {
        let raster = drawn(&positions(length, true));
        // The plots begin right of the axis, below the legend.
        let lowest = |color, x: usize| (90..350).filter(|&y| raster.pixel(x, y) == color).max();
        let columns: Vec<(usize, usize)> =
            (80..880).filter_map(|x| Some((lowest(color::BLUE, x)?, lowest(color::GREEN, x)?))).collect();
        assert!(columns.len() > 300, "{length}: {}", columns.len());
        assert!(columns.iter().all(|(loss, floor)| loss < floor), "{columns:?}");
        assert_eq!(drawn(&positions(length, false)).count(color::GREEN), 0);
    }
}

#[test]
fn positions_without_targets_are_drawn_as_gaps() {
    let mut gaps = positions(11, true);
    gaps.losses[4] = None;
    gaps.losses[7] = Some(f64::INFINITY);
    drawn(&gaps);
    gaps.losses = vec![None; 11];
    gaps.floor = Vec::new();
    assert_eq!(drawn(&gaps).bounds(color::BLUE).unwrap()[3], 72, "the legend alone");
}

#[test]
fn the_learning_rate_is_highest_where_the_warm_up_ends() {
    for (steps, warmup) in [(1_000, 300), (200_000, 20_000)] {
        let rise =
            |step: u64| (step as f64 / warmup as f64).min((steps - step) as f64 / (steps - warmup) as f64);
        let curve = ScheduleCurve {
            run: "golden".to_string(),
            schedule: "linear warm-up, then linear".to_string(),
            learning_rate: points(steps, rise),
            warmup,
        };
        let raster = drawn(&curve);
        let [_, top, ..] = raster.bounds(color::PURPLE).unwrap();
        let peak: Vec<usize> = (0..900).filter(|&x| raster.pixel(x, top) == color::PURPLE).collect();
        let [.., shade, _] = raster.bounds(color::SHADE).unwrap();
        assert!(peak.iter().all(|x| x.abs_diff(shade) < 8), "peak at {peak:?}, warm-up to {shade}");
        assert_eq!(drawn(&ScheduleCurve { warmup: 0, ..curve }).count(color::SHADE), 0);
    }
}

fn gradients(clip_limit: Option<f64>) -> GradientCurve {
    GradientCurve {
        run: "golden".to_string(),
        norm: points(100, |step| if step <= 50 { 4.0 } else { 0.25 }),
        clip_rate: points(100, |step| if step <= 50 { 1.0 } else { 0.0 }),
        clip_limit,
    }
}

#[test]
fn the_clip_limit_lies_between_what_is_cut_and_what_is_not() {
    let raster = drawn(&gradients(Some(1.0)));
    // Rows of the norms' area.
    let rows = |raster: &Raster, color, x: usize| -> Vec<usize> {
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
    let free = drawn(&gradients(None));
    assert_eq!((free.count(color::VERMILION), free.count(columns)), (0, 0));
    assert!(free.height < raster.height);
}

#[test]
fn norms_that_vanish_or_overflow_are_drawn_around() {
    let mut curve = gradients(Some(1.0));
    curve.norm[3].value = 0.0;
    curve.norm[4].value = f64::INFINITY;
    curve.norm[5].value = f64::NAN;
    drawn(&curve);
    drawn(&GradientCurve { norm: vec![Point { step: 1, value: 0.0 }], ..curve });
}

fn generation(generated: &[&str], truth: &[&str]) -> Generation {
    let texts = |tokens: &[&str]| tokens.iter().map(|token| token.to_string()).collect();
    Generation {
        run: "golden".to_string(),
        sequence: "validation sequence 0".to_string(),
        prompt: texts(if generated[0].parse::<u32>().is_ok() { &["3", "7", "1"] } else { &["a", "b", "c"] }),
        generated: texts(generated),
        truth: texts(truth),
    }
}

#[test]
fn the_prompt_is_shaded_and_what_differs_from_the_truth_is_marked() {
    let numbers = (["5", "2", "5"], ["5", "2", "4"], color::VERMILION);
    let text = ([" d", "e", "f"], [" d", "e", "g"], tint(Outcome::Miss));
    for (truth, other, mark) in [numbers, text] {
        let same = drawn(&generation(&truth, &truth));
        assert_eq!(same.count(mark), 0);
        assert!(same.count(color::SHADE) > 200, "the prompt");
        assert!(drawn(&generation(&other, &truth)).count(mark) > 50);
        // A user's own prompt has no true continuation.
        let free = drawn(&generation(&other, &[]));
        assert_eq!(free.count(mark), 0);
        assert!(free.count(color::SHADE) > 200);
    }
}

#[test]
fn empty_courses_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let style = Style::default();
    let refused = |result: crate::error::Result<std::path::PathBuf>| result.unwrap_err().to_string();
    let messages = [
        refused(ScheduleCurve::default().save(folder.path(), &style)),
        refused(GradientCurve::default().save(folder.path(), &style)),
        refused(LossByPosition::default().save(folder.path(), &style)),
        refused(Generation::default().save(folder.path(), &style)),
    ];
    assert!(messages.iter().all(|message| message.contains("at least one")), "{messages:?}");
    let uneven = LossByPosition { floor: vec![None; 3], ..positions(5, false) };
    assert_eq!(
        refused(uneven.save(folder.path(), &style)),
        "the floor of 3 positions does not fit losses of 5 positions"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
