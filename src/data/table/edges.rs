//! The edges between the bins of numbers: quantiles (or one bin per number, if there are enough bins) or equal distances of
//! the training set, so the validation set does not influence them.

use crate::data::config::Binning;

/// Returns up to `bins - 1` distinct edges between the bins of the `numbers` of a training set, in ascending order.
pub(super) fn edges(numbers: &mut [f64], bins: usize, binning: Binning) -> Vec<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (numbers.first(), numbers.last()) else { return Vec::new() };
    let mut edges: Vec<f64> = match binning {
        Binning::Uniform => {
            let width = max / bins as f64 - min / bins as f64;
            let at = |bin: usize| {
                let edge = min + width * bin as f64;
                // The distance from the smallest number may exceed the largest float.
                if edge.is_finite() { edge } else { max - width * (bins - bin) as f64 }
            };
            (1..bins).map(|bin| snapped(numbers, at(bin), 1e-9 * width)).collect()
        }
        Binning::Quantile => {
            let distinct: Vec<f64> =
                numbers.chunk_by(|a, b| a == b).map(|equal| equal[0]).take(bins + 1).collect();
            if distinct.len() <= bins {
                return distinct.windows(2).map(|pair| middle(pair[0], pair[1])).collect();
            }
            let at = |bin: usize| numbers[(numbers.len() * bin / bins).min(numbers.len() - 1)];
            (1..bins).filter_map(|bin| between(numbers, at(bin))).collect()
        }
    };
    edges.retain(|&edge| edge > min && edge <= max);
    edges.dedup();
    edges
}

/// Returns the number next to an edge, or the edge if none is closer than the `tolerance` of its computation. A number on
/// an edge then begins a bin.
fn snapped(numbers: &[f64], edge: f64, tolerance: f64) -> f64 {
    let at = numbers.partition_point(|&number| number < edge);
    let neighbours = [at.checked_sub(1), Some(at)].into_iter().flatten().filter_map(|at| numbers.get(at));
    neighbours.copied().find(|number| (number - edge).abs() <= tolerance).unwrap_or(edge)
}

/// Returns the middle between a number and the next smaller one, or the next larger one if it is the smallest, so that
/// equal numbers share a bin.
fn between(numbers: &[f64], number: f64) -> Option<f64> {
    let below = numbers[..numbers.partition_point(|&other| other < number)].last();
    let above = numbers.get(numbers.partition_point(|&other| other <= number));
    below.or(above).map(|&other| middle(other.min(number), other.max(number)))
}

/// Returns the middle of two numbers, rounded to one more decimal than they have.
fn middle(below: f64, above: f64) -> f64 {
    let middle = 0.5 * below + 0.5 * above;
    let decimals = |number: f64| number.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let rounded = format!("{middle:.*}", 1 + decimals(below).max(decimals(above))).parse();
    rounded.ok().filter(|rounded| below < *rounded && *rounded <= above).unwrap_or(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_divide_the_training_set() {
        let numbers = [5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 100.0];
        assert_eq!(edges(&mut numbers.to_vec(), 4, Binning::Quantile), [2.5, 4.5, 6.5]);
        assert_eq!(edges(&mut numbers.to_vec(), 4, Binning::Uniform), [25.75, 50.5, 75.25]);
        let largest = edges(&mut [-1.7e308, 0.0, 1.7e308], 6, Binning::Uniform);
        assert!(largest.len() == 5 && largest.iter().all(|edge| edge.is_finite()), "{largest:?}");
        // Numbers on an edge begin a bin.
        let tenths: Vec<f64> = (0..10).map(|tenth| f64::from(tenth) / 10.0).collect();
        assert_eq!(edges(&mut tenths.clone(), 9, Binning::Uniform), tenths[1..9]);
        // Frequent numbers take several quantiles, which become one edge.
        assert_eq!(edges(&mut [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 3, Binning::Quantile), [0.5]);
        assert!(edges(&mut [2.0, 2.0], 3, Binning::Quantile).is_empty());
        // The middle of two decimals is one.
        assert_eq!(edges(&mut [14.43, 14.44], 2, Binning::Quantile), [14.435]);
        // With enough bins, each number has its own.
        let mut weekdays: Vec<f64> = (0..50).map(|day| f64::from(day % 7)).collect();
        assert_eq!(edges(&mut weekdays, 7, Binning::Quantile), [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]);
    }
}
