//! The learning-rate finder: one short sweep over all rates, which increase with each step (Smith, 2017, "Cyclical
//! Learning Rates for Training Neural Networks", section 3.3).
//!
//! The loss falls fastest at about a tenth of the rate at which it is lowest, because at its minimum it is about to
//! rise.

use causal_attention_report::study::RatePoint;
use serde::Serialize;

use super::statistics::{mean, median};
use crate::backend::Device;
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::Result;
use crate::training::train_briefly;

const MIN_RATE: f64 = 1e-6;
const MAX_RATE: f64 = 10.0;
const MAX_STEPS: usize = 200;
/// The number of losses on each side that are averaged into a smoothed loss.
const NEIGHBOURS: usize = 6;
/// The thresholds of a significant fall or rise: a fraction of the first loss, and a number of standard deviations of
/// the noise between batches. With pure noise, the lowest of two hundred means falls that far in fewer than one of a
/// thousand sweeps.
const MIN_CHANGE: f64 = 0.03;
const MIN_DEVIATIONS: f64 = 5.0;
/// The multiple of the highest early loss at which the sweep ends.
const MAX_LOSS_RATIO: f64 = 1.5;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The loss falls and rises again.
    Minimum {
        /// The rate at which the loss is lowest.
        rate: f64,
        /// The suggested rate for training, a tenth of that.
        suggested: f64,
    },
    /// The loss never falls by more than the noise between batches, so the sweep suggests no rate.
    NeverFalls,
    /// The loss falls, but never rises by more than the noise between batches.
    NeverRises,
}

/// A sweep over learning rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateSweep {
    /// The losses, by increasing rate.
    pub points: Vec<RatePoint>,
    /// The result.
    pub verdict: Verdict,
}

/// Sweeps over the learning rates with the config's own model, batches and optimizer.
///
/// # Errors
/// If the model cannot be built.
pub fn sweep(config: &Config, dataset: &Dataset, on: &Device) -> Result<RateSweep> {
    let (mut rates, mut losses): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut has_risen = false;
    let next = |step, loss: f64| {
        if loss.is_finite() {
            rates.push(MIN_RATE * (MAX_RATE / MIN_RATE).powf(step as f64 / (MAX_STEPS - 1) as f64));
            losses.push(loss);
        }
        let beginning = &losses[..losses.len().min(NEIGHBOURS + 1)];
        has_risen =
            !loss.is_finite() || loss > MAX_LOSS_RATIO * beginning.iter().copied().fold(0.0, f64::max);
        rates.last().copied().filter(|_| !has_risen && step + 1 < MAX_STEPS)
    };
    train_briefly(config, dataset, on, None, next)?;
    let smoothed = smooth(&losses);
    let verdict = judge(&rates, &losses, &smoothed, has_risen);
    let points = rates.into_iter().zip(losses).zip(smoothed);
    let points = points.map(|((rate, loss), smoothed)| RatePoint { rate, loss, smoothed });
    Ok(RateSweep { points: points.collect(), verdict })
}

impl Verdict {
    /// Returns the result in one line, with a remedy if no rate is suggested.
    pub fn describe(self) -> String {
        match self {
            Self::Minimum { rate, suggested } => {
                format!("the loss is lowest at {rate:.1e}; train with {suggested:.1e}")
            }
            Self::NeverFalls => format!(
                "the curve has no minimum: no rate from {MIN_RATE:e} to {MAX_RATE:e} lowers the loss by more \
                 than the noise between batches; try a larger `training.batch_size`"
            ),
            Self::NeverRises => format!(
                "the curve has no clear minimum: up to a rate of {MAX_RATE:e}, the loss does not rise by more than the \
                 noise between batches; use the optimizer's usual rate, or a larger `training.batch_size`"
            ),
        }
    }
}

impl RateSweep {
    /// Returns the options that train with the suggested rate, if there is one. A schedule must not end above it.
    pub fn options(&self, training: &TrainingConfig) -> Option<String> {
        match self.verdict {
            Verdict::Minimum { suggested, .. } => {
                let settings = training.rate_settings(&format!("{suggested:.1e}"));
                Some(format!("--set {}", settings.join(" --set ")))
            }
            Verdict::NeverFalls | Verdict::NeverRises => None,
        }
    }
}

/// Returns the mean of each loss and its neighbours on both sides; a loss near an end has fewer neighbours.
fn smooth(losses: &[f64]) -> Vec<f64> {
    let near =
        |index: usize| &losses[index.saturating_sub(NEIGHBOURS)..(index + NEIGHBOURS + 1).min(losses.len())];
    (0..losses.len()).map(|index| mean(near(index))).collect()
}

