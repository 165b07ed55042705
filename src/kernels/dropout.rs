//! Dropout whose mask is computed again instead of being stored.
//!
//! A number at (row, column) is kept if a hash of (seed, row, column) says so, and then scaled by
//! `1 / (1 - probability)`. The backward pass asks the hash again, on any thread and in any order. The hash is
//! Philox4x32-7, a counter-based generator that passes BigCrush (Salmon et al., *Parallel random numbers: as
//! easy as 1, 2, 3*, 2011).

use super::matrix::Tiles;
use super::parallel::{for_each_piece, rows_in_a_piece};
use super::vector::{LANES, update, vectorized};

/// Which numbers of a matrix are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability with which a number becomes zero, in [0, 1).
    pub probability: f32,
    /// Names the mask: equal seeds give equal masks for matrices of equal width.
    pub seed: u64,
}

/// `output = dropout(input)` for a matrix `[rows, columns]`, and also the gradient's way back:
/// `input_gradient = dropout(output_gradient)`.
///
/// # Panics
/// If the lengths differ or hold no whole rows.
pub fn apply(dropout: Dropout, columns: usize, input: &[f32], output: &mut [f32]) {
    assert_eq!(input.len(), output.len(), "dropout's input and output");
    let rows = output.len() / columns;
    let piece_rows = rows_in_a_piece(rows, columns);
    let tiles = Tiles::rows(output, columns, piece_rows);
    for_each_piece(tiles.count(), piece_rows * columns * 2, |piece| {
        let (rows, _) = tiles.place(piece);
        let input = &input[rows.start * columns..rows.end * columns];
        apply_rows(&dropout.mask(columns), rows.start, columns, input, tiles.take(piece).contiguous());
    });
}

vectorized! {
    fn apply_rows<FMA>(mask: &Mask, first_row: usize, columns: usize, input: &[f32], output: &mut [f32]) {
        let rows = output.chunks_exact_mut(columns).zip(input.chunks_exact(columns));
        for (row, (output, input)) in rows.enumerate() {
            mask.fill_row(first_row + row, 0, output);
            update(output, [input], |keep, [input]| keep * input);
        }
    }
}

impl Dropout {
    /// The mask of a matrix with `columns` columns.
    pub(super) fn mask(self, columns: usize) -> Mask {
        let Self { probability, seed } = self;
        assert!((0.0..1.0).contains(&probability), "dropout probability {probability} is not in [0, 1)");
        Mask {
            key: [seed as u32, (seed >> 32) as u32],
            dropped_below: (f64::from(probability) * 2_f64.powi(32)) as u32,
            scale: 1.0 / (1.0 - probability),
            // Rows begin at whole blocks, so that a row's numbers are whole blocks of the hash.
            row_stride: columns.next_multiple_of(LANES) as u64,
        }
    }
}

/// A [`Dropout`] made ready for matrices of one width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mask {
    key: [u32; 2],
    dropped_below: u32,
    scale: f32,
    row_stride: u64,
}

impl Mask {
    /// What the numbers at `row` from `first_column` on are multiplied by: zero or `1 / (1 - probability)`.
    ///
    /// `first_column` is a multiple of [`LANES`].
    #[inline(always)]
    pub(super) fn fill_row(&self, row: usize, first_column: usize, factors: &mut [f32]) {
        debug_assert!(first_column.is_multiple_of(LANES));
        let first_block = (row as u64 * self.row_stride + first_column as u64) / LANES as u64;
        // One call of the hash gives four blocks: block b is word b mod 4 of call b / 4.
        let mut words = [[0; LANES]; 4];
        let mut ready = u64::MAX;
        for (block, factors) in factors.chunks_mut(LANES).enumerate() {
            let block = first_block + block as u64;
            if ready != block / 4 {
                ready = block / 4;
                words = philox(self.key, ready);
            }
            let word = &words[(block % 4) as usize];
            let mut factor = [0.0; LANES];
            for lane in 0..LANES {
                factor[lane] = if word[lane] < self.dropped_below { 0.0 } else { self.scale };
            }
            match factors.as_chunks_mut::<LANES>() {
                ([whole], _) => *whole = factor,
                (_, rest) => rest.copy_from_slice(&factor[..rest.len()]),
            }
        }
    }
}

