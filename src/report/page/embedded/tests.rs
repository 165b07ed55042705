//! What a page embeds.

use super::super::tests::page;
use super::*;

fn read(page: &Page) -> serde_json::Value {
    serde_json::from_str(&data(page).unwrap()).unwrap()
}

/// The weights of a sample, in the order in which they are kept.
fn weights(sample: &serde_json::Value) -> Vec<f64> {
    let bytes = STANDARD.decode(sample["weights"].as_str().unwrap()).unwrap();
    bytes.chunks_exact(2).map(|two| f64::from(u16::from_le_bytes([two[0], two[1]])) / STEPS).collect()
}

#[test]
fn weights_are_kept_to_half_a_step_layer_by_layer() {
    let page = page(2, 3, 11, 2);
    let data = read(&page);
    for (sample, kept) in page.samples.iter().zip(data["samples"].as_array().unwrap()) {
        assert_eq!(kept["causal"], true);
        let seen =
            sample.attention.iter().flatten().flat_map(|map| {
                map.chunks_exact(11).enumerate().flat_map(|(query, row)| row[..=query].to_vec())
            });
        let found = weights(kept);
        assert_eq!(found.len(), 2 * 3 * 11 * 12 / 2);
        for (found, weight) in found.into_iter().zip(seen) {
            assert!((found - f64::from(weight)).abs() <= 0.5 / STEPS + 1e-12, "{found}, {weight}");
        }
    }
}

#[test]
fn maps_that_see_the_future_are_kept_whole() {
    let mut page = page(1, 1, 3, 1);
    page.samples[0].attention[0][0] = vec![0.2, 0.3, 0.5, 0.1, 0.1, 0.8, 0.0, 0.0, 1.0];
    let data = read(&page);
    assert_eq!(data["samples"][0]["causal"], false);
    let expected = [0.2, 0.3, 0.5, 0.1, 0.1, 0.8, 0.0, 0.0, 1.0];
    assert!(weights(&data["samples"][0]).iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn what_is_too_large_keeps_the_first_tokens_of_the_first_sample() {
    let long = 2_900;
    let mut page = page(1, 1, 101, 2);
    page.samples[0].inputs = vec!["7".to_string(); long];
    page.samples[0].predictions.clear();
    page.samples[0].attention[0][0] =
        (0..long * long).map(|i| if i % long == i / long { 1.0 } else { 0.0 }).collect();
    let data = read(&page);
    let time = data["samples"][0]["time"].as_u64().unwrap() as usize;
    assert!(time * (time + 1) / 2 <= MOST_WEIGHTS && (time + 1) * (time + 2) / 2 > MOST_WEIGHTS);
    assert_eq!(weights(&data["samples"][0]).len(), time * (time + 1) / 2);
    assert_eq!(data["samples"][0]["inputs"].as_array().unwrap().len(), long);
    // There is no room left for the second one, whose predictions stay.
    assert_eq!((&data["samples"][1]["time"], &data["samples"][1]["weights"]), (&0.into(), &"".into()));
    assert_eq!(data["samples"][1]["predictions"].as_array().unwrap().len(), 101);
}

#[test]
fn curves_of_very_many_points_keep_their_ends_and_extremes() {
    let value = |step: u64| if step == 70_001 { 9.0 } else { 1.0 + (step % 7) as f64 / 100.0 };
    let points: Vec<Point> = (1..=100_000).map(|step| Point { step, value: value(step) }).collect();
    let kept = curve(&points);
    assert!(kept.x.len() <= MOST_POINTS + 1, "{}", kept.x.len());
    assert_eq!((kept.x[0], kept.x[kept.x.len() - 1]), (1, 100_000));
    assert!(kept.x.windows(2).all(|pair| pair[0] < pair[1]));
    for (&step, kept) in kept.x.iter().zip(&kept.y) {
        assert_eq!(*kept, Some(value(step)));
    }
    assert!(kept.x.contains(&70_001));
    let few = curve(&points[..MOST_POINTS]);
    assert_eq!(few.x.len(), MOST_POINTS, "few enough points are all kept");
}

#[test]
fn numbers_keep_seven_digits_and_what_is_no_number_is_none() {
    assert_eq!(rounded(0.123_456_789), Some(0.123_456_8));
    assert_eq!(rounded(1_234.567_891), Some(1_234.568));
    assert_eq!((rounded(f64::NAN), rounded(f64::INFINITY)), (None, None));
}

#[test]
fn scores_at_very_many_steps_are_thinned_with_their_steps() {
    let mut page = page(1, 1, 3, 1);
    page.scored_steps = (0..1_001).map(|step| step * 10).collect();
    page.score_history[0].values = (0..1_001).map(|step| vec![vec![Some(f64::from(step))]]).collect();
    let data = read(&page);
    let steps = data["history"]["steps"].as_array().unwrap();
    let values = data["history"]["scores"][0]["values"].as_array().unwrap();
    assert!(steps.len() <= MOST_SCORED + 1 && steps.len() == values.len());
    for (step, value) in steps.iter().zip(values) {
        assert_eq!(step.as_f64().unwrap(), value[0][0].as_f64().unwrap() * 10.0);
    }
    assert_eq!(steps.last().unwrap(), 10_000);
}
