//! Heat maps: coloured cells, and the colour bar next to them. Attention weights are binned until the cells are large
//! enough to draw.

use std::ops::Range;

use plotters::style::RGBColor;

use super::axis::Axis;
use super::color::{BACKGROUND, MUTED, SHADE, contrast, of_values};
use super::number::Interval;
use super::picture::{Picture, Rect};
use super::text::Text;
use crate::numbers::fixed;

/// The minimum size of cells with grid lines.
const MIN_GRID_CELL: f64 = 7.0;
/// The minimum width of cells that are labelled with their value.
pub(crate) const MIN_VALUE_CELL: f64 = 34.0;
/// The font sizes of values; the largest one that fits is used.
const VALUE_SIZES: [f64; 3] = [10.0, 9.0, 8.0];

/// Returns the range of key bins visible to each bin of queries. A key bin is visible if any query of the bin can see
/// one of its keys.
pub(crate) fn binned(visible: &[Range<usize>], bins: [usize; 2]) -> Vec<Range<usize>> {
    let [queries, keys] = bins;
    let union = |rows: &[Range<usize>]| {
        let seen = rows.iter().filter(|row| !row.is_empty()).cloned();
        seen.reduce(|all, row| all.start.min(row.start)..all.end.max(row.end)).unwrap_or_default()
    };
    let rows = visible.chunks(queries).map(union);
    rows.map(|row| row.start / keys..row.end.div_ceil(keys)).collect()
}

/// A map of equally sized cells, each in the colour of its value.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// The number of rows and columns.
    pub positions: [usize; 2],
    /// The number of rows and columns per cell; the last cells may have fewer.
    pub bins: [usize; 2],
    /// The values of the cells, row by row; `None` for an empty cell.
    pub values: Vec<Option<f64>>,
}

impl HeatMap {
    /// Creates a map of attention weights, `[query, key]` row by row. The value of a bin is the total weight on its
    /// keys, averaged over its queries. If the keys `visible` to each query are given, cells that no query can see are
    /// empty. Cells with a nonzero weight are never empty, so that leaks of the mask are visible.
    pub fn of_weights(
        weights: &[f32],
        positions: [usize; 2],
        bins: [usize; 2],
        visible: &[Range<usize>],
    ) -> Self {
        let mut map = Self { positions, bins, values: Vec::new() };
        let [rows, columns] = map.cells();
        let visible = if visible.is_empty() { vec![0..columns; rows] } else { binned(visible, bins) };
        let mut sums = vec![0.0; rows * columns];
        for (query, row) in weights.chunks_exact(positions[1]).enumerate() {
            for (key, &weight) in row.iter().enumerate() {
                sums[query / bins[0] * columns + key / bins[1]] += f64::from(weight);
            }
        }
        let mean = |(cell, sum): (usize, f64)| {
            let (query, key) = (cell / columns, cell % columns);
            let queries = bins[0].min(positions[0] - query * bins[0]);
            (visible[query].contains(&key) || sum != 0.0).then_some(sum / queries as f64)
        };
        map.values = sums.into_iter().enumerate().map(mean).collect();
        map
    }

    /// Returns the number of rows and columns of cells.
    fn cells(&self) -> [usize; 2] {
        [0, 1].map(|side| self.positions[side].div_ceil(self.bins[side]))
    }

    /// Draws the map in colours that span `range`. Wide cells are labelled with their value, with at most `digits`
    /// digits after the point. Cells without a value are shaded and labelled `blank`, or stay white if `blank` is
    /// empty.
    pub fn draw(&self, picture: &mut Picture, area: Rect, range: Interval, digits: usize, blank: &str) {
        self.draw_in(picture, area, of_values(range), (digits, blank));
    }

    /// Draws the map in the colours of a function of the value.
    pub(super) fn draw_in(
        &self,
        picture: &mut Picture,
        area: Rect,
        color: impl Fn(f64) -> RGBColor,
        (digits, blank): (usize, &str),
    ) {
        let ground = if blank.is_empty() { BACKGROUND } else { SHADE };
        let fill = |value: &Option<f64>| match value {
            Some(value) if value.is_finite() => color(*value),
            Some(_) => MUTED,
            None => ground,
        };
        let colors: Vec<_> = self.values.iter().map(fill).collect();
        let (positions, bins, cells, pixels) = (self.positions, self.bins, self.cells(), colors.clone());
        // The last bin can be narrower than the others.
        let grid = [1, 0].map(|side| {
            if positions[side].is_multiple_of(bins[side]) { cells[side] } else { positions[side] }
        });
        picture.cells(area, grid, move |across, down| {
            let at = |side: usize, fraction: f64| (fraction * positions[side] as f64) as usize / bins[side];
            pixels[at(0, down).min(cells[0] - 1) * cells[1] + at(1, across).min(cells[1] - 1)]
        });
        if bins != [1, 1] {
            return;
        }
        let [rows, columns] = positions;
        let (width, height) = (area.width / columns as f64, area.height / rows as f64);
        let line = if width >= MIN_VALUE_CELL { 1.0 } else { 0.5 };
        if width.min(height) >= MIN_GRID_CELL {
            for column in 1..columns {
                let x = area.left + column as f64 * width;
                picture.line(&[(x, area.top), (x, area.bottom())], BACKGROUND, line);
            }
            for row in 1..rows {
                let y = area.top + row as f64 * height;
                picture.line(&[(area.left, y), (area.right(), y)], BACKGROUND, line);
            }
        }
        let format = self.label_format(width, digits);
        for (cell, (value, color)) in self.values.iter().zip(colors).enumerate() {
            let (row, column) = ((cell / columns) as f64, (cell % columns) as f64);
            let point = (area.left + (column + 0.5) * width, area.top + (row + 0.5) * height);
            let style = |size: f64| Text::new(size).color(contrast(color)).centered();
            match (value, format) {
                (Some(value), Some((size, digits))) => {
                    picture.text(&fixed(*value, digits), point, &style(size));
                }
                (None, _) if !blank.is_empty() && width >= style(VALUE_SIZES[0]).width(blank) => {
                    picture.text(blank, point, &style(VALUE_SIZES[0]));
                }
                _ => {}
            }
        }
    }

