//! Intervals of values, their round ticks, and number formats.

use crate::numbers::thousands;

/// An interval of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub start: f64,
    /// The upper end, above `start`.
    pub end: f64,
}

impl Interval {
    /// Creates the interval from `start` to `end`, widened if they coincide.
    pub fn new(start: f64, end: f64) -> Self {
        let is_wide = end - start > f64::EPSILON * start.abs().max(end.abs()).max(1e-300) * 16.0;
        let margin = if start == 0.0 { 1.0 } else { start.abs() * 0.05 };
        if is_wide {
            Interval { start, end }
        } else {
            Interval { start: start - margin, end: start + margin }
        }
    }

    /// Returns the interval from the lowest to the highest finite value, widened if they coincide; `None` if no value
    /// is finite.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let ends = values.filter(|value| value.is_finite()).map(|value| (value, value));
        let (low, high) = ends.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))?;
        Some(Self::new(low, high))
    }

    /// Returns the length of the interval.
    pub fn length(&self) -> f64 {
        self.end - self.start
    }

    /// Returns the interval extended at both ends, by fractions of its length.
    pub fn padded(&self, below: f64, above: f64) -> Self {
        Interval { start: self.start - below * self.length(), end: self.end + above * self.length() }
    }

    /// Returns the round values within the interval, about `max_ticks` of them: 1, 2 or 5 times a power of ten apart.
    pub fn ticks(&self, max_ticks: usize) -> Vec<f64> {
        let step = round_up_to(self.length() / max_ticks.max(1) as f64, [1.0, 2.0, 5.0, 10.0]);
        let first = (self.start / step - 1e-9).ceil() as i64;
        let last = (self.end / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// Returns the [`ticks`](Self::ticks), or if a single one is within the interval, at least two on a finer scale.
    pub(crate) fn several_ticks(&self, max_ticks: usize) -> Vec<f64> {
        // The step is at most 2.5 times a fifth of the interval, so at least two multiples of it are within.
        let finer = (max_ticks..=max_ticks.max(5)).map(|count| self.ticks(count));
        finer.into_iter().find(|ticks| ticks.len() >= 2).unwrap_or_default()
    }

    /// Returns both ends and evenly spaced values between them, with at most `max_ticks` steps. A step has at most two
    /// digits; steps of 1, 2, 2.5 or 5 times a power of ten are preferred, then smaller steps. If zero is in the
    /// interval, it is one of the values. Returns `None` if no step fits, or no integer step with `only_integers`.
    pub(crate) fn even_ticks(&self, max_ticks: usize, only_integers: bool) -> Option<Vec<f64>> {
        let is_integer = |value: f64| (value - value.round()).abs() < 1e-6 * value.abs().max(1.0);
        let digits = |step: f64| step / 10f64.powf(step.log10().floor());
        let is_round =
            |step: f64| [1.0, 2.0, 2.5, 5.0, 10.0].iter().any(|round| (digits(step) - round).abs() < 1e-6);
        let even = (1..=max_ticks).map(|parts| (parts, self.length() / parts as f64)).filter(|&(_, step)| {
            is_integer(self.start / step)
                && is_integer(10.0 * digits(step))
                && (is_integer(step) || !only_integers)
        });
        let (parts, step) = even.max_by_key(|&(parts, step)| (is_round(step), parts))?;
        Some((0..=parts).map(|part| self.start + part as f64 * step).collect())
    }

    /// Returns the [`ticks`](Self::ticks) that are integers.
    pub fn integer_ticks(&self, max_ticks: usize) -> Vec<f64> {
        self.ticks(max_ticks).into_iter().filter(|tick| tick.fract() == 0.0).collect()
    }
}

/// Returns the round values of a logarithmic axis whose range is given in decimal logarithms: 1, 2 and 5 times powers
/// of ten; over many decades, at most eight powers of ten.
pub(crate) fn log_ticks(logarithms: Interval) -> Vec<f64> {
    let Interval { start, end } = logarithms;
    let factors: &[f64] = if logarithms.length() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let stride = (logarithms.length() / 8.0).ceil().max(1.0) as i32;
    let powers = (start.floor() as i32..=end.ceil() as i32).filter(|power| power.rem_euclid(stride) == 0);
    let ticks = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    let ticks: Vec<f64> = ticks.filter(|value| (start..=end).contains(&value.log10())).collect();
    // Within a fraction of a decade, evenly spaced values have fewer digits.
    if ticks.len() < 2 { Interval::new(10f64.powf(start), 10f64.powf(end)).ticks(5) } else { ticks }
}

/// Returns the smallest round number that is at least `value`: 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten.
/// Returns 1 if `value` is not positive.
pub fn round_up(value: f64) -> f64 {
    let is_positive = value.is_finite() && value > 0.0;
    if is_positive { round_up_to(value, [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]) } else { 1.0 }
}

/// Returns the smallest product of a factor and the power of ten of `value` that is at least `value`, up to rounding.
fn round_up_to<const N: usize>(value: f64, factors: [f64; N]) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    factors.map(|factor| factor * power).into_iter().find(|&round| round >= value * 0.9999).unwrap_or(value)
}

