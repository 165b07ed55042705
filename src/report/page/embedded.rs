//! The data of a page as its script reads them: a length of four bytes, so much JSON, and all weights a
//! byte each, deflated together and in base64. Long curves are thinned and long maps binned before.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::Page;
use crate::analysis::{AttentionKind, HeadScores, Score};
use crate::error::{Error, Result};
use crate::report::color::CONTROL_POINTS;
use crate::report::reading::Reading;
use crate::report::series::{Point, smooth};

/// A byte holds the square root of a weight in so many steps: small weights are told apart, which a long
/// sequence has many of, and large ones are off by 0.004 at most.
const STEPS: f32 = 255.0;
/// So many bytes of weights are kept of the first sequence, and of all others together.
const MOST_BYTES: usize = 1 << 20;
/// Maps whose bins would hold more positions than this are left out.
const WIDEST_BIN: usize = 16;
/// A curve is thinned to about so many points.
const MOST_POINTS: usize = 4_000;
/// Scores along the run are kept of so many heads at most, all steps counted.
const MOST_SCORED: usize = 10_000;
/// So many positions of predictions are kept; of what is more, whole sequences are left out.
const MOST_PREDICTIONS: usize = 10_000;

/// A page with what follows from it.
#[derive(Serialize)]
struct Embedded<'a> {
    #[serde(flatten)]
    page: Page<'a>,
    colors: Vec<String>,
    scores: Vec<About>,
    loss_range: [f64; 2],
    smoothed: Vec<Point>,
    /// The steps over which the loss is smoothed.
    window: u64,
    layers: Vec<usize>,
    /// `[sample][kind]`.
    maps: Vec<Vec<Packed>>,
    /// Sequences that are left out.
    left_out: usize,
}

/// What a score is.
#[derive(Serialize)]
struct About {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    digits: usize,
    is_weight: bool,
}

/// Where the maps of one kind lie among the bytes.
#[derive(Serialize)]
struct Packed {
    kind: AttentionKind,
    /// The first byte.
    start: usize,
    /// Positions in a bin of either axis; 0 where the maps are left out.
    bin: usize,
    /// Whether only keys up to the query are kept.
    causal: bool,
}

/// The data as base64.
///
/// # Errors
/// If the maps do not fit the tokens.
pub(super) fn data(mut page: Page) -> Result<String> {
    let layers: Vec<usize> =
        page.readings.first().map_or(Vec::new(), |first| first.view.attention.iter().map(Vec::len).collect());
    if layers.is_empty() || layers.contains(&0) {
        return Err(Error::Shape("a page needs the attention of at least one sample and head".to_string()));
    }
    page.views.clear();
    let all = page.readings.len();
    let mut positions = page.readings.iter().scan(0, |sum, reading| {
        *sum += reading.inputs.len();
        Some(*sum)
    });
    page.readings = &page.readings[..positions.position(|sum| sum > MOST_PREDICTIONS).unwrap_or(all).max(1)];
    let mut bytes = Vec::new();
    let others = MOST_BYTES / page.readings.len().saturating_sub(1).max(1);
    let mut maps = Vec::new();
    for (index, reading) in page.readings.iter().enumerate() {
        maps.push(pack(reading, &layers, if index == 0 { MOST_BYTES } else { others }, &mut bytes)?);
    }
    let range = page.loss.losses();
    let smoothed = smooth(&page.loss.training, range.end);
    let (window, smoothed) =
        smoothed.map_or((0, Vec::new()), |smoothed| (smoothed.window, thinned(&smoothed.points)));
    for curve in [&mut page.loss.training, &mut page.loss.validation, &mut page.loss.learning_rate] {
        *curve = thinned(curve);
    }
    thin_history(&mut page);
    let is_known = |score: &Score| page.heads.iter().flatten().any(|head| head[*score].is_some());
    let about = |score: Score| About {
        key: score.key(),
        name: score.name(),
        unit: score.unit(),
        meaning: score.meaning(),
        digits: score.digits(),
        is_weight: score.is_weight(),
    };
    let embedded = Embedded {
        colors: CONTROL_POINTS.map(|point| format!("#{point:06x}")).to_vec(),
        scores: Score::ALL.into_iter().filter(is_known).map(about).collect(),
        loss_range: [range.start, range.end],
        smoothed,
        window,
        layers,
        maps,
        left_out: all - page.readings.len(),
        page,
    };
    let json = serde_json::to_vec(&embedded)
        .map_err(|error| Error::Failed(format!("cannot write the data of the page: {error}")))?;
    let all = [&(json.len() as u32).to_le_bytes()[..], &json, &bytes].concat();
    Ok(STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(&all, 6)))
}

