//! Attention weights made ready to be drawn: binned, and put on one scale.

use super::range::round_up;

/// A map whose neighbouring positions are put together until it can be drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binned {
    /// Positions on each axis.
    pub time: usize,
    /// Positions in a bin.
    pub bin: usize,
    /// Bins on each axis.
    pub bins: usize,
    /// `[query bin, key bin]`: the weight that a query of the bin puts on all keys of the bin, in
    /// the mean of its queries.
    weights: Vec<f64>,
}

impl Binned {
    /// Bins `weights`, `[query, key]` row by row.
    pub fn new(weights: &[f32], time: usize, bin: usize) -> Self {
        let bins = time.div_ceil(bin);
        let mut sums = vec![0.0; bins * bins];
        for (query, row) in weights.chunks_exact(time).enumerate() {
            for (key, &weight) in row.iter().enumerate() {
                sums[query / bin * bins + key / bin] += f64::from(weight);
            }
        }
        for (query_bin, row) in sums.chunks_exact_mut(bins).enumerate() {
            let queries = bin.min(time - query_bin * bin);
            row.iter_mut().for_each(|weight| *weight /= queries as f64);
        }
        Binned { time, bin, bins, weights: sums }
    }

    /// The weight, or `None` where the query cannot see the key. A weight that stands above the
    /// diagonal all the same is a weight: a mask that leaks is seen.
    pub fn weight(&self, query: usize, key: usize) -> Option<f64> {
        let weight = self.weights[query * self.bins + key];
        (key <= query || weight != 0.0).then_some(weight)
    }

    /// The largest weight of most later queries. The first queries have few keys to choose from,
    /// and the very first always weight 1.
    fn typical_largest(&self) -> f64 {
        let later = self.weights.chunks_exact(self.bins).skip(self.bins / 2);
        let mut largest: Vec<f64> = later
            .map(|row| row.iter().copied().filter(|weight| weight.is_finite()).fold(0.0, f64::max))
            .collect();
        largest.sort_by(f64::total_cmp);
        largest.get((largest.len() * 19 / 20).min(largest.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

/// The weights that one colour map spans, the same for all maps of a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WeightScale {
    /// The weight of the last colour.
    pub top: f64,
    /// Whether larger weights occur, which share the last colour.
    pub exceeded: bool,
}

impl WeightScale {
    pub fn of<'a>(maps: impl IntoIterator<Item = &'a Binned, IntoIter: Clone>) -> Self {
        let maps = maps.into_iter();
        let typical = maps.clone().map(Binned::typical_largest).fold(0.0, f64::max);
        let top = if typical > 0.5 { 1.0 } else { round_up(typical) };
        let exceeded = maps.flat_map(|map| &map.weights).any(|&weight| weight > top * 1.0001);
        WeightScale { top, exceeded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_holds_the_mean_over_its_queries_of_the_weight_on_its_keys() {
        // 5 positions in bins of 2: the last bin has one query.
        #[rustfmt::skip]
        let weights = [
            1.0, 0.0, 0.0, 0.0, 0.0,
            0.5, 0.5, 0.0, 0.0, 0.0,
            0.2, 0.2, 0.6, 0.0, 0.0,
            0.1, 0.1, 0.2, 0.6, 0.0,
            0.1, 0.1, 0.1, 0.2, 0.5,
        ];
        let binned = Binned::new(&weights, 5, 2);
        let expected = [1.0, 0.0, 0.0, 0.3, 0.7, 0.0, 0.2, 0.3, 0.5];
        assert!(binned.weights.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{binned:?}");
        assert_eq!(binned.weight(0, 1), None);
        assert!(binned.weight(1, 0).is_some());
    }

    #[test]
    fn a_weight_on_the_future_is_not_hidden() {
        let leaking = Binned::new(&[0.5, 0.5, 0.5, 0.5], 2, 1);
        assert_eq!(leaking.weight(0, 1), Some(0.5));
    }

    #[test]
    fn uniform_attention_spans_the_colours_although_the_first_query_has_weight_one() {
        let time = 101;
        let weights: Vec<f32> = (0..time * time)
            .map(|i| if i % time <= i / time { 1.0 / (i / time + 1) as f32 } else { 0.0 })
            .collect();
        let scale = WeightScale::of(&[Binned::new(&weights, time, 1)]);
        assert!(scale.top <= 0.02 && scale.exceeded, "{scale:?}");
    }

    #[test]
    fn one_sharp_map_sets_the_scale_of_all() {
        let time = 7;
        let sharp: Vec<f32> =
            (0..time * time).map(|i| if i % time == i / time { 1.0 } else { 0.0 }).collect();
        let flat: Vec<f32> = (0..time * time)
            .map(|i| if i % time <= i / time { 1.0 / (i / time + 1) as f32 } else { 0.0 })
            .collect();
        let scale = WeightScale::of(&[Binned::new(&flat, time, 1), Binned::new(&sharp, time, 1)]);
        assert_eq!(scale, WeightScale { top: 1.0, exceeded: false });
    }
}
