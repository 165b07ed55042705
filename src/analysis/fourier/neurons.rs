//! The frequencies of neurons over all pairs of residues.

use serde::{Deserialize, Serialize};

use super::waves::Waves;

/// The frequency that explains most of a neuron's variance over all pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NeuronFrequency {
    /// The frequency.
    pub frequency: usize,
    /// The share of the variance that the waves of this frequency explain: sine and cosine of each number, and their
    /// products.
    pub share: f64,
}

/// Returns the frequency of a neuron with the activations `[n, n]` over the pairs `(a, b)`, or `None` if the activation is
/// constant.
///
/// The waves of a frequency are the eight functions `sin a`, `cos a`, `sin b`, `cos b` and the four products of a function
/// of `a` and one of `b`, with the angles `2 π k a / n` (Nanda et al., 2023, arXiv 2301.05217, section 4.2).
pub fn neuron_frequency(waves: &Waves, activations: &[f32]) -> Option<NeuronFrequency> {
    let n = waves.modulus();
    let values: Vec<f64> = activations.iter().map(|&value| f64::from(value)).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    if variance <= f64::EPSILON * mean * mean {
        return None;
    }
    let rows: Vec<f64> = values.chunks(n).map(|row| row.iter().sum::<f64>() / n as f64).collect();
    let columns: Vec<f64> =
        (0..n).map(|b| values.iter().skip(b).step_by(n).sum::<f64>() / n as f64).collect();
    let share = |frequency: usize| {
        let linear =
            waves.energy(rows.iter().copied(), frequency) + waves.energy(columns.iter().copied(), frequency);
        // The rows, transformed along b, are transformed along a.
        let transformed: Vec<f64> =
            values.chunks(n).flat_map(|row| waves.amplitudes(row.iter().copied(), frequency)).collect();
        let products: f64 = [0, 1]
            .map(|wave| {
                let column = transformed.iter().skip(wave).step_by(2).copied();
                waves.energy(column, frequency) * waves.mean_square(frequency)
            })
            .iter()
            .sum();
        NeuronFrequency { frequency, share: (linear + products) / variance }
    };
    waves.frequencies().map(share).max_by(|one, other| one.share.total_cmp(&other.share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activations(waves: &Waves, value: impl Fn([f64; 2], [f64; 2]) -> f64) -> Vec<f32> {
        let n = waves.modulus();
        (0..n * n).map(|pair| value(waves.at(3, pair / n), waves.at(3, pair % n)) as f32).collect()
    }

    #[test]
    fn neurons_of_one_frequency_are_explained_by_it() {
        for modulus in [11, 12] {
            let waves = Waves::new(modulus);
            // All eight waves, with a mean.
            let value = |[sin_a, cos_a]: [f64; 2], [sin_b, cos_b]: [f64; 2]| {
                let linear = 2.0 * sin_a - cos_a + 0.5 * sin_b + 3.0 * cos_b;
                7.0 + linear + sin_a * sin_b - 2.0 * sin_a * cos_b + 0.3 * cos_a * sin_b + cos_a * cos_b
            };
            let found = neuron_frequency(&waves, &activations(&waves, value)).unwrap();
            assert_eq!(found.frequency, 3);
            assert!((found.share - 1.0).abs() < 1e-5, "modulo {modulus}: {found:?}");
        }
    }

    #[test]
    fn other_waves_lower_the_share_and_constants_have_no_frequency() {
        let waves = Waves::new(11);
        // The square of a cosine has the double frequency, with half of the amplitude.
        let value = |[_, cos_a]: [f64; 2], _: [f64; 2]| 2.0 * cos_a + 2.0 * cos_a * cos_a;
        let found = neuron_frequency(&waves, &activations(&waves, value)).unwrap();
        assert_eq!(found.frequency, 3);
        assert!((found.share - 0.8).abs() < 1e-5, "{found:?}");
        assert_eq!(neuron_frequency(&waves, &activations(&waves, |_, _| -0.1)), None);
    }
}