/// Adds the maps of a reading to `bytes`, no more than `most` of them.
fn pack(reading: &Reading, layers: &[usize], most: usize, bytes: &mut Vec<u8>) -> Result<Vec<Packed>> {
    let kinds: Vec<AttentionKind> = reading.kinds().collect();
    let mut packed = Vec::new();
    for &kind in &kinds {
        let sides = kind.tokens(&reading.inputs, reading.source()).map(<[String]>::len);
        let [queries, keys] = sides;
        let weights = reading.view.maps(kind);
        let maps: Vec<&Vec<f32>> = weights.iter().flatten().collect();
        let fit = maps.iter().all(|map| map.len() == queries * keys) && keys > 0;
        if !fit || !weights.iter().map(Vec::len).eq(layers.iter().copied()) {
            return Err(Error::Shape(format!(
                "{}: the maps of {} do not fit heads by layer {layers:?}, {queries} queries and {keys} keys",
                reading.sequence,
                kind.name()
            )));
        }
        let causal = kind == AttentionKind::Decoder && maps.iter().all(|map| is_causal(map, keys));
        let fits = |bin: &usize| maps.len() * cells(sides, *bin, causal) <= most / kinds.len();
        let bin = (1..=WIDEST_BIN).find(fits);
        packed.push(Packed { kind, start: bytes.len(), bin: bin.unwrap_or(0), causal });
        if let Some(bin) = bin {
            maps.iter().for_each(|map| pack_map(map, sides, bin, causal, bytes));
        }
    }
    Ok(packed)
}

/// Whether no query puts weight on a key behind it.
fn is_causal(map: &[f32], keys: usize) -> bool {
    let mut rows = map.chunks_exact(keys).enumerate();
    rows.all(|(query, row)| row.iter().skip(query + 1).all(|&weight| weight == 0.0))
}

/// The cells of a binned map.
fn cells(sides: [usize; 2], bin: usize, causal: bool) -> usize {
    let [queries, keys] = sides.map(|side| side.div_ceil(bin));
    if causal { queries * (queries + 1) / 2 } else { queries * keys }
}

/// Bins a map and writes it row by row: the weight that a query of a bin puts on all keys of a bin, in
/// the mean of its queries.
fn pack_map(map: &[f32], [queries, keys]: [usize; 2], bin: usize, causal: bool, bytes: &mut Vec<u8>) {
    for (row, rows) in map.chunks(keys * bin).enumerate() {
        let mut sums = vec![0.0; keys.div_ceil(bin)];
        for (place, &weight) in rows.iter().enumerate() {
            sums[place % keys / bin] += weight;
        }
        let together = bin.min(queries - row * bin) as f32;
        let seen = if causal { row + 1 } else { sums.len() };
        let byte = |sum: &f32| ((sum / together).clamp(0.0, 1.0).sqrt() * STEPS).round() as u8;
        bytes.extend(sums[..seen].iter().map(byte));
    }
}

/// A number with seven digits that count; none where it is not finite.
fn rounded(value: f64) -> Option<f64> {
    format!("{value:.6e}").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The points of a curve; of many in a row the first, the lowest and the highest.
fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for group in points.chunks(points.len().div_ceil(MOST_POINTS / 3)) {
        let by_value = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
        let chosen = [group.first(), group.iter().min_by(by_value), group.iter().max_by(by_value)];
        let mut chosen: Vec<Point> = chosen.into_iter().flatten().copied().collect();
        chosen.sort_by_key(|point| point.step);
        chosen.dedup_by_key(|point| point.step);
        kept.extend(chosen);
    }
    kept.extend(points.last().filter(|last| kept.last().is_some_and(|point| point.step < last.step)));
    kept
}

/// Keeps the scores of every so many steps, and of the last.
fn thin_history(page: &mut Page) {
    let heads: usize = page.heads.iter().map(Vec::len).sum();
    let every = (page.history.len() * heads.max(1)).div_ceil(MOST_SCORED).max(1);
    let last = page.history.len().saturating_sub(1);
    let mut index = 0..;
    page.history
        .retain(|_| index.next().is_some_and(|index: usize| index.is_multiple_of(every) || index == last));
    for head in page.history.iter_mut().flat_map(|step| &mut step.heads).flatten() {
        *head = HeadScores::new(|score| head[score].and_then(rounded));
    }
}

#[cfg(test)]
pub(super) mod tests;
