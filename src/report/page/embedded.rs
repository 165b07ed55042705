//! The data of a page as its script reads them: tokens named by number, weights as 16-bit shares of
//! one, curves thinned to what a screen can show.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::{Page, PageSample, harmless};
use crate::error::{Error, Result};
use crate::report::formation::ScoreHistory;
use crate::report::range::{Range, round_up};
use crate::report::score::{self, Grid, HeadValues};
use crate::report::series::{FEWEST_TO_SMOOTH, Point, smooth, sorted};

/// A weight is kept as a multiple of one over this number.
const STEPS: f64 = u16::MAX as f64;
/// So many weights are kept, 11 MB of text. Of what is more, whole samples are left out, then the end
/// of the first one: with a causal mask, what is kept of it is what a shorter input would have given.
const MOST_WEIGHTS: usize = 4_000_000;
/// A curve is thinned to about so many points.
const MOST_POINTS: usize = 4_000;
/// Scores along the run are kept at no more than so many steps.
const MOST_SCORED: usize = 400;

#[derive(Serialize)]
struct Data<'a> {
    run: &'a str,
    summary: &'a [(String, String)],
    config: &'a str,
    steps: u16,
    colors: Vec<String>,
    loss: Loss,
    layers: Vec<usize>,
    tokens: Vec<&'a str>,
    samples: Vec<Sample<'a>>,
    measured_on: &'a str,
    scores: Vec<Score<Grid>>,
    history: History,
}

#[derive(Serialize)]
struct Loss {
    range: [f64; 2],
    end: f64,
    floor: Option<f64>,
    training: Curve,
    smoothed: Option<Curve>,
    validation: Curve,
    learning_rate: Curve,
    learning_rate_top: f64,
}

#[derive(Serialize, Default)]
struct Curve {
    x: Vec<u64>,
    y: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct Sample<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Vec<usize>>,
    inputs: Vec<usize>,
    predictions: Vec<Prediction>,
    /// The tokens whose maps are kept; 0 where none are.
    time: usize,
    /// Whether only keys up to the query are kept.
    causal: bool,
    weights: String,
}

#[derive(Serialize)]
struct Prediction {
    truth: Option<usize>,
    truth_probability: Option<f64>,
    determined: bool,
    probable: Vec<(usize, Option<f64>)>,
}

#[derive(Serialize)]
struct Score<V> {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    digits: usize,
    range: [f64; 2],
    values: V,
}

#[derive(Serialize)]
struct History {
    steps: Vec<u64>,
    scores: Vec<Score<Vec<Grid>>>,
}

/// The data as JSON that can stand in a script element.
pub(super) fn data(page: &Page) -> Result<String> {
    let mut tokens = Tokens::default();
    let layers = page.layers();
    let heads: usize = layers.iter().sum();
    let mut room = MOST_WEIGHTS;
    let samples = page.samples.iter().enumerate().map(|(i, sample)| {
        let causal = is_causal(sample);
        let weights = |time: usize| heads * if causal { time * (time + 1) / 2 } else { time * time };
        let fits = |time: &usize| weights(*time) <= room;
        let all = sample.inputs.len();
        let time = match i {
            0 => (1..=all).rev().find(fits).unwrap_or(1),
            _ => Some(all).filter(fits).unwrap_or(0),
        };
        room = room.saturating_sub(weights(time));
        Sample {
            name: &sample.name,
            source: sample
                .source
                .as_ref()
                .map(|source| source.iter().map(|token| tokens.number(token)).collect()),
            inputs: sample.inputs.iter().map(|token| tokens.number(token)).collect(),
            predictions: predictions(sample, &mut tokens),
            time,
            causal,
            weights: pack(sample, time, causal),
        }
    });
    let samples = samples.collect();
    let data = Data {
        run: &page.run,
        summary: &page.summary,
        config: &page.config,
        steps: u16::MAX,
        colors: page.color_map.control_points().map(|point| format!("#{point:06x}")).to_vec(),
        loss: loss(page),
        layers,
        tokens: tokens.texts,
        samples,
        measured_on: &page.measured_on,
        scores: page.scores.iter().map(scores).collect(),
        history: history(page),
    };
    let json = serde_json::to_string(&data)
        .map_err(|error| Error::Failed(format!("cannot write the data of the page: {error}")))?;
    Ok(harmless(json))
}

/// Every text once, the rest by number.
#[derive(Default)]
struct Tokens<'a> {
    texts: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Tokens<'a> {
    fn number(&mut self, text: &'a str) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }
}

/// A number with seven digits that count; none where it is not finite.
fn rounded(value: f64) -> Option<f64> {
    format!("{value:.6e}").parse().ok().filter(|value: &f64| value.is_finite())
}