/// Formats a number in scientific notation with up to three significant digits, such as `2.5e-4`.
pub(crate) fn scientific(value: f64) -> String {
    scientific_with_digits(value, 2)
}

/// Formats a number in scientific notation with up to `digits` digits after the point.
fn scientific_with_digits(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$e}", value.abs());
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}{}e{power}", minus(value), digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns true if three significant digits represent the value exactly.
pub(crate) fn is_short(value: f64) -> bool {
    format!("{value:.2e}").parse::<f64>().is_ok_and(|short| (short - value).abs() <= 1e-9 * value.abs())
}

/// Returns a true minus sign for a negative value, else an empty string.
fn minus(value: f64) -> &'static str {
    if value < 0.0 { "−" } else { "" }
}

/// Formats a number with three significant digits, such as `0.297`, `2.97`, `297` or `2.97e-5`.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let (text, size) = (scientific(value), value.abs());
    let text = match text.split_once('e').and_then(|(_, power)| power.parse().ok()) {
        Some(power @ -3..=1i32) => {
            let text = format!("{size:.*}", (2 - power) as usize);
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        Some(2..=3) => format!("{size:.0}"),
        _ => return text,
    };
    format!("{}{text}", minus(value))
}

/// Returns the labels of ticks, all with as many digits as their spacing needs. Very small and very large values are in
/// scientific notation, such as `3e-4`.
pub(crate) fn tick_labels(ticks: &[f64]) -> Vec<String> {
    let largest = ticks.iter().fold(0.0f64, |largest, tick| largest.max(tick.abs()));
    let distances = ticks.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let step = distances.reduce(f64::min).unwrap_or(if largest > 0.0 { largest } else { 1.0 });
    let exponential = largest != 0.0 && !(2e-3..1e7).contains(&largest);
    // True if the value has at most this many digits after the point, up to rounding errors.
    let suffice = |value: f64, digits: usize| {
        let power = 10f64.powi(digits as i32);
        (value * power - (value * power).round()).abs() <= 1e-6 * step * power
    };
    let all = |&digits: &usize| suffice(step, digits) && ticks.iter().all(|&tick| suffice(tick, digits));
    let digits = (0..12).find(all).unwrap_or(12);
    let distinguishing = distinguishing_digits(ticks);
    let label = |&tick: &f64| match tick {
        // The value is zero up to a rounding error.
        zero if zero.abs() < step * 1e-6 => "0".to_string(),
        _ if exponential => scientific_with_digits(tick, distinguishing),
        _ if digits == 0 => format!("{}{}", minus(tick), thousands(tick.abs())),
        _ => format!("{}{:.digits$}", minus(tick), tick.abs()),
    };
    ticks.iter().map(label).collect()
}

/// Returns the number of digits after the point, two or more, that distinguishes values in scientific notation.
fn distinguishing_digits(values: &[f64]) -> usize {
    let differ = |&digits: &usize| {
        values
            .windows(2)
            .all(|pair| scientific_with_digits(pair[0], digits) != scientific_with_digits(pair[1], digits))
    };
    (2..15).find(differ).unwrap_or(15)
}

