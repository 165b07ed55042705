//! The data of a page in the format of its script: the length of the JSON in four bytes, the JSON, and the attention
//! weights as one byte each, compressed with deflate and encoded in base64. Before that, long curves are thinned and
//! large maps are binned.

use std::ops::Range;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Page, PageWithDerived, colors};
use crate::draw::{HeatMap, binned, extremes};
use crate::reading::{AttentionKind, Reading};
use crate::scores::known;
use crate::series::{Point, is_clipped, smooth};

/// The number of quantization steps for the square root of a weight, which is stored in a byte. The root resolves the
/// small weights of a long sequence; the error of large weights is at most 0.004.
const STEPS: f64 = 254.0;
/// The byte of weight zero if weights are signed: there are as many steps on both sides.
const SIGNED_ZERO: f64 = STEPS / 2.0;
/// The byte that encodes NaN.
const NAN_BYTE: u8 = 255;
/// The maximum number of bytes of weights for the sequence shown first, and for all other sequences in total.
const MAX_BYTES: usize = 1 << 20;
/// The maximum number of bytes of weights for each step of `film`.
const MAX_FILM_BYTES: usize = 1 << 16;
/// The maximum number of positions per bin; maps that need larger bins are omitted.
const MAX_BIN: usize = 16;
/// The approximate maximum number of points of a curve.
const MAX_CURVE_POINTS: usize = 4_000;
/// The maximum number of heads in the history of scores, summed over all steps.
const MAX_SCORED_HEADS: usize = 10_000;
/// The maximum number of positions with predictions; further sequences are omitted.
const MAX_PREDICTIONS: usize = 10_000;

/// Returns the data of a page in base64.
pub(super) fn data(mut page: Page) -> String {
    let layers: Vec<usize> = page.readings[page.sample].maps.attention.iter().map(Vec::len).collect();
    let all = page.readings.len();
    let mut positions = 0;
    let fitting = page.readings.iter().take_while(|reading| {
        positions += reading.inputs.len();
        positions <= MAX_PREDICTIONS
    });
    let kept = fitting.count().max(page.sample + 1);
    page.readings.truncate(kept);
    let mut bytes = Vec::new();
    let all_maps = page.readings.iter().chain(page.film.iter().map(|(_, reading)| reading));
    let limit = all_maps.filter_map(|reading| reading.maps.signed_limit()).reduce(f32::max).map(f64::from);
    let others = MAX_BYTES / page.readings.len().saturating_sub(1).max(1);
    let mut maps = Vec::new();
    for (index, reading) in page.readings.iter().enumerate() {
        let max_bytes = if index == page.sample { MAX_BYTES } else { others };
        maps.push(pack(reading, limit, max_bytes, &mut bytes));
    }
    let mut film = Vec::new();
    for (step, reading) in std::mem::take(&mut page.film) {
        let maps = pack(&reading, limit, MAX_FILM_BYTES, &mut bytes);
        film.push(json!({"step": step, "reading": reading, "maps": maps}));
    }
    let (model, model_missing, starts) = match page.model.take() {
        Some(Ok(mut live)) => {
            live.description["start"] = json!(bytes.len());
            bytes.append(&mut live.numbers);
            (live.description, Value::Null, live.starts)
        }
        Some(Err(reason)) => (Value::Null, json!(reason), Vec::new()),
        None => (Value::Null, Value::Null, Vec::new()),
    };
    let (range, rates_end) = (page.loss.losses(), page.loss.rates_end());
    let (window, smoothed) = smooth(&page.loss.training, range.end).unwrap_or_default();
    let smoothed_is_clipped = is_clipped(&page.loss.training, range.end);
    let loss = &mut page.loss;
    for curve in [&mut loss.training, &mut loss.objective, &mut loss.validation, &mut loss.learning_rate] {
        *curve = thinned(curve);
    }
    thin_history(&mut page);
    let scores = known(&page.heads.kinds, &page.heads.scores);
    // `smoothed` and `window` are the smoothed loss and the steps over which it is smoothed; `layers` holds the number
    // of heads per layer; `maps` locates the maps of a sample and a kind of attention among the bytes; `left_out`
    // counts the omitted sequences.
    let mut derived = json!({
        "colors": colors(), "scores": scores, "loss_range": [range.start, range.end], "rates_end": rates_end,
        "smoothed": thinned(&smoothed), "window": window, "smoothed_is_clipped": smoothed_is_clipped, "layers": layers, "maps": maps,
        "left_out": all - page.readings.len(),
        "film": film, "model": model, "model_missing": model_missing, "starts": starts,
    });
    if let Some(limit) = limit {
        derived["signed_limit"] = json!(limit);
    }
    let json =
        serde_json::to_vec(&PageWithDerived { page: &page, derived }).expect("a page holds plain values");
    let all = [&(json.len() as u32).to_le_bytes()[..], &json, &bytes].concat();
    STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(&all, 6))
}

