//! Prediction of the time per step with more workers, from the measured parts of a step.
//!
//! A worker computes its shards (gradient accumulation) in groups whose size divides its number of threads, and adds up
//! their gradients. It exchanges the sum with the other workers (all-reduce) and updates its weights:
//!
//! `T(N) = (k / a) * shards(a) + (k - 1) * addition + copies + all_reduce(N) + update`, with `k` shards per worker in
//! groups of `a`, and `shards(a)` the time of a group.
//!
//! The all-reduce is recursive halving and doubling (see `workers`): in log2 N rounds, a worker swaps a half of the
//! gradients, then a quarter and so on, with another worker and adds the part that it receives. The sums travel back in
//! as many rounds:
//!
//! `all_reduce(N) = 2 * log2(N) * latency + (N - 1) / N * (2 * bytes / bandwidth + row_addition)`.
//!
//! The model assumes that any two workers exchange data at full speed in both directions, regardless of other traffic.
//! Each worker is assumed to compute as fast as the one measured.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::training::StepParts;

/// The speed of the link between workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkSpeed {
    /// The bandwidth in bytes per second, in each direction at the same time.
    pub bandwidth: f64,
    /// The latency in seconds: the time of an empty message.
    pub latency: f64,
}

impl LinkSpeed {
    /// Returns the link speed of the workers that timed `parts`; `None` for a single worker. The bandwidth follows from
    /// the all-reduce of all gradients without latencies and additions, so it holds for messages of that size.
    pub fn measured(parts: &StepParts) -> Option<Self> {
        let timed = parts.exchange.as_ref()?;
        let overhead =
            exchange(parts, LinkSpeed { bandwidth: f64::INFINITY, latency: timed.latency }, timed.workers);
        // For a small model, latencies and additions take almost all of the time.
        let transfer = (timed.seconds - overhead).max(0.05 * timed.seconds);
        Some(Self { bandwidth: bytes_sent(parts, timed.workers) / transfer, latency: timed.latency })
    }
}

/// The prediction for a number of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The number of workers.
    pub workers: usize,
    /// The seconds of the all-reduce in a step.
    pub exchange: f64,
    /// A step in which all workers share the batch of the config; `None` if the batch is not divisible into as many
    /// shards.
    pub shared: Option<ScaledStep>,
    /// A step in which each worker has a batch as large as the config's.
    pub growing: ScaledStep,
}

/// The prediction of one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScaledStep {
    /// The duration in seconds.
    pub seconds: f64,
    /// Sequences per second per worker, relative to a single worker.
    pub efficiency: f64,
}

/// Returns the possible numbers of shards of a step on up to `max_workers` workers: the configured number, or one shard
/// per worker.
pub fn shard_counts(shards: Option<usize>, batch_size: usize, max_workers: usize) -> Vec<usize> {
    let is_possible = |count: &usize| *count <= max_workers && batch_size.is_multiple_of(*count);
    let one_per_worker = || (0..).map(|power| 1 << power).take_while(is_possible);
    shards.map_or_else(|| one_per_worker().collect(), |shards| vec![shards])
}

/// The highest efficiency of several workers that is attributed to noise.
pub const MAX_NOISE_EFFICIENCY: f64 = 1.05;

/// The maximum number of repetitions of timings that contradict each other.
const MAX_REPEATS: usize = 4;

/// Returns the highest efficiency over all numbers of workers, at least 1.
pub fn highest_efficiency(scaled: &[Prediction]) -> f64 {
    scaled.iter().filter_map(|scaled| Some(scaled.shared?.efficiency)).fold(1.0, f64::max)
}

