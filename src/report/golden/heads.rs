//! The pictures of all heads.

use plotters::style::RGBColor;

use super::{drawn, loss};
use crate::analysis::Score;
use crate::report::color::{self, ColorMap};
use crate::report::formation::{Formation, ScoreHistory};
use crate::report::head_scores::HeadScoreGrid;
use crate::report::heads::AllHeads;
use crate::report::picture::{Picture, Style};
use crate::report::score::HeadValues;

const MAP: ColorMap = ColorMap::Viridis;

fn uniform(time: usize) -> Vec<f32> {
    (0..time * time).map(|i| if i % time <= i / time { 1.0 / (i / time + 1) as f32 } else { 0.0 }).collect()
}

fn identity(time: usize) -> Vec<f32> {
    (0..time * time).map(|i| if i / time == i % time { 1.0 } else { 0.0 }).collect()
}

fn grid(layers: usize, heads: usize, time: usize) -> AllHeads<'static> {
    AllHeads {
        run: "golden".to_string(),
        sequence: "validation sequence 3".to_string(),
        time,
        attention: vec![vec![uniform(time); heads]; layers].into(),
    }
}

fn scores(layers: usize, heads: usize, score: Score) -> HeadValues {
    let value = |layer: usize, head: usize| Some((layer * heads + head) as f64 / (layers * heads) as f64);
    let row = |layer| (0..heads).map(|head| value(layer, head)).collect();
    HeadValues { score, values: (0..layers).map(row).collect() }
}

#[test]
fn every_grid_of_heads_is_drawn_within_its_pictures() {
    for (layers, heads, time) in [
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
        assert!(drawn(&grid(layers, heads, time)).count(color::INK) > 100);
        let measured_on = "512 validation sequences".to_string();
        let all = Score::ALL.map(|score| scores(layers, heads, score)).to_vec();
        let panels = HeadScoreGrid { run: "golden".to_string(), measured_on, scores: all.clone() };
        assert!(drawn(&panels).count(color::INK) > 100);
        let history =
            |values: HeadValues| ScoreHistory { score: values.score, values: vec![values.values; 5] };
        let scores = all.into_iter().map(history).collect();
        let steps = vec![1, 100, 200, 300, 500];
        assert!(drawn(&Formation { loss: loss(Some(0.5)), steps, scores }).count(color::INK) > 100);
    }
}

#[test]
fn thumbnails_stand_layer_by_head_on_one_scale() {
    // All heads attend evenly, but the last one to itself alone: it reaches to the last corner.
    let (layers, heads, time) = (2, 3, 7);
    let mut all = grid(layers, heads, time);
    all.attention.to_mut()[1][2] = identity(time);
    let raster = drawn(&all);
    // The brightest colour also stands at the top of the colour bar, right of all maps.
    let bright = MAP.color(1.0);
    let within = |x: usize, y: usize| raster.pixel(x, y);
    let rows: Vec<usize> =
        (64..raster.height as usize).filter(|&y| (90..814).any(|x| within(x, y) == bright)).collect();
    let (top, bottom) = (rows[0], rows[rows.len() - 1]);
    let columns: Vec<usize> = (90..814).filter(|&x| within(x, bottom - 2) == bright).collect();
    let (left, right) = (columns[0], columns[columns.len() - 1]);
    let cell = right + 1 - left;
    assert!(within(left + cell / 2, bottom - cell - cell / 2) == color::BACKGROUND, "above the diagonal");
    assert_eq!(within(left - cell / 2, bottom - cell / 2), MAP.color(0.0), "below the diagonal");
    assert_eq!(within(left - cell / 2, bottom - cell - cell / 2), bright, "the diagonal itself");
    // On the scale of the picture an even weight of 1/7 is dark, in the map of its own it would not be.
    let pitch = (7 * cell) as isize + 8;
    let neighbour = within((left as isize - pitch) as usize, bottom - cell / 2);
    let expected = MAP.color(1.0 / 7.0);
    let near = |a: u8, b: u8| a.abs_diff(b) <= 3;
    assert!(
        near(neighbour.0, expected.0) && near(neighbour.1, expected.1) && near(neighbour.2, expected.2),
        "{neighbour:?}, {expected:?}"
    );
    assert!(top < 100 && bottom > 2 * 7 * cell, "two layers from {top} to {bottom}");
}

