//! The changes of a curve that was recorded at some steps.
//!
//! Around a window of `g` rows lie a window of `g` rows before it and one after it. With the means `m_0 .. m_3` of the
//! rows around the four ends, the window holds a change if
//!
//! ```text
//! T = |m_2 - m_1| - 2 max(|m_1 - m_0|, |m_3 - m_2|) > z * se
//! ```
//!
//! that is, if the curve is significantly more than twice as steep as on both sides. An exponential or a power law is
//! steeper before than within, a line is as steep, and a half cosine is at most twice as steep, so that a decay, a drift
//! and a schedule are no changes at any scale.
//!
//! `se` is the standard error of `T` for independent noise, whose deviation is estimated from second differences. `z`
//! is the normal quantile of `0.01 / (2 * tests)`, where `tests` counts the windows of all curves of a run: the
//! probability of one or more false changes in a run is at most 1 %.

use statrs::distribution::{ContinuousCDF, Normal};

/// The bound on the probability of a false change in a run.
const FALSE_POSITIVE_RATE: f64 = 0.01;
/// The steepness that a change must exceed, as a multiple of that on either side.
const STEEPNESS: f64 = 2.0;
/// The standard error of `T` in units of that of a mean: the coefficients are 2, -3 and 1.
const STANDARD_ERROR: f64 = 3.741_657_386_773_941_3;
/// The ratio of consecutive window lengths.
const LENGTH_RATIO: f64 = 1.15;
/// The share of the largest `T` of a change that the reported window must have, so that it is not wider than the change.
const REPORTED_SHARE: f64 = 0.8;
/// The number of rows on both sides of a row from which its noise is estimated.
const NOISE_ROWS: usize = 30;
/// The ratio of a standard deviation and a median absolute deviation under normal noise.
const DEVIATION_PER_MEDIAN: f64 = 1.482_6;
/// The maximum number of rows of a curve; more are averaged in groups.
const MAX_ROWS: usize = 4_096;

/// The requirements of a change, in addition to its steepness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeCriterion {
    /// The minimum change.
    pub min_change: f64,
    /// The minimum change as a share of the range of the curve.
    pub min_share: f64,
    /// The number of windows that are tested in the run; see [`num_windows`].
    pub tests: usize,
}

/// A change of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveChange {
    /// The recorded steps before and after the change.
    pub between: [usize; 2],
    /// The first recorded step after half of the change.
    pub half: usize,
    /// The values before and after.
    pub values: [f64; 2],
    /// `T` in standard errors.
    pub deviations: f64,
}

/// A window that passes the test, in rows.
struct Window {
    rows: [usize; 2],
    /// The number of rows on both sides of an end over which its value is averaged.
    margin: usize,
    excess: f64,
    change: CurveChange,
}

/// Returns the lengths of the windows that are tested on a curve of `rows` rows.
fn lengths(rows: usize) -> impl Iterator<Item = usize> {
    let next = |&length: &usize| Some((length + 1).max((length as f64 * LENGTH_RATIO) as usize));
    std::iter::successors(Some(1), next).take_while(move |length| 3 * length < rows)
}

/// Returns the number of windows that are tested on a curve of `rows` rows.
pub fn num_windows(rows: usize) -> usize {
    let rows = rows.div_ceil(rows.div_ceil(MAX_ROWS).max(1));
    lengths(rows).map(|length| rows.saturating_sub(3 * length + 2 * (length / 4))).sum()
}

/// Returns the changes of a curve of steps and values, in the order of steps.
pub fn changes(curve: &[(usize, f64)], criterion: ChangeCriterion) -> Vec<CurveChange> {
    let curve = grouped(curve);
    let range = curve
        .iter()
        .fold([f64::INFINITY, f64::NEG_INFINITY], |range, row| [range[0].min(row.1), range[1].max(row.1)]);
    let scale = range[0].abs().max(range[1].abs());
    if curve.len() < 4 || range[1] - range[0] <= 1e-9 * scale {
        return Vec::new();
    }
    let min_change = criterion.min_change.max(criterion.min_share * (range[1] - range[0]));
    let mut left = windows(&curve, min_change, quantile(criterion.tests));
    let mut found = Vec::new();
    while let Some(largest) = left.iter().map(|window| window.excess).reduce(f64::max) {
        let best = left.iter().find(|window| window.excess == largest).map_or([0; 2], |window| window.rows);
        let overlaps = |rows: [usize; 2]| rows[0] < best[1] && best[0] < rows[1];
        let fits = |window: &&Window| overlaps(window.rows) && window.excess >= REPORTED_SHARE * largest;
        let by_length = |a: &&Window, b: &&Window| {
            let length = |window: &Window| window.rows[1] - window.rows[0];
            length(a).cmp(&length(b)).then(b.excess.total_cmp(&a.excess))
        };
        let Some(reported) = left.iter().filter(fits).min_by(by_length) else { break };
        let [from, until] = reported.rows;
        found.push(CurveChange { half: split(&curve, reported.rows), ..reported.change });
        let taken = [from.min(best[0]), until.max(best[1])];
        left.retain(|window| {
            let [from, until] = window.rows;
            from.saturating_sub(window.margin) >= taken[1] || until + window.margin <= taken[0]
        });
    }
    found.sort_by_key(|change| change.between);
    found
}

