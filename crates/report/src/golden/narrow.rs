//! Golden tests of all pictures in the widths of PDFs: no text is cut, covered or too small.

use super::heads::KINDS;
use super::samples::{compared, samples};
use super::{Pixels, loss};
use crate::comparison::{self, Comparison, Setting, XAxisQuantity};
use crate::draw::{PictureFormat, Style, raster};

/// Returns the width for which a PDF of this many points is drawn.
pub(super) fn logical(points: u32) -> f64 {
    Style { format: PictureFormat::Pdf, width: points, ..Style::default() }.logical_width()
}

#[test]
fn text_of_narrow_pictures_is_legible_and_apart() {
    let mut problems = Vec::new();
    for points in [Style::MIN_WIDTH, 246, 486, 675] {
        let width = logical(points);
        for (_, mut picture) in samples(width) {
            for has_title in [true, false] {
                if !has_title {
                    picture.remove_title();
                }
                let mut found = picture.text_problems(f64::from(points) / width);
                if !raster(&picture, 1).unwrap().has_clear_border() {
                    found.push("is cut at its edge".to_string());
                }
                let name = format!("{} at {points} points, title {has_title}", picture.name);
                problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn narrow_pictures_are_drawn_narrower() {
    assert_eq!([216, 246, 486, 675, 2_000].map(logical), [288.0, 328.0, 648.0, 900.0, 900.0]);
    assert_eq!(Style { width: 246, ..Style::default() }.logical_width(), 900.0, "pixels have no points");
    let scaled = loss(Some(0.5)).picture(900.0).text_problems(246.0 / 900.0);
    assert!(
        scaled.iter().any(|problem| problem.contains("points")),
        "a wide picture has small text: {scaled:?}"
    );
    let picture = loss(Some(0.5)).picture(logical(246));
    let pdf = Style { format: PictureFormat::Pdf, width: 246, ..Style::default() };
    let bytes = picture.encode(&pdf).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("/MediaBox [0 0 246 "));
}

#[test]
fn rows_without_results_name_their_reason() {
    let names = ["rotary", "alibi", "learned"].map(|name| format!("model.position = {name}"));
    let mut comparison = compared(&names);
    let drawn = |comparison: &Comparison, width: f64| {
        comparison::pictures(comparison, XAxisQuantity::Steps, &KINDS, width)[0].to_svg().unwrap()
    };
    assert!(!drawn(&comparison, 900.0).contains("excluded"));
    let excluded = Some("diverged".to_string());
    comparison.settings[2] = Setting { name: names[2].clone(), excluded, ..Setting::default() };
    comparison.runs[2].result = None;
    for width in [logical(246), 900.0] {
        let svg = drawn(&comparison, width);
        assert_eq!(svg.matches("excluded: diverged").count(), 1, "{width}: {svg}");
    }
}
