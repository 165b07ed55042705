//! Views of matrices inside slices.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix that is read: any rows and columns of a slice, transposed or not.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// The matrix `[rows, columns]` that fills `data` row by row.
    ///
    /// # Panics
    /// If `data` does not hold whole rows.
    pub fn new(data: &'a [f32], columns: usize) -> Self {
        assert!(
            columns > 0 && data.len().is_multiple_of(columns),
            "{} values in rows of {columns}",
            data.len()
        );
        Self { data, rows: data.len() / columns, columns, row_stride: columns, column_stride: 1 }
    }

    /// A part of this matrix.
    ///
    /// # Panics
    /// If a range reaches beyond the matrix.
    pub fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        assert!(
            columns.start <= columns.end && columns.end <= self.columns,
            "columns {columns:?} of {}",
            self.columns
        );
        let empty = rows.is_empty() || columns.is_empty();
        let start = if empty { 0 } else { rows.start * self.row_stride + columns.start * self.column_stride };
        Self { data: &self.data[start..], rows: rows.len(), columns: columns.len(), ..self }
    }

    /// Rows and columns exchanged; nothing moves.
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Self { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    /// Whether the numbers of a column, not those of a row, lie side by side.
    pub(super) fn is_transposed(&self) -> bool {
        self.column_stride != 1
    }

    /// One row of a matrix that is not transposed.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [f32] {
        debug_assert!(self.column_stride == 1 && row < self.rows);
        &self.data[row * self.row_stride..][..self.columns]
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The first number, and the distances between rows and columns. All `rows x columns` numbers so
    /// addressed lie in the slice.
    pub(super) fn address(&self) -> (*const f32, isize, isize) {
        if self.rows > 0 && self.columns > 0 {
            let last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride;
            assert!(last < self.data.len(), "a matrix reaches beyond its slice");
        }
        (self.data.as_ptr(), self.row_stride as isize, self.column_stride as isize)
    }
}

/// A matrix that is written: some columns of all rows, row by row, of a slice that it alone may touch.
///
/// Parts of one slice can be written at the same time through several of them, because a `MatrixMut` is only
/// ever divided into parts without common numbers and reaches no number between its own.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `MatrixMut` is an exclusive borrow of its numbers, as `&mut [f32]` is, and nothing else.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// The matrix `[rows, columns]` that fills `data` row by row.
    ///
    /// # Panics
    /// If `data` does not hold whole rows.
    pub fn new(data: &'a mut [f32], columns: usize) -> Self {
        assert!(
            columns > 0 && data.len().is_multiple_of(columns),
            "{} values in rows of {columns}",
            data.len()
        );
        let rows = data.len() / columns;
        Self { start: data.as_mut_ptr(), rows, columns, row_stride: columns, slice: PhantomData }
    }

    /// The first `columns` columns, and the others.
    pub fn split_columns(self, columns: usize) -> (Self, Self) {
        assert!(columns <= self.columns, "column {columns} of {}", self.columns);
        let Self { start, rows, row_stride, .. } = self;
        // An empty right part keeps the start, so that no pointer beyond the slice comes to be.
        let right = if columns < self.columns && rows > 0 {
            // SAFETY: column `columns` of row 0 is a number of this matrix.
            unsafe { start.add(columns) }
        } else {
            start
        };
        (
            Self { start, rows, columns, row_stride, slice: PhantomData },
            Self { start: right, rows, columns: self.columns - columns, row_stride, slice: PhantomData },
        )
    }

    /// Some rows and columns of this matrix, for a shorter time.
    ///
    /// # Panics
    /// If a range reaches beyond the matrix.
    pub fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> MatrixMut<'_> {
        // SAFETY: `self` stays borrowed as long as the part lives, so no other part can exist.
        unsafe { self.part_unguarded(rows, columns) }
    }

    /// # Safety
    /// No two parts that live at the same time may share numbers.
    pub(super) unsafe fn part_unguarded<'b>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> MatrixMut<'b> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        assert!(
            columns.start <= columns.end && columns.end <= self.columns,
            "columns {columns:?} of {}",
            self.columns
        );
        let empty = rows.is_empty() || columns.is_empty();
        let offset = if empty { 0 } else { rows.start * self.row_stride + columns.start };
        // SAFETY: the offset is that of a number of this matrix, or zero.
        let start = unsafe { self.start.add(offset) };
        MatrixMut {
            start,
            rows: rows.len(),
            columns: columns.len(),
            row_stride: self.row_stride,
            slice: PhantomData,
        }
    }

    /// One row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row lies in the slice, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.row_stride), self.columns) }
    }

    /// All numbers, if the rows follow each other without a gap.
    ///
    /// # Panics
    /// If there are gaps between the rows.
    pub fn contiguous(&mut self) -> &mut [f32] {
        assert!(self.rows <= 1 || self.row_stride == self.columns, "rows with gaps between them");
        // SAFETY: `rows * columns` numbers without gaps lie in the slice, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.rows * self.columns) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The first number and the distance between rows. All numbers so addressed may be written.
    pub(super) fn address(&mut self) -> (*mut f32, isize) {
        (self.start, self.row_stride as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_columns_part_and_transposed_address_the_same_numbers() {
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
}
