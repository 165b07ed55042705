//! A matrix divided into tiles that threads write side by side.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::matrix::MatrixMut;

/// A [`MatrixMut`] cut into tiles of one size (the last ones smaller), each of which one task may take once.
pub(super) struct Tiles<'a> {
    matrix: MatrixMut<'a>,
    tile_rows: usize,
    tile_columns: usize,
    taken: Vec<AtomicBool>,
}

// SAFETY: the shared state is `taken`, which is atomic; a tile is handed out only once, and tiles do not
// overlap.
unsafe impl Sync for Tiles<'_> {}

impl<'a> Tiles<'a> {
    pub(super) fn new(matrix: MatrixMut<'a>, tile_rows: usize, tile_columns: usize) -> Self {
        assert!(tile_rows > 0 && tile_columns > 0, "tiles of {tile_rows} x {tile_columns}");
        let count = matrix.rows().div_ceil(tile_rows) * matrix.columns().div_ceil(tile_columns);
        let taken = std::iter::repeat_with(AtomicBool::default).take(count).collect();
        Self { matrix, tile_rows, tile_columns, taken }
    }

    /// `data` in rows of `columns`, cut into pieces of `tile_rows` rows.
    pub(super) fn rows(data: &'a mut [f32], columns: usize, tile_rows: usize) -> Self {
        Self::new(MatrixMut::new(data, columns), tile_rows, columns)
    }

    /// `data` in rows of `columns`, cut into pieces of `tile_columns` columns.
    pub(super) fn columns(data: &'a mut [f32], columns: usize, tile_columns: usize) -> Self {
        let matrix = MatrixMut::new(data, columns);
        let rows = matrix.rows().max(1);
        Self::new(matrix, rows, tile_columns)
    }

    /// Number of tiles, which are counted row by row.
    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Rows and columns of the whole matrix.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.matrix.rows(), self.matrix.columns())
    }

    /// How many numbers a whole tile has.
    pub(super) fn tile_work(&self) -> usize {
        self.tile_rows * self.tile_columns
    }

    /// Where tile `index` lies: its rows and columns.
    pub(super) fn place(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.matrix.columns().div_ceil(self.tile_columns);
        let (row, column) = (index / across * self.tile_rows, index % across * self.tile_columns);
        (
            row..self.matrix.rows().min(row + self.tile_rows),
            column..self.matrix.columns().min(column + self.tile_columns),
        )
    }

    /// Tile `index`.
    ///
    /// # Panics
    /// If the tile was taken before.
    pub(super) fn take(&self, index: usize) -> MatrixMut<'a> {
        assert!(!self.taken[index].swap(true, Ordering::Relaxed), "tile {index} is taken twice");
        let (rows, columns) = self.place(index);
        // SAFETY: tiles with different indices share no number, and each is handed out once; the matrix
        // itself is not reachable while its tiles are.
        unsafe { self.matrix.part_unguarded(rows, columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_a_matrix_exactly_once() {
        let mut data = vec![0.0; 7 * 11];
        let tiles = Tiles::new(MatrixMut::new(&mut data, 11), 3, 4);
        assert_eq!(tiles.count(), 9);
        for index in 0..tiles.count() {
            let mut tile = tiles.take(index);
            for row in 0..tile.rows() {
                tile.row(row).iter_mut().for_each(|value| *value += 1.0 + index as f32);
            }
        }
        for (place, value) in data.iter().enumerate() {
            let (row, column) = (place / 11, place % 11);
            assert_eq!(*value, (row / 3 * 3 + column / 4 + 1) as f32);
        }
    }

    #[test]
    #[should_panic(expected = "tile 1 is taken twice")]
    fn a_tile_cannot_be_taken_twice() {
        let mut data = vec![0.0; 6];
        let tiles = Tiles::rows(&mut data, 2, 1);
        let _first = tiles.take(1);
        let _second = tiles.take(1);
    }
}