/// Returns the parts of a step with consistent timings, as far as the machine allows. If a predicted efficiency exceeds
/// [`MAX_NOISE_EFFICIENCY`], all parts are timed again and the shortest time of each part counts. Other programs on the
/// machine can only slow a part down. An efficiency above 1 in every repetition is a property of the machine, for
/// example because a shard fits into a cache.
///
/// # Errors
/// If timing fails, or if repetitions differ by more than noise.
pub fn time_consistently(
    mut time: impl FnMut() -> Result<StepParts>,
    predict: impl Fn(&StepParts) -> Vec<Prediction>,
) -> Result<StepParts> {
    let highest = |parts: &StepParts| highest_efficiency(&predict(parts));
    let mut parts = time()?;
    let mut seen = vec![highest(&parts)];
    while highest(&parts) > MAX_NOISE_EFFICIENCY && seen.len() <= MAX_REPEATS {
        let again = time()?;
        seen.push(highest(&again));
        parts = parts.fastest(again);
    }
    let [low, high] = [f64::min, f64::max].map(|pick| seen.iter().copied().reduce(pick).unwrap_or(1.0));
    if highest(&parts) <= MAX_NOISE_EFFICIENCY || high - low <= 0.1 * low {
        return Ok(parts);
    }
    Err(Error::Failed(format!(
        "the parts of a step cannot be timed on this machine: repetitions give efficiencies from {:.1} % to \
        {:.1} %, probably because other programs are running; stop them and try again",
        low * 100.0,
        high * 100.0
    )))
}

/// Returns the predictions for one worker and for each number of `workers`. `shards` is the configured number of
/// shards.
pub fn predict(
    parts: &StepParts,
    shards: Option<usize>,
    link: LinkSpeed,
    workers: impl IntoIterator<Item = usize>,
) -> Vec<Prediction> {
    // A single worker computes all shards of the config, and so does each worker with its own batch.
    let all_shards = shards.unwrap_or(1);
    let alone = compute_seconds(parts, all_shards, all_shards);
    let others = workers.into_iter().filter(|&count| count > 1);
    let prediction = |workers: usize| {
        let exchange = exchange(parts, link, workers);
        let communication = if workers == 1 { 0.0 } else { parts.copies + exchange };
        let count = shards.unwrap_or(workers);
        let is_shared = parts.shards.contains_key(&count) && count.is_multiple_of(workers);
        let shared = is_shared.then(|| {
            let seconds = compute_seconds(parts, count, count / workers) + communication;
            ScaledStep { seconds, efficiency: alone / (workers as f64 * seconds) }
        });
        let seconds = alone + communication;
        Prediction { workers, exchange, shared, growing: ScaledStep { seconds, efficiency: alone / seconds } }
    };
    std::iter::once(1).chain(others).map(prediction).collect()
}

/// Returns the seconds that a worker needs to compute `own` of `count` shards and to update its weights.
fn compute_seconds(parts: &StepParts, count: usize, own: usize) -> f64 {
    let at_once = parts.shards[&count].iter().rev().find(|(at_once, _)| own.is_multiple_of(**at_once));
    let (at_once, seconds) = at_once.expect("a single shard is timed");
    (own / at_once) as f64 * seconds + (own - 1) as f64 * parts.addition + parts.update
}

/// Returns the seconds of the all-reduce between `workers`.
fn exchange(parts: &StepParts, link: LinkSpeed, workers: usize) -> f64 {
    let rounds = 2.0 * f64::from(workers.ilog2());
    let added = (workers - 1) as f64 / workers as f64 * parts.row_addition;
    rounds * link.latency + bytes_sent(parts, workers) / link.bandwidth + added
}

