//! Matrix products whose factors are rounded to bf16 and whose sums are taken in single precision.
//!
//! A bf16 is the upper half of an `f32` (Kalamkar et al., *A study of bfloat16 for deep learning training*, 2019, arXiv
//! 1905.12322). Two that meet in a sum stand side by side in one slot of 32 bits, the first in its lower half, and
//! a slot's products enter the sum as the instruction `VDPBF16PS` of AVX512-BF16 defines it: the upper half first, each
//! by one fused multiply-add, with denormals flushed to zero. Processors without it do the same in their own
//! registers, so that every processor computes the same bits. Each number of a result is one sum from its
//! first term to its last, however the product is cut.

mod tile;

use rayon::prelude::*;

use super::matmul::Destination;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool::{self, Buffer};
use super::vector::{LANES, vectorized};
use tile::{TILE_COLUMNS, TILE_ROWS, Tile};

/// Slots that are transposed at once.
const BLOCK: usize = 16;

/// Each number rounded to bf16.
///
/// # Panics
/// If they are not equally long.
pub fn round(values: &[f32], rounded: &mut [f32]) {
    const PIECE: usize = 1 << 14;
    assert_eq!(values.len(), rounded.len(), "numbers to round");
    let pieces = rounded.par_chunks_mut(PIECE).zip(values.par_chunks(PIECE));
    for_each(pieces, PIECE, |(rounded, values)| round_piece(values, rounded));
}

/// A left factor as slots: those of a row side by side, or where the matrix is transposed those of a column.
#[derive(Debug)]
pub(super) struct Left {
    slots: Buffer,
    row_stride: usize,
    slot_stride: usize,
    rows: usize,
    inner: usize,
}

impl Left {
    /// Rounds a matrix, on several threads where it is large.
    pub fn new(matrix: Matrix) -> Self {
        let (rows, inner) = (matrix.rows(), matrix.columns());
        let pairs = inner.div_ceil(2);
        let mut slots = pool::take(rows * pairs);
        let (row_stride, slot_stride) = if matrix.is_transposed() { (1, rows) } else { (pairs, 1) };
        if !slots.is_empty() {
            let length = if matrix.is_transposed() { rows } else { pairs };
            for_each(slots.par_chunks_mut(length).enumerate(), length, |(index, slots)| {
                match matrix.is_transposed() {
                    true => pair_rows(two_rows(matrix.transposed(), index), slots),
                    false => pair_numbers(matrix.row(index), slots),
                }
            });
        }
        Self { slots, row_stride, slot_stride, rows, inner }
    }
}

/// Rows `2 index` and `2 index + 1`, of which the second may be missing.
fn two_rows<'a>(matrix: Matrix<'a>, index: usize) -> [&'a [f32]; 2] {
    let second = 2 * index + 1;
    [matrix.row(2 * index), if second < matrix.rows() { matrix.row(second) } else { &[] }]
}

/// A right factor as slots: panels of 64 columns, of which the last may be narrower, each `[pairs, its width]` with
/// zeros behind the last column.
#[derive(Debug)]
pub(super) struct Right {
    slots: Buffer,
    inner: usize,
    columns: usize,
}

impl Right {
    /// Rounds a matrix, on several threads where it is large.
    pub fn new(matrix: Matrix) -> Self {
        /// Panels that are filled together: what they hold of a row lies side by side.
        const TOGETHER: usize = 4;
        let (inner, columns) = (matrix.rows(), matrix.columns());
        let pairs = inner.div_ceil(2);
        let mut slots = pool::take(pairs * columns.next_multiple_of(LANES));
        if !slots.is_empty() {
            let groups = slots.par_chunks_mut(TOGETHER * pairs * TILE_COLUMNS).enumerate();
            for_each(groups, TOGETHER * pairs * TILE_COLUMNS, |(group, slots)| {
                let start = group * TOGETHER * TILE_COLUMNS;
                let part = matrix.part(0..inner, start..columns.min(start + TOGETHER * TILE_COLUMNS));
                fill_panels(part, slots);
            });
        }
        Self { slots, inner, columns }
    }

    /// The panel that begins at a column, and its width.
    fn panel(&self, start: usize) -> (&[f32], usize) {
        let pairs = self.inner.div_ceil(2);
        let width = (self.columns - start).min(TILE_COLUMNS).next_multiple_of(LANES);
        (&self.slots[pairs * start..][..pairs * width], width)
    }
}

/// `output = scale * left * right`, or that added to `output`, for the rows of `left` and the columns of `right` that
/// begin at `first`, on the calling thread.
///
/// # Panics
/// If the shapes do not fit, or a panel does not begin at the first column.
pub(super) fn product(
    output: &mut MatrixMut,
    destination: Destination,
    scale: f32,
    (left, right): (&Left, &Right),
    first: [usize; 2],
) {
    let (rows, columns) = (output.rows(), output.columns());
    assert!(
        right.inner == left.inner
            && first[0] + rows <= left.rows
            && first[1] + columns <= right.columns
            && first[1].is_multiple_of(TILE_COLUMNS),
        "[{rows}, {}] times [{}, {columns}] at {first:?} of [{}, {}]",
        left.inner,
        right.inner,
        left.rows,
        right.columns
    );
    for start in (0..columns).step_by(TILE_COLUMNS) {
        let (panel, width) = right.panel(first[1] + start);
        let used = start..columns.min(start + TILE_COLUMNS);
        for row in (0..rows).step_by(TILE_ROWS) {
            let tile = Tile {
                left: &left.slots[((first[0] + row) * left.row_stride).min(left.slots.len())..],
                strides: [left.row_stride, left.slot_stride],
                panel,
                width,
            };
            let rows = row..rows.min(row + TILE_ROWS);
            tile.sum_into(&mut output.part(rows, used.clone()), destination, scale);
        }
    }
}

