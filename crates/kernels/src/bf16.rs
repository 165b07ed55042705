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
mod factor;
mod rounding;
mod tile;

use super::matrix::{MatrixMut, Tile};
use super::vector::{update, vectorized};
use factor::Part;
pub(super) use factor::{Factor, Side, Source, Strip};
pub use rounding::round;

/// Whether the processor has instructions for products in bf16 that are taken. Without them, products in single precision
/// are faster.
pub fn has_instructions() -> bool {
    amx::is_used() || tile::has_instruction()
}

/// Lines of a block, and slots of each.
pub(super) const SIDE: usize = 16;
/// A block: 16 slots of each of 16 lines.
const BLOCK: usize = SIDE * SIDE;

/// The same tile of the products of a left factor with several right ones, on the calling thread.
pub(super) fn product_tiles<const N: usize>(left: &Source, rights: &[Source; N], mut tiles: [&mut Tile; N]) {
    // Numbers of the inner dimension that are summed up at a time at most, so that what a tile rounds stays near to its
    // core: those with a matrix unit have larger caches.
    let most_together = if amx::Unit::chosen().is_some() { 1536 } else { 768 };
    let (inner, mut update) = (left.inner(), Update::Set(1.0));
    let together = inner.div_ceil(inner.div_ceil(most_together).max(1)).next_multiple_of(2 * SIDE).max(1);
    for start in (0..inner.max(1)).step_by(together) {
        let range = start..inner.min(start + together);
        let [mut for_left, mut for_right] = [None, None];
        let left = left.part(Side::Left, &tiles[0].rows, range.clone(), &mut for_left);
        for (tile, right) in tiles.iter_mut().zip(rights) {
            let right = right.part(Side::Right, &tile.columns, range.clone(), &mut for_right);
            product(&mut tile.numbers, update, [left, right]);
        }
        update = Update::Continue;
    }
}

/// What becomes of the numbers that stand in a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Update {
    /// The sums times a number take their place.
    Set(f32),
    /// The sums times a number are added to them.
    Add(f32),
    /// The sums go on from them.
    Continue,
}

/// The sums of products of the first lines of both factors, as many as `output` has rows and columns, on the calling
/// thread.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn product(output: &mut MatrixMut, update: Update, factors: [Part; 2]) {
    product_by(amx::Unit::chosen(), output, update, factors);
}

/// By the matrix unit where there is one, and else by other instructions.
fn product_by(unit: Option<amx::Unit>, output: &mut MatrixMut, update: Update, factors: [Part; 2]) {
    let (rows, columns, [left, right]) = (output.rows(), output.columns(), factors);
    assert!(
        left.inner == right.inner && rows <= left.lines && columns <= right.lines,
        "[{rows}, {columns}] of [{}, {}] times [{}, {}]",
        left.lines,
        left.inner,
        right.inner,
        right.lines
    );
    if left.inner == 0 {
        // Sums of nothing.
        return if let Update::Set(_) = update {
            output.fill(0.0)
        };
    }
    match unit {
        Some(unit) => unit.product(output, update, factors),
        None => tile::product(output, update, factors),
    }
}

/// Sums that go on from a part of a result.
fn read<const WIDTH: usize>(output: &mut MatrixMut, sums: &mut [[f32; WIDTH]]) {
    let columns = output.columns();
    (0..output.rows()).for_each(|row| sums[row][..columns].copy_from_slice(output.row(row)));
}

/// Where the sums go: the first ones of each row.
fn write<const WIDTH: usize>(update: Update, sums: &[[f32; WIDTH]], output: &mut MatrixMut) {
    match update {
        Update::Set(scale) => set(scale, sums, output),
        Update::Add(scale) => add(scale, sums, output),
        Update::Continue => set(1.0, sums, output),
    }
}

vectorized! {
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
}

#[cfg(test)]
mod tests;
