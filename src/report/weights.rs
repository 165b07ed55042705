//! Attention weights made ready to be drawn: binned, and put on one scale.

use super::range::round_up;

/// Positions along one side of a map, and how many of them are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bins {
    pub positions: usize,
    /// Positions in a bin; the last one may hold fewer.
    pub size: usize,
}

impl Bins {
    pub fn count(self) -> usize {
        self.positions.div_ceil(self.size)
    }

    /// The bin at a fraction of the side.
    pub fn at(self, fraction: f64) -> usize {
        ((fraction * self.positions as f64) as usize / self.size).min(self.count() - 1)
    }
}

/// A map whose neighbouring positions are put together until it can be drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binned {
    pub queries: Bins,
    pub keys: Bins,
    /// Whether a query sees the keys up to itself alone.
    is_causal: bool,
    /// `[query bin, key bin]`: the weight that a query of the bin puts on all keys of the bin, in
    /// the mean of its queries.
    weights: Vec<f64>,
}

impl Binned {
    /// Bins `weights`, `[query, key]` row by row.
    pub fn new(weights: &[f32], queries: Bins, keys: Bins, is_causal: bool) -> Self {
        let mut sums = vec![0.0; queries.count() * keys.count()];
        for (query, row) in weights.chunks_exact(keys.positions).enumerate() {
            for (key, &weight) in row.iter().enumerate() {
                sums[query / queries.size * keys.count() + key / keys.size] += f64::from(weight);
            }
        }
        for (bin, row) in sums.chunks_exact_mut(keys.count()).enumerate() {
            let together = queries.size.min(queries.positions - bin * queries.size);
            row.iter_mut().for_each(|weight| *weight /= together as f64);
        }
        Binned { queries, keys, is_causal, weights: sums }
    }

    /// The weight, or `None` where the query cannot see the key. A weight that stands above the
    /// diagonal all the same is a weight: a mask that leaks is seen.
    pub fn weight(&self, query: usize, key: usize) -> Option<f64> {
        let weight = self.weights[query * self.keys.count() + key];
        (!self.is_causal || key <= query || weight != 0.0).then_some(weight)
    }

    /// The largest weight of most later queries. The first queries have few keys to choose from,
    /// and the very first always weight 1.
    fn typical_largest(&self) -> f64 {
        let later = self.weights.chunks_exact(self.keys.count()).skip(self.queries.count() / 2);
        let largest =
            later.map(|row| row.iter().copied().filter(|weight| weight.is_finite()).fold(0.0, f64::max));
        quantile(largest.collect(), 0.95)
    }

    /// The weight that all but a fiftieth of the cells stay below.
    fn largest_of_most(&self) -> f64 {
        let cells =
            (0..self.queries.count()).flat_map(|query| (0..self.keys.count()).map(move |key| (query, key)));
        let weights =
            cells.filter_map(|(query, key)| self.weight(query, key)).filter(|weight| weight.is_finite());
        quantile(weights.collect(), 0.98)
    }
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
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
        let largest =
            maps.clone().map(|map| map.typical_largest().max(map.largest_of_most())).fold(0.0, f64::max);
        let top = if largest > 0.5 { 1.0 } else { round_up(largest) };
        let exceeded = maps.flat_map(|map| &map.weights).any(|&weight| weight > top * 1.0001);
        WeightScale { top, exceeded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(weights: &[f32], time: usize, bin: usize) -> Binned {
        let bins = Bins { positions: time, size: bin };
        Binned::new(weights, bins, bins, true)
    }

    fn uniform(time: usize) -> Vec<f32> {
        let weight = |query: usize, key: usize| if key <= query { 1.0 / (query + 1) as f32 } else { 0.0 };
        (0..time * time).map(|i| weight(i / time, i % time)).collect()
    }

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
        let binned = square(&weights, 5, 2);
        let expected = [1.0, 0.0, 0.0, 0.3, 0.7, 0.0, 0.2, 0.3, 0.5];
        assert!(binned.weights.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{binned:?}");
        assert_eq!(binned.weight(0, 1), None);
        assert!(binned.weight(1, 0).is_some());
    }

    #[test]
    fn a_weight_on_the_future_is_not_hidden() {
        let leaking = square(&[0.5, 0.5, 0.5, 0.5], 2, 1);
        assert_eq!(leaking.weight(0, 1), Some(0.5));
    }

    #[test]
    fn a_map_over_another_sequence_has_its_own_sides_and_hides_nothing() {
        let bins = |positions| Bins { positions, size: 2 };
        let cross = Binned::new(&[0.0, 0.25, 0.75, 1.0, 0.0, 0.0], bins(2), bins(3), false);
        assert_eq!((cross.queries.count(), cross.keys.count()), (1, 2));
        assert_eq!([cross.weight(0, 0), cross.weight(0, 1)], [Some(0.625), Some(0.375)]);
    }

    #[test]
    fn the_colours_tell_the_weights_of_a_diffuse_head_apart() {
        for time in [11, 64, 101] {
            let map = square(&uniform(time), time, 1);
            let scale = WeightScale::of(std::slice::from_ref(&map));
            let saturated = map.weights.iter().filter(|&&weight| weight > scale.top).count();
            assert!(saturated * 50 <= time * (time + 1) / 2, "{time}: {saturated} above {}", scale.top);
            assert!(time == 11 || scale.top < 0.5 && scale.exceeded, "{scale:?}");
        }
    }

    #[test]
    fn one_sharp_map_sets_the_scale_of_all() {
        let time = 7;
        let sharp: Vec<f32> =
            (0..time * time).map(|i| if i % time == i / time { 1.0 } else { 0.0 }).collect();
        let scale = WeightScale::of(&[square(&uniform(time), time, 1), square(&sharp, time, 1)]);
        assert_eq!(scale, WeightScale { top: 1.0, exceeded: false });
    }
}
