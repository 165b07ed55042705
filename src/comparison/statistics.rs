//! Statistics of runs with different seeds: means, confidence intervals and significance tests.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence level of intervals.
const CONFIDENCE: f64 = 0.95;

/// The mean of a sample, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupMean {
    /// The number of values.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; `None` for a single value.
    pub deviation: Option<f64>,
    /// The 95 % confidence interval of the mean (Student, 1908); `None` for a single value.
    pub interval: Option<[f64; 2]>,
}

impl GroupMean {
    /// Returns the mean of `values`; `None` if `values` is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        let interval = deviation.and_then(|deviation| {
            let error = deviation / (count as f64).sqrt();
            confidence_interval(mean, error, (count - 1) as f64).map(|(interval, _)| interval)
        });
        Some(Self { count, mean, deviation, interval })
    }
}

/// Welch's t-test for the difference of two means with unequal variances (Welch, 1947).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WelchTest {
    /// The second mean minus the first.
    pub difference: f64,
    /// The 95 % confidence interval of the difference.
    pub interval: [f64; 2],
    /// The difference in standard errors.
    pub t: f64,
    /// The degrees of freedom, by Welch and Satterthwaite.
    pub degrees: f64,
    /// The p-value: the probability of a difference at least this large if the means were equal.
    pub p: f64,
}

impl WelchTest {
    /// Tests two means. Returns `None` if one of them has a single value, or if no values vary.
    pub fn new(first: &GroupMean, second: &GroupMean) -> Option<Self> {
        let error = |mean: &GroupMean| Some(mean.deviation?.powi(2) / mean.count as f64);
        let (a, b) = (error(first)?, error(second)?);
        let difference = second.mean - first.mean;
        let degrees =
            (a + b).powi(2) / (a * a / (first.count - 1) as f64 + b * b / (second.count - 1) as f64);
        let (interval, students) = confidence_interval(difference, (a + b).sqrt(), degrees)?;
        let t = difference / (a + b).sqrt();
        Some(Self { difference, interval, t, degrees, p: 2.0 * students.sf(t.abs()) })
    }
}

/// Returns the confidence interval around `value`, whose standard error is `error`, and the t-distribution used.
fn confidence_interval(value: f64, error: f64, degrees: f64) -> Option<([f64; 2], StudentsT)> {
    let students = StudentsT::new(0.0, 1.0, degrees).ok().filter(|_| degrees.is_finite())?;
    let half = students.inverse_cdf(0.5 + CONFIDENCE / 2.0) * error;
    Some(([value - half, value + half], students))
}

/// Returns the p-values corrected for multiple tests (Holm, 1979): with more tests, one of them is more likely to be
/// significant by chance.
pub fn corrected(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let (mut corrected, mut highest) = (vec![0.0; p.len()], 0f64);
    for (rank, &index) in order.iter().enumerate() {
        highest = highest.max(p[index] * (p.len() - rank) as f64).min(1.0);
        corrected[index] = highest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found} for {expected}");
    }

    /// The expected values are from SciPy: `stats.t.interval`, `stats.ttest_ind(equal_var=False)` and its
    /// `confidence_interval()`.
    #[test]
    fn means_and_tests_match_scipy() {
        let a = GroupMean::of(&[1.51, 1.49, 1.53, 1.50, 1.52]).unwrap();
        let b = GroupMean::of(&[1.58, 1.51, 1.56]).unwrap();
        close(a.mean, 1.51);
        close(a.interval.unwrap()[0], 1.490_367_568);
        let test = WelchTest::new(&a, &b).unwrap();
        close(test.difference, 0.04);
        close(test.t, 1.819_435_305);
        close(test.degrees, 2.471_711_976);
        close(test.p, 0.185_721_023);
        close(test.interval[0], -0.039_235_478);
        close(test.interval[1], 0.119_235_478);
    }

    #[test]
    fn degenerate_samples_have_no_interval_or_test() {
        let one = GroupMean::of(&[1.5]).unwrap();
        assert_eq!((one.deviation, one.interval), (None, None));
        let same = GroupMean::of(&[1.5, 1.5]).unwrap();
        assert_eq!(WelchTest::new(&one, &same), None);
        assert_eq!(WelchTest::new(&same, &same), None);
        assert_eq!(GroupMean::of(&[]), None);
    }

    #[test]
    fn p_values_get_holm_correction() {
        assert_eq!(corrected(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
        assert_eq!(corrected(&[0.6, 0.5]), [1.0, 1.0]);
    }
}
