//! Factors of a product, stored as blocks of slots.

use std::ops::Range;

use rayon::prelude::*;

use super::rounding::{BLOCK_GROUP, fill};
use super::{BLOCK, SIDE, Side};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::for_each;
use crate::pool::{self, Buffer};
use crate::team;

/// A factor stored as `[lines / 16, inner / 32]` blocks of slots, padded with zeros. Lines are the rows of a left
/// factor and the columns of a right one. A block is `[line, slot]` in a left factor and `[slot, line]` in a right one.
#[derive(Debug)]
pub struct Factor {
    /// The slots from `start` on, which is aligned to a cache line: the matrix unit takes four times as long to read
    /// across cache lines.
    buffer: Buffer,
    start: usize,
    lines: usize,
    inner: usize,
}

impl Factor {
    /// Rounds a factor, on several threads if it is large.
    pub fn new(side: Side, matrix: Matrix) -> Self {
        Self::of_lines(side, if side == Side::Right { matrix.transposed() } else { matrix })
    }

    /// Rounds a matrix `[lines, inner]`, as [`Factor::new`] does.
    fn of_lines(side: Side, matrix: Matrix) -> Self {
        let (lines, inner) = (matrix.rows(), matrix.columns());
        let mut factor = Self::uninitialised(lines, inner);
        let group = lines.div_ceil(SIDE).div_ceil(team::threads()).clamp(1, BLOCK_GROUP);
        let length = inner.div_ceil(2 * SIDE) * BLOCK;
        if length > 0 {
            let tiles = MatrixMut::new(factor.slots_mut(), length).tiles(group, length);
            for_each(tiles.into_par_iter(), group * length, |mut tile| {
                let lines = tile.rows.start * SIDE..lines.min(tile.rows.end * SIDE);
                fill(side, matrix.part(lines, 0..inner), &mut tile.numbers);
            });
        }
        factor
    }

    /// Creates a factor to be filled through its [strips](Self::strips).
    pub fn uninitialised(lines: usize, inner: usize) -> Self {
        let buffer = pool::take(lines.div_ceil(SIDE) * inner.div_ceil(2 * SIDE) * BLOCK + SIDE);
        let start = buffer.as_ptr().align_offset(size_of::<[f32; SIDE]>()).min(SIDE);
        Self { buffer, start, lines, inner }
    }

    pub fn lines(&self) -> usize {
        self.lines
    }

    pub fn slots(&self) -> &[f32] {
        &self.buffer[self.start..self.buffer.len() - SIDE + self.start]
    }

    fn slots_mut(&mut self) -> &mut [f32] {
        let end = self.buffer.len() - SIDE + self.start;
        &mut self.buffer[self.start..end]
    }

    /// Splits the factor into strips along the inner dimension. Each strip is `numbers` long, except possibly the last.
    ///
    /// # Panics
    /// Panics if `numbers` is not a multiple of the length of a block.
    pub fn strips(&mut self, numbers: usize) -> Vec<Strip<'_>> {
        assert!(numbers.is_multiple_of(2 * SIDE), "strips of {numbers}");
        let (blocks, steps) = (self.lines.div_ceil(SIDE), self.inner.div_ceil(2 * SIDE));
        let slots = MatrixMut::new(self.slots_mut(), steps * BLOCK);
        slots
            .tiles(blocks, numbers / (2 * SIDE) * BLOCK)
            .into_iter()
            .map(|tile| Strip(tile.numbers))
            .collect()
    }

    /// Returns true if the first `inner` numbers of the inner dimension fill complete blocks or the whole dimension.
    pub fn begins_with(&self, inner: usize) -> bool {
        inner == self.inner || inner < self.inner && inner.is_multiple_of(2 * SIDE)
    }

    /// Returns all blocks of the factor.
    pub fn all(&self) -> Part<'_> {
        self.part(0, 0..self.inner)
    }

    /// Returns the lines from `first` on, and a range of the inner dimension.
    ///
    /// # Panics
    /// Panics if `first` or `inner` is not aligned to blocks.
    pub fn part(&self, first: usize, inner: Range<usize>) -> Part<'_> {
        let stride = self.inner.div_ceil(2 * SIDE) * BLOCK;
        assert!(
            first.is_multiple_of(SIDE)
                && first <= self.lines
                && inner.start.is_multiple_of(2 * SIDE)
                && inner.start <= inner.end
                && self.begins_with(inner.end),
            "lines from {first} and numbers {inner:?} of [{}, {}]",
            self.lines,
            self.inner
        );
        let start = first / SIDE * stride + inner.start / (2 * SIDE) * BLOCK;
        let slots = &self.slots()[start.min(self.slots().len())..];
        Part { slots, stride, lines: self.lines - first, inner: inner.len() }
    }
}

/// A writable range of the inner dimension of a factor, with all lines.
pub struct Strip<'a>(MatrixMut<'a>);

impl Strip<'_> {
    /// Fills the lines from `first` on with a matrix `[lines, inner]`, on the calling thread.
    ///
    /// # Panics
    /// Panics if `first` is not the start of a block, or if the matrix does not match the inner dimension of the strip.
    pub fn fill(&mut self, side: Side, first: usize, matrix: Matrix) {
        let steps = matrix.columns().div_ceil(2 * SIDE);
        assert!(
            first.is_multiple_of(SIDE) && steps * BLOCK == self.0.columns(),
            "{matrix:?} from {first} on"
        );
        let (blocks, length) = (matrix.rows().div_ceil(SIDE), self.0.columns());
        fill(side, matrix, &mut self.0.part(first / SIDE..first / SIDE + blocks, 0..length));
    }
}

/// A range of blocks of a factor.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The slots from the first block on.
    slots: &'a [f32],
    /// The number of slots from a block to the block of the next 16 lines.
    stride: usize,
    pub lines: usize,
    pub inner: usize,
}

impl<'a> Part<'a> {
    /// Returns the number of blocks along the inner dimension.
    pub fn steps(&self) -> usize {
        self.inner.div_ceil(2 * SIDE)
    }

    /// Returns the blocks that hold a line.
    pub fn blocks(&self, line: usize) -> &'a [f32] {
        &self.slots[line / SIDE * self.stride..][..self.steps() * BLOCK]
    }
}

/// A factor of a product that is computed tile by tile.
#[derive(Debug)]
pub enum Source<'a> {
    /// A factor rounded once for all tiles.
    Rounded(Factor),
    /// A matrix `[lines, inner]`. Each tile rounds its part, which stays in the cache of its core.
    Lines(Matrix<'a>),
}

impl Source<'_> {
    /// Returns the length of the inner dimension.
    pub fn inner(&self) -> usize {
        match self {
            Self::Rounded(factor) => factor.inner,
            Self::Lines(matrix) => matrix.columns(),
        }
    }

    /// Returns the part that a tile reads; numbers that the tile rounds are stored in `rounded`.
    pub fn part<'b>(
        &'b self,
        side: Side,
        lines: &Range<usize>,
        inner: Range<usize>,
        rounded: &'b mut Option<Factor>,
    ) -> Part<'b> {
        match self {
            Self::Rounded(factor) => factor.part(lines.start, inner),
            Self::Lines(matrix) => {
                rounded.insert(Factor::of_lines(side, matrix.part(lines.clone(), inner))).all()
            }
        }
    }
}
