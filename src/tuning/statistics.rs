//! Statistics of trials: means over seeds, and the stability of training.

use statrs::statistics::{Data, OrderStatistics};

/// Returns the mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard deviation of a sample.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// Returns the standard deviation of the last fifth of the losses, at least three, around their regression line, so
/// that a steadily falling loss has no spread. Returns `None` for fewer than three losses.
pub fn last_spread(losses: &[f64]) -> Option<f64> {
    let last = losses.len().div_ceil(5).max(3);
    let last = &losses[losses.len().checked_sub(last)?..];
    let (middle, level) = ((last.len() - 1) as f64 / 2.0, mean(last));
    let centred = || last.iter().enumerate().map(|(position, loss)| (position as f64 - middle, loss - level));
    let slope = centred().map(|(position, loss)| position * loss).sum::<f64>()
        / centred().map(|(position, _)| position * position).sum::<f64>();
    let squares = centred().map(|(position, loss)| (loss - slope * position).powi(2)).sum::<f64>();
    // The line uses two degrees of freedom.
    Some((squares / (last.len() - 2) as f64).sqrt())
}

/// Returns the number of spikes: values that exceed the median of the twenty values before them by more than six times
/// the median absolute deviation. For normal noise that is four standard deviations. Returns `None` if there are too
/// few values.
pub fn spikes(losses: &[f64]) -> Option<usize> {
    const PRECEDING: usize = 20;
    let is_spike = |window: &[f64]| {
        let (before, value) = (&window[..PRECEDING], window[PRECEDING]);
        let middle = median(before.iter().copied());
        let distance = median(before.iter().map(|loss| (loss - middle).abs()));
        value - middle > 6.0 * distance.max(1e-3 * middle.abs())
    };
    let windows = losses.windows(PRECEDING + 1);
    (losses.len() > PRECEDING).then(|| windows.filter(|window| is_spike(window)).count())
}

/// Returns the median; NaN for an empty sequence.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    Data::new(values.collect::<Vec<_>>()).median()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_differ_from_noise_and_trend() {
        let noise = |step: usize| ((step * 7_919) % 101) as f64 / 1_010.0;
        let mut losses = (0..200).map(|step| 3.0 - step as f64 / 100.0 + noise(step)).collect::<Vec<_>>();
        assert_eq!(spikes(&losses), Some(0));
        (losses[60], losses[150]) = (9.0, 5.0);
        assert_eq!(spikes(&losses), Some(2));
        assert!(last_spread(&losses).unwrap() < 0.2, "the last fifth has no spike");
        assert_eq!(last_spread(&losses[..2]), None);
        let falling = (0..50).map(|step| 3.0 - f64::from(step) / 50.0).collect::<Vec<_>>();
        assert!(last_spread(&falling).unwrap() < 1e-12, "a falling curve does not add spread");
        let jagged = falling.iter().enumerate().map(|(step, loss)| loss + 0.1 * (step % 2) as f64);
        let spread = last_spread(&jagged.collect::<Vec<_>>()).unwrap();
        assert!((spread - 0.05).abs() < 0.01, "{spread}");
        assert_eq!(spikes(&[1.0; 50]), Some(0));
        assert_eq!((spikes(&[1.0; 20]), spikes(&[1.0; 21])), (None, Some(0)), "21 losses are the minimum");
    }
}
