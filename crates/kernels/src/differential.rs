//! The parts of differential attention (Ye et al., 2024, arXiv 2410.05258) around its softmax maps.
//!
//! | function | computes |
//! |---|---|
//! | [`divide_queries`] | two queries `[q1 \| 0]` and `[0 \| q2]` from each query `[q1 \| q2]` |
//! | [`subtract`] | `first - lambda second` from each pair `[first \| second]` |

use rayon::prelude::*;

use super::parallel::{for_each, rows_per_piece};
use super::vector::{sum_map, update, vectorized};

/// The parts of a row `[queries | keys | values]`; the width of a head is even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedRow {
    /// The width of the queries of all heads.
    pub queries: usize,
    /// The width of keys and values.
    pub others: usize,
    /// The width of a head.
    pub d_head: usize,
}

impl PackedRow {
    /// Returns the width of a row, and its width with divided queries.
    pub fn widths(&self) -> [usize; 2] {
        [self.queries + self.others, 2 * self.queries + self.others]
    }

    fn check(&self, packed: usize, divided: usize) {
        let Self { queries, d_head, .. } = *self;
        assert!(d_head > 0 && d_head.is_multiple_of(2) && queries.is_multiple_of(d_head), "{self:?}");
        let [width, divided_width] = self.widths();
        assert!(
            packed.is_multiple_of(width) && packed / width * divided_width == divided,
            "{packed} values in rows of {width}, and {divided} with divided queries"
        );
    }
}

/// Divides each query into two, and copies keys and values.
///
/// # Shapes
/// `packed` is `[rows, queries + others]`, `divided` `[rows, 2 * queries + others]`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn divide_queries(row: PackedRow, packed: &[f32], divided: &mut [f32]) {
    row.check(packed.len(), divided.len());
    let PackedRow { queries, d_head, .. } = row;
    let [width, divided_width] = row.widths();
    let piece = rows_per_piece(packed.len() / width, divided_width);
    let pieces = packed.par_chunks(piece * width).zip(divided.par_chunks_mut(piece * divided_width));
    for_each(pieces, piece * divided_width, |(packed, divided)| {
        for (packed, divided) in packed.chunks_exact(width).zip(divided.chunks_exact_mut(divided_width)) {
            let (divided, others) = divided.split_at_mut(2 * queries);
            others.copy_from_slice(&packed[queries..]);
            for (query, divided) in
                packed[..queries].chunks_exact(d_head).zip(divided.chunks_exact_mut(2 * d_head))
            {
                let (first, second) = query.split_at(d_head / 2);
                divided[..d_head / 2].copy_from_slice(first);
                divided[d_head / 2..][..d_head].fill(0.0);
                divided[3 * d_head / 2..].copy_from_slice(second);
            }
        }
    });
}

/// Computes the gradient of `packed`, given the gradient of `divided`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn divide_queries_backward(row: PackedRow, divided: &[f32], packed: &mut [f32]) {
    row.check(packed.len(), divided.len());
    let PackedRow { queries, d_head, .. } = row;
    let [width, divided_width] = row.widths();
    let piece = rows_per_piece(packed.len() / width, divided_width);
    let pieces = packed.par_chunks_mut(piece * width).zip(divided.par_chunks(piece * divided_width));
    for_each(pieces, piece * divided_width, |(packed, divided)| {
        for (packed, divided) in packed.chunks_exact_mut(width).zip(divided.chunks_exact(divided_width)) {
            let (divided, others) = divided.split_at(2 * queries);
            packed[queries..].copy_from_slice(others);
            for (query, divided) in
                packed[..queries].chunks_exact_mut(d_head).zip(divided.chunks_exact(2 * d_head))
            {
                let (first, second) = query.split_at_mut(d_head / 2);
                first.copy_from_slice(&divided[..d_head / 2]);
                second.copy_from_slice(&divided[3 * d_head / 2..]);
            }
        }
    });
}

/// Computes the difference of each pair of vectors.
///
/// # Shapes
/// `pairs` is `[count, 2, width]`, `differences` `[count, width]`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn subtract(width: usize, lambda: f32, pairs: &[f32], differences: &mut [f32]) {
    check_pairs(width, pairs.len(), differences.len());
    let piece = rows_per_piece(differences.len() / width, width) * width;
    let pieces = pairs.par_chunks(2 * piece).zip(differences.par_chunks_mut(piece));
    for_each(pieces, 2 * piece, |(pairs, differences)| subtract_piece(width, lambda, pairs, differences));
}

