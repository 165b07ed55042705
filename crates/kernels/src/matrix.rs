//! Matrix views of slices.

use std::{marker::PhantomData, ops::Range};

/// A read-only matrix: a range of rows and columns of a slice, possibly transposed.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Creates a view of `data` as a row-major matrix `[rows, columns]`.
    ///
    /// # Panics
    /// Panics if the length of `data` is not a multiple of `columns`.
    pub fn new(data: &'a [f32], columns: usize) -> Self {
        let rows = row_count(data.len(), columns);
        Self { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Returns a range of rows and columns.
    ///
    /// # Panics
    /// Panics if a range is out of bounds.
    pub fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let offset =
            offset(&rows, &columns, [self.rows, self.columns], [self.row_stride, self.column_stride]);
        Self { data: &self.data[offset..], rows: rows.len(), columns: columns.len(), ..self }
    }

    /// Returns tile `index` of the tiling by [`MatrixMut::tiles`].
    pub(super) fn tile(self, index: usize, rows: usize, columns: usize) -> Self {
        let across = self.columns.div_ceil(columns);
        let (row, column) = (index / across * rows, index % across * columns);
        self.part(row..self.rows.min(row + rows), column..self.columns.min(column + columns))
    }

    /// Returns the transposed view, without moving data.
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Self { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    /// Returns true if columns instead of rows are contiguous in memory.
    pub(super) fn is_transposed(&self) -> bool {
        self.column_stride != 1
    }

    /// Returns one row of a matrix that is not transposed.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [f32] {
        debug_assert!(self.column_stride == 1 && row < self.rows);
        &self.data[row * self.row_stride..][..self.columns]
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the address of the first number and the strides of rows and columns. All `rows x columns` numbers at
    /// these addresses are in the slice.
    pub(super) fn address(&self) -> (*const f32, isize, isize) {
        if self.rows > 0 && self.columns > 0 {
            let last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride;
            assert!(last < self.data.len(), "a matrix extends beyond its slice");
        }
        (self.data.as_ptr(), self.row_stride as isize, self.column_stride as isize)
    }
}

/// A writable matrix: a range of columns of all rows, row-major, in an exclusively borrowed slice.
///
/// Several matrices in one slice can be written at the same time, because a `MatrixMut` is only split into disjoint
/// parts and never accesses the gaps between its rows.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `MatrixMut` is only an exclusive borrow of its numbers, like `&mut [f32]`.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// Creates a writable view of `data` as a row-major matrix `[rows, columns]`.
    ///
    /// # Panics
    /// Panics if the length of `data` is not a multiple of `columns`.
    pub fn new(data: &'a mut [f32], columns: usize) -> Self {
        let rows = row_count(data.len(), columns);
        Self { start: data.as_mut_ptr(), rows, columns, row_stride: columns, slice: PhantomData }
    }

    /// Splits the matrix into the first `columns` columns and the rest.
    ///
    /// # Panics
    /// Panics if there are fewer columns.
    pub fn split_columns(self, columns: usize) -> (Self, Self) {
        // SAFETY: the two parts are disjoint, and `self` is consumed.
        unsafe { (self.share(0..self.rows, 0..columns), self.share(0..self.rows, columns..self.columns)) }
    }

    /// Splits the matrix into tiles of equal size, in row-major order; the last tiles may be smaller.
    ///
    /// # Panics
    /// Panics if a tile is empty.
    pub(super) fn tiles(self, tile_rows: usize, tile_columns: usize) -> Vec<Tile<'a>> {
        let cut = |length, size| (0..length).step_by(size).map(move |start| start..length.min(start + size));
        let mut tiles = Vec::new();
        for rows in cut(self.rows, tile_rows) {
            for columns in cut(self.columns, tile_columns) {
                // SAFETY: tiles are disjoint, and `self` is consumed.
                let numbers = unsafe { self.share(rows.clone(), columns.clone()) };
                tiles.push(Tile { rows: rows.clone(), columns, numbers });
            }
        }
        tiles
    }

    /// Returns a range of rows and columns, borrowed from this matrix.
    ///
    /// # Panics
    /// Panics if a range is out of bounds.
    pub fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> MatrixMut<'_> {
        // SAFETY: `self` is borrowed as long as the part lives, so there is no other part.
        unsafe { self.share(rows, columns) }
    }

    /// # Safety
    /// Parts that live at the same time must be disjoint.
    unsafe fn share<'b>(&self, rows: Range<usize>, columns: Range<usize>) -> MatrixMut<'b> {
        let offset = offset(&rows, &columns, [self.rows, self.columns], [self.row_stride, 1]);
        // SAFETY: the offset belongs to a number of this matrix, or is zero.
        let start = unsafe { self.start.add(offset) };
        let (rows, columns) = (rows.len(), columns.len());
        MatrixMut { start, rows, columns, row_stride: self.row_stride, slice: PhantomData }
    }

    /// Returns one row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row is in the slice, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.row_stride), self.columns) }
    }

    /// Sets all numbers to a value.
    pub(super) fn fill(&mut self, value: f32) {
        (0..self.rows).for_each(|row| self.row(row).fill(value));
    }

    /// Copies the numbers of a matrix of the same size.
    pub(super) fn copy_from(&mut self, matrix: Matrix) {
        (0..self.rows).for_each(|row| self.row(row).copy_from_slice(matrix.row(row)));
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the address of the first number and the stride of rows. The numbers at these addresses may be written.
    pub(super) fn address(&mut self) -> (*mut f32, isize) {
        (self.start, self.row_stride as isize)
    }
}

