use rand::RngExt;

use super::*;
use crate::data::seed::{ChaCha8Rng, Purpose, generator};

const ROWS: usize = 1_000;
const RUNS: u64 = 20;

/// Returns standard normal noise (Box and Muller, 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let [first, second] = [(); 2].map(|()| random.random_range(f64::MIN_POSITIVE..1.0));
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

fn found(curve: impl Fn(f64) -> f64, noise: f64, random: &mut ChaCha8Rng) -> Vec<CurveChange> {
    let rows = (0..ROWS).map(|step| (step, curve(step as f64) + noise * normal(random)));
    let criterion = ChangeCriterion { min_change: 0.0, min_share: 0.05, tests: num_windows(ROWS) };
    changes(&rows.collect::<Vec<_>>(), criterion)
}

#[test]
fn smooth_curves_have_no_changes() {
    let end = ROWS as f64;
    type Shape = fn(f64, f64, f64) -> f64;
    let shapes: [(&str, Shape); 7] = [
        ("exponential", |step, speed, _| 2.0 + 2.0 * (-step / (30.0 + 400.0 * speed)).exp()),
        ("two exponentials", |step, speed, _| (-step / 20.0).exp() + (-step / (100.0 + 300.0 * speed)).exp()),
        ("power law", |step, speed, _| 2.0 + 2.0 * (step + 1.0).powf(-0.1 - 0.9 * speed)),
        ("line", |step, speed, end| 4.0 - (1.0 + speed) * step / end),
        ("half cosine", |step, speed, end| 3.0 + (1.0 + speed) * (std::f64::consts::PI * step / end).cos()),
        ("constant", |_, speed, _| 2.0 + speed),
        ("slow sigmoid", |step, speed, end| 1.0 / (1.0 + ((step - end / 2.0) * (2.0 + speed) / end).exp())),
    ];
    for (name, shape) in shapes {
        for seed in 0..RUNS {
            let mut random = generator(seed, Purpose::Probe, [0; 2]);
            let (speed, noise) = (random.random_range(0.0..1.0), [0.0, 0.005, 0.02, 0.1][seed as usize % 4]);
            let found = found(|step| shape(step, speed, end), noise, &mut random);
            assert!(found.is_empty(), "{name}, seed {seed}, noise {noise}: {found:?}");
        }
    }
}

#[test]
fn steps_are_found_within_five_steps() {
    type Base = fn(f64) -> f64;
    let bases: [(&str, Base); 3] = [
        ("plateau", |_| 3.0),
        ("decay", |step| 2.0 * (-step / 50.0).exp()),
        ("drift", |step| -0.5 * step / 1e3),
    ];
    for (name, base) in bases {
        for width in [0.0, 5.0, 20.0] {
            for seed in 0..RUNS {
                let mut random = generator(seed, Purpose::Probe, [0; 2]);
                let at = random.random_range(300..700);
                let sign = if seed % 2 == 0 { 1.0 } else { -1.0 };
                let height = sign * random.random_range(0.5..2.0);
                let rise = |step: f64| match width {
                    0.0 => f64::from(step >= at as f64),
                    width => 1.0 / (1.0 + ((at as f64 - step) / width).exp()),
                };
                let found = found(|step| base(step) + height * rise(step), 0.03, &mut random);
                let what = format!("{name}, width {width}, seed {seed}, step {at}: {found:?}");
                assert_eq!(found.len(), 1, "{what}");
                assert!(found[0].half.abs_diff(at) <= 5, "{what}");
                assert!(found[0].between[0] <= at && at <= found[0].between[1] + 5, "{what}");
                assert!((found[0].values[1] - found[0].values[0]) * height > 0.0, "{what}");
            }
        }
    }
}

#[test]
fn two_steps_are_two_changes() {
    let mut random = generator(3, Purpose::Probe, [0; 2]);
    let curve = |step: f64| f64::from(step < 300.0) + 2.0 * f64::from(step < 650.0);
    let halves: Vec<usize> = found(curve, 0.03, &mut random).iter().map(|change| change.half).collect();
    assert_eq!(halves.len(), 2, "{halves:?}");
    assert!(halves[0].abs_diff(300) <= 5 && halves[1].abs_diff(650) <= 5, "{halves:?}");
}

#[test]
fn few_rows_bracket_a_rise() {
    // The induction score of a head, every 200 steps.
    let scores = [0.05, 0.14, 0.78, 0.83, 0.85, 0.85, 0.85, 0.82, 0.81, 0.82, 0.81, 0.81];
    let curve: Vec<(usize, f64)> = (0..).step_by(200).zip(scores).collect();
    let criterion = ChangeCriterion { min_change: 0.1, min_share: 0.5, tests: num_windows(curve.len()) };
    let found = changes(&curve, criterion);
    assert_eq!(found.iter().map(|change| change.between).collect::<Vec<_>>(), [[200, 400]]);
    assert_eq!(found[0].values, [0.14, 0.78]);
    for few in 0..4 {
        assert!(changes(&curve[..few], criterion).is_empty(), "{few} rows have no neighbours");
    }
}

#[test]
fn crossings_are_the_first_steps_after_a_share() {
    let curve: Vec<(usize, f64)> = (200..=210).map(|step| (step, (step - 200) as f64)).collect();
    assert_eq!(crossings(&curve), Some([201, 205, 209]));
    let falling: Vec<(usize, f64)> = curve.iter().map(|&(step, value)| (step, -value)).collect();
    assert_eq!(crossings(&falling), crossings(&curve));
    assert_eq!(crossings(&[(3, 1.0), (4, 1.0)]), None);
    assert_eq!(crossings(&[]), None);
}

#[test]
fn effective_rank_counts_equal_directions() {
    let near = |found: [f64; 2], expected: [f64; 2]| {
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12)
    };
    assert!(near(circuit_sizes::size(&[3.0, 3.0, 3.0, 3.0, 0.0]), [6.0, 4.0]));
    assert!(near(circuit_sizes::size(&[5.0, 0.0]), [5.0, 1.0]));
}