/// Returns the result of a sweep. A fall or a rise counts if it exceeds the noise between batches; `has_risen` is true
/// if the sweep ended because the loss rose.
fn judge(rates: &[f64], losses: &[f64], smoothed: &[f64], has_risen: bool) -> Verdict {
    let Some(lowest) = (0..smoothed.len()).min_by(|&a, &b| smoothed[a].total_cmp(&smoothed[b])) else {
        return Verdict::NeverFalls;
    };
    let (first, min_loss) = (smoothed[0], smoothed[lowest]);
    let highest_after = smoothed[lowest..].iter().copied().fold(min_loss, f64::max);
    let threshold = (MIN_CHANGE * first).max(MIN_DEVIATIONS * noise(losses));
    if first - min_loss < threshold {
        Verdict::NeverFalls
    } else if !has_risen && highest_after - min_loss < threshold {
        Verdict::NeverRises
    } else {
        Verdict::Minimum { rate: rates[lowest], suggested: rates[lowest] / 10.0 }
    }
}

/// Returns the standard deviation of the difference of two smoothed losses. It is estimated from the median distance
/// between successive losses, which neither a trend nor the rise at the end changes much.
fn noise(losses: &[f64]) -> f64 {
    let distances = losses.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    // The median absolute difference of two standard normal numbers is 0.954. A single loss gives no estimate.
    let deviation = if losses.len() < 2 { 0.0 } else { median(distances) / 0.954 };
    // At the ends of the sweep, a mean has about half as many losses.
    deviation * (1.0 / (NEIGHBOURS + 1) as f64 + 1.0 / (2 * NEIGHBOURS + 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{super::testing::small, *};
    use crate::config::BackendName;

    fn swept(sets: &[&str]) -> RateSweep {
        let experiment = small(sets).unwrap();
        let dataset = crate::training::dataset(&experiment).unwrap();
        sweep(&experiment, &dataset, &Device::processor(BackendName::Ndarray)).unwrap()
    }

    #[test]
    fn rate_sweep_finds_a_minimum() {
        let found = swept(&[]);
        let Verdict::Minimum { suggested, .. } = found.verdict else { panic!("{:?}", found.verdict) };
        assert!((1e-4..1e-1).contains(&suggested), "{suggested}");
        assert!(found.points.is_sorted_by(|a, b| a.rate < b.rate));
    }

    #[test]
    fn curves_without_a_minimum_are_reported() {
        // The model learns nothing, but the loss varies between batches.
        for (batch_size, seed) in [(16, 0), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 5)] {
            let sets = [format!("training.batch_size={batch_size}"), format!("run.seed={seed}")];
            let frozen = ["training.optimizer=sgd", "training.max_gradient_norm=1e-9", &sets[0], &sets[1]];
            assert_eq!(swept(&frozen).verdict, Verdict::NeverFalls, "{sets:?}");
        }
        // A hundred losses along lines between these corners, without noise or with strong noise.
        let judged = |corners: &[f64], noise: f64, has_risen: bool| {
            let line = |step: usize| {
                let position = step as f64 / 99.0 * (corners.len() - 1) as f64;
                let (before, share) = (position as usize, position.fract());
                corners[before] * (1.0 - share) + corners.get(before + 1).unwrap_or(&0.0) * share
            };
            let spread = |step: usize| noise * ((step * 7_919 % 101) as f64 / 50.0 - 1.0);
            let losses = (0..100).map(|step| line(step) + spread(step)).collect::<Vec<_>>();
            let rates = (0..100).map(|step| 1e-5 * 1.1_f64.powi(step)).collect::<Vec<_>>();
            judge(&rates, &losses, &smooth(&losses), has_risen)
        };
        for noise in [0.0, 0.2] {
            assert_eq!(judged(&[3.0, 2.0, 1.0], noise, false), Verdict::NeverRises);
            let Verdict::Minimum { rate, .. } = judged(&[3.0, 1.0, 2.0], noise, false) else { panic!() };
            assert!((3e-4..5e-3).contains(&rate), "{rate} is in the middle");
            assert!(
                matches!(judged(&[3.0, 2.0, 1.0], noise, true), Verdict::Minimum { .. }),
                "the loss exploded"
            );
            assert_eq!(judged(&[3.0, 2.95, 5.0], noise, false), Verdict::NeverFalls);
        }
        // A fall of a tenth is significant without noise, but not with noise five times as large.
        assert!(matches!(judged(&[3.0, 2.7, 4.0], 0.0, false), Verdict::Minimum { .. }));
        assert_eq!(judged(&[3.0, 2.7, 4.0], 1.5, false), Verdict::NeverFalls);
        assert!(Verdict::NeverRises.describe().contains("no clear minimum"));
    }

    #[test]
    fn suggested_rate_below_the_minimum_lowers_it() {
        let options = |suggested| {
            let verdict = Verdict::Minimum { rate: 10.0 * suggested, suggested };
            RateSweep { points: Vec::new(), verdict }.options(&TrainingConfig::default()).unwrap()
        };
        assert_eq!(options(2e-3), "--set training.learning_rate=2.0e-3");
        let both = "--set training.learning_rate=5.0e-5 --set training.min_learning_rate=0";
        assert_eq!(options(5e-5), both, "the default schedule ends at 1e-4");
        assert_eq!(judge(&[], &[], &[], true), Verdict::NeverFalls);
    }
}