/// Computes the gradient of the pairs, and returns the gradient of `lambda`.
///
/// # Panics
/// Panics if the lengths do not match the shape.
pub fn subtract_backward(
    width: usize,
    lambda: f32,
    pairs: &[f32],
    gradient: &[f32],
    pair_gradients: &mut [f32],
) -> f32 {
    check_pairs(width, pairs.len(), gradient.len());
    assert_eq!(pairs.len(), pair_gradients.len(), "gradients of pairs");
    let piece = rows_per_piece(gradient.len() / width, width) * width;
    let mut sums = vec![0.0; gradient.len().div_ceil(piece.max(1))];
    let pieces = pairs.par_chunks(2 * piece).zip(gradient.par_chunks(piece));
    let outputs = pair_gradients.par_chunks_mut(2 * piece).zip(&mut sums);
    for_each(pieces.zip(outputs), 2 * piece, |((pairs, gradient), (pair_gradients, sum))| {
        *sum = subtract_backward_piece(width, lambda, pairs, gradient, pair_gradients);
    });
    // In the order of the pieces, so that the number of threads changes no bit.
    -sums.into_iter().map(f64::from).sum::<f64>() as f32
}

fn check_pairs(width: usize, pairs: usize, differences: usize) {
    assert!(
        width > 0 && differences.is_multiple_of(width) && pairs == 2 * differences,
        "{pairs} values in pairs of width {width}, and {differences} differences"
    );
}

vectorized! {
    fn subtract_piece(simd; width: usize, lambda: f32, pairs: &[f32], differences: &mut [f32]) {
        for (pair, difference) in pairs.chunks_exact(2 * width).zip(differences.chunks_exact_mut(width)) {
            let (first, second) = pair.split_at(width);
            update(simd, difference, [first, second], |_, [first, second]| first - second * lambda);
        }
    }

    fn subtract_backward_piece(
        simd;
        width: usize,
        lambda: f32,
        pairs: &[f32],
        gradient: &[f32],
        pair_gradients: &mut [f32],
    ) -> f32 {
        let rows = pairs.chunks_exact(2 * width).zip(gradient.chunks_exact(width));
        let mut sum = 0.0;
        for ((pair, gradient), pair_gradient) in rows.zip(pair_gradients.chunks_exact_mut(2 * width)) {
            let (first, second) = pair_gradient.split_at_mut(width);
            first.copy_from_slice(gradient);
            update(simd, second, [gradient], |_, [gradient]| gradient * -lambda);
            sum += sum_map(simd, [&pair[width..], gradient], |[second, gradient]| second * gradient);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::random;

    const ROW: PackedRow = PackedRow { queries: 12, others: 5, d_head: 6 };

    #[test]
    fn queries_are_divided_with_zeros() {
        let packed: Vec<f32> = (1..=34u8).map(f32::from).collect();
        let mut divided = vec![f32::NAN; 58];
        divide_queries(ROW, &packed, &mut divided);
        let expected: Vec<f32> = vec![1., 2., 3., 0., 0., 0., 0., 0., 0., 4., 5., 6., 7., 8., 9.];
        assert_eq!(divided[..15], expected);
        assert_eq!(divided[15..29], [0., 0., 0., 0., 0., 0., 10., 11., 12., 13., 14., 15., 16., 17.]);
        assert_eq!(divided[29..32], [18., 19., 20.]);
        let mut gradient = vec![f32::NAN; 34];
        // The gradients of zeros are ignored.
        let ones: Vec<f32> = divided.iter().map(|x| if *x == 0.0 { 99.0 } else { *x }).collect();
        divide_queries_backward(ROW, &ones, &mut gradient);
        assert_eq!(gradient, packed);
    }

    #[test]
    fn differences_and_gradients_match_their_equations() {
        for (count, width) in [(1, 1), (3, 5), (700, 64)] {
            let (pairs, gradient) = (random(1, 2 * count * width), random(2, count * width));
            let mut differences = vec![f32::NAN; count * width];
            subtract(width, 0.25, &pairs, &mut differences);
            let mut pair_gradients = vec![f32::NAN; pairs.len()];
            let lambda = subtract_backward(width, 0.25, &pairs, &gradient, &mut pair_gradients);
            let mut expected = 0.0;
            for row in 0..count {
                for at in 0..width {
                    let [first, second] = [0, width].map(|half| 2 * row * width + half + at);
                    let own = gradient[row * width + at];
                    let difference = pairs[first] - 0.25 * pairs[second];
                    assert!((differences[row * width + at] - difference).abs() < 1e-6);
                    assert_eq!([pair_gradients[first], pair_gradients[second]], [own, -0.25 * own]);
                    expected -= f64::from(pairs[second]) * f64::from(own);
                }
            }
            assert!(
                (f64::from(lambda) - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                "{lambda} {expected}"
            );
        }
    }
}