/// Philox4x32 with seven rounds at the [`LANES`] counters from `LANES * call` on.
#[inline(always)]
fn philox(key: [u32; 2], call: u64) -> [[u32; LANES]; 4] {
    let mut counters = [[0; LANES]; 4];
    for lane in 0..LANES {
        let counter = call * LANES as u64 + lane as u64;
        counters[0][lane] = counter as u32;
        counters[1][lane] = (counter >> 32) as u32;
    }
    rounds(key, counters)
}

#[inline(always)]
fn rounds(mut key: [u32; 2], mut counters: [[u32; LANES]; 4]) -> [[u32; LANES]; 4] {
    for _ in 0..7 {
        let [c0, c1, c2, c3] = counters;
        for lane in 0..LANES {
            let first = u64::from(c0[lane]) * 0xD251_1F53;
            let second = u64::from(c2[lane]) * 0xCD9E_8D57;
            counters[0][lane] = (second >> 32) as u32 ^ c1[lane] ^ key[0];
            counters[1][lane] = second as u32;
            counters[2][lane] = (first >> 32) as u32 ^ c3[lane] ^ key[1];
            counters[3][lane] = first as u32;
        }
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_same_on_any_number_of_threads, random};
    use super::*;

    #[test]
    fn hash_gives_the_known_answers_of_its_authors() {
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
            let result = rounds(key, counter.map(|word| [word; LANES]));
            assert_eq!(result, answer.map(|word: u32| [word; LANES]));
        }
    }

    #[test]
    fn the_wanted_share_is_dropped_in_every_row_and_column_and_the_mean_stays() {
        for probability in [0.1, 0.5, 0.9] {
            let (rows, columns) = (503, 499);
            let mut output = vec![0.0; rows * columns];
            apply(Dropout { probability, seed: 7 }, columns, &vec![1.0; rows * columns], &mut output);
            let share =
                |kept: Vec<bool>| kept.iter().filter(|kept| !**kept).count() as f64 / kept.len() as f64;
            let p = f64::from(probability);
            // Six standard deviations of a binomial share.
            let tolerance = |n: usize| 6.0 * (p * (1.0 - p) / n as f64).sqrt();
            let all = share(output.iter().map(|v| *v != 0.0).collect());
            assert!((all - p).abs() < tolerance(output.len()), "{all} of all at {p}");
            for row in 0..rows {
                let here = share(output[row * columns..][..columns].iter().map(|v| *v != 0.0).collect());
                assert!((here - p).abs() < tolerance(columns), "{here} of row {row} at {p}");
            }
            for column in 0..columns {
                let here = share((0..rows).map(|row| output[row * columns + column] != 0.0).collect());
                assert!((here - p).abs() < tolerance(rows), "{here} of column {column} at {p}");
            }
            // Neighbours are dropped independently.
            let both = share((1..output.len()).map(|i| output[i] != 0.0 || output[i - 1] != 0.0).collect());
            assert!((both - p * p).abs() < tolerance(output.len()), "{both} of neighbours at {p}");
            let kept = 1.0 / (1.0 - probability);
            assert!(output.iter().all(|value| *value == 0.0 || *value == kept));
        }
    }

    #[test]
    fn seeds_name_masks_and_parts_of_a_row_agree_with_the_whole() {
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
        let mask = Dropout { probability: 0.4, seed: 3 }.mask(173);
        for (first, length) in [(0, 1), (16, 30), (48, 125), (80, 64), (160, 13)] {
            let mut part = vec![f32::NAN; length];
            mask.fill_row(5, first, &mut part);
            assert_eq!(part, masked(3, 0.4)[5 * 173 + first..][..length]);
        }
    }

    #[test]
    fn masks_have_the_same_bits_on_any_number_of_threads() {
        let input = random(5, 1_009 * 769);
        assert_same_on_any_number_of_threads(|| {
            let mut output = vec![0.0; input.len()];
            apply(Dropout { probability: 0.2, seed: 11 }, 769, &input, &mut output);
            vec![output]
        });
    }
}
