//! Rounding to bf16, and packing of the rounded numbers into blocks of slots.

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::tile;
use super::{SIDE, Side};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::for_each;
#[cfg(target_arch = "x86_64")]
use crate::vector::instruction_set;
use crate::vector::vectorized;

/// The number of blocks that are filled together, since their numbers at one inner index may be adjacent in memory.
pub(super) const BLOCK_GROUP: usize = 4;

/// Rounds each number to bf16.
///
/// # Panics
/// Panics if the slices differ in length.
pub fn round(values: &[f32], rounded: &mut [f32]) {
    const PIECE_LENGTH: usize = 1 << 14;
    assert_eq!(values.len(), rounded.len(), "numbers to round");
    let pieces = rounded.par_chunks_mut(PIECE_LENGTH).zip(values.par_chunks(PIECE_LENGTH));
    for_each(pieces, PIECE_LENGTH, |(rounded, values)| round_piece(values, rounded));
}

/// Returns the nearest bf16 in the upper half of the bits, with ties to even; denormals become zero.
#[inline(always)]
pub(super) fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    let is_nan = x.is_nan();
    let nearest = if is_nan { bits | 0x0040_0000 } else { nearest };
    let nearest = if x.abs() < f32::MIN_POSITIVE { bits & 0x8000_0000 } else { nearest };
    nearest & 0xFFFF_0000
}

/// Packs two numbers into a slot.
#[inline(always)]
fn slot(first: f32, second: f32) -> f32 {
    f32::from_bits(rounded(first) >> 16 | rounded(second))
}

/// Packs two lines of numbers into slots, padded with zeros.
#[inline(always)]
fn pair(lines: [&[f32]; 2], slots: &mut [f32; SIDE]) {
    if let [Ok(first), Ok(second)] = lines.map(<&[f32; SIDE]>::try_from) {
        return (0..SIDE).for_each(|index| slots[index] = slot(first[index], second[index]));
    }
    for (index, slot) in slots.iter_mut().enumerate() {
        let [first, second] = lines.map(|line| line.get(index).copied().unwrap_or(0.0));
        *slot = self::slot(first, second);
    }
}

/// Packs neighbouring numbers of a line into slots, padded with zeros.
#[inline(always)]
fn pair_neighbours(line: &[f32], slots: &mut [f32; SIDE]) {
    if let Ok(line) = <&[f32; 2 * SIDE]>::try_from(line) {
        return (0..SIDE).for_each(|index| slots[index] = slot(line[2 * index], line[2 * index + 1]));
    }
    for (index, slot) in slots.iter_mut().enumerate() {
        let [first, second] = [2 * index, 2 * index + 1].map(|at| line.get(at).copied().unwrap_or(0.0));
        *slot = self::slot(first, second);
    }
}

/// Returns the `length` numbers that start at `from`, clipped to the slice.
#[inline(always)]
fn part(numbers: &[f32], from: usize, length: usize) -> &[f32] {
    &numbers[from.min(numbers.len())..(from + length).min(numbers.len())]
}

vectorized! {
    fn round_piece(_simd; values: &[f32], rounded: &mut [f32]) {
        rounded.iter_mut().zip(values).for_each(|(y, x)| *y = f32::from_bits(self::rounded(*x)));
    }

    fn fill_in_registers(_simd; side: Side, matrix: Matrix<'_>, blocks: &mut MatrixMut<'_>) {
        Operations { pair, pair_neighbours, fetch: |_: &[f32]| {} }.fill(side, matrix, blocks);
    }
}

/// Fills the blocks of a matrix `[lines, inner]`, padded with zeros. A row of `blocks` holds 16 lines.
pub(super) fn fill(side: Side, matrix: Matrix, blocks: &mut MatrixMut) {
    #[cfg(target_arch = "x86_64")]
    if tile::has_instruction() {
        // SAFETY: the processor has the instructions.
        return unsafe { fill_by_instruction(side, matrix, blocks) };
    }
    fill_in_registers(side, matrix, blocks);
}

/// The operations of an instruction set that fill blocks.
struct Operations<Pair, Neighbours, Fetch> {
    /// Packs two lines into slots.
    pair: Pair,
    /// Packs neighbouring numbers of a line into slots.
    pair_neighbours: Neighbours,
    /// Prefetches a cache line.
    fetch: Fetch,
}