/// Averages groups of rows if there are too many. The step of a group is that of its last row.
fn grouped(curve: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let size = curve.len().div_ceil(MAX_ROWS).max(1);
    let group = |rows: &[(usize, f64)]| {
        let sum: f64 = rows.iter().map(|row| row.1).sum();
        (rows[rows.len() - 1].0, sum / rows.len() as f64)
    };
    curve.chunks(size).map(group).collect()
}

fn quantile(tests: usize) -> f64 {
    let tail = FALSE_POSITIVE_RATE / (2 * tests.max(1)) as f64;
    Normal::standard().inverse_cdf(1.0 - tail)
}

/// Returns the windows that pass the test.
fn windows(curve: &[(usize, f64)], min_change: f64, quantile: f64) -> Vec<Window> {
    let sums = sums(curve.iter().map(|row| row.1));
    let noise = noise(curve);
    let mut found = Vec::new();
    for length in lengths(curve.len()) {
        let margin = length / 4;
        for first in margin..curve.len().saturating_sub(3 * length + margin) {
            let ends = [0, 1, 2, 3].map(|end| first + end * length);
            let means = ends.map(|end| mean(&sums, [end - margin, end + margin + 1]));
            let slope = |side: usize| {
                (means[side + 1] - means[side]) / (curve[ends[side + 1]].0 - curve[ends[side]].0) as f64
            };
            let around = slope(0).abs().max(slope(2).abs());
            let steps = (curve[ends[2]].0 - curve[ends[1]].0) as f64;
            let excess = (slope(1).abs() - STEEPNESS * around) * steps;
            let deviation = noise[ends[1]].max(noise[ends[2]]);
            let error = STANDARD_ERROR * deviation / ((2 * margin + 1) as f64).sqrt();
            let values = [means[1], means[2]];
            if excess > quantile * error && (values[1] - values[0]).abs() >= min_change {
                let between = [curve[ends[1]].0, curve[ends[2]].0];
                let deviations = excess / error.max(f64::MIN_POSITIVE);
                let change = CurveChange { between, half: between[1], values, deviations };
                found.push(Window { rows: [ends[1], ends[2]], margin, excess, change });
            }
        }
    }
    found
}

/// Returns the step that splits the rows around a window into two parts with the smallest squared distance from their
/// means.
fn split(curve: &[(usize, f64)], [from, until]: [usize; 2]) -> usize {
    let length = until - from;
    let rows = &curve[from.saturating_sub(length)..(until + length + 1).min(curve.len())];
    let sums = sums(rows.iter().map(|row| row.1));
    let gain = |&at: &usize| {
        let difference = mean(&sums, [0, at]) - mean(&sums, [at, rows.len()]);
        (at * (rows.len() - at)) as f64 * difference * difference
    };
    let best = (1..rows.len()).max_by(|a, b| gain(a).total_cmp(&gain(b)));
    rows[best.unwrap_or(0)].0
}

fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let running = values.scan(0.0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    [0.0].into_iter().chain(running).collect()
}

fn mean(sums: &[f64], [from, until]: [usize; 2]) -> f64 {
    (sums[until] - sums[from]) / (until - from) as f64
}

/// Returns the standard deviation of the noise at each row: the larger of that of its neighbourhood and of the curve.
fn noise(curve: &[(usize, f64)]) -> Vec<f64> {
    let second = curve.windows(3).map(|rows| (rows[2].1 - 2.0 * rows[1].1 + rows[0].1).abs());
    let second: Vec<f64> = second.collect();
    let all = deviation(&second);
    let at = |row: usize| {
        let rows = row.saturating_sub(NOISE_ROWS)..(row + NOISE_ROWS).min(second.len());
        if rows.len() < NOISE_ROWS { all } else { all.max(deviation(&second[rows])) }
    };
    (0..curve.len()).map(at).collect()
}

/// Returns the deviation of the noise from the absolute second differences of a curve.
fn deviation(second: &[f64]) -> f64 {
    let mut sorted = second.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    DEVIATION_PER_MEDIAN * median / 6.0_f64.sqrt()
}

/// Returns the first steps at which a densely measured curve has completed a tenth, half and nine tenths of its change
/// from its first to its last value; `None` if it does not change.
pub fn crossings(curve: &[(usize, f64)]) -> Option<[usize; 3]> {
    let (first, last) = (curve.first()?.1, curve.last()?.1);
    let done = |value: f64| (value - first) / (last - first);
    let crossing = |share: f64| curve.iter().find(|row| done(row.1) >= share).map(|row| row.0);
    Some([crossing(0.1)?, crossing(0.5)?, crossing(0.9)?])
}
