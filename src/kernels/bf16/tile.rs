//! A tile of a product in registers: by the processor's instruction, or as it is defined.

use pulp::Simd;

use super::{BLOCK, Factor, SIDE, write};
use crate::matmul::Destination;
use crate::matrix::MatrixMut;
#[cfg(target_arch = "x86_64")]
use crate::vector::instruction_set;
use crate::vector::{LANES, Vector, vectorized};

/// Rows of a tile in registers.
pub(super) const TILE_ROWS: usize = 6;
/// Columns of a tile in registers.
pub(super) const TILE_COLUMNS: usize = 4 * LANES;

/// `output = scale * left * right`, or that added to it, for lines that begin at `first`.
pub(super) fn product(
    output: &mut MatrixMut,
    destination: Destination,
    scale: f32,
    [left, right]: [&Factor; 2],
    first: [usize; 2],
) {
    let (rows, columns) = (output.rows(), output.columns());
    for column in (0..columns).step_by(TILE_COLUMNS) {
        let width = (columns - column).min(TILE_COLUMNS);
        for row in (0..rows).step_by(TILE_ROWS) {
            let tile = Tile { left, right, first: [first[0] + row, first[1] + column], width };
            let rows = row..rows.min(row + TILE_ROWS);
            tile.sum_into(&mut output.part(rows, column..column + width), destination, scale);
        }
    }
}

/// A tile of a result.
pub(super) struct Tile<'a> {
    pub left: &'a Factor,
    pub right: &'a Factor,
    /// Its first row and column.
    pub first: [usize; 2],
    /// At most four registers of 16 numbers.
    pub width: usize,
}

/// Calls a function with the rows and registers of a tile as constants.
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
    /// `output = scale * sums`, or that added to it.
    fn sum_into(&self, output: &mut MatrixMut, destination: Destination, scale: f32) {
        let (rows, columns) = (output.rows(), output.columns());
        #[cfg(target_arch = "x86_64")]
        if has_instruction() && columns.is_multiple_of(LANES) {
            self.check(rows);
            let address = output.address();
            macro_rules! by_instruction {
                // SAFETY: the processor has the instruction, the tile lies within its factors, as checked, and the
                // result within `output`.
                ($rows:literal, $registers:literal) => {
                    unsafe { sum_by_instruction::<$rows, $registers>(self, address, destination, scale) }
                };
            }
            return with_sizes!((rows, self.width / LANES), by_instruction);
        }
        let mut sums = [[0.0; TILE_COLUMNS]; TILE_ROWS];
        self.sum(rows, &mut sums);
        write(destination, scale, &sums, output);
    }

    /// The sums of the first `rows` rows.
    fn sum(&self, rows: usize, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        self.check(rows);
        #[cfg(target_arch = "x86_64")]
        if has_instruction() {
            let address = (sums.as_mut_ptr().cast(), TILE_COLUMNS as isize);
            macro_rules! by_instruction {
                // SAFETY: as above, with a result within `sums`.
                ($rows:literal, $registers:literal) => {
                    unsafe {
                        sum_by_instruction::<$rows, $registers>(self, address, Destination::Overwrite, 1.0)
                    }
                };
            }
            return with_sizes!((rows, self.width.div_ceil(LANES)), by_instruction);
        }
        sum_in_registers(rows, self, sums);
    }

    /// Whether so many rows lie within the factors.
    fn check(&self, rows: usize) {
        let [row, column] = self.first;
        assert!((1..=TILE_ROWS).contains(&rows) && (1..=TILE_COLUMNS).contains(&self.width));
        assert!(
            row + rows <= self.left.lines
                && column + self.width <= self.right.lines
                && column.is_multiple_of(SIDE)
                && self.left.steps() <= self.right.steps(),
            "a tile reaches beyond its factors"
        );
    }

    /// Where the slots of a row begin in each of its blocks, counted from the first of the factor's slots.
    fn row(&self, row: usize) -> usize {
        let line = self.first[0] + row;
        self.left.place(line) + line % SIDE * SIDE
    }

    /// The same for the columns of a register.
    fn register(&self, register: usize) -> usize {
        self.right.place(self.first[1] + register * LANES)
    }

    /// The blocks along the inner dimension, with the slots that are used of each.
    fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        let pairs = self.left.inner.div_ceil(2);
        (0..self.left.steps()).map(move |step| (step * BLOCK, SIDE.min(pairs - step * SIDE)))
    }
}

/// Exchanges rows and columns of a block.
pub(super) fn transpose(block: &mut [[f32; SIDE]; SIDE]) {
    #[cfg(target_arch = "x86_64")]
    if matches!(instruction_set(), pulp::Arch::V4(_)) {
        // SAFETY: the processor has the instructions.
        return unsafe { transpose_in_registers(block) };
    }
    let rows = *block;
    for (column, row) in block.iter_mut().enumerate() {
        *row = rows.map(|row| row[column]);
    }
}

