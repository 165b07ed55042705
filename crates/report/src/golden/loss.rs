//! Golden tests of the picture of the loss.

use super::{Pixels, drawn, vector};
use crate::draw::{WIDTH, color};
use crate::loss::LossCurve;
use crate::series::Point;

pub(super) fn loss(floor: Option<f64>) -> LossCurve {
    let training = (1..=500).map(|step| Point { step, value: 0.5 + 2.0 * (-(step as f64) / 90.0).exp() });
    LossCurve {
        run: "golden".to_string(),
        training: training.collect(),
        validation: (1..=5).map(|epoch| Point { step: epoch * 100, value: 0.6 }).collect(),
        learning_rate: (1..=500).map(|step| Point { step, value: 1e-3 }).collect(),
        epoch_ends: (1..=5).map(|epoch| epoch * 100).collect(),
        floor,
        ..LossCurve::default()
    }
}

#[test]
fn floor_is_below_the_losses() {
    let raster = drawn(&loss(Some(0.5)).picture(WIDTH));
    let [.., floor] = raster.bounds(color::GREEN).unwrap();
    let [.., validation] = raster.bounds(color::VERMILION).unwrap();
    assert!(validation < floor, "validation loss at row {validation}, floor at row {floor}");
    assert_eq!(drawn(&loss(None).picture(WIDTH)).count(color::GREEN), 0);
}

#[test]
fn constant_learning_rate_stays_clear_of_floor() {
    let (floor, rate) = (0.5, 1e-3);
    let mut curve = loss(Some(floor));
    for share in [0.07, 0.5, 0.64, 0.66, 0.68, 0.9] {
        // The lowest loss puts the floor at this fraction of the axis.
        curve.training[400].value = floor - share * 2.0;
        let losses = curve.losses();
        let share = (floor - losses.start) / losses.length();
        let distance = (rate / curve.rates_end().unwrap() - share).abs();
        assert!(distance > 0.05 && curve.rates_end().unwrap() <= 2.0 * rate, "{share}: {distance}");
    }
    let without_rates = LossCurve { learning_rate: Vec::new(), ..curve };
    assert_eq!(without_rates.rates_end(), None);
}

#[test]
fn initial_spikes_do_not_flatten_the_curve() {
    // Returns the height of the curve in pixels, without its start.
    let height = |curve: &LossCurve| {
        let raster = drawn(&curve.picture(WIDTH));
        let rows: Vec<usize> =
            (110..430).filter(|&y| (120..400).any(|x| raster.pixel(x, y) == color::BLUE)).collect();
        rows[rows.len() - 1] - rows[0]
    };
    let smooth = loss(Some(0.5));
    let mut spiked = smooth.clone();
    spiked.training[0].value = 500.0;
    spiked.training[1].value = f64::INFINITY;
    assert!(height(&spiked) * 2 > height(&smooth), "{} of {}", height(&spiked), height(&smooth));
}

#[test]
fn runs_without_losses_have_a_picture() {
    let empty = LossCurve::default();
    drawn(&empty.picture(WIDTH));
    let one = LossCurve { training: vec![Point { step: 1, value: 2.0 }], ..empty.clone() };
    assert!(drawn(&one.picture(WIDTH)).count(color::BLUE) > 0, "a single loss is a dot");
    let lost = LossCurve { training: vec![Point { step: 1, value: f64::NAN }], ..empty.clone() };
    drawn(&lost.picture(WIDTH));
    // The run diverged before the first logged step.
    let diverged = LossCurve { diverged: Some(3), ..empty }.picture(WIDTH);
    drawn(&diverged);
    let svg = vector(&diverged);
    assert!(svg.matches("diverged at step 3").count() == 2 && svg.contains("no step was logged"), "{svg}");
}

#[test]
fn diverged_runs_show_the_curve_before_divergence() {
    let falling = (1..=80).map(|i| 2.0 + 2.2 * (-f64::from(i) / 20.0).exp());
    let running = (1..=30).map(|i| 2.0 * 1.6f64.powi(i));
    let training = falling.chain(running).zip(1..).map(|(value, i)| Point { step: i * 10, value });
    let curve = LossCurve {
        run: "golden".to_string(),
        training: training.collect(),
        validation: vec![Point { step: 500, value: 2.3 }],
        diverged: Some(1_107),
        weights: Some("the weights of step 500".to_string()),
        ..LossCurve::default()
    };
    assert!(curve.losses().end < 8.0, "{:?}", curve.losses());
    assert_eq!(curve.steps().end, 1_107.0);
    let picture = curve.picture(WIDTH);
    let svg = vector(&picture);
    for text in ["diverged at step 1,107", "the weights of step 500 were kept", "are clipped"] {
        assert!(svg.contains(text), "{text}");
    }
    drawn(&picture);
}

#[test]
fn immediately_diverged_runs_show_their_start() {
    let point = |step, value| Point { step, value };
    let curve = LossCurve {
        training: vec![point(1, 2.4), point(2, 7.8e8)],
        validation: vec![point(1, 7.2e8)],
        diverged: Some(2),
        floor: Some(0.8),
        ..LossCurve::default()
    };
    assert!(curve.losses().end < 5.0, "{:?}", curve.losses());
    let svg = vector(&curve.picture(WIDTH));
    assert!(svg.contains("validation loss 7.2e8 nats per token; 7.2e8 above the floor"), "{svg}");
    assert!(!svg.contains("\nvalidation\n"), "no validation curve is drawn: {svg}");
    drawn(&curve.picture(WIDTH));
}

#[test]
fn nothing_is_drawn_outside_the_axes() {
    // The loss of one step is far below all others, as at the end of a short run.
    let mut curve = loss(Some(0.5));
    curve.training[300].value = 0.1;
    curve.learning_rate.clear();
    let raster = drawn(&curve.picture(WIDTH));
    let [.., bottom] = raster.bounds(color::pale(color::BLUE)).unwrap();
    assert!(curve.losses().start < 0.1 && bottom < 428, "{bottom}");
}
