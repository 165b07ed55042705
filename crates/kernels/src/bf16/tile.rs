//! Tiles of a product in registers, computed with the processor's instruction or in software by the instruction's
//! definition.

use pulp::Simd;

use super::{BLOCK, Part, SIDE, Update, read, write};
use crate::matrix::MatrixMut;
#[cfg(target_arch = "x86_64")]
use crate::vector::instruction_set;
use crate::vector::{LANES, Vector, vectorized};

/// The number of rows of a tile in registers.
pub(super) const TILE_ROWS: usize = 6;
/// The number of columns of a tile in registers.
pub(super) const TILE_COLUMNS: usize = 4 * LANES;

/// Computes the products of the first lines of both factors.
pub(super) fn product(output: &mut MatrixMut, update: Update, [left, right]: [Part; 2]) {
    let (rows, columns) = (output.rows(), output.columns());
    for column in (0..columns).step_by(TILE_COLUMNS) {
        let width = (columns - column).min(TILE_COLUMNS);
        for row in (0..rows).step_by(TILE_ROWS) {
            let tile = Tile { left, right, first: [row, column], width };
            let rows = row..rows.min(row + TILE_ROWS);
            tile.sum_into(&mut output.part(rows, column..column + width), update);
        }
    }
}

/// A tile of a result.
pub(super) struct Tile<'a> {
    pub left: Part<'a>,
    pub right: Part<'a>,
    /// The first row and the first column of the tile.
    pub first: [usize; 2],
    /// The number of columns, at most four registers of 16 numbers.
    pub width: usize,
}

/// Calls a macro with the rows and registers of a tile as constants.
#[cfg(target_arch = "x86_64")]
macro_rules! with_sizes {
    ($sizes:expr, $call:ident) => {
        with_sizes!($sizes, $call, 1 2 3 4 5 6)
    };
    ($sizes:expr, $call:ident, $($rows:literal)*) => {
        match $sizes {
            $(
                ($rows, 1) => $call!($rows, 1),
                ($rows, 2) => $call!($rows, 2),
                ($rows, 3) => $call!($rows, 3),
                ($rows, 4) => $call!($rows, 4),
            )*
            sizes => unreachable!("a tile of {sizes:?}"),
        }
    };
}

impl Tile<'_> {
    /// Computes the sums and writes them into a result.
    fn sum_into(&self, output: &mut MatrixMut, update: Update) {
        let rows = output.rows();
        assert_eq!(output.columns(), self.width, "columns of a tile");
        #[cfg(target_arch = "x86_64")]
        if has_instruction() && self.width.is_multiple_of(LANES) {
            // SAFETY: the processor has the instruction, and the result has room for the tile.
            return unsafe { self.sum_by_instruction(rows, output.address(), update) };
        }
        let mut sums = [[0.0; TILE_COLUMNS]; TILE_ROWS];
        if update == Update::Continue {
            read(output, &mut sums);
        }
        self.sum(rows, &mut sums);
        write(update, &sums, output);
    }

    /// Adds the products to the sums of the first `rows` rows.
    fn sum(&self, rows: usize, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        #[cfg(target_arch = "x86_64")]
        if has_instruction() {
            let address = (sums.as_mut_ptr().cast(), TILE_COLUMNS as isize);
            // SAFETY: the processor has the instruction, and `sums` has room for any tile.
            return unsafe { self.sum_by_instruction(rows, address, Update::Continue) };
        }
        self.check(rows);
        sum_in_registers(rows, self, sums);
    }

    /// Computes the sums with the processor's instruction, and writes them to an address with a stride between rows.
    ///
    /// # Safety
    /// The processor must have the instruction, and the address must have room for `rows` rows of full registers.
    #[cfg(target_arch = "x86_64")]
    unsafe fn sum_by_instruction(&self, rows: usize, address: (*mut f32, isize), update: Update) {
        self.check(rows);
        macro_rules! by_instruction {
            // SAFETY: guaranteed by the caller; `check` ensures that the tile is within its factors.
            ($rows:literal, $registers:literal) => {
                unsafe { sum_by_instruction::<$rows, $registers>(self, address, update) }
            };
        }
        with_sizes!((rows, self.width.div_ceil(LANES)), by_instruction);
    }

    /// Panics if the tile extends beyond its factors.
    fn check(&self, rows: usize) {
        let [row, column] = self.first;
        assert!((1..=TILE_ROWS).contains(&rows) && (1..=TILE_COLUMNS).contains(&self.width));
        assert!(
            row + rows <= self.left.lines
                && column + self.width <= self.right.lines
                && column.is_multiple_of(SIDE)
                && self.left.steps() <= self.right.steps(),
            "a tile extends beyond its factors"
        );
    }

    /// Returns the slots of a row, starting in its first block.
    fn row(&self, row: usize) -> &[f32] {
        let line = self.first[0] + row;
        &self.left.blocks(line)[line % SIDE * SIDE..]
    }

    /// Returns the slots of a register's columns, starting in their first block.
    fn register(&self, register: usize) -> &[f32] {
        self.right.blocks(self.first[1] + register * LANES)
    }

    /// Iterates over the blocks along the inner dimension: the offset and the number of used slots of each block.
    fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        let pairs = self.left.inner.div_ceil(2);
        (0..self.left.steps()).map(move |step| (step * BLOCK, SIDE.min(pairs - step * SIDE)))
    }
}