/// A tile of a writable matrix.
pub(super) struct Tile<'a> {
    /// The rows that the tile covers.
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub numbers: MatrixMut<'a>,
}

/// Returns the number of rows of `columns` numbers.
fn row_count(length: usize, columns: usize) -> usize {
    assert!(columns > 0 && length.is_multiple_of(columns), "{length} values in rows of {columns}");
    length / columns
}

/// Returns the offset of a part of a matrix; zero if the part is empty, so that the offset stays within the slice.
#[inline(always)]
fn offset(rows: &Range<usize>, columns: &Range<usize>, size: [usize; 2], strides: [usize; 2]) -> usize {
    assert!(rows.start <= rows.end && rows.end <= size[0], "rows {rows:?} of {}", size[0]);
    assert!(columns.start <= columns.end && columns.end <= size[1], "columns {columns:?} of {}", size[1]);
    let is_empty = rows.is_empty() || columns.is_empty();
    if is_empty { 0 } else { rows.start * strides[0] + columns.start * strides[1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_views_address_the_same_elements() {
        let mut data: Vec<f32> = (0..35).map(|i| i as f32).collect();
        let (mut left, mut right) = MatrixMut::new(&mut data, 7).split_columns(3);
        left.row(2)[1] = 100.0;
        right.row(4)[3] = 200.0;
        let matrix = Matrix::new(&data, 7);
        assert_eq!(matrix.part(2..3, 1..2).row(0), [100.0]);
        assert_eq!(matrix.row(4)[6], 200.0);
        let (start, row_stride, column_stride) = matrix.transposed().part(1..4, 2..5).address();
        assert_eq!((start, row_stride, column_stride), (data[15..].as_ptr(), 1, 7));
    }

    #[test]
    fn tiles_cover_a_matrix_exactly_once() {
        let mut data = vec![0.0; 7 * 11];
        let tiles = MatrixMut::new(&mut data, 11).tiles(3, 4);
        assert_eq!(tiles.len(), 9);
        for (index, mut tile) in tiles.into_iter().enumerate() {
            assert_eq!((tile.rows.start, tile.columns.start), (index / 3 * 3, index % 3 * 4));
            for row in 0..tile.numbers.rows() {
                tile.numbers.row(row).iter_mut().for_each(|value| *value += 1.0 + index as f32);
            }
        }
        for (index, value) in data.iter().enumerate() {
            let (row, column) = (index / 11, index % 11);
            assert_eq!(*value, (row / 3 * 3 + column / 4 + 1) as f32);
        }
        let tile = Matrix::new(&data, 11).tile(5, 3, 4);
        assert_eq!((tile.rows(), tile.row(2)), (3, &[6.0; 3][..]));
    }
}