/// Appends the maps of a reading to `bytes`, at most `max_bytes` bytes, and describes the maps of each kind of
/// attention: `start` is the offset of their first byte, and `bin` the number of positions per bin on both axes, 0 for
/// omitted maps. `visible` is the range of keys that each query can see in any layer; only the weights on these keys
/// are stored. `limit` is the largest absolute weight of signed weights.
fn pack(reading: &Reading, limit: Option<f64>, max_bytes: usize, bytes: &mut Vec<u8>) -> Vec<Value> {
    let has_maps = |kind: &AttentionKind| !reading.maps.of(*kind).is_empty();
    let kinds: Vec<AttentionKind> = AttentionKind::ALL.into_iter().filter(has_maps).collect();
    let source = reading.source.as_deref().unwrap_or(&[]);
    let mut packed = Vec::new();
    for &kind in &kinds {
        let [queries, keys] = kind.sides(&reading.inputs[..], source).map(<[String]>::len);
        let maps: Vec<&Vec<f32>> = reading.maps.of(kind).iter().flatten().collect();
        let visible = visible_in_any_layer(reading, kind, [queries, keys]);
        let cells = |bin: usize| binned(&visible, [bin; 2]).iter().map(Range::len).sum::<usize>();
        let bin = (1..=MAX_BIN).find(|&bin| maps.len() * cells(bin) <= max_bytes / kinds.len());
        let rows = binned(&visible, [bin.unwrap_or(1); 2]);
        let is_complete = rows.iter().all(|row| row.len() == keys.div_ceil(bin.unwrap_or(1)));
        let ranges = (bin.is_some() && !is_complete)
            .then(|| rows.iter().map(|row| [row.start, row.end]).collect::<Vec<_>>());
        packed.push(json!({"kind": kind, "start": bytes.len(), "bin": bin.unwrap_or(0), "visible": ranges}));
        let Some(size) = bin else { continue };
        for map in maps {
            let map = HeatMap::of_weights(map, [queries, keys], [size; 2], &visible);
            for (weights, row) in map.values.chunks(keys.div_ceil(size)).zip(&rows) {
                bytes.extend(weights[row.clone()].iter().map(|weight| byte(weight.unwrap_or(0.0), limit)));
            }
        }
    }
    packed
}

/// Encodes a weight in a byte. Signed weights are from `-limit` to `limit`.
fn byte(weight: f64, limit: Option<f64>) -> u8 {
    match limit {
        _ if weight.is_nan() => NAN_BYTE,
        None => (weight.clamp(0.0, 1.0).sqrt() * STEPS).round() as u8,
        Some(limit) => {
            let root = (weight.abs() / limit).min(1.0).sqrt() * SIGNED_ZERO;
            (SIGNED_ZERO + root.round().copysign(weight)) as u8
        }
    }
}

/// Returns the range of keys that each query can see in any layer. Keys with a nonzero weight are included, so that
/// leaks of the mask are visible.
fn visible_in_any_layer(reading: &Reading, kind: AttentionKind, sizes: [usize; 2]) -> Vec<Range<usize>> {
    let [queries, keys] = sizes;
    let layers = reading.maps.of(kind);
    let by_layer = (0..layers.len()).map(|layer| reading.maps.visible(kind, layer, sizes));
    let mut visible = by_layer.reduce(|all, layer| {
        all.into_iter().zip(layer).map(|(a, b)| a.start.min(b.start)..a.end.max(b.end)).collect()
    });
    let visible = visible.get_or_insert_with(|| vec![0..keys; queries]);
    for (query, row) in visible.iter_mut().enumerate() {
        for map in layers.iter().flatten() {
            let weights = &map[query * keys..(query + 1) * keys];
            let first = weights[..row.start].iter().position(|weight| *weight != 0.0);
            let last = weights[row.end..].iter().rposition(|weight| *weight != 0.0);
            *row = first.unwrap_or(row.start)..last.map_or(row.end, |last| row.end + last + 1);
        }
    }
    std::mem::take(visible)
}

/// Rounds a number to seven significant digits; `None` if it is not finite.
fn rounded(value: f64) -> Option<f64> {
    format!("{value:.6e}").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns the points of a curve; if there are too many, each group of points keeps its first, lowest, highest and
/// last.
fn thinned(points: &[Point]) -> Vec<Point> {
    let is_long = points.len() > MAX_CURVE_POINTS;
    let group_size = if is_long { points.len().div_ceil(MAX_CURVE_POINTS / 4) } else { 1 };
    points.chunks(group_size).flat_map(|group| extremes(group, |point| point.value)).collect()
}

/// Limits the history of scores to evenly spaced steps and the last step.
fn thin_history(page: &mut Page) {
    let heads: usize = page.heads.scores.iter().map(Vec::len).sum();
    let stride = (page.history.len() * heads.max(1)).div_ceil(MAX_SCORED_HEADS).max(1);
    let last = page.history.len().saturating_sub(1);
    let steps = std::mem::take(&mut page.history).into_iter().enumerate();
    let kept = steps.filter(|&(index, _)| index.is_multiple_of(stride) || index == last);
    page.history = kept.map(|(_, step)| step).collect();
    for head in page.history.iter_mut().flat_map(|step| &mut step.heads).flatten() {
        head.0.iter_mut().for_each(|(_, value)| *value = value.and_then(rounded));
    }
}

#[cfg(test)]
pub(super) mod tests;