/// Returns labels for values in ascending order, with the same number of decimals. If the values span more than a
/// decade, each label has only its own significant digits.
pub(crate) fn labels(values: &[f64]) -> Vec<String> {
    let are_plain = values.iter().all(|value| *value == 0.0 || (1e-2..1e6).contains(&value.abs()));
    let is_wide = matches!(values, [low, .., high] if *low > 0.0 && *high > low * 10.0);
    let distinguishing = distinguishing_digits(values);
    let label = |&value: &f64| match value {
        value if !are_plain => scientific_with_digits(value, distinguishing),
        integer if integer.fract() == 0.0 => integer.to_string(),
        value => significant(value),
    };
    if are_plain && !is_wide { tick_labels(values) } else { values.iter().map(label).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(Interval::new(0.0, 2000.0).ticks(5), [0.0, 500.0, 1000.0, 1500.0, 2000.0]);
        let ticks = Interval::new(2.27, 2.46).ticks(5);
        assert_eq!(tick_labels(&ticks), ["2.30", "2.35", "2.40", "2.45"]);
        assert_eq!(Interval::new(0.0, 3.0).integer_ticks(10), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn log_ticks_are_round_and_few() {
        let close = |ticks: Vec<f64>, expected: &[f64]| {
            let same = ticks.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
            assert!(ticks.len() == expected.len() && same, "{ticks:?}");
        };
        close(log_ticks(Interval::new(-1.0, 1.0)), &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        close(log_ticks(Interval::new(-2.1, 1.1)), &[0.01, 0.1, 1.0, 10.0]);
        close(log_ticks(Interval::new(2f64.log10(), 2.9f64.log10())), &[2.0, 2.2, 2.4, 2.6, 2.8]);
        assert!(log_ticks(Interval::new(-30.0, 12.0)).len() <= 8);
    }

    #[test]
    fn labels_distinguish_neighbouring_ticks() {
        assert_eq!(tick_labels(&[0.0, 0.0005, 0.001]), ["0", "5e-4", "1e-3"]);
        assert_eq!(tick_labels(&[0.0, 0.25, 0.5]), ["0", "0.25", "0.50"]);
        assert_eq!(tick_labels(&[-0.5, 0.0, 0.5]), ["−0.5", "0", "0.5"]);
        assert_eq!(tick_labels(&[0.0, 10_000.0]), ["0", "10,000"]);
        assert_eq!(tick_labels(&[2e7, 4e7]), ["2e7", "4e7"]);
        assert_eq!(tick_labels(&[0.0]), ["0"]);
        assert_eq!(tick_labels(&[0.003]), ["0.003"]);
    }

    #[test]
    fn labels_show_all_digits_of_a_tick() {
        let alone = [1.0, 1.2, 1.5, 2.5, 4.38, 12_000.0, -1.5].map(|tick| tick_labels(&[tick]).concat());
        assert_eq!(alone, ["1", "1.2", "1.5", "2.5", "4.38", "12,000", "−1.5"]);
        assert_eq!(tick_labels(&[0.5, 1.5, 2.5]), ["0.5", "1.5", "2.5"], "ticks one apart");
        assert_eq!(tick_labels(&[1.5, 3.0]), ["1.5", "3.0"]);
        assert_eq!(tick_labels(&[0.1 + 0.2, 1.3]), ["0.3", "1.3"], "rounding errors are hidden");
    }

    #[test]
    fn significant_keeps_three_digits() {
        let texts = [0.002982, 0.003, 1.0, 29.71, 2971.4, 29714.0, 3e-4, -0.5, 0.0].map(significant);
        assert_eq!(texts, ["0.00298", "0.003", "1", "29.7", "2971", "2.97e4", "3e-4", "−0.5", "0"]);
    }

    #[test]
    fn constant_values_have_a_nonempty_range() {
        for value in [0.0, 3.0, -2.0, 1e-12] {
            let range = Interval::new(value, value);
            assert!(range.start < value && value < range.end, "{range:?}");
        }
    }

    #[test]
    fn rounding_up_never_decreases_a_value() {
        assert_eq!(round_up(0.013), 0.015);
        assert_eq!(round_up(0.9), 1.0);
        assert_eq!(round_up(3.0), 3.0);
        assert_eq!(round_up(f64::NAN), 1.0);
    }
}