#[test]
fn a_panel_shows_each_head_in_the_colour_of_its_score() {
    let values = vec![vec![Some(0.0), Some(1.0)], vec![None, Some(0.5)]];
    let scores = vec![HeadValues { score: Score::Induction, values }];
    let raster = drawn(&HeadScoreGrid { run: "golden".to_string(), measured_on: String::new(), scores });
    let [left, top, right, bottom] = raster.bounds(color::SHADE).unwrap();
    let (width, height) = (right + 2 - left, bottom + 2 - top);
    let (x, y) = (left + 3, top + 3);
    assert_eq!(raster.pixel(x, y - height), MAP.color(0.0));
    assert_eq!(raster.pixel(x + width, y - height), MAP.color(1.0));
    assert_eq!(raster.pixel(x + width, y), MAP.color(0.5));
}

#[test]
fn the_moment_a_head_forms_is_marked_below_the_falling_loss() {
    let at = |step: u64| {
        let steps: Vec<u64> = (0..=50).map(|i| i * 10).collect();
        let value = |now: u64, head: usize| Some(if now >= step && head == 1 { 0.9 } else { 0.01 });
        let values = steps.iter().map(|&now| vec![vec![value(now, 0), value(now, 1)]]).collect();
        let scores = vec![ScoreHistory { score: Score::Induction, values }];
        drawn(&Formation { loss: loss(Some(0.5)), steps, scores })
    };
    // The mark crosses the loss, where nothing else is drawn in the colour of a layer.
    let mark = |step: u64| {
        let (raster, color) = (at(step), MAP.line_color(0.12));
        let above_panel = |x: &usize| (100..285).filter(|&y| raster.pixel(*x, y) == color).count() > 80;
        (80..770).find(above_panel)
    };
    let place = |step: f64| 76.0 + 702.0 * step / 500.0;
    for step in [100, 250, 400] {
        let found = mark(step).unwrap() as f64;
        assert!((found - place(step as f64)).abs() <= 1.5, "step {step} at {found}");
    }
    assert_eq!(mark(600), None, "no head forms");
}

#[test]
fn grids_that_do_not_fit_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |result: crate::error::Result<std::path::PathBuf>| result.unwrap_err().to_string();
    let mut ill = grid(2, 3, 5);
    ill.attention.to_mut()[1][2].pop();
    assert_eq!(
        refused(ill.save(folder.path(), &Style::default())),
        "layer 1, head 2: 24 weights do not fit 5 tokens, which need [5, 5]"
    );
    let both = vec![scores(2, 3, Score::First), scores(3, 2, Score::Induction)];
    let panels = HeadScoreGrid { run: String::new(), measured_on: String::new(), scores: both };
    assert_eq!(
        refused(panels.save(folder.path(), &Style::default())),
        "the values of induction have heads by layer [2, 2, 2], where [3, 3] are shown"
    );
    let values = vec![scores(1, 1, Score::First).values; 3];
    let scores = vec![ScoreHistory { score: Score::First, values }];
    let formation = Formation { loss: loss(None), steps: vec![1, 2], scores };
    assert_eq!(
        refused(formation.save(folder.path(), &Style::default())),
        "3 values of first token do not fit 2 steps"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn heads_that_lose_less_when_silenced_and_values_that_are_no_number_are_drawn() {
    let values = vec![vec![Some(-0.02), Some(f64::NAN), Some(1.5)]];
    let scores = vec![HeadValues { score: Score::Ablation, values }];
    let raster = drawn(&HeadScoreGrid { run: "golden".to_string(), measured_on: String::new(), scores });
    assert!(raster.count(color::SHADE) > 300, "no number");
    let lowest: RGBColor = MAP.color(0.0);
    assert!(raster.count(lowest) > 300, "below zero");
}
