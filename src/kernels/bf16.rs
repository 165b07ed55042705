//! Matrix products whose factors are rounded to bf16 and whose sums are taken in single precision.
//!
//! A bf16 is the upper half of an `f32` (Kalamkar et al., *A study of bfloat16 for deep learning training*, 2019, arXiv
//! 1905.12322). Two that meet in a sum stand side by side in one slot of 32 bits, the first in its lower half, and
//! a slot's products enter the sum as the instruction `VDPBF16PS` of AVX512-BF16 defines it: the upper half first, each
//! by one fused multiply-add, with denormals flushed to zero. Processors without it do the same in their own
//! registers, so that every processor computes the same bits. Each number of a result is one sum from its
//! first term to its last, however the product is cut.

use pulp::Simd;
use rayon::prelude::*;

use super::matmul::Destination;
use super::matrix::{Matrix, MatrixMut};
use super::parallel::for_each;
use super::pool::{self, Buffer};
use super::vector::{LANES, Vector, update, vectorized};

/// Rows of a tile in registers.
const TILE_ROWS: usize = 6;
/// Columns of a tile in registers, and of a panel.
const TILE_COLUMNS: usize = 4 * LANES;
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

/// What a tile of a result sums up.
struct Tile<'a> {
    /// From the first row of the tile on.
    left: &'a [f32],
    /// Between rows and between slots of a row.
    strides: [usize; 2],
    /// `[pairs, width]`.
    panel: &'a [f32],
    /// One to four registers of 16 numbers.
    width: usize,
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
        if has_instruction() && columns == self.width {
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
        for (row, sums) in (0..rows).zip(&sums) {
            match destination {
                Destination::Overwrite => set(scale, sums, &mut output.row(row)[..columns]),
                Destination::AddTo => add(scale, sums, &mut output.row(row)[..columns]),
            }
        }
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
            return with_sizes!((rows, self.width / LANES), by_instruction);
        }
        sum_in_registers(rows, self, sums);
    }

    /// Whether so many rows lie within the factors.
    fn check(&self, rows: usize) {
        let pairs = self.panel.len() / self.width;
        assert!(
            (1..=TILE_ROWS).contains(&rows) && self.width.is_multiple_of(LANES) && self.width <= TILE_COLUMNS
        );
        let last = (rows - 1) * self.strides[0] + pairs.saturating_sub(1) * self.strides[1];
        assert!(pairs == 0 || last < self.left.len(), "a tile reaches beyond its factor");
    }
}

