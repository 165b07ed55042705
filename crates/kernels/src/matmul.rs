//! Matrix products. Products in single precision use the `gemm` crate.
//!
//! `gemm` runs on a single thread here: the result of a large product is divided into tiles, one per thread. The order
//! in which `gemm` sums over the inner dimension depends on the shape, and the tiles are chosen to keep the order of
//! the complete result. In bf16, the order is the same for any tiling.

use rayon::prelude::*;

use super::bf16::{self, Factor, Side, Source, Update};
use super::matrix::{Matrix, MatrixMut, Tile};
use super::parallel::for_each;
use super::team;

/// The precision to which the factors of a matrix product are rounded; sums are computed in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision, without rounding.
    #[default]
    F32,
    /// bf16: the range of single precision with 8 significant bits.
    Bf16,
}

/// The effect of a product on the numbers already in its destination.
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

/// Computes `scale * left * right` on the calling thread, and stores it in `output` or adds it to `output`. Large
/// factors may be rounded to bf16 on several threads.
///
/// # Panics
/// Panics if the shapes do not match.
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
    // SAFETY: the addresses and strides cover numbers that `left` and `right` may read, and numbers that only `output`
    // may write, as `Matrix::address` asserts and `MatrixMut` guarantees; the shapes match. With `Overwrite`, `gemm`
    // does not read the old numbers of the result.
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

/// A right factor, prepared for products with several of its parts.
pub(super) struct Right<'a> {
    matrix: Matrix<'a>,
    rounded: Option<Factor>,
}

impl<'a> Right<'a> {
    pub fn new(precision: Precision, matrix: Matrix<'a>) -> Self {
        Self { matrix, rounded: (precision == Precision::Bf16).then(|| Factor::new(Side::Right, matrix)) }
    }

    /// Computes [`product`] with a part of this factor. The part begins at row and column `first`, has as many rows as
    /// `left` has columns, and as many columns as `output`. With a rounded factor, `first` must be aligned to blocks.
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

/// Computes `output = left * right` tile by tile, on several threads if the product is large.
///
/// # Panics
/// Panics if the shapes do not match.
pub(super) fn tiled_product(precision: Precision, output: MatrixMut, left: Matrix, right: Matrix) {
    assert_eq!([output.rows(), output.columns()], [left.rows(), right.columns()], "the size of the product");
    Factors::new(precision, left, [right]).product(output);
}

/// A left factor and one or more right factors, prepared for products that are computed tile by tile.
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
        // The factor with fewer lines is rounded once, because every tile uses all its lines.
        if rights.iter().any(|right| is_cut_by_columns([left.rows(), right.columns()])) {
            let rights = rights.map(|right| Source::Lines(right.transposed()));
            Self::Bf16(Source::Rounded(Factor::new(Side::Left, left)), rights)
        } else {
            let rounded = rights.map(|right| Source::Rounded(Factor::new(Side::Right, right)));
            Self::Bf16(Source::Lines(left), rounded)
        }
    }

    /// Computes a tile of the product with each right factor, on the calling thread.
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
    /// Computes the product tile by tile, on several threads if it is large.
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

/// Returns true if tiles in bf16 span all rows and some columns of a result; otherwise they span some rows and all
/// columns.
fn is_cut_by_columns([rows, columns]: [usize; 2]) -> bool {
    columns > rows
}

/// Returns true if a product of this many multiply-adds has few tiles in [`tiled_product`], so that two such products
/// are faster in parallel.
pub(super) fn has_few_tiles(work: usize) -> bool {
    work < 4 * MIN_TILE_WORK
}

/// The minimum number of multiply-adds of a tile; smaller tiles cost more than they gain.
const MIN_TILE_WORK: usize = 1 << 20;

/// Returns the rows and columns of a tile of a result `[rows, columns]`. There are about as many tiles as threads, and
/// the tiling changes no bit.
pub(super) fn tile_size(precision: Precision, [rows, columns]: [usize; 2], inner: usize) -> (usize, usize) {
    let work = rows * columns * inner;
    let tiles = |min_work: usize| team::threads().min(work / min_work).max(1);
    match precision {
        Precision::F32 => cut([rows, columns], tiles(MIN_TILE_WORK)),
        Precision::Bf16 if is_cut_by_columns([rows, columns]) => {
            (rows.max(1), strip(columns, tiles(2 * MIN_TILE_WORK)))
        }
        Precision::Bf16 => (strip(rows, tiles(2 * MIN_TILE_WORK)), columns.max(1)),
    }
}

/// Returns the rows and columns of a tile when a result is divided into at most `tiles` tiles for `gemm`. Tiles are
/// nearly square, because each of them packs its parts of both factors.
fn cut([rows, columns]: [usize; 2], tiles: usize) -> (usize, usize) {
    /// The largest number of rows and columns for which `gemm` uses another order of summation.
    const MAX_SMALL_SIDE: usize = 64;
    /// The minimum number of rows or columns of a tile. With more than [`MAX_SMALL_SIDE`] in the other direction, a
    /// tile has more than 256 numbers; for up to 256 numbers, `gemm` uses a third order.
    const MIN_SIDE: usize = 4;
    /// The granularity of tiles: nearly a common multiple of the sizes of `gemm`'s register tiles.
    const GRANULARITY: usize = 32;
    let length =
        |lines: usize, pieces: usize| lines.div_ceil(pieces).next_multiple_of(GRANULARITY).min(lines);
    // All tiles have the same length except the last one.
    let last = |lines: usize, length: usize| (lines - 1) % length + 1;
    let keeps_order =
        |rows: usize, columns: usize| rows.max(columns) > MAX_SMALL_SIDE && rows.min(columns) >= MIN_SIDE;
    (1..=tiles)
        .filter(|across| tiles.is_multiple_of(*across) && rows > 0 && columns > 0)
        .map(|across| (length(rows, tiles / across), length(columns, across)))
        .filter(|&(tile_rows, tile_columns)| {
            [tile_rows, last(rows, tile_rows)].into_iter().all(|rows| {
                [tile_columns, last(columns, tile_columns)]
                    .into_iter()
                    .all(|columns| keeps_order(rows, columns))
            })
        })
        .min_by_key(|(rows, columns)| rows + columns)
        .unwrap_or((rows.max(1), columns.max(1)))
}

/// Returns the number of lines of a tile in bf16, which are few enough to stay in the cache of a core once they are
/// rounded. The tiling changes no bit, so it can depend on the number of threads.
pub(super) fn strip(lines: usize, threads: usize) -> usize {
    const MAX_LINES: usize = 256;
    const GRANULARITY: usize = 32;
    let tiles = lines.max(1).div_ceil(MAX_LINES).next_multiple_of(threads);
    lines.max(1).div_ceil(tiles).next_multiple_of(GRANULARITY)
}

#[cfg(test)]
mod tests;
