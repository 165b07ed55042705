//! Golden tests of the pictures of all heads.

use super::{Pixels, drawn, identity, loss, maps, reading, vector};
use crate::draw::{Picture, PictureFormat, Style, WIDTH, WeightColors, color};
use crate::scores::{HeadScores, ScoreKind, ScoredStep};
use crate::{formation, head_scores, heads};

fn uniform(time: usize) -> Vec<f32> {
    (0..time * time).map(|i| if i % time <= i / time { 1.0 / (i / time + 1) as f32 } else { 0.0 }).collect()
}

/// An attention weight.
pub(super) const INDUCTION: ScoreKind = ScoreKind {
    key: "induction",
    name: "induction",
    unit: "weight",
    meaning: "weight on the token after an earlier occurrence",
    digits: 2,
    is_weight: true,
};
/// A rise of the loss, which can be negative.
pub(super) const ABLATION: ScoreKind = ScoreKind {
    key: "ablation",
    name: "ablation",
    unit: "nats of loss",
    meaning: "rise of the loss when the head is ablated, in nats",
    digits: 3,
    is_weight: false,
};

pub(super) const KINDS: [ScoreKind; 2] = [INDUCTION, ABLATION];

/// Returns one score per head, `[layer][head]`.
pub(super) fn scores(values: &[&[Option<f64>]], score: ScoreKind) -> Vec<Vec<HeadScores>> {
    let head = |value: &Option<f64>| HeadScores::new([(score, *value)]);
    values.iter().map(|layer| layer.iter().map(head).collect()).collect()
}

fn panel(values: &[&[Option<f64>]], score: ScoreKind) -> Picture {
    head_scores::picture("golden", "128 validation sequences", &[score], (&scores(values, score), &[]), WIDTH)
        .unwrap()
}

#[test]
fn every_head_grid_fits_its_picture() {
    for (layers, heads_per_layer, time) in [
        (1, 1, 8),
        (1, 16, 64),
        (2, 3, 1),
        (3, 5, 211),
        (12, 1, 11),
        (12, 16, 64),
        (2, 2, 1024),
        (6, 100, 9),
        (48, 25, 9),
    ] {
        let all = reading(time, vec![vec![uniform(time); heads_per_layer]; layers]);
        let layers_of = all.layers(&Default::default(), &[]);
        drawn(&heads::picture("golden", &all, &layers_of, (WeightColors::Linear, WIDTH)));
        let value = |layer: usize, head: usize| (layer * heads_per_layer + head) as f64;
        let head = |layer, head| {
            HeadScores::new(KINDS.map(|kind| (kind, Some(value(layer, head) / value(layers, 0)))))
        };
        let scores: Vec<Vec<HeadScores>> =
            (0..layers).map(|layer| (0..heads_per_layer).map(|i| head(layer, i)).collect()).collect();
        let chance = vec![HeadScores::new([(INDUCTION, Some(0.25))]); layers];
        let panels =
            head_scores::picture("golden", "128 validation sequences", &KINDS, (&scores, &chance), WIDTH)
                .unwrap();
        assert_eq!(vector(&panels).matches("chance 0.25").count(), 1);
        drawn(&panels);
        let steps = [1, 100, 200, 300, 500].map(|step| ScoredStep { step, heads: scores.clone() });
        let formed = formation::picture(&loss(Some(0.5)), (&KINDS, &chance), &steps, WIDTH).unwrap();
        assert_eq!(vector(&formed).matches("chance 0.25").count(), 1);
        drawn(&formed);
    }
}

#[test]
fn clipped_curves_are_reported() {
    for (weights, is_clipped) in [(uniform(40), true), (identity(40), false)] {
        let [_, curves] = maps(&reading(40, vec![vec![weights]]));
        let text = vector(&curves);
        assert_eq!([text.contains("are clipped"), text.contains('\u{2265}')], [is_clipped; 2], "{text}");
    }
}

#[test]
fn vector_file_of_many_heads_is_small() {
    // The shape of GPT-2, with noise, which hardly compresses.
    let time = 208;
    let noise = |head: usize| {
        let value = |i: usize| ((i * 2 + head) as u32).wrapping_mul(2_654_435_761) >> 8;
        (0..time * time).map(|i| if i % time <= i / time { value(i) as f32 / 2e9 } else { 0.0 }).collect()
    };
    let mut all =
        reading(time, (0..12).map(|layer| (0..12).map(|i| noise(12 * layer + i)).collect()).collect());
    all.maps.visible = vec![(0..time).map(|query| 0..query + 1).collect(); 12];
    let layers = all.layers(&Default::default(), &[]);
    let picture = heads::picture("golden", &all, &layers, (WeightColors::Linear, WIDTH));
    for format in [PictureFormat::Svg, PictureFormat::Pdf] {
        let bytes = picture.encode(&Style { format, ..Style::default() }).unwrap().len();
        assert!((100_000..1_000_000).contains(&bytes), "{format:?}: {bytes} bytes");
    }
}

