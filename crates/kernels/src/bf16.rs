//! Matrix products with factors rounded to bf16 and sums in single precision.
//!
//! A bf16 is the upper half of an `f32` (Kalamkar et al., *A study of bfloat16 for deep learning training*, 2019, arXiv
//! 1905.12322). Two neighbours along the inner dimension share a slot of 32 bits, the first in the lower half.
//!
//! - AVX512-BF16: `VDPBF16PS` adds the products of a slot to the sum, the upper half first. Each product is one fused
//!   multiply-add, with denormals flushed to zero.
//! - Other processors without AMX compute the same bits in software.
//! - Intel AMX accumulates in [another order](amx) and is many times faster.
//!
//! Each number of a result is a single sum from the first to the last term, however the product is tiled.

pub(super) mod amx;
mod factor;
mod rounding;
mod tile;

use super::matrix::{MatrixMut, Tile};
use super::vector::{update, vectorized};
use factor::Part;
pub(super) use factor::{Factor, Source, Strip};
pub use rounding::round;

/// The side of a factor in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Returns true if the processor has instructions for products in bf16 and they are used. Otherwise, products in single
/// precision are faster.
pub fn has_instructions() -> bool {
    amx::is_used() || tile::has_instruction()
}

/// The number of lines of a block, and of slots per line.
pub(super) const SIDE: usize = 16;
/// The number of slots of a block: 16 in each of 16 lines.
const BLOCK: usize = SIDE * SIDE;

/// Computes the same tile of the products of a left factor with several right factors, on the calling thread.
pub(super) fn product_tiles<const N: usize>(left: &Source, rights: &[Source; N], mut tiles: [&mut Tile; N]) {
    // The maximum number of inner indices summed at a time, so that rounded numbers stay in the cache of a core.
    // Processors with a matrix unit have larger caches.
    let max_depth = if amx::Unit::chosen().is_some() { 1536 } else { 768 };
    let (inner, mut update) = (left.inner(), Update::Set(1.0));
    let depth = inner.div_ceil(inner.div_ceil(max_depth).max(1)).next_multiple_of(2 * SIDE).max(1);
    for start in (0..inner.max(1)).step_by(depth) {
        let range = start..inner.min(start + depth);
        let [mut for_left, mut for_right] = [None, None];
        let left = left.part(Side::Left, &tiles[0].rows, range.clone(), &mut for_left);
        for (tile, right) in tiles.iter_mut().zip(rights) {
            let right = right.part(Side::Right, &tile.columns, range.clone(), &mut for_right);
            product(&mut tile.numbers, update, [left, right]);
        }
        update = Update::Continue;
    }
}

/// The effect of a product on the numbers already in its destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Update {
    /// Replaces the numbers by the sums times a factor.
    Set(f32),
    /// Adds the sums times a factor to the numbers.
    Add(f32),
    /// Starts the sums from the numbers.
    Continue,
}

/// Computes the top left part of the product, with as many rows and columns as `output`, on the calling thread.
///
/// # Panics
/// Panics if the shapes do not match.
pub(super) fn product(output: &mut MatrixMut, update: Update, factors: [Part; 2]) {
    product_by(amx::Unit::chosen(), output, update, factors);
}

/// Implements [`product`] with the matrix unit, or with other instructions if `unit` is `None`.
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
        // An empty sum is zero.
        return if let Update::Set(_) = update {
            output.fill(0.0);
        };
    }
    match unit {
        Some(unit) => unit.product(output, update, factors),
        None => tile::product(output, update, factors),
    }
}

/// Loads the partial sums of a result.
fn read<const WIDTH: usize>(output: &mut MatrixMut, sums: &mut [[f32; WIDTH]]) {
    let columns = output.columns();
    (0..output.rows()).for_each(|row| sums[row][..columns].copy_from_slice(output.row(row)));
}

/// Writes the first sums of each row into the result.
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
