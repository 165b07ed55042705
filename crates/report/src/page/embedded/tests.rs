//! Tests of the data embedded in a page.

use super::{
    super::tests::{PageData, SCORE},
    *,
};
use crate::scores::{HeadScores, ScoredStep};
use crate::series::Point;

/// Unpacks the data of a page: the JSON and the bytes after it.
pub(in super::super) fn unpacked(data: &str) -> (serde_json::Value, Vec<u8>) {
    let all = miniz_oxide::inflate::decompress_to_vec_zlib(&STANDARD.decode(data).unwrap()).unwrap();
    let (length, rest) = all.split_first_chunk().unwrap();
    let (json, bytes) = rest.split_at(u32::from_le_bytes(*length) as usize);
    (serde_json::from_slice(json).unwrap(), bytes.to_vec())
}

fn read(input: &PageData) -> (serde_json::Value, Vec<u8>) {
    unpacked(&data(input.page()))
}

fn weight(byte: u8) -> f32 {
    (f32::from(byte) / STEPS as f32).powi(2)
}

#[test]
fn weights_are_stored_as_quantized_square_roots() {
    let input = PageData::new(2, 3, 11, 2);
    let (data, bytes) = read(&input);
    let cells = 2 * 3 * 11 * 12 / 2;
    assert_eq!(bytes.len(), 2 * cells);
    for (index, sample) in input.readings.iter().enumerate() {
        let maps = &data["maps"][index][0];
        assert_eq!(maps["kind"], "decoder");
        let visible: Vec<_> = (0..11).map(|query| [0, query + 1]).collect();
        assert_eq!((&maps["visible"], &maps["bin"]), (&serde_json::json!(visible), &1.into()));
        assert_eq!(maps["start"], index * cells);
        let maps = sample.maps.attention.iter().flatten();
        let visible_weights = maps
            .flat_map(|map| map.chunks_exact(11).enumerate().flat_map(|(query, row)| row[..=query].to_vec()));
        for (byte, expected) in bytes[index * cells..].iter().zip(visible_weights) {
            assert!(
                (weight(*byte).sqrt() - expected.sqrt()).abs() <= 0.5 / STEPS as f32 + 1e-6,
                "{byte}, {expected}"
            );
        }
    }
    assert_eq!(data.get("views"), None, "weights are stored only once");
}

#[test]
fn nan_weights_are_not_stored_as_zero() {
    let mut input = PageData::new(1, 1, 2, 1);
    input.readings[0].maps.attention[0][0] = vec![f32::NAN, 0.0, 1.0, 0.0];
    let (_, bytes) = read(&input);
    assert_eq!(bytes[..3], [NAN_BYTE, 254, 0]);
}

#[test]
fn windowed_maps_keep_visible_weights_and_leaks() {
    let mut input = PageData::new(1, 1, 3, 1);
    let maps = &mut input.readings[0].maps;
    maps.attention[0][0] = vec![1.0, 0.0, 0.0, 0.25, 0.75, 0.0, 0.0, 0.36, 0.64];
    maps.visible = vec![vec![0..1, 0..2, 1..3]];
    let (data, bytes) = read(&input);
    assert_eq!(data["maps"][0][0]["visible"], serde_json::json!([[0, 1], [0, 2], [1, 3]]));
    assert_eq!(
        bytes[..5].iter().map(|byte| (weight(*byte) * 100.0).round()).collect::<Vec<_>>(),
        [100.0, 25.0, 75.0, 36.0, 64.0]
    );
    input.readings[0].maps.attention[0][0][6] = 0.04;
    input.readings[0].maps.attention[0][0][2] = 0.01;
    let (data, _) = read(&input);
    assert_eq!(data["maps"][0][0]["visible"], serde_json::json!([[0, 3], [0, 2], [0, 3]]));
}

#[test]
fn encoder_decoder_pages_keep_all_three_maps() {
    let mut input = PageData::new(1, 1, 2, 1);
    let reading = &mut input.readings[0];
    reading.source = Some(["a", "b", "c"].map(str::to_string).to_vec());
    let cross = vec![0.2, 0.3, 0.5, 0.1, 0.1, 0.8];
    let encoder = vec![0.2, 0.3, 0.5, 0.1, 0.1, 0.8, 0.0, 0.0, 1.0];
    reading.maps.cross = vec![vec![cross.clone()]];
    reading.maps.encoder = vec![vec![encoder.clone()]];
    let (data, bytes) = read(&input);
    assert_eq!(
        data["maps"][0][1],
        serde_json::json!({"kind": "cross", "start": 3, "bin": 1, "visible": null})
    );
    assert_eq!(data["maps"][0][2]["start"], 9);
    assert!(bytes[3..].iter().zip(cross.iter().chain(&encoder)).all(|(a, b)| (weight(*a) - b).abs() < 4e-3));
}

