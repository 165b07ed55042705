//! Waves over the residues modulo `n`: sine and cosine of `2 π k x / n` for the frequencies `k` = 1 to `n / 2`.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

/// The variance that counts as rounding, as a share of the sum of squares.
const NEGLIGIBLE: f64 = 1e-24;

/// The waves over the residues modulo `n`.
#[derive(Debug, Clone, PartialEq)]
pub struct Waves {
    /// Sine and cosine of `2 π x / n`.
    angles: Vec<[f64; 2]>,
}

impl Waves {
    /// Returns the waves modulo `modulus`, at least 2.
    pub fn new(modulus: usize) -> Self {
        let angle = |x: usize| (TAU * x as f64 / modulus as f64).sin_cos();
        Self { angles: (0..modulus).map(|x| angle(x).into()).collect() }
    }

    /// Returns the modulus `n`.
    pub fn modulus(&self) -> usize {
        self.angles.len()
    }

    /// Returns the frequencies: 1 to `n / 2`. Higher ones have the same waves.
    pub fn frequencies(&self) -> RangeInclusive<usize> {
        1..=self.modulus() / 2
    }

    /// Returns sine and cosine of a frequency at the residue of `x`.
    pub fn at(&self, frequency: usize, x: usize) -> [f64; 2] {
        self.angles[frequency * x % self.modulus()]
    }

    /// Returns the mean square of the cosine of a frequency: 1/2, but 1 for `n / 2`, whose cosine alternates between 1 and
    /// -1 and whose sine is zero.
    pub fn mean_square(&self, frequency: usize) -> f64 {
        if 2 * frequency == self.modulus() { 1.0 } else { 0.5 }
    }

    /// Returns the amplitudes of sine and cosine of a frequency in the values at all residues.
    pub fn amplitudes(&self, values: impl IntoIterator<Item = f64>, frequency: usize) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for (x, value) in values.into_iter().enumerate() {
            let [sine, cosine] = self.at(frequency, x);
            sums[0] += sine * value;
            sums[1] += cosine * value;
        }
        sums.map(|sum| sum / (self.mean_square(frequency) * self.modulus() as f64))
    }

    /// Returns the variance of the values at all residues that a frequency explains.
    pub fn energy(&self, values: impl IntoIterator<Item = f64>, frequency: usize) -> f64 {
        let [sine, cosine] = self.amplitudes(values, frequency);
        (sine * sine + cosine * cosine) * self.mean_square(frequency)
    }

    /// Returns the share of each frequency in the variance of a table over the residues, all columns together: `[n, width]`
    /// with a row per residue. The shares add up to 1, or are zero if no column varies.
    pub fn shares(&self, table: &[f64]) -> Vec<f64> {
        let width = table.len() / self.modulus();
        let energy = |frequency| -> f64 {
            (0..width).map(|column| self.energy(of_column(table, width, column), frequency)).sum()
        };
        let energies: Vec<f64> = self.frequencies().map(energy).collect();
        let sum: f64 = energies.iter().sum();
        // Rounding lets a constant seem to vary.
        let varies = sum > NEGLIGIBLE * table.iter().map(|value| value * value).sum::<f64>();
        energies.into_iter().map(|energy| if varies { energy / sum } else { 0.0 }).collect()
    }

    /// Returns the part of a table `[n, width]` that some frequencies make, without its mean.
    pub fn part(&self, table: &[f64], frequencies: &[usize]) -> Vec<f64> {
        let width = table.len() / self.modulus();
        let mut part = vec![0.0; table.len()];
        for &frequency in frequencies {
            for column in 0..width {
                let amplitudes = self.amplitudes(of_column(table, width, column), frequency);
                for x in 0..self.modulus() {
                    let [sine, cosine] = self.at(frequency, x);
                    part[x * width + column] += amplitudes[0] * sine + amplitudes[1] * cosine;
                }
            }
        }
        part
    }
}

/// Iterates over a column of a table `[n, width]`.
fn of_column(table: &[f64], width: usize, column: usize) -> impl Iterator<Item = f64> {
    table.iter().skip(column).step_by(width).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table of two columns modulo `n` that are sums of waves with the given amplitudes.
    fn table(waves: &Waves) -> Vec<f64> {
        let value = |x| {
            let [sine_1, _] = waves.at(1, x);
            let [sine_3, cosine_3] = waves.at(3, x);
            [5.0 + 2.0 * sine_1, -1.0 + 0.5 * sine_3 - 3.0 * cosine_3]
        };
        (0..waves.modulus()).flat_map(value).collect()
    }

    #[test]
    fn shares_are_those_of_the_summed_waves() {
        for modulus in [7, 8, 113] {
            let waves = Waves::new(modulus);
            let shares = waves.shares(&table(&waves));
            // The mean squares are 2² / 2 and (0.5² + 3²) / 2.
            let expected = [2.0 / 6.625, 0.0, 4.625 / 6.625];
            for (share, expected) in shares.iter().zip(expected.into_iter().chain([0.0; 60])) {
                assert!((share - expected).abs() < 1e-12, "modulo {modulus}: {shares:?}");
            }
        }
        assert_eq!(Waves::new(5).shares(&[1.5; 5]), [0.0; 2]);
    }

    #[test]
    fn alternating_wave_of_an_even_modulus_counts_once() {
        let waves = Waves::new(4);
        let alternating = [1.0, -1.0, 1.0, -1.0];
        let sine: Vec<f64> = (0..4).map(|x| waves.at(1, x)[0]).collect();
        let sum: Vec<f64> = alternating.iter().zip(&sine).map(|(a, b)| a + b).collect();
        let [first, last] = waves.shares(&sum)[..] else { panic!("two frequencies") };
        assert!((first - 1.0 / 3.0).abs() < 1e-12 && (last - 2.0 / 3.0).abs() < 1e-12, "{first} {last}");
        let part = waves.part(&sum, &[2]);
        assert!(part.iter().zip(&alternating).all(|(a, b)| (a - b).abs() < 1e-12), "{part:?}");
    }

    #[test]
    fn parts_add_up_to_the_table_without_its_mean() {
        for modulus in [7, 8] {
            let waves = Waves::new(modulus);
            let noise: Vec<f64> = (0..3 * modulus).map(|x| (x * x * 37 % 101) as f64).collect();
            let all: Vec<usize> = waves.frequencies().collect();
            let part = waves.part(&noise, &all);
            for column in 0..3 {
                let mean = (0..modulus).map(|x| noise[3 * x + column]).sum::<f64>() / modulus as f64;
                for x in 0..modulus {
                    assert!((part[3 * x + column] + mean - noise[3 * x + column]).abs() < 1e-9);
                }
            }
        }
    }
}
