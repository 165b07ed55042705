//! Dropout with a mask that is recomputed instead of stored.
//!
//! A hash of (seed, row, column) decides if a number is kept. Kept numbers are scaled by `1 / (1 - probability)`. The
//! backward pass recomputes the hash, on any thread and in any order. The hash is Philox4x32-7, a counter-based
//! generator that passes BigCrush (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011).

use pulp::Simd;
use rayon::prelude::*;

use super::parallel::{for_each, rows_per_piece};
use super::pool::{self, Buffer};
use super::vector::{LANES, Vector, update, vectorized};

/// The parameters of a dropout mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability that a number becomes zero, in [0, 1].
    pub probability: f32,
    /// The seed of the mask: equal seeds give equal masks for matrices of equal width.
    pub seed: u64,
}

/// Computes `output = dropout(input)` for a matrix `[rows, columns]`. The backward pass is the same function:
/// `input_gradient = dropout(output_gradient)`.
///
/// # Panics
/// Panics if the lengths differ or are not a multiple of `columns`.
pub fn apply(dropout: Dropout, columns: usize, input: &[f32], output: &mut [f32]) {
    assert_eq!(input.len(), output.len(), "the input and output of dropout must have the same length");
    assert!(output.len().is_multiple_of(columns), "{} values in rows of {columns}", output.len());
    let piece_rows = rows_per_piece(output.len() / columns, columns);
    let piece = piece_rows * columns;
    let pieces = input.par_chunks(piece).zip(output.par_chunks_mut(piece)).enumerate();
    for_each(pieces, piece * 2, |(index, (input, output))| {
        apply_rows(&dropout.mask(columns), index * piece_rows, columns, input, output);
    });
}

/// Applies dropout to a gradient; returns `None` without dropout.
pub(super) fn masked(dropout: Option<Dropout>, columns: usize, gradient: &[f32]) -> Option<Buffer> {
    dropout.map(|dropout| {
        let mut masked = pool::take(gradient.len());
        apply(dropout, columns, gradient, &mut masked);
        masked
    })
}

vectorized! {
    fn apply_rows(simd; mask: &DropoutMask, first_row: usize, columns: usize, input: &[f32], output: &mut [f32]) {
        let rows = output.chunks_exact_mut(columns).zip(input.chunks_exact(columns));
        for (row, (output, input)) in rows.enumerate() {
            mask.fill_row(simd, first_row + row, 0, output);
            update(simd, output, [input], |keep, [input]| keep * input);
        }
    }
}

impl Dropout {
    /// Returns the mask of a matrix with `columns` columns.
    pub(super) fn mask(self, columns: usize) -> DropoutMask {
        let Self { probability, seed } = self;
        assert!((0.0..=1.0).contains(&probability), "dropout probability {probability} is not in [0, 1]");
        DropoutMask {
            key: [seed as u32, (seed >> 32) as u32],
            dropped_below: (f64::from(probability) * 2_f64.powi(32)) as u32,
            // The scale of kept numbers; zero if all are dropped.
            scale: if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 },
            // Rows begin at multiples of the hash's block size, so that no block has numbers of two rows.
            row_stride: columns.next_multiple_of(LANES) as u64,
        }
    }
}

/// A [`Dropout`] prepared for matrices of one width.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropoutMask {
    key: [u32; 2],
    dropped_below: u32,
    scale: f32,
    row_stride: u64,
}

impl DropoutMask {
    /// Writes the factors of the numbers at `row` from `first_column` on: zero or `1 / (1 - probability)`.
    ///
    /// `first_column` is a multiple of [`LANES`].
    #[inline(always)]
    pub(super) fn fill_row<S: Simd>(&self, simd: S, row: usize, first_column: usize, factors: &mut [f32]) {
        debug_assert!(first_column.is_multiple_of(LANES));
        // One call of the hash yields four blocks of `LANES` numbers: block b is word b mod 4 of call b / 4.
        let first_block = (row as u64 * self.row_stride + first_column as u64) / LANES as u64;
        let end = first_block + factors.len().div_ceil(LANES) as u64;
        let dropped_below = simd.splat_u32s(self.dropped_below);
        for call in first_block / 4..end.div_ceil(4) {
            for first_lane in (0..LANES).step_by(S::U32_LANES) {
                let words = philox(simd, self.key, call * LANES as u64 + first_lane as u64);
                for (word, bits) in words.into_iter().enumerate() {
                    let block = call * 4 + word as u64;
                    if block < first_block || block >= end {
                        continue;
                    }
                    let start = (block - first_block) as usize * LANES + first_lane;
                    let dropped = simd.less_than_u32s(bits, dropped_below);
                    if let Some(factors) = factors.get_mut(start..) {
                        Vector::splat(simd, self.scale).replace(dropped, 0.0).store(factors);
                    }
                }
            }
        }
    }
}

/// Computes Philox4x32 with seven rounds at consecutive counters from `counter` on, one per lane.
#[inline(always)]
fn philox<S: Simd>(simd: S, key: [u32; 2], counter: u64) -> [S::u32s; 4] {
    // The lane index is added to the low word without carry, because `counter` is a multiple of the number of lanes.
    let low = simd.add_u32s(simd.splat_u32s(counter as u32), S::as_simd_u32s(&LANE_INDICES).0[0]);
    let zero = simd.splat_u32s(0);
    rounds(simd, key, [low, simd.splat_u32s((counter >> 32) as u32), zero, zero])
}