    /// Returns the font size and number of digits with which every value fits its cell; `None` if cells are too narrow.
    fn label_format(&self, width: f64, digits: usize) -> Option<(f64, usize)> {
        let fits = |&(size, digits): &(f64, usize)| {
            let style = Text::new(size);
            self.values.iter().flatten().all(|&value| style.width(&fixed(value, digits)) <= width - 3.0)
        };
        let all = (0..=digits).rev().flat_map(|digits| VALUE_SIZES.map(|size| (size, digits)));
        if width >= MIN_VALUE_CELL { all.into_iter().find(fits) } else { None }
    }

    /// Returns the largest absolute weight that a scale should resolve. It is at least the weight of 98 % of the cells, and the
    /// largest weight of 95 % of the later queries. Early queries have few keys, and the first one puts a weight of 1
    /// on its only key.
    pub(super) fn largest_to_resolve(&self) -> f64 {
        let [rows, columns] = self.cells();
        let later = self.values.chunks_exact(columns).skip(rows / 2);
        let largest = later.map(|row| finite(row).map(f64::abs).fold(0.0, f64::max)).collect();
        quantile(largest, 0.95).max(quantile(finite(&self.values).map(f64::abs).collect(), 0.98))
    }
}

pub(super) fn finite(values: &[Option<f64>]) -> impl Iterator<Item = f64> {
    values.iter().flatten().copied().filter(|value| value.is_finite())
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Draws a colour bar with the values of `axis` on its right; `color` maps the fraction from the bottom to a colour.
pub fn draw_color_bar(
    picture: &mut Picture,
    bar: Rect,
    color: impl Fn(f64) -> RGBColor + 'static,
    axis: &Axis,
) {
    picture.image(bar, move |_, down| color(1.0 - down));
    axis.draw_right(picture, bar);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::draw::picture::Shape;

    fn value(map: &HeatMap, row: usize, column: usize) -> Option<f64> {
        map.values[row * map.cells()[1] + column]
    }

    pub fn square(weights: &[f32], time: usize, bin: usize) -> HeatMap {
        let causal: Vec<_> = (0..time).map(|query| 0..query + 1).collect();
        HeatMap::of_weights(weights, [time; 2], [bin; 2], &causal)
    }

    pub fn uniform(time: usize) -> Vec<f32> {
        let weight = |query: usize, key: usize| if key <= query { 1.0 / (query + 1) as f32 } else { 0.0 };
        (0..time * time).map(|i| weight(i / time, i % time)).collect()
    }

    #[test]
    fn bins_average_queries_and_sum_keys() {
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
        assert!(
            binned.values.iter().zip(expected).all(|(a, b)| (a.unwrap_or(0.0) - b).abs() < 1e-6),
            "{binned:?}"
        );
        assert_eq!(value(&binned, 0, 1), None);
        assert!(value(&binned, 1, 0).is_some());
    }

    #[test]
    fn narrow_last_bins_keep_their_width() {
        let cells = |time: usize| {
            let mut picture = Picture::new("map", (90.0, 100.0), "", "");
            let area = Rect { left: 0.0, top: 0.0, width: 90.0, height: 90.0 };
            square(&uniform(time), time, 2).draw(
                &mut picture,
                area,
                Interval { start: 0.0, end: 1.0 },
                2,
                "",
            );
            picture.all_shapes().find_map(|shape| match shape {
                Shape::Image { cells, .. } => *cells,
                _ => None,
            })
        };
        assert_eq!(cells(6), Some([3, 3]));
        assert_eq!(cells(5), Some([5, 5]), "cells have equal sizes");
    }

    #[test]
    fn values_never_overflow_their_cells() {
        let map = |values: &[f64]| HeatMap {
            positions: [1, values.len()],
            bins: [1, 1],
            values: values.iter().copied().map(Some).collect(),
        };
        assert_eq!(map(&[0.05, 0.01]).label_format(35.0, 3), Some((10.0, 3)));
        for values in [&[-0.046, 0.05][..], &[-12.345], &[123.0, f64::NAN], &[-1e-3; 9]] {
            let (size, digits) = map(values).label_format(35.0, 3).unwrap();
            let widest = values.iter().map(|&value| Text::new(size).width(&fixed(value, digits)));
            assert!(widest.fold(0.0, f64::max) < 35.0, "{values:?}: {size} {digits}");
        }
        assert_eq!(
            map(&[-0.046]).label_format(35.0, 3),
            Some((8.0, 3)),
            "the font shrinks before digits are dropped"
        );
        assert_eq!(map(&[1.0]).label_format(20.0, 3), None);
    }

    #[test]
    fn weights_on_future_keys_are_drawn() {
        let leaking = square(&[0.5, 0.5, 0.5, 0.5], 2, 1);
        assert_eq!(value(&leaking, 0, 1), Some(0.5));
    }

    #[test]
    fn cross_attention_maps_are_rectangular_and_unmasked() {
        let cross = HeatMap::of_weights(&[0.0, 0.25, 0.75, 1.0, 0.0, 0.0], [2, 3], [2, 2], &[]);
        assert_eq!(cross.cells(), [1, 2]);
        assert_eq!([value(&cross, 0, 0), value(&cross, 0, 1)], [Some(0.625), Some(0.375)]);
    }
}
