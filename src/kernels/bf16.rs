//! Matrix products whose factors are rounded to bf16 and whose sums are taken in single precision.
//!
//! A bf16 is the upper half of an `f32` (Kalamkar et al., *A study of bfloat16 for deep learning training*, 2019, arXiv
//! 1905.12322). Two that meet in a sum stand side by side in one slot of 32 bits, the first in its lower half, and a
//! slot's products enter the sum as the instruction `VDPBF16PS` of AVX512-BF16 defines it: the upper half first, each
//! by one fused multiply-add, with denormals flushed to zero. Processors without it do the same in their own
//! registers, so that they compute the same bits. Processors with a matrix unit (Intel's AMX) take sums by that, in
//! [another order](amx) and many times faster. Each number of a result is one sum from its first term to its
//! last, however the product is cut.

pub(super) mod amx;
mod tile;

use rayon::prelude::*;

use super::matmul::Destination;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool::{self, Buffer};
use super::vector::{update, vectorized};

/// Lines of a block, and slots of each.
const SIDE: usize = 16;
/// A block: 16 slots of each of 16 lines.
const BLOCK: usize = SIDE * SIDE;

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

/// Which factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A factor as blocks of slots: `[lines / 16, inner / 32]` of them, with zeros where a block reaches beyond the factor.
/// Lines are the rows of a left factor and the columns of a right one. A block is `[line, slot]` in a left factor and
/// `[slot, line]` in a right one.
#[derive(Debug)]
pub(super) struct Factor {
    slots: Buffer,
    lines: usize,
    inner: usize,
}

impl Factor {
    /// Rounds a matrix, on several threads where it is large.
    pub fn new(side: Side, matrix: Matrix) -> Self {
        /// Blocks of lines that are filled together: what they hold of a number of the inner dimension may lie side by
        /// side.
        const TOGETHER: usize = 8;
        let matrix = if side == Side::Right { matrix.transposed() } else { matrix };
        let (lines, inner) = (matrix.rows(), matrix.columns());
        let steps = inner.div_ceil(2 * SIDE);
        let mut slots = pool::take(lines.div_ceil(SIDE) * steps * BLOCK);
        if !slots.is_empty() {
            let groups = slots.par_chunks_mut(TOGETHER * steps * BLOCK).enumerate();
            for_each(groups, TOGETHER * steps * BLOCK, |(group, slots)| {
                let first = group * TOGETHER * SIDE;
                fill(side, matrix.part(first..lines.min(first + TOGETHER * SIDE), 0..inner), slots);
            });
        }
        Self { slots, lines, inner }
    }

    /// Whether the first `inner` numbers of the inner dimension fill blocks, or are all.
    pub fn begins_with(&self, inner: usize) -> bool {
        inner == self.inner || inner < self.inner && inner.is_multiple_of(2 * SIDE)
    }

    /// Blocks along the inner dimension.
    fn steps(&self) -> usize {
        self.inner.div_ceil(2 * SIDE)
    }

    /// Where the blocks of a line begin.
    fn place(&self, line: usize) -> usize {
        line / SIDE * self.steps() * BLOCK
    }
}

/// `output = scale * left * right`, or that added to `output`, for the rows of `left` and the columns of `right` that
/// begin at `first`, on the calling thread. Of `right` the first numbers of the inner dimension are taken, as many as
/// `left` has.
///
/// # Panics
/// If the shapes do not fit, or `first` or the numbers that are taken are not whole blocks.
pub(super) fn product(
    output: &mut MatrixMut,
    destination: Destination,
    scale: f32,
    factors: [&Factor; 2],
    first: [usize; 2],
) {
    product_by(amx::Unit::chosen(), output, destination, scale, factors, first);
}