/// Returns the number of bytes that each of `workers` sends and receives in a step.
fn bytes_sent(parts: &StepParts, workers: usize) -> f64 {
    2.0 * (workers - 1) as f64 / workers as f64 * parts.bytes as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::training::TimedExchange;

    fn parts(shard: &[(usize, f64)], addition: f64, copies: f64) -> StepParts {
        let shards = shard.iter().map(|&(count, seconds)| (count, BTreeMap::from([(1, seconds)])));
        StepParts {
            shards: shards.collect(),
            addition,
            copies,
            row_addition: addition / 2.0,
            update: 0.25,
            bytes: 1000,
            exchange: None,
        }
    }

    const PERFECT: LinkSpeed = LinkSpeed { bandwidth: f64::INFINITY, latency: 0.0 };

    #[test]
    fn growing_batch_scales_perfectly_with_free_all_reduce() {
        for scaled in predict(&parts(&[(4, 0.5)], 0.0, 0.0), Some(4), PERFECT, [2, 4, 1024]) {
            assert_eq!(scaled.growing, ScaledStep { seconds: 2.25, efficiency: 1.0 }, "{scaled:?}");
        }
    }

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        // One worker: four shards of 0.5 s, three additions, and an update. Two workers: two shards and one addition
        // each, then two messages with half of the 1000 bytes each, and half of a row addition.
        let link = LinkSpeed { bandwidth: 2000.0, latency: 0.125 };
        let scaled = predict(&parts(&[(4, 0.5)], 0.125, 0.0625), Some(4), link, [2, 8]);
        assert_eq!(scaled[0].shared, Some(ScaledStep { seconds: 2.625, efficiency: 1.0 }));
        assert_eq!(scaled[1].exchange, 0.25 + 0.5 + 0.03125);
        let seconds = 1.125 + 0.25 + 0.0625 + 0.78125;
        assert_eq!(scaled[1].shared, Some(ScaledStep { seconds, efficiency: 2.625 / (2.0 * seconds) }));
        assert_eq!(scaled[1].growing.seconds, 2.625 + 0.0625 + 0.78125);
        assert_eq!(scaled[2].exchange, 6.0 * 0.125 + 7.0 / 8.0 * (1.0 + 0.0625));
        assert_eq!(scaled[2].shared, None, "there are four shards");
    }

    #[test]
    fn concurrent_shards_use_their_measured_joint_time() {
        let shards = BTreeMap::from([(8, BTreeMap::from([(1, 1.0), (2, 1.25)]))]);
        let parts = StepParts { shards, ..parts(&[], 0.0, 0.0) };
        let scaled = predict(&parts, Some(8), PERFECT, [2, 4, 8]);
        let seconds = scaled.iter().map(|scaled| scaled.shared.unwrap().seconds).collect::<Vec<_>>();
        assert_eq!(seconds, [4.0 * 1.25 + 0.25, 2.0 * 1.25 + 0.25, 1.25 + 0.25, 1.0 + 0.25]);
    }

    #[test]
    fn workers_default_to_one_shard_each() {
        assert_eq!(shard_counts(None, 12, 1024), [1, 2, 4]);
        assert_eq!(shard_counts(Some(8), 32, 2), [8]);
        let parts = parts(&[(1, 2.0), (2, 1.25)], 0.0, 0.0);
        let scaled = predict(&parts, None, PERFECT, [2, 4]);
        let seconds = scaled.iter().map(|scaled| scaled.shared.map(|step| step.seconds)).collect::<Vec<_>>();
        assert_eq!(seconds, [Some(2.25), Some(1.5), None]);
        assert!(scaled.iter().all(|scaled| scaled.growing.seconds == 2.25));
    }

    /// Returns the parts of a step of one shard or of two, with the seconds per shard.
    fn timed(of_one: f64, of_two: f64) -> StepParts {
        parts(&[(1, of_one), (2, of_two)], 0.0, 0.0)
    }

    #[test]
    fn contradicting_timings_are_repeated() {
        let predicted = |parts: &StepParts| predict(parts, None, PERFECT, [2]);
        let mut times = vec![timed(2.0, 1.25), timed(9.0, 1.0)];
        let parts = time_consistently(|| Ok(times.pop().unwrap()), predicted).unwrap();
        assert_eq!((parts, times.len()), (timed(2.0, 1.0), 0), "the shortest times count");

        // A shard that fits into the cache is faster each time.
        let parts = time_consistently(|| Ok(timed(2.0, 0.5)), predicted).unwrap();
        assert!(highest_efficiency(&predicted(&parts)) > MAX_NOISE_EFFICIENCY);

        let mut seconds = 2.0;
        let erratic = || {
            seconds *= 2.0;
            Ok(timed(seconds, 0.5))
        };
        let error = time_consistently(erratic, predicted).unwrap_err();
        assert!(error.to_string().contains("stop them and try again"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn prediction_matches_the_measured_all_reduce() {
        let exchange = Some(TimedExchange { workers: 4, seconds: 2.0, latency: 0.125 });
        let parts = StepParts { exchange, ..parts(&[(4, 0.5)], 0.125, 0.0) };
        let link = LinkSpeed::measured(&parts).unwrap();
        assert_eq!(link.latency, 0.125);
        assert!((predict(&parts, Some(4), link, [4])[1].exchange - 2.0).abs() < 1e-12);
    }
}
