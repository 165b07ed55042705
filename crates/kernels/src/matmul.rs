//! Matrix products, in single precision by the `gemm` crate.
//!
//! `gemm` runs on one thread here: large products are cut into tiles of the result, one a thread. It sums over the inner
//! dimension in an order that follows from the shapes, and tiles are cut so that it is that of the whole result. Sums in
//! bf16 have one order however a result is cut.

use rayon::prelude::*;

use super::bf16::{self, Factor, Side, Source, Update};
use super::matrix::{Matrix, MatrixMut, Tile};
use super::parallel::for_each;
use super::team;

/// What the factors of a matrix product are rounded to; sums are taken in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision: not at all.
    #[default]
    F32,
    /// The range of single precision with 8 bits of it.
    Bf16,
}

/// What becomes of the numbers that stand in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Overwrite,
    AddTo,
}

impl Destination {
    fn update(self, scale: f32) -> Update {
        match self {
            Self::Overwrite => Update::Set(scale),
            Self::AddTo => Update::Add(scale),
        }
    }
}

/// `output = scale * left * right`, or that added to `output`, on the calling thread; what bf16 rounds before may be
/// shared by several.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn product(
    precision: Precision,
    output: &mut MatrixMut,
    destination: Destination,
    scale: f32,
    left: Matrix,
    right: Matrix,
) {
    assert_fit(left, right);
    assert_eq!([output.rows(), output.columns()], [left.rows(), right.columns()], "the size of the product");
    if precision == Precision::Bf16 {
        let [left, right] = [Factor::new(Side::Left, left), Factor::new(Side::Right, right)];
        return bf16::product(output, destination.update(scale), [left.all(), right.all()]);
    }
    let (rows, inner, columns) = (left.rows(), left.columns(), right.columns());
    let (left_start, left_row, left_column) = left.address();
    let (right_start, right_row, right_column) = right.address();
    let (output_start, output_row) = output.address();
    // SAFETY: the addresses and strides cover numbers that `left` and `right` may read and `output` alone may
    // write, as asserted by `Matrix::address` and held by `MatrixMut`; the shapes fit. With `Overwrite` the
    // result's old numbers are not read into it.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            output_start,
            1,
            output_row,
            destination == Destination::AddTo,
            left_start,
            left_column,
            left_row,
            right_start,
            right_column,
            right_row,
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn assert_fit(left: Matrix, right: Matrix) {
    assert!(
        left.columns() == right.rows(),
        "[{}, {}] times [{}, {}]",
        left.rows(),
        left.columns(),
        right.rows(),
        right.columns()
    );
}

/// A right factor made ready for several products with parts of it.
pub(super) struct Right<'a> {
    matrix: Matrix<'a>,
    rounded: Option<Factor>,
}

impl<'a> Right<'a> {
    pub fn new(precision: Precision, matrix: Matrix<'a>) -> Self {
        Self { matrix, rounded: (precision == Precision::Bf16).then(|| Factor::new(Side::Right, matrix)) }
    }

    /// [`product`] with the rows and columns of this factor from `first` on, as many as `left` has columns and `output`
    /// has. Those of a rounded factor begin where its blocks do.
    pub fn product(
        &self,
        output: &mut MatrixMut,
        destination: Destination,
        scale: f32,
        left: Matrix,
        first: [usize; 2],
    ) {
        let [row, column] = first;
        let rows = row..row + left.columns();
        match &self.rounded {
            Some(factor) if factor.begins_with(rows.end) => {
                let left = Factor::new(Side::Left, left);
                bf16::product(output, destination.update(scale), [left.all(), factor.part(column, rows)]);
            }
            rounded => {
                let precision = if rounded.is_some() { Precision::Bf16 } else { Precision::F32 };
                let part = self.matrix.part(rows, column..column + output.columns());
                product(precision, output, destination, scale, left, part);
            }
        }
    }
}

/// `output = left * right` by tiles, on several threads where the product is large.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn tiled_product(precision: Precision, output: MatrixMut, left: Matrix, right: Matrix) {
    assert_eq!([output.rows(), output.columns()], [left.rows(), right.columns()], "the size of the product");
    Factors::new(precision, left, [right]).product(output);
}

/// A left factor and those on its right, made ready for products that are computed tile by tile.
#[derive(Debug)]
pub(super) enum Factors<'a, const N: usize> {
    F32(Matrix<'a>, [Matrix<'a>; N]),
    Bf16(Source<'a>, [Source<'a>; N]),
}