/// By the matrix unit where there is one, and else by other instructions.
fn product_by(
    unit: Option<amx::Unit>,
    output: &mut MatrixMut,
    destination: Destination,
    scale: f32,
    [left, right]: [&Factor; 2],
    first: [usize; 2],
) {
    let (rows, columns) = (output.rows(), output.columns());
    assert!(
        right.begins_with(left.inner)
            && first[0] + rows <= left.lines
            && first[1] + columns <= right.lines
            && first.iter().all(|first| first.is_multiple_of(SIDE)),
        "[{rows}, {}] times [{}, {columns}] at {first:?} of [{}, {}]",
        left.inner,
        right.inner,
        left.lines,
        right.lines
    );
    match unit {
        Some(unit) => unit.product(output, destination, scale, [left, right], first),
        None => tile::product(output, destination, scale, [left, right], first),
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

/// Slots of two lines of numbers, with zeros behind their ends.
#[inline(always)]
fn pair(lines: [&[f32]; 2], slots: &mut [f32; SIDE]) {
    if let [Ok(first), Ok(second)] = lines.map(<&[f32; SIDE]>::try_from) {
        return (0..SIDE).for_each(|place| slots[place] = slot(first[place], second[place]));
    }
    for (place, slot) in slots.iter_mut().enumerate() {
        let [first, second] = lines.map(|line| line.get(place).copied().unwrap_or(0.0));
        *slot = self::slot(first, second);
    }
}

/// Slots of each two numbers of a line, with zeros behind its end.
#[inline(always)]
fn pair_neighbours(line: &[f32], slots: &mut [f32; SIDE]) {
    if let Ok(line) = <&[f32; 2 * SIDE]>::try_from(line) {
        return (0..SIDE).for_each(|place| slots[place] = slot(line[2 * place], line[2 * place + 1]));
    }
    for (place, slot) in slots.iter_mut().enumerate() {
        let [first, second] = [2 * place, 2 * place + 1].map(|at| line.get(at).copied().unwrap_or(0.0));
        *slot = self::slot(first, second);
    }
}

/// So many numbers from one on, as far as there are any.
#[inline(always)]
fn part(numbers: &[f32], from: usize, length: usize) -> &[f32] {
    &numbers[from.min(numbers.len())..(from + length).min(numbers.len())]
}

/// `output = scale * sums`, or that added to it, of the first sums of each row.
fn write<const WIDTH: usize>(
    destination: Destination,
    scale: f32,
    sums: &[[f32; WIDTH]],
    output: &mut MatrixMut,
) {
    match destination {
        Destination::Overwrite => set(scale, sums, output),
        Destination::AddTo => add(scale, sums, output),
    }
}

vectorized! {
    fn round_piece(_simd; values: &[f32], rounded: &mut [f32]) {
        rounded.iter_mut().zip(values).for_each(|(it, x)| *it = f32::from_bits(self::rounded(*x)));
    }

    fn set<const WIDTH: usize>(simd; scale: f32, sums: &[[f32; WIDTH]], output: &mut MatrixMut<'_>) {
        for (row, sums) in (0..output.rows()).zip(sums) {
            update(simd, output.row(row), [sums], |_, [sum]| sum * scale);
        }
    }

    fn add<const WIDTH: usize>(simd; scale: f32, sums: &[[f32; WIDTH]], output: &mut MatrixMut<'_>) {
        for (row, sums) in (0..output.rows()).zip(sums) {
            update(simd, output.row(row), [sums], |x, [sum]| sum.mul_add(scale, x));
        }
    }

    /// The blocks of a matrix `[lines, inner]`, which is read in the order in which it lies.
    fn fill(_simd; side: Side, matrix: Matrix<'_>, slots: &mut [f32]) {
        let (lines, inner) = (matrix.rows(), matrix.columns());
        let steps = inner.div_ceil(2 * SIDE);
        let (slots, _) = slots.as_chunks_mut();
        if matrix.is_transposed() {
            let rows = matrix.transposed();
            let row = |row| if row < inner { rows.row(row) } else { &[] };
            for slot in 0..steps * SIDE {
                let rows = [row(2 * slot), row(2 * slot + 1)];
                for (block, slots) in slots[slot..].iter_mut().step_by(steps * SIDE).enumerate() {
                    pair(rows.map(|row| part(row, block * SIDE, SIDE)), slots);
                }
            }
        } else {
            for line in 0..lines.next_multiple_of(SIDE) {
                let row = if line < lines { matrix.row(line) } else { &[] };
                let slots = slots[line / SIDE * steps * SIDE + line % SIDE..].iter_mut().step_by(SIDE);
                for (step, slots) in slots.take(steps).enumerate() {
                    pair_neighbours(part(row, step * 2 * SIDE, 2 * SIDE), slots);
                }
            }
        }
        if matrix.is_transposed() == (side == Side::Left) {
            slots.as_chunks_mut().0.iter_mut().for_each(tile::transpose);
        }
    }
}

#[cfg(test)]
mod tests;
