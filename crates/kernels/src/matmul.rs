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
mod tests {
    use std::collections::BTreeSet;

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
    fn however_a_product_is_cut_it_has_the_bits_of_the_whole() {
        let sides = [1, 3, 4, 5, 63, 64, 65, 67, 96, 97, 128, 131, 192, 193, 257, 384, 449];
        let mut were_cut = 0;
        for inner in [1, 2, 3, 97, 512, 600, 1_030] {
            let (left, right) = (random(1, 449 * inner), random(2, inner * 449));
            for (rows, columns) in sides.into_iter().flat_map(|rows| sides.map(|columns| (rows, columns))) {
                for transposed in [[false, false], [false, true], [true, false]] {
                    let factor = |data, [rows, columns]: [usize; 2], transposed| match transposed {
                        true => Matrix::new(data, rows).transposed(),
                        false => Matrix::new(data, columns),
                    };
                    let left = factor(&left[..rows * inner], [rows, inner], transposed[0]);
                    let right = factor(&right[..inner * columns], [inner, columns], transposed[1]);
                    let by_tiles = |(tile_rows, tile_columns)| {
                        let mut output = vec![f32::NAN; rows * columns];
                        for mut tile in MatrixMut::new(&mut output, columns).tiles(tile_rows, tile_columns) {
                            Factors::new(Precision::F32, left, [right]).product_tiles([&mut tile]);
                        }
                        output.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                    };
                    let whole = by_tiles((rows, columns));
                    let cuts: BTreeSet<_> = [2, 3, 4, 6, 16].map(|tiles| cut([rows, columns], tiles)).into();
                    for tiles in cuts.into_iter().filter(|tiles| *tiles != (rows, columns)) {
                        were_cut += 1;
                        assert!(
                            by_tiles(tiles) == whole,
                            "[{rows}, {inner}, {columns}] by {tiles:?}, {transposed:?}"
                        );
                    }
                }
            }
        }
        assert!(were_cut > 1_000, "{were_cut} cuts");
        for (size, tiles, expected) in [
            ([2_048, 1_536], 2, (1_024, 1_536)),
            ([384, 1_536], 2, (384, 768)),
            ([192, 192], 2, (96, 192)),
            ([96, 96], 2, (64, 96)),
            ([2_048, 1_536], 6, (704, 768)),
            ([2_048, 65], 2, (1_024, 65)),
            ([64, 64], 2, (64, 64)),
        ] {
            assert_eq!(cut(size, tiles), expected, "{size:?} in {tiles}");
        }
    }

    #[test]
    fn large_products_have_the_same_bits_on_any_number_of_threads() {
        let (rows, inner, columns) = (211, 307, 397);
        assert_ne!(cut([rows, columns], 2), (rows, columns), "the product is cut");
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
