//! Golden tests of the picture of predicted tokens.

use image::RgbImage;
use plotters::style::RGBColor;

use super::{Pixels, drawn, likely, reading, target, vector};
use crate::draw::{Outcome, Picture, WIDTH, color, tint};
use crate::prediction;
use crate::reading::{Target, TargetRole, TokenProbability};

pub(super) fn predictions(truth: &[&str], predicted: &[&str], role: impl Fn(usize) -> TargetRole) -> Picture {
    let mut reading = reading(truth.len(), Vec::new());
    let target = |(i, text): (usize, &&str)| Some(Target { role: role(i), ..target(text, true) });
    reading.targets = truth.iter().enumerate().map(target).collect();
    reading.most_likely = predicted.iter().map(|text| vec![likely(text)]).collect();
    prediction::picture("golden", &reading, WIDTH).unwrap()
}

/// Returns the roles of targets; only the targets before `first` are undetermined.
pub(super) fn known_from(first: usize) -> impl Fn(usize) -> TargetRole {
    move |i| if i < first { TargetRole::Undetermined } else { TargetRole::Determined }
}

#[test]
fn misses_are_marked_but_undetermined_targets_are_not() {
    // Numbers are drawn as a chart, text as cells.
    let numbers = (["3", "5", "7", "2"], ["1", "5", "7", "2"], color::VERMILION);
    let text = (["a", "b", " c", "d"], ["x", "b", " c", "d"], tint(Outcome::Miss));
    for (right, wrong, mark) in [numbers, text] {
        let perfect = drawn(&predictions(&right, &right, known_from(0)));
        assert_eq!((perfect.count(mark), perfect.count(color::SHADE)), (0, 0));
        assert!(drawn(&predictions(&right, &wrong, known_from(0))).count(mark) > 50);
        let unknowable = drawn(&predictions(&right, &wrong, known_from(1)));
        assert_eq!(unknowable.count(mark), 0);
        assert!(unknowable.count(color::SHADE) > 200);
    }
}

#[test]
fn miss_frames_do_not_cover_punctuation() {
    // A line through or below these characters would change how they read.
    for sign in ["-", ".", "_", "=", ":"] {
        let guess = |truth: &str| drawn(&predictions(&[truth, "b"], &[sign, "b"], known_from(1)));
        let (wrong, right) = (guess("x"), guess(sign));
        let [left, top, ..] = wrong.bounds(color::SHADE).unwrap();
        // The lower line of the first cell, within its frame.
        let within = |raster: &RgbImage| -> Vec<RGBColor> {
            (top + 19..top + 30)
                .flat_map(|y| (left + 4..left + 15).map(move |x| (x, y)))
                .map(|(x, y)| raster.pixel(x, y))
                .collect()
        };
        assert!(within(&wrong) == within(&right), "{sign}");
        assert!(within(&wrong).iter().any(|&pixel| pixel != color::SHADE), "{sign} is visible");
    }
}

#[test]
fn unknown_roles_are_not_called_undetermined() {
    let text = (["a", "b", " c", "d"], ["x", "b", " c", "d"]);
    let picture = predictions(&text.0, &text.1, |_| TargetRole::Unknown);
    let svg = vector(&picture);
    assert!(svg.contains("3 of 4 tokens correct") && svg.contains("true token 50.0 %"), "{svg}");
    assert!(!svg.contains("undetermined") && !svg.contains("by chance"));
    assert!(drawn(&picture).count(tint(Outcome::Miss)) > 50, "a miss is drawn as a miss");
}

#[test]
fn different_tokens_with_equal_text_are_wrong() {
    let mut reading = reading(2, Vec::new());
    reading.targets = [target("a", true), target("b", true)].map(Some).to_vec();
    reading.most_likely = vec![vec![TokenProbability { id: 7, ..likely("a") }], vec![likely("b")]];
    assert!(
        vector(&prediction::picture("golden", &reading, WIDTH).unwrap()).contains("1 of 2 tokens correct")
    );
}

#[test]
fn one_token_is_singular() {
    let svg = |truth: &[&str], first: usize| vector(&predictions(truth, &["a", "b"], known_from(first)));
    assert!(svg(&["a"], 0).contains("1 of 1 token correct"));
    assert!(svg(&["a", "b"], 0).contains("2 of 2 tokens correct"));
    assert!(svg(&["a", "b"], 1).contains("1 of 1 determined target correct"));
}