impl<'a, const N: usize> Factors<'a, N> {
    pub fn new(precision: Precision, left: Matrix<'a>, rights: [Matrix<'a>; N]) -> Self {
        rights.iter().for_each(|right| assert_fit(left, *right));
        if precision == Precision::F32 {
            return Self::F32(left, rights);
        }
        // The shorter side is rounded for all tiles, of which each has all of it.
        if rights.iter().any(|right| is_cut_by_columns([left.rows(), right.columns()])) {
            let rights = rights.map(|right| Source::Lines(right.transposed()));
            Self::Bf16(Source::Rounded(Factor::new(Side::Left, left)), rights)
        } else {
            let rounded = rights.map(|right| Source::Rounded(Factor::new(Side::Right, right)));
            Self::Bf16(Source::Lines(left), rounded)
        }
    }

    /// A tile of the product with each right factor, on the calling thread.
    pub fn product_tiles(&self, tiles: [&mut Tile; N]) {
        match self {
            Self::F32(left, rights) => {
                for (Tile { rows, columns, numbers }, right) in tiles.into_iter().zip(rights) {
                    let left = left.part(rows.clone(), 0..left.columns());
                    let right = right.part(0..right.rows(), columns.clone());
                    product(Precision::F32, numbers, Destination::Overwrite, 1.0, left, right);
                }
            }
            Self::Bf16(left, rights) => bf16::product_tiles(left, rights, tiles),
        }
    }
}

impl Factors<'_, 1> {
    /// The whole product by tiles, on several threads where it is large.
    pub fn product(&self, output: MatrixMut) {
        let (precision, inner) = match self {
            Self::F32(left, _) => (Precision::F32, left.columns()),
            Self::Bf16(left, _) => (Precision::Bf16, left.inner()),
        };
        let (tile_rows, tile_columns) = tile_size(precision, [output.rows(), output.columns()], inner);
        let tiles = output.tiles(tile_rows, tile_columns).into_par_iter();
        for_each(tiles, tile_rows * tile_columns * inner, |mut tile| self.product_tiles([&mut tile]));
    }
}

/// Whether tiles in bf16 have all rows of a result, and some columns, rather than the other way round.
fn is_cut_by_columns([rows, columns]: [usize; 2]) -> bool {
    columns > rows
}

/// Whether a product of this many multiply-adds is one tile in [`tiled_product`], or nearly so: two of them
/// are then better done side by side.
pub(super) fn is_one_tile(work: usize) -> bool {
    work < 4 * LEAST_WORK
}

/// Multiply-adds below which cutting costs more than it gains.
const LEAST_WORK: usize = 1 << 20;

/// Rows and columns of a tile of a result `[rows, columns]`: about as many tiles as threads, none of which changes a bit.
pub(super) fn tile_size(precision: Precision, [rows, columns]: [usize; 2], inner: usize) -> (usize, usize) {
    let work = rows * columns * inner;
    let tiles = |least_work: usize| team::threads().min(work / least_work).max(1);
    match precision {
        Precision::F32 => cut([rows, columns], tiles(LEAST_WORK)),
        Precision::Bf16 if is_cut_by_columns([rows, columns]) => {
            (rows.max(1), strip(columns, tiles(2 * LEAST_WORK)))
        }
        Precision::Bf16 => (strip(rows, tiles(2 * LEAST_WORK)), columns.max(1)),
    }
}

/// Rows and columns of a tile where a result is cut for `gemm` into so many or fewer: nearly squares, since each tile
/// packs its parts of both factors.
fn cut([rows, columns]: [usize; 2], tiles: usize) -> (usize, usize) {
    /// `gemm` takes its sums in another order for results of up to so many rows and columns.
    const SMALL: usize = 64;
    /// And for those of 256 numbers or fewer, which more than [`SMALL`] times so many are not.
    const LEAST: usize = 4;
    /// What `gemm`'s tiles in registers divide, or nearly so.
    const WHOLE: usize = 32;
    let piece = |lines: usize, pieces: usize| lines.div_ceil(pieces).next_multiple_of(WHOLE).min(lines);
    // All pieces are equally long but the last one.
    let last = |lines: usize, piece: usize| (lines - 1) % piece + 1;
    let keeps_order = |rows: usize, columns: usize| rows.max(columns) > SMALL && rows.min(columns) >= LEAST;
    (1..=tiles)
        .filter(|across| tiles.is_multiple_of(*across) && rows > 0 && columns > 0)
        .map(|across| (piece(rows, tiles / across), piece(columns, across)))
        .filter(|&(of_rows, of_columns)| {
            [of_rows, last(rows, of_rows)].into_iter().all(|rows| {
                [of_columns, last(columns, of_columns)].into_iter().all(|columns| keeps_order(rows, columns))
            })
        })
        .min_by_key(|(rows, columns)| rows + columns)
        .unwrap_or((rows.max(1), columns.max(1)))
}

/// Lines of a tile in bf16: few enough to stay near to a core once they are rounded.
/// How a result is cut changes none of its bits, so that each thread may have about as many tiles as the others.
pub(super) fn strip(lines: usize, threads: usize) -> usize {
    const MOST: usize = 256;
    const WHOLE: usize = 32;
    let tiles = lines.max(1).div_ceil(MOST).next_multiple_of(threads);
    lines.max(1).div_ceil(tiles).next_multiple_of(WHOLE)
}

#[cfg(test)]
mod tests;