fn predictions<'a>(sample: &'a PageSample, tokens: &mut Tokens<'a>) -> Vec<Prediction> {
    let steps = sample.predictions.iter().map(|step| Prediction {
        truth: step.truth.as_deref().map(|token| tokens.number(token)),
        truth_probability: step.truth_probability.and_then(rounded),
        determined: step.determined,
        probable: step
            .probable
            .iter()
            .map(|likely| (tokens.number(&likely.token), rounded(likely.probability)))
            .collect(),
    });
    steps.collect()
}

/// Whether no query of the sample puts weight on a key behind it.
fn is_causal(sample: &PageSample) -> bool {
    let time = sample.inputs.len();
    let rows = sample.attention.iter().flatten().flat_map(|map| map.chunks_exact(time).enumerate());
    rows.into_iter().all(|(query, row)| row[query + 1..].iter().all(|&weight| weight == 0.0))
}

/// The first `time` tokens' weights, layer by layer and head by head, as little-endian 16-bit
/// multiples of 1 / 65,535 in base64.
fn pack(sample: &PageSample, time: usize, causal: bool) -> String {
    let mut bytes = Vec::new();
    for map in sample.attention.iter().flatten() {
        for (query, row) in map.chunks_exact(sample.inputs.len()).take(time).enumerate() {
            let seen = if causal { query + 1 } else { time };
            let steps =
                row[..seen].iter().map(|&weight| (f64::from(weight).clamp(0.0, 1.0) * STEPS).round() as u16);
            bytes.extend(steps.flat_map(u16::to_le_bytes));
        }
    }
    STANDARD.encode(bytes)
}

fn loss(page: &Page) -> Loss {
    let loss = &page.loss;
    let losses = loss.losses();
    let steps = loss.steps();
    let end = page.scored_steps.last().map_or(steps.end, |&step| steps.end.max(step as f64));
    let smoothed = smooth(&loss.training, losses.end);
    let highest = sorted(loss.learning_rate.iter()).last().copied().unwrap_or(1.0);
    Loss {
        range: bounds(losses),
        end,
        floor: loss.floor.and_then(rounded),
        training: curve(&loss.training),
        smoothed: (smoothed.len() >= FEWEST_TO_SMOOTH).then(|| curve(&smoothed)),
        validation: curve(&loss.validation),
        learning_rate: curve(&loss.learning_rate),
        learning_rate_top: round_up(highest * 1.08),
    }
}

fn bounds(range: Range) -> [f64; 2] {
    [range.start, range.end]
}

/// The points of a curve; of many in a row the first, the lowest and the highest.
fn curve(points: &[Point]) -> Curve {
    let mut kept = Curve::default();
    let size = if points.len() <= MOST_POINTS { 1 } else { points.len().div_ceil(MOST_POINTS / 3) };
    for (i, group) in points.chunks(size).enumerate() {
        let by_value = |a: &usize, b: &usize| group[*a].value.total_cmp(&group[*b].value);
        let lowest = (0..group.len()).min_by(by_value).unwrap_or(0);
        let highest = (0..group.len()).max_by(by_value).unwrap_or(0);
        let mut chosen = vec![0, lowest.min(highest), lowest.max(highest)];
        if (i + 1) * size >= points.len() {
            chosen.push(group.len() - 1);
        }
        chosen.dedup();
        for point in chosen.into_iter().map(|place| group[place]) {
            kept.x.push(point.step);
            kept.y.push(rounded(point.value));
        }
    }
    kept
}

fn grid(values: &[Vec<Option<f64>>]) -> Grid {
    values.iter().map(|heads| heads.iter().map(|value| value.and_then(rounded)).collect()).collect()
}

fn scores(scores: &HeadValues) -> Score<Grid> {
    let range = score::range(scores.score, scores.known().map(|(.., value)| value));
    described(scores.score, range, grid(&scores.values))
}

fn described<V>(score: crate::analysis::Score, range: Range, values: V) -> Score<V> {
    Score {
        key: score.key(),
        name: score.name(),
        unit: score.unit(),
        meaning: score.meaning(),
        digits: score.digits(),
        range: bounds(range),
        values,
    }
}

fn history(page: &Page) -> History {
    let every = page.scored_steps.len().div_ceil(MOST_SCORED).max(1);
    let last = page.scored_steps.len().saturating_sub(1);
    let kept = |i: &usize| i.is_multiple_of(every) || *i == last;
    let course = |history: &ScoreHistory| {
        let values: Vec<_> = (0..=last).filter(kept).map(|i| grid(&history.values[i])).collect();
        let range = score::range(history.score, values.iter().flatten().flatten().flatten().copied());
        described(history.score, range, values)
    };
    // Without a step there is nothing to show.
    let histories = if page.scored_steps.is_empty() { &[] } else { &page.score_history[..] };
    let steps = (0..page.scored_steps.len()).filter(kept).map(|i| page.scored_steps[i]).collect();
    History { scores: histories.iter().map(course).collect(), steps }
}

#[cfg(test)]
mod tests;