impl<Pair, Neighbours, Fetch> Operations<Pair, Neighbours, Fetch>
where
    Pair: Fn([&[f32]; 2], &mut [f32; SIDE]),
    Neighbours: Fn(&[f32], &mut [f32; SIDE]),
    Fetch: Fn(&[f32]),
{
    /// Implements [`fill`].
    #[inline(always)]
    fn fill(&self, side: Side, matrix: Matrix, blocks: &mut MatrixMut) {
        let is_transposed = matrix.is_transposed();
        let transposes = is_transposed == (side == Side::Left);
        if is_transposed {
            self.fill_from_columns(matrix.transposed(), blocks, transposes);
        } else {
            self.fill_from_rows(matrix, blocks, transposes);
        }
    }

    /// Fills the blocks of a matrix whose neighbouring lines are adjacent in memory, one line of [`BLOCK_GROUP`] blocks
    /// at a time. `rows` is `[inner, lines]`.
    #[inline(always)]
    fn fill_from_columns(&self, rows: Matrix, blocks: &mut MatrixMut, transposes: bool) {
        let (inner, lines) = (rows.rows(), rows.columns());
        let (all, steps) = (lines.div_ceil(SIDE), inner.div_ceil(2 * SIDE));
        let rows_of_step = |step: usize| -> [&[f32]; 2 * SIDE] {
            std::array::from_fn(|row| {
                let row = step * 2 * SIDE + row;
                if row < inner { rows.row(row) } else { &[] }
            })
        };
        for first in (0..all).step_by(BLOCK_GROUP) {
            let mut next = rows_of_step(0);
            for step in 0..steps {
                let rows = std::mem::replace(&mut next, rows_of_step(step + 1));
                for lines in first..all.min(first + BLOCK_GROUP) {
                    let block = &mut blocks_of(blocks, lines)[step];
                    let at = lines * SIDE;
                    // If the last row has enough numbers, the other rows have, too.
                    let is_complete = |rows: &[&[f32]; 2 * SIDE]| rows[2 * SIDE - 1].len() >= at + SIDE;
                    if is_complete(&next) {
                        next.iter().for_each(|row| (self.fetch)(&row[at..at + SIDE]));
                    }
                    let pairs = rows.as_chunks::<2>().0.iter().zip(block.iter_mut());
                    if is_complete(&rows) {
                        pairs.for_each(|(rows, slots)| {
                            (self.pair)(rows.map(|row| &row[at..at + SIDE]), slots);
                        });
                    } else {
                        pairs.for_each(|(rows, slots)| {
                            (self.pair)(rows.map(|row| part(row, at, SIDE)), slots);
                        });
                    }
                    if transposes {
                        transpose(block);
                    }
                }
            }
        }
    }

    /// Fills the blocks of a matrix `[lines, inner]` whose lines are contiguous, one line at a time.
    #[inline(always)]
    fn fill_from_rows(&self, matrix: Matrix, blocks: &mut MatrixMut, transposes: bool) {
        /// The number of rows to prefetch ahead. Usually only a part of each row is read, which hardware prefetchers do
        /// not predict.
        const PREFETCH_ROWS: usize = 4;
        let (lines, inner) = (matrix.rows(), matrix.columns());
        let (all, steps) = (lines.div_ceil(SIDE), inner.div_ceil(2 * SIDE));
        for line in 0..all * SIDE {
            let row = if line < lines { matrix.row(line) } else { &[] };
            let later = if line + PREFETCH_ROWS < lines { matrix.row(line + PREFETCH_ROWS) } else { &[] };
            for (step, block) in blocks_of(blocks, line / SIDE).iter_mut().take(steps).enumerate() {
                (self.fetch)(part(later, step * 2 * SIDE, 1));
                (self.fetch)(part(later, step * 2 * SIDE + SIDE, 1));
                (self.pair_neighbours)(part(row, step * 2 * SIDE, 2 * SIDE), &mut block[line % SIDE]);
            }
            if transposes && line % SIDE == SIDE - 1 {
                blocks_of(blocks, line / SIDE).iter_mut().take(steps).for_each(transpose);
            }
        }
    }
}