/// [`transpose`] with a row in each of 16 registers: squares of 1, 2, 4 and 8 numbers above the diagonal and below it
/// are exchanged.
///
/// # Safety
/// The processor must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_in_registers(block: &mut [[f32; SIDE]; SIDE]) {
    use std::arch::x86_64::{_mm512_loadu_ps, _mm512_loadu_si512, _mm512_permutex2var_ps, _mm512_storeu_ps};
    /// The numbers of two rows that form a new one: `[which, step][number]`, from 16 on those of the second row.
    const CHOICES: [[[i32; SIDE]; 4]; 2] = {
        let mut choices = [[[0; SIDE]; 4]; 2];
        let mut step = 0;
        while step < 4 {
            let (size, mut number) = (1 << step, 0);
            while number < SIDE {
                let is_second = number & size != 0;
                choices[0][step][number] = if is_second { SIDE + number - size } else { number } as i32;
                choices[1][step][number] = if is_second { SIDE + number } else { number + size } as i32;
                number += 1;
            }
            step += 1;
        }
        choices
    };
    // SAFETY: a row and a choice have 16 numbers.
    unsafe {
        let mut rows: [_; SIDE] = block.each_ref().map(|row| _mm512_loadu_ps(row.as_ptr()));
        for step in 0..4 {
            let choices = CHOICES.map(|choices| _mm512_loadu_si512(choices[step].as_ptr().cast()));
            for row in (0..SIDE).filter(|row| row & (1 << step) == 0) {
                let other = row | (1 << step);
                (rows[row], rows[other]) = (
                    _mm512_permutex2var_ps(rows[row], choices[0], rows[other]),
                    _mm512_permutex2var_ps(rows[row], choices[1], rows[other]),
                );
            }
        }
        for (row, numbers) in block.iter_mut().zip(rows) {
            _mm512_storeu_ps(row.as_mut_ptr(), numbers);
        }
    }
}

/// Whether the processor sums products of bf16.
#[cfg(target_arch = "x86_64")]
fn has_instruction() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        matches!(instruction_set(), pulp::Arch::V4(_)) && is_x86_feature_detected!("avx512bf16")
    })
}

/// `scale` times the sums of `ROWS` rows of `REGISTERS` registers by `VDPBF16PS`, written to an address with a distance
/// between rows, or added to what is there.
///
/// # Safety
/// The processor must have the instruction, the tile lie within its factors, and the result where it may be written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn sum_by_instruction<const ROWS: usize, const REGISTERS: usize>(
    tile: &Tile,
    (start, stride): (*mut f32, isize),
    destination: Destination,
    scale: f32,
) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    // SAFETY: both are 64 bytes of bits.
    let slots = |bits: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) };
    let (left, right) = (tile.left.slots.as_ptr().cast::<i32>(), tile.right.slots.as_ptr());
    let rows: [usize; ROWS] = std::array::from_fn(|row| tile.row(row));
    let registers: [usize; REGISTERS] = std::array::from_fn(|register| tile.register(register));
    let mut sums = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
    for (start, pairs) in tile.steps() {
        for pair in 0..pairs {
            // SAFETY: see above.
            unsafe {
                let mut factors = [slots(_mm512_set1_epi32(0)); REGISTERS];
                for (factor, register) in factors.iter_mut().zip(registers) {
                    *factor = slots(_mm512_loadu_si512(right.add(register + start + pair * SIDE).cast()));
                }
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let left = slots(_mm512_set1_epi32(*left.add(row + start + pair)));
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = _mm512_dpbf16_ps(*sum, left, factor);
                    }
                }
            }
        }
    }
    let scale = _mm512_set1_ps(scale);
    for (row, sums) in sums.into_iter().enumerate() {
        for (register, sum) in sums.into_iter().enumerate() {
            // SAFETY: see above.
            unsafe {
                let place = start.offset(row as isize * stride).add(register * LANES);
                let result = match destination {
                    Destination::Overwrite => _mm512_mul_ps(sum, scale),
                    Destination::AddTo => _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(place)),
                };
                _mm512_storeu_ps(place, result);
            }
        }
    }
}

/// Zero in place of a denormal.
#[inline(always)]
fn flush<S: Simd>(x: Vector<S>) -> Vector<S> {
    x.replace(x.abs().less_than(f32::MIN_POSITIVE), x * 0.0)
}

vectorized! {
    /// [`Tile::sum`] in the registers of any processor.
    pub(super) fn sum_in_registers(simd; rows: usize, tile: &Tile<'_>, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            let row = tile.row(row);
            for first in (0..tile.width).step_by(Vector::<S>::LANES) {
                let column = tile.register(first / LANES) + first % LANES;
                let mut sum = Vector::splat(simd, 0.0);
                for (start, pairs) in tile.steps() {
                    for pair in 0..pairs {
                        let left = tile.left.slots[row + start + pair].to_bits();
                        let right = Vector::load(simd, &tile.right.slots[column + start + pair * SIDE..]);
                        let upper = right.map_bits(|simd, bits| simd.and_u32s(bits, simd.splat_u32s(0xFFFF_0000)));
                        let lower = right.map_bits(|simd, bits| simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(16)));
                        sum = flush(upper.mul_add(f32::from_bits(left & 0xFFFF_0000), sum));
                        sum = flush(lower.mul_add(f32::from_bits(left << 16), sum));
                    }
                }
                sum.store(&mut sums[first..]);
            }
        }
    }
}