const LANE_INDICES: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[inline(always)]
fn rounds<S: Simd>(simd: S, key: [u32; 2], mut counters: [S::u32s; 4]) -> [S::u32s; 4] {
    let mut key = key.map(|key| simd.splat_u32s(key));
    let [first_factor, second_factor] = [0xD251_1F53, 0xCD9E_8D57].map(|factor| simd.splat_u32s(factor));
    let [first_step, second_step] = [0x9E37_79B9, 0xBB67_AE85].map(|step| simd.splat_u32s(step));
    for _ in 0..7 {
        let [c0, c1, c2, c3] = counters;
        let (first_low, first_high) = simd.widening_mul_u32s(c0, first_factor);
        let (second_low, second_high) = simd.widening_mul_u32s(c2, second_factor);
        counters = [
            simd.xor_u32s(simd.xor_u32s(second_high, c1), key[0]),
            second_low,
            simd.xor_u32s(simd.xor_u32s(first_high, c3), key[1]),
            first_low,
        ];
        key = [simd.add_u32s(key[0], first_step), simd.add_u32s(key[1], second_step)];
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_on_any_number_of_threads, random};

    vectorized! {
        fn one_hash(simd; key: [u32; 2], counter: [u32; 4], result: &mut [u32; 4]) {
            let words = rounds(simd, key, counter.map(|word| simd.splat_u32s(word)));
            for (result, word) in result.iter_mut().zip(words) {
                simd.partial_store_u32s(std::slice::from_mut(result), word);
            }
        }

        fn fill(simd; mask: &DropoutMask, row: usize, first_column: usize, factors: &mut [f32]) {
            mask.fill_row(simd, row, first_column, factors);
        }
    }

    #[test]
    fn hash_matches_the_published_test_vectors() {
        let cases = [
            ([0, 0], [0; 4], [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]),
            ([!0, !0], [!0; 4], [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0x4dfc_caba, 0x190a_87f0, 0xc473_62ba, 0xb6b5_242a],
            ),
        ];
        for (key, counter, answer) in cases {
            let mut result = [0; 4];
            one_hash(key, counter, &mut result);
            assert_eq!(result, answer);
        }
    }

    #[test]
    fn drop_rate_holds_in_every_row_and_column() {
        for probability in [0.1, 0.5, 0.9] {
            let (rows, columns) = (503, 499);
            let mut output = vec![0.0; rows * columns];
            apply(Dropout { probability, seed: 7 }, columns, &vec![1.0; rows * columns], &mut output);
            let share =
                |kept: Vec<bool>| kept.iter().filter(|kept| !**kept).count() as f64 / kept.len() as f64;
            let p = f64::from(probability);
            // Six standard deviations of a binomial proportion.
            let tolerance = |n: usize| 6.0 * (p * (1.0 - p) / n as f64).sqrt();
            let all = share(output.iter().map(|v| *v != 0.0).collect());
            assert!((all - p).abs() < tolerance(output.len()), "{all} of all at {p}");
            for row in 0..rows {
                let dropped = share(output[row * columns..][..columns].iter().map(|v| *v != 0.0).collect());
                assert!((dropped - p).abs() < tolerance(columns), "{dropped} of row {row} at {p}");
            }
            for column in 0..columns {
                let dropped = share((0..rows).map(|row| output[row * columns + column] != 0.0).collect());
                assert!((dropped - p).abs() < tolerance(rows), "{dropped} of column {column} at {p}");
            }
            // Neighbours are dropped independently.
            let both = share((1..output.len()).map(|i| output[i] != 0.0 || output[i - 1] != 0.0).collect());
            assert!((both - p * p).abs() < tolerance(output.len()), "{both} of neighbours at {p}");
            let kept = 1.0 / (1.0 - probability);
            assert!(output.iter().all(|value| *value == 0.0 || *value == kept));
        }
    }

    #[test]
    fn masks_follow_the_seed_and_match_in_slices() {
        let ones = vec![1.0; 7 * 173];
        let masked = |seed, probability| {
            let mut output = vec![f32::NAN; ones.len()];
            apply(Dropout { probability, seed }, 173, &ones, &mut output);
            output
        };
        assert_eq!(masked(3, 0.4), masked(3, 0.4));
        assert_ne!(masked(3, 0.4), masked(4, 0.4));
        assert_ne!(masked(3, 0.4), masked(3 << 32, 0.4));
        assert_eq!(masked(3, 0.0), ones);
        assert_eq!(masked(3, 1.0), vec![0.0; ones.len()]);
        let mask = Dropout { probability: 0.4, seed: 3 }.mask(173);
        for (first, length) in [(0, 1), (16, 30), (48, 125), (80, 64), (160, 13)] {
            let mut part = vec![f32::NAN; length];
            fill(&mask, 5, first, &mut part);
            assert_eq!(part, masked(3, 0.4)[5 * 173 + first..][..length]);
        }
    }

    #[test]
    fn masks_are_bitwise_equal_across_thread_counts() {
        let input = random(5, 1_009 * 769);
        assert_same_on_any_number_of_threads(|| {
            let mut output = vec![0.0; input.len()];
            apply(Dropout { probability: 0.2, seed: 11 }, 769, &input, &mut output);
            vec![output]
        });
    }
}