#[test]
fn only_long_maps_are_binned() {
    let mut input = PageData::new(1, 1, 101, 3);
    let reading = &mut input.readings[0];
    reading.inputs = vec!["7".to_string(); 2_900];
    reading.maps.attention[0][0] =
        (0..2_900 * 2_900).map(|i| if i % 2_900 == i / 2_900 { 1.0 } else { 0.0 }).collect();
    let (data, bytes) = read(&input);
    assert_eq!([0, 1, 2].map(|sample| data["maps"][sample][0]["bin"].as_u64().unwrap()), [3, 1, 1]);
    let bins = 2_900_usize.div_ceil(3);
    assert_eq!(data["maps"][1][0]["start"], bins * (bins + 1) / 2);
    assert_eq!(bytes[..3], [254, 0, 254], "the queries of a bin attend only to their bin");
}

#[test]
fn selected_sample_keeps_the_finest_resolution() {
    let data = |input: &PageData, sample: usize| unpacked(&super::data(Page { sample, ..input.page() })).0;
    let many = data(&PageData::new(1, 1, 100, 150), 120);
    assert_eq!((&many["sample"], &many["left_out"]), (&120.into(), &29.into()));
    let long = data(&PageData::new(2, 4, 400, 3), 1);
    assert_eq!([0, 1, 2].map(|sample| long["maps"][sample][0]["bin"].as_u64().unwrap()), [2, 1, 2]);
}

#[test]
fn excess_sequences_are_dropped_and_counted() {
    let (data, _) = read(&PageData::new(1, 1, 100, 150));
    assert_eq!(data["readings"].as_array().unwrap().len(), 100);
    assert_eq!(data["left_out"], 50);
}

#[test]
fn thinned_curves_keep_ends_and_extremes() {
    let value = |step: u64| if step == 70_001 { 9.0 } else { 1.0 + (step % 7) as f64 / 100.0 };
    let points: Vec<Point> = (1..=100_000).map(|step| Point { step, value: value(step) }).collect();
    let kept = thinned(&points);
    assert!(kept.len() <= MAX_CURVE_POINTS + 1, "{}", kept.len());
    assert_eq!((kept[0].step, kept[kept.len() - 1].step), (1, 100_000));
    assert!(kept.windows(2).all(|pair| pair[0].step < pair[1].step));
    assert!(kept.iter().all(|point| point.value == value(point.step)));
    assert!(kept.iter().any(|point| point.step == 70_001));
    assert_eq!(thinned(&points[..MAX_CURVE_POINTS]).len(), MAX_CURVE_POINTS, "short curves keep all points");
}

#[test]
fn rounding_keeps_seven_digits_of_finite_numbers() {
    assert_eq!(rounded(0.123_456_789), Some(0.123_456_8));
    assert_eq!(rounded(1_234.567_891), Some(1_234.568));
    assert_eq!((rounded(f64::NAN), rounded(f64::INFINITY)), (None, None));
}

#[test]
fn long_score_histories_are_thinned() {
    let mut input = PageData::new(1, 1, 3, 1);
    let scores = |step: usize| vec![vec![HeadScores::new([(SCORE, Some(step as f64 / 10.0))])]];
    input.history =
        (0..30_001).map(|step| ScoredStep { step: step * 10, heads: scores(step * 10) }).collect();
    let (data, _) = read(&input);
    let steps = data["history"].as_array().unwrap();
    assert!(steps.len() <= MAX_SCORED_HEADS + 1, "{}", steps.len());
    for step in steps {
        assert_eq!(step["step"].as_f64().unwrap(), step["heads"][0][0]["induction"].as_f64().unwrap() * 10.0);
    }
    assert_eq!(steps.last().unwrap()["step"], 300_000);
}

#[test]
fn signed_weights_have_zero_in_the_middle() {
    let mut input = PageData::new(1, 1, 3, 2);
    input.readings[0].maps.attention[0][0] = vec![1.25, 0.0, 0.0, -0.3125, 0.3125, 0.0, 0.0, -1.25, 0.05];
    let (data, bytes) = read(&input);
    assert_eq!(data["signed_limit"], 1.25);
    assert_eq!(bytes[..6], [254, 63, 191, 127, 0, 152]);
    assert_eq!(read(&PageData::new(1, 1, 3, 2)).0.get("signed_limit"), None);
}