/// The panels of `matrix` `[inner, columns]`.
fn fill_panels(matrix: Matrix, slots: &mut [f32]) {
    let (inner, columns) = (matrix.rows(), matrix.columns());
    let mut panels = slots.chunks_mut(inner.div_ceil(2) * TILE_COLUMNS).collect::<Vec<_>>();
    let part = |index: usize| index * TILE_COLUMNS..columns.min((index + 1) * TILE_COLUMNS);
    if matrix.is_transposed() {
        for (index, panel) in panels.into_iter().enumerate() {
            let matrix = matrix.part(0..inner, part(index));
            let width = matrix.columns().next_multiple_of(LANES);
            fill_transposed(matrix.transposed(), width, panel);
        }
        return;
    }
    for pair in 0..inner.div_ceil(2) {
        let rows = two_rows(matrix, pair);
        for (index, panel) in panels.iter_mut().enumerate() {
            let part = part(index);
            let width = part.len().next_multiple_of(LANES);
            let (slots, behind) = panel[pair * width..][..width].split_at_mut(part.len());
            pair_rows(rows.map(|row| row.get(part.clone()).unwrap_or_default()), slots);
            behind.fill(0.0);
        }
    }
}

/// The panel of a matrix that is given transposed, `[columns, inner]`.
fn fill_transposed(matrix: Matrix, width: usize, panel: &mut [f32]) {
    let (columns, inner) = (matrix.rows(), matrix.columns());
    for (index, slots) in panel.chunks_mut(BLOCK * width).enumerate() {
        slots.chunks_mut(width).for_each(|slots| slots[columns..].fill(0.0));
        let numbers = 2 * BLOCK * index..inner.min(2 * BLOCK * (index + 1));
        for first in (0..columns).step_by(BLOCK) {
            let last = columns.min(first + BLOCK);
            transpose_pairs(matrix.part(first..last, numbers.clone()), width, &mut slots[first..]);
        }
    }
}

/// The upper half of the bits of the nearest bf16, to even where two are as near; zero for a denormal.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    let is_nan = x.is_nan();
    let nearest = if is_nan { bits | 0x0040_0000 } else { nearest };
    let nearest = if x.abs() < f32::MIN_POSITIVE { bits & 0x8000_0000 } else { nearest };
    nearest & 0xFFFF_0000
}

/// The slot of two numbers.
#[inline(always)]
fn slot(first: f32, second: f32) -> f32 {
    f32::from_bits(rounded(first) >> 16 | rounded(second))
}

vectorized! {
    fn round_piece(_simd; values: &[f32], rounded: &mut [f32]) {
        rounded.iter_mut().zip(values).for_each(|(it, x)| *it = f32::from_bits(self::rounded(*x)));
    }

    /// Slots of each two numbers of a row.
    fn pair_numbers(_simd; row: &[f32], slots: &mut [f32]) {
        let whole = row.len() / 2;
        let (slots, last) = slots.split_at_mut(whole);
        for (slot, pair) in slots.iter_mut().zip(row.chunks_exact(2)) {
            *slot = self::slot(pair[0], pair[1]);
        }
        if let [last] = last {
            *last = slot(row[2 * whole], 0.0);
        }
    }

    /// Slots of the numbers of two rows; a second one that is missing is zero.
    fn pair_rows(_simd; rows: [&[f32]; 2], slots: &mut [f32]) {
        let [first, second] = rows;
        if second.is_empty() {
            slots.iter_mut().zip(first).for_each(|(slot, first)| *slot = self::slot(*first, 0.0));
        } else {
            let second = &second[..first.len()];
            for ((slot, first), second) in slots.iter_mut().zip(first).zip(second) {
                *slot = self::slot(*first, *second);
            }
        }
    }

    /// The slots of at most 16 rows of at most 32 numbers become at most 16 rows, `width` apart.
    fn transpose_pairs(_simd; matrix: Matrix<'_>, width: usize, slots: &mut [f32]) {
        let mut block = [[0.0; BLOCK]; BLOCK];
        let pairs = matrix.columns().div_ceil(2);
        for (row, block) in block.iter_mut().enumerate().take(matrix.rows()) {
            let numbers = matrix.row(row);
            if let Ok(numbers) = <&[f32; 2 * BLOCK]>::try_from(numbers) {
                for pair in 0..BLOCK {
                    block[pair] = slot(numbers[2 * pair], numbers[2 * pair + 1]);
                }
            } else {
                for (pair, slot) in block.iter_mut().enumerate().take(pairs) {
                    *slot = self::slot(numbers[2 * pair], numbers.get(2 * pair + 1).copied().unwrap_or(0.0));
                }
            }
        }
        for pair in 0..pairs {
            let slots = &mut slots[pair * width..][..matrix.rows()];
            slots.iter_mut().zip(&block).for_each(|(slot, block)| *slot = block[pair]);
        }
    }
}

#[cfg(test)]
mod tests;