/// Returns true if the processor has the instruction for dot products of bf16 pairs, `VDPBF16PS`.
pub(super) fn has_instruction() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    #[cfg(target_arch = "x86_64")]
    let found = || matches!(instruction_set(), pulp::Arch::V4(_)) && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    let found = || false;
    *FOUND.get_or_init(found)
}

/// Computes the sums of `ROWS` rows of `REGISTERS` registers with `VDPBF16PS`, and writes them to an address with a
/// stride between rows.
///
/// # Safety
/// The processor must have the instruction, the tile must be within its factors, and the destination must be writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn sum_by_instruction<const ROWS: usize, const REGISTERS: usize>(
    tile: &Tile,
    (start, stride): (*mut f32, isize),
    update: Update,
) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    // SAFETY: both types are 64 bytes without invalid values.
    let slots = |bits: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) };
    let rows: [*const i32; ROWS] = std::array::from_fn(|row| tile.row(row).as_ptr().cast());
    let registers: [_; REGISTERS] = std::array::from_fn(|register| tile.register(register).as_ptr());
    // SAFETY: see above.
    let address =
        |row: usize, register: usize| unsafe { start.offset(row as isize * stride).add(register * LANES) };
    let mut sums = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
    if update == Update::Continue {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (register, sum) in sums.iter_mut().enumerate() {
                // SAFETY: see above.
                *sum = unsafe { _mm512_loadu_ps(address(row, register)) };
            }
        }
    }
    for (start, pairs) in tile.steps() {
        for pair in 0..pairs {
            // SAFETY: see above.
            unsafe {
                let mut factors = [slots(_mm512_set1_epi32(0)); REGISTERS];
                for (factor, register) in factors.iter_mut().zip(registers) {
                    *factor = slots(_mm512_loadu_si512(register.add(start + pair * SIDE).cast()));
                }
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let left = slots(_mm512_set1_epi32(*row.add(start + pair)));
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = _mm512_dpbf16_ps(*sum, left, factor);
                    }
                }
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        for (register, sum) in sums.into_iter().enumerate() {
            let address = address(row, register);
            // SAFETY: see above.
            unsafe {
                let result = match update {
                    Update::Set(scale) => _mm512_mul_ps(sum, _mm512_set1_ps(scale)),
                    Update::Add(scale) => {
                        _mm512_fmadd_ps(sum, _mm512_set1_ps(scale), _mm512_loadu_ps(address))
                    }
                    Update::Continue => sum,
                };
                _mm512_storeu_ps(address, result);
            }
        }
    }
}

/// Flushes denormals to zero.
#[inline(always)]
fn flush<S: Simd>(x: Vector<S>) -> Vector<S> {
    x.replace(x.abs().less_than(f32::MIN_POSITIVE), x * 0.0)
}

vectorized! {
    /// Implements [`Tile::sum`] in the vector registers of any processor.
    pub(super) fn sum_in_registers(simd; rows: usize, tile: &Tile<'_>, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        /// The number of independent sums, which hide the latency of the multiply-add. The last register is computed
        /// several times if the tile has fewer registers.
        const ACCUMULATORS: usize = 4;
        let last = (tile.width - 1) / Vector::<S>::LANES * Vector::<S>::LANES;
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            let row = tile.row(row);
            for first in (0..tile.width).step_by(ACCUMULATORS * Vector::<S>::LANES) {
                let (mut columns, mut totals) = ([&[][..]; ACCUMULATORS], [Vector::splat(simd, 0.0); ACCUMULATORS]);
                for k in 0..ACCUMULATORS {
                    let column = last.min(first + k * Vector::<S>::LANES);
                    columns[k] = &tile.register(column / LANES)[column % LANES..];
                    totals[k] = Vector::load(simd, &sums[column..]);
                }
                for (start, pairs) in tile.steps() {
                    for pair in 0..pairs {
                        let left = row[start + pair].to_bits();
                        let (left_upper, left_lower) = (f32::from_bits(left & 0xFFFF_0000), f32::from_bits(left << 16));
                        for k in 0..ACCUMULATORS {
                            let right = Vector::load(simd, &columns[k][start + pair * SIDE..]);
                            let upper = right.map_bits(|simd, bits| simd.and_u32s(bits, simd.splat_u32s(0xFFFF_0000)));
                            let lower = right.map_bits(|simd, bits| simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(16)));
                            totals[k] = flush(upper.mul_add(left_upper, totals[k]));
                            totals[k] = flush(lower.mul_add(left_lower, totals[k]));
                        }
                    }
                }
                for k in 0..ACCUMULATORS {
                    totals[k].store(&mut sums[last.min(first + k * Vector::<S>::LANES)..]);
                }
            }
        }
    }
}