#[test]
fn thumbnails_share_one_scale() {
    // All heads attend uniformly, except the last one, which attends only to the query itself: its bright diagonal ends
    // in the lower right corner of all maps.
    let time = 7;
    let mut all = vec![vec![uniform(time); 3]; 2];
    all[1][2] = identity(time);
    let all = reading(time, all);
    let raster = drawn(&heads::picture(
        "golden",
        &all,
        &all.layers(&Default::default(), &[]),
        (WeightColors::Linear, WIDTH),
    ));
    // The brightest colour also occurs at the top of the colour bar, to the right of all maps.
    let bright = color::color(1.0);
    let pixel = |x: usize, y: usize| raster.pixel(x, y);
    let rows: Vec<usize> =
        (64..raster.height() as usize).filter(|&y| (90..814).any(|x| pixel(x, y) == bright)).collect();
    let (top, bottom) = (rows[0], rows[rows.len() - 1]);
    let columns: Vec<usize> = (90..814).filter(|&x| pixel(x, bottom - 2) == bright).collect();
    let (left, right) = (columns[0], columns[columns.len() - 1]);
    let cell = right + 1 - left;
    assert!(pixel(left + cell / 2, bottom - cell - cell / 2) == color::BACKGROUND, "above the diagonal");
    assert_eq!(pixel(left - cell / 2, bottom - cell / 2), color::color(0.0), "below the diagonal");
    assert_eq!(pixel(left - cell / 2, bottom - cell - cell / 2), bright, "the diagonal itself");
    // On the scale of the picture, a uniform weight of 1/7 is dark; on a scale of its own map, it would be bright.
    let pitch = (7 * cell) as isize + 8;
    let neighbour = pixel((left as isize - pitch) as usize, bottom - cell / 2);
    let expected = color::color(1.0 / 7.0);
    let near = |a: u8, b: u8| a.abs_diff(b) <= 3;
    assert!(
        near(neighbour.0, expected.0) && near(neighbour.1, expected.1) && near(neighbour.2, expected.2),
        "{neighbour:?}, {expected:?}"
    );
    assert!(top < 100 && bottom > 2 * 7 * cell, "two layers from {top} to {bottom}");
}

#[test]
fn panels_color_heads_by_score() {
    let raster = drawn(&panel(&[&[Some(0.0), Some(1.0)], &[None, Some(0.5)]], INDUCTION));
    let [left, top, right, bottom] = raster.bounds(color::SHADE).unwrap();
    let (width, height) = (right + 2 - left, bottom + 2 - top);
    let (x, y) = (left + 3, top + 3);
    assert_eq!(raster.pixel(x, y - height), color::color(0.0));
    assert_eq!(raster.pixel(x + width, y - height), color::color(1.0));
    assert_eq!(raster.pixel(x + width, y), color::color(0.5));
}

#[test]
fn head_formation_is_marked_at_its_step() {
    let formed_at = |step: usize| {
        let value = |now: usize, head: usize| Some(if now >= step && head == 1 { 0.9 } else { 0.01 });
        let scored = (0..=50).map(|i| i * 10).map(|now| ScoredStep {
            step: now,
            heads: scores(&[&[value(now, 0), value(now, 1)]], INDUCTION),
        });
        drawn(
            &formation::picture(&loss(Some(0.5)), (&[INDUCTION], &[]), &scored.collect::<Vec<_>>(), WIDTH)
                .unwrap(),
        )
    };
    // The mark crosses the loss, where nothing else is drawn in the colour of a layer.
    let mark = |step: usize| {
        let (raster, color) = (formed_at(step), color::line_color(0.12));
        let above_panel = |x: &usize| (100..285).filter(|&y| raster.pixel(*x, y) == color).count() > 80;
        (80..770).find(above_panel)
    };
    let x = |step: f64| 76.0 + 702.0 * step / 500.0;
    for step in [100, 250, 400] {
        let found = mark(step).unwrap() as f64;
        assert!((found - x(step as f64)).abs() <= 1.5, "step {step} at {found}");
    }
    assert_eq!(mark(600), None, "no head forms");
}

#[test]
fn unknown_scores_have_no_picture() {
    let nothing = scores(&[&[None, None]], INDUCTION);
    assert!(head_scores::picture("golden", "", &KINDS, (&nothing, &[]), WIDTH).is_none());
    let steps = [1, 2].map(|step| ScoredStep { step, heads: nothing.clone() });
    assert!(formation::picture(&loss(None), (&KINDS, &[]), &steps, WIDTH).is_none());
    assert!(formation::picture(&loss(None), (&KINDS, &[]), &[], WIDTH).is_none());
}

#[test]
fn rounded_zeros_have_no_sign() {
    let svg = vector(&panel(&[&[Some(-2e-4), Some(0.012)]], ABLATION));
    assert!(svg.contains(">\n0.000\n<") && !svg.contains(">\n−0.000\n<"), "{svg}");
}