/// Returns the blocks that hold a line.
#[inline(always)]
fn blocks_of<'a>(blocks: &'a mut MatrixMut, lines: usize) -> &'a mut [[[f32; SIDE]; SIDE]] {
    blocks.row(lines).as_chunks_mut().0.as_chunks_mut().0
}

/// Implements [`fill`] with `VCVTNE2PS2BF16`, which rounds two registers into one.
///
/// # Safety
/// The processor must support AVX512-F, AVX512-BW and AVX512-BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn fill_by_instruction(side: Side, matrix: Matrix, blocks: &mut MatrixMut) {
    use std::arch::x86_64::{
        __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_cvtne2ps_pbh, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_storeu_si512,
    };
    /// The indices that interleave the numbers of two registers.
    const INTERLEAVED: [u16; 2 * SIDE] = {
        let (mut order, mut index) = ([0; 2 * SIDE], 0);
        while index < 2 * SIDE {
            order[index] = (index / 2 + index % 2 * SIDE) as u16;
            index += 1;
        }
        order
    };
    // SAFETY: only numbers of the slice are read.
    let load = |line: &[f32]| unsafe {
        match line.len() {
            SIDE.. => _mm512_loadu_ps(line.as_ptr()),
            length => _mm512_maskz_loadu_ps(((1_u32 << length) - 1) as u16, line.as_ptr()),
        }
    };
    // SAFETY: both types are 64 bytes without invalid values.
    let round = |first: __m512, second: __m512| unsafe {
        std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first))
    };
    // SAFETY: the constant has 64 bytes.
    let interleaved = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
    let store = |bits: __m512i, slots: &mut [f32; SIDE]| {
        // SAFETY: the slots have the 64 bytes that are written.
        unsafe { _mm512_storeu_si512(slots.as_mut_ptr().cast(), bits) }
    };
    let operations = Operations {
        pair: |[first, second]: [&[f32]; 2], slots: &mut [f32; SIDE]| {
            store(_mm512_permutexvar_epi16(interleaved, round(load(first), load(second))), slots);
        },
        pair_neighbours: |line: &[f32], slots: &mut [f32; SIDE]| {
            let (first, second) = line.split_at(line.len().min(SIDE));
            store(round(load(first), load(second)), slots);
        },
        fetch: |line: &[f32]| _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()),
    };
    operations.fill(side, matrix, blocks);
}

/// Transposes a block.
fn transpose(block: &mut [[f32; SIDE]; SIDE]) {
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

/// Implements [`transpose`] with one row in each of 16 registers, by exchanging squares of 1, 2, 4 and 8 numbers across
/// the diagonal.
///
/// # Safety
/// The processor must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_in_registers(block: &mut [[f32; SIDE]; SIDE]) {
    use std::arch::x86_64::{_mm512_loadu_ps, _mm512_loadu_si512, _mm512_permutex2var_ps, _mm512_storeu_ps};
    /// The source index of each number after an exchange between two rows, `[row][step][number]`: below 16 in the
    /// first row, from 16 on in the second.
    const SOURCES: [[[i32; SIDE]; 4]; 2] = {
        let mut sources = [[[0; SIDE]; 4]; 2];
        let mut step = 0;
        while step < 4 {
            let (size, mut number) = (1 << step, 0);
            while number < SIDE {
                let is_second = number & size != 0;
                sources[0][step][number] = if is_second { SIDE + number - size } else { number } as i32;
                sources[1][step][number] = if is_second { SIDE + number } else { number + size } as i32;
                number += 1;
            }
            step += 1;
        }
        sources
    };
    // SAFETY: rows and sources have 16 numbers.
    unsafe {
        let mut rows: [_; SIDE] = block.each_ref().map(|row| _mm512_loadu_ps(row.as_ptr()));
        for step in 0..4 {
            let sources = SOURCES.map(|sources| _mm512_loadu_si512(sources[step].as_ptr().cast()));
            for row in (0..SIDE).filter(|row| row & (1 << step) == 0) {
                let other = row | (1 << step);
                (rows[row], rows[other]) = (
                    _mm512_permutex2var_ps(rows[row], sources[0], rows[other]),
                    _mm512_permutex2var_ps(rows[row], sources[1], rows[other]),
                );
            }
        }
        for (row, numbers) in block.iter_mut().zip(rows) {
            _mm512_storeu_ps(row.as_mut_ptr(), numbers);
        }
    }
}
