//! Matrix products, in single precision by the `gemm` crate.
//!
//! `gemm` sums over the inner dimension in an order that follows from the shapes alone, and here it runs on
//! one thread: large products are cut into tiles of the result, the same ones for any number of threads. Sums in bf16
//! have one order however a result is cut.

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

    /// [`product`] with the first rows and columns of this factor, as many as `left` has columns and `output` has.
    pub fn product(&self, output: &mut MatrixMut, destination: Destination, scale: f32, left: Matrix) {
        let inner = left.columns();
        match &self.rounded {
            Some(factor) if factor.begins_with(inner) => {
                let left = Factor::new(Side::Left, left);
                bf16::product(output, destination.update(scale), [left.all(), factor.part(0, 0..inner)]);
            }
            rounded => {
                let precision = if rounded.is_some() { Precision::Bf16 } else { Precision::F32 };
                let part = self.matrix.part(0..inner, 0..output.columns());
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
    let (rows, inner, columns) = (left.rows(), left.columns(), right.columns());
    assert_eq!((output.rows(), output.columns()), (rows, columns), "the size of the product");
    let factors = Factors::new(precision, left, [right]);
    let (tile_rows, tile_columns) = tile_size(precision, [rows, columns], inner);
    let tiles = output.tiles(tile_rows, tile_columns).into_par_iter();
    for_each(tiles, tile_rows * tile_columns * inner, |mut tile| factors.product_tiles([&mut tile]));
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

/// Whether tiles in bf16 have all rows of a result, and some columns, rather than the other way round.
fn is_cut_by_columns([rows, columns]: [usize; 2]) -> bool {
    columns > rows
}

/// Whether a product of this many multiply-adds is one tile in [`tiled_product`], or nearly so: two of them
/// are then better done side by side.
pub(super) fn is_one_tile(work: usize) -> bool {
    work < 2 * LEAST_WORK
}

/// Multiply-adds below which cutting costs more than it gains.
const LEAST_WORK: usize = 1 << 21;

/// Rows and columns of a tile of a result `[rows, columns]`.
pub(super) fn tile_size(precision: Precision, [rows, columns]: [usize; 2], inner: usize) -> (usize, usize) {
    /// Tiles into which large products are cut.
    const MOST_TILES: usize = 32;
    /// A width that `gemm`'s register tiles divide (on AVX-512 and on AVX2).
    const LEAST_COLUMNS: usize = 64;
    const LEAST_ROWS: usize = 256;
    let work = rows * columns * inner;
    if precision == Precision::Bf16 {
        let threads = team::threads().min(work / LEAST_WORK).max(1);
        let cut = |lines: usize| strip(lines, threads);
        return match is_cut_by_columns([rows, columns]) {
            true => (rows.max(1), cut(columns)),
            false => (cut(rows), columns.max(1)),
        };
    }
    if is_one_tile(work) && work >= LEAST_WORK && rows >= LEAST_ROWS {
        // Two halves, so that a second thread has one.
        return (rows.div_ceil(2), columns.next_multiple_of(LEAST_COLUMNS));
    }
    let tiles = (work / LEAST_WORK).clamp(1, MOST_TILES);
    // `gemm` packs the right matrix and mostly reads the left one where it lies, so columns are cut before
    // rows: no two tiles pack the same numbers.
    let tile_columns = columns.max(1).div_ceil(tiles).next_multiple_of(LEAST_COLUMNS);
    let tiles_of_rows = tiles / columns.div_ceil(tile_columns).max(1);
    let tile_rows = rows.max(1).div_ceil(tiles_of_rows.max(1)).max(LEAST_ROWS);
    (tile_rows.min(rows.max(1)), tile_columns)
}

/// Lines of a tile in bf16, along the longer side of a result: few enough to stay near to a core once they are rounded.
/// How a result is cut changes none of its bits, so that each thread may have about as many tiles as the others.
fn strip(lines: usize, threads: usize) -> usize {
    const MOST: usize = 256;
    const WHOLE: usize = 32;
    let tiles = lines.max(1).div_ceil(MOST).next_multiple_of(threads);
    lines.max(1).div_ceil(tiles).next_multiple_of(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_on_any_number_of_threads, naive_product, random, transposed, widened,
    };
    use crate::vector::LANES;

    #[test]
    fn products_agree_with_f64_in_every_orientation() {
        for (rows, inner, columns) in
            [(1, 1, 1), (1, 7, 5), (5, 3, 1), (3, 2, 11), (17, 64, 13), (67, 129, 71)]
        {
            let (left, right) = (random(1, rows * inner), random(2, inner * columns));
            let expected = naive_product(&widened(&left), &widened(&right), inner, columns);
            let mut output = vec![f32::NAN; rows * columns];
            tiled_product(
                Precision::F32,
                MatrixMut::new(&mut output, columns),
                Matrix::new(&left, inner),
                Matrix::new(&right, columns),
            );
            assert_close("product", &output, &expected);

            let (left_t, right_t) = (transposed(&left, inner), transposed(&right, columns));
            product(
                Precision::F32,
                &mut MatrixMut::new(&mut output, columns),
                Destination::AddTo,
                2.0,
                Matrix::new(&left_t, rows).transposed(),
                Matrix::new(&right_t, inner).transposed(),
            );
            let tripled: Vec<f64> = expected.iter().map(|value| 3.0 * value).collect();
            assert_close("added product", &output, &tripled);
        }
    }

    #[test]
    fn tiles_are_never_empty_and_in_bf16_whole_blocks() {
        let rows = [0, 1, 15, 16, 17, 63, 64, 65, 257, 2_048, 16_384, 50_257];
        let inner = [0, 1, 384, 2_048, 262_143, 262_144, 262_145, 1_000_000];
        let cases = rows
            .map(|rows| [1, 10, 64, 384, 50_304].map(|columns| inner.map(|inner| (rows, columns, inner))));
        for (rows, columns, inner) in cases.into_iter().flatten().flatten() {
            for precision in [Precision::F32, Precision::Bf16] {
                let (tile_rows, tile_columns) = tile_size(precision, [rows, columns], inner);
                let case = format!("{tile_rows} by {tile_columns} of [{rows}, {columns}], inner {inner}");
                assert!(tile_rows >= 1 && tile_columns >= 1, "{case}");
                let is_whole = |lines: usize, all| lines.is_multiple_of(LANES) || lines >= all;
                assert!(is_whole(tile_columns, columns), "{case}");
                assert!(precision == Precision::F32 || is_whole(tile_rows, rows), "{case}");
            }
        }
    }

    #[test]
    fn strips_are_whole_blocks_as_many_as_threads_where_there_are_so_many() {
        for (lines, threads, expected) in [
            (0, 1, 32),
            (1, 16, 32),
            (256, 1, 256),
            (257, 1, 160),
            (2_048, 2, 256),
            (384, 2, 192),
            (2_048, 16, 128),
        ] {
            assert_eq!(strip(lines, threads), expected, "{lines} lines, {threads} threads");
        }
    }

    #[test]
    fn large_products_have_the_same_bits_on_any_number_of_threads() {
        let (rows, inner, columns) = (211, 307, 397);
        assert_ne!(tile_size(Precision::F32, [rows, columns], inner), (rows, columns), "the product is cut");
        let (left, right) = (random(1, rows * inner), random(2, inner * columns));
        assert_same_on_any_number_of_threads(|| {
            let mut output = vec![0.0; rows * columns];
            tiled_product(
                Precision::F32,
                MatrixMut::new(&mut output, columns),
                Matrix::new(&left, inner),
                Matrix::new(&right, columns),
            );
            vec![output]
        });
    }
}