/// Whether the processor sums products of bf16.
#[cfg(target_arch = "x86_64")]
fn has_instruction() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        std::env::var_os(super::INSTRUCTION_SET_VARIABLE).is_none()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bf16")
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
    let [row_stride, slot_stride] = tile.strides;
    let (left, panel) = (tile.left.as_ptr().cast::<i32>(), tile.panel.as_ptr());
    let mut sums = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
    for pair in 0..tile.panel.len() / (REGISTERS * LANES) {
        // SAFETY: see above.
        unsafe {
            let mut right = [slots(_mm512_set1_epi32(0)); REGISTERS];
            for (register, right) in right.iter_mut().enumerate() {
                *right = slots(_mm512_loadu_si512(panel.add((pair * REGISTERS + register) * LANES).cast()));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = slots(_mm512_set1_epi32(*left.add(row * row_stride + pair * slot_stride)));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm512_dpbf16_ps(*sum, left, right);
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

/// Zero in place of a denormal.
#[inline(always)]
fn flush<S: Simd>(x: Vector<S>) -> Vector<S> {
    x.replace(x.abs().less_than(f32::MIN_POSITIVE), x * 0.0)
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

    /// [`Tile::sum`] in the registers of any processor.
    fn sum_in_registers(simd; rows: usize, tile: &Tile<'_>, sums: &mut [[f32; TILE_COLUMNS]; TILE_ROWS]) {
        let [row_stride, slot_stride] = tile.strides;
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            for first in (0..tile.width).step_by(Vector::<S>::LANES) {
                let mut sum = Vector::splat(simd, 0.0);
                for (pair, panel) in tile.panel.chunks_exact(tile.width).enumerate() {
                    let left = tile.left[row * row_stride + pair * slot_stride].to_bits();
                    let right = Vector::load(simd, &panel[first..]);
                    let upper = right.map_bits(|simd, bits| simd.and_u32s(bits, simd.splat_u32s(0xFFFF_0000)));
                    let lower = right.map_bits(|simd, bits| simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(16)));
                    sum = flush(upper.mul_add(f32::from_bits(left & 0xFFFF_0000), sum));
                    sum = flush(lower.mul_add(f32::from_bits(left << 16), sum));
                }
                sum.store(&mut sums[first..]);
            }
        }
    }

    fn set(simd; scale: f32, sums: &[f32], output: &mut [f32]) {
        update(simd, output, [sums], |_, [sum]| sum * scale);
    }

    fn add(simd; scale: f32, sums: &[f32], output: &mut [f32]) {
        update(simd, output, [sums], |x, [sum]| sum.mul_add(scale, x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_on_any_number_of_threads, random, transposed};

    /// The product of rounded factors by the definition.
    fn expected(left: &[f32], right: &[f32], inner: usize, columns: usize) -> Vec<f32> {
        let flushed = |x: f32| if x.abs() < f32::MIN_POSITIVE { x * 0.0 } else { x };
        let number = |x: f32| f32::from_bits(rounded(x));
        let sum = |(row, column): (usize, usize)| {
            let term = |sum: f32, k: usize| match k < inner {
                true => {
                    flushed(number(left[row * inner + k]).mul_add(number(right[k * columns + column]), sum))
                }
                false => flushed(sum),
            };
            (0..inner).step_by(2).fold(0.0, |sum, k| term(term(sum, k + 1), k))
        };
        (0..left.len() / inner * columns).map(|place| sum((place / columns, place % columns))).collect()
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_to_even_between_two() {
        let nearest = |x: f32| f32::from_bits(rounded(x));
        for (x, expected) in [
            (1.0, 1.0),
            (1.003, 1.0),
            (1.004, 1.007_812_5),
            (f32::from_bits(0x3F80_8000), 1.0),
            (f32::from_bits(0x3F81_8000), 1.015_625),
            (-5.02, -5.031_25),
            (1e-40, 0.0),
            (f32::INFINITY, f32::INFINITY),
            (1e30, 1.000_255_6e30),
        ] {
            assert!(
                (nearest(x) - expected).abs() <= expected.abs() * 1e-6 || nearest(x) == expected,
                "{x}: {}",
                nearest(x)
            );
        }
        assert!(nearest(f32::NAN).is_nan() && nearest(f32::from_bits(0x7F80_0001)).is_nan());
    }

    #[test]
    fn every_orientation_and_every_way_gives_the_bits_of_the_definition() {
        for (rows, inner, columns) in [
            (1, 1, 1),
            (1, 7, 5),
            (7, 3, 1),
            (3, 2, 17),
            (17, 64, 13),
            (67, 131, 71),
            (6, 32, 64),
            (5, 33, 130),
        ] {
            let (mut left, mut right) = (random(1, rows * inner), random(2, inner * columns));
            // Numbers of any size, whose products may be denormal.
            left.iter_mut().step_by(5).for_each(|x| *x *= 1e-20);
            right.iter_mut().step_by(3).for_each(|x| *x *= 1e-19);
            let expected = expected(&left, &right, inner, columns);
            let (left_t, right_t) = (transposed(&left, inner), transposed(&right, columns));
            let lefts = [Matrix::new(&left, inner), Matrix::new(&left_t, rows).transposed()];
            let rights = [Matrix::new(&right, columns), Matrix::new(&right_t, inner).transposed()];
            for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
                let mut output = vec![f32::NAN; rows * columns];
                let (left, packed) = (Left::new(left), Right::new(right));
                let matrix = &mut MatrixMut::new(&mut output, columns);
                product(matrix, Destination::Overwrite, 1.0, (&left, &packed), [0; 2]);
                assert_eq!(bits(&output), bits(&expected), "[{rows}, {inner}, {columns}]");
                let matrix = &mut MatrixMut::new(&mut output, columns);
                product(matrix, Destination::AddTo, 2.0, (&left, &packed), [0; 2]);
                let tripled = expected.iter().map(|x| x.mul_add(2.0, *x)).collect::<Vec<_>>();
                assert_eq!(bits(&output), bits(&tripled), "[{rows}, {inner}, {columns}], added");

                // In registers, as processors without the instruction do it.
                if columns > TILE_COLUMNS {
                    continue;
                }
                let (panel, width) = packed.panel(0);
                let strides = [left.row_stride, left.slot_stride];
                let tile = Tile { left: &left.slots, strides, panel, width };
                let mut sums = [[f32::NAN; TILE_COLUMNS]; TILE_ROWS];
                let count = rows.min(TILE_ROWS);
                sum_in_registers(count, &tile, &mut sums);
                for (sums, expected) in sums.iter().zip(expected.chunks(columns)).take(count) {
                    assert_eq!(
                        bits(&sums[..columns]),
                        bits(expected),
                        "[{rows}, {inner}, {columns}] in registers"
                    );
                }
            }
        }
    }

    #[test]
    fn a_factor_is_rounded_to_the_same_bits_on_any_number_of_threads() {
        let matrix = random(3, 700 * 901);
        assert_same_on_any_number_of_threads(|| {
            let matrix = Matrix::new(&matrix, 901);
            [matrix, matrix.transposed()].map(|matrix| Left::new(matrix).slots.to_vec()).to_vec()
        });
    }
}
