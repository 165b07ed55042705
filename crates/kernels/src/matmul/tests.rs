//! Matrix products, compared with products in double precision.

use std::collections::BTreeSet;

use super::*;
use crate::testing::{
    assert_close, assert_same_on_any_number_of_threads, naive_product, random, transposed, widened,
};
use crate::vector::LANES;

#[test]
fn products_agree_with_f64_in_every_orientation() {
    for (rows, inner, columns) in [(1, 1, 1), (1, 7, 5), (5, 3, 1), (3, 2, 11), (17, 64, 13), (67, 129, 71)] {
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
fn tiles_are_nonempty_and_bf16_tiles_block_aligned() {
    let rows = [0, 1, 15, 16, 17, 63, 64, 65, 257, 2_048, 16_384, 50_257];
    let inner = [0, 1, 384, 2_048, 262_143, 262_144, 262_145, 1_000_000];
    let cases =
        rows.map(|rows| [1, 10, 64, 384, 50_304].map(|columns| inner.map(|inner| (rows, columns, inner))));
    for (rows, columns, inner) in cases.into_iter().flatten().flatten() {
        for precision in [Precision::F32, Precision::Bf16] {
            let (tile_rows, tile_columns) = tile_size(precision, [rows, columns], inner);
            let case = format!("{tile_rows} by {tile_columns} of [{rows}, {columns}], inner {inner}");
            assert!(tile_rows >= 1 && tile_columns >= 1, "{case}");
            let is_aligned = |lines: usize, all| lines.is_multiple_of(LANES) || lines >= all;
            assert!(is_aligned(tile_columns, columns), "{case}");
            assert!(precision == Precision::F32 || is_aligned(tile_rows, rows), "{case}");
        }
    }
}

#[test]
fn strips_are_aligned_and_spread_over_threads() {
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
fn tiling_does_not_change_the_product_bits() {
    let sides = [1, 3, 4, 5, 63, 64, 65, 67, 96, 97, 128, 131, 192, 193, 257, 384, 449];
    let mut cut_count = 0;
    for inner in [1, 2, 3, 97, 512, 600, 1_030] {
        let (left, right) = (random(1, 449 * inner), random(2, inner * 449));
        let pairs = sides.into_iter().flat_map(|rows| sides.map(|columns| (rows, columns)));
        // Every second pair of the largest products, which take nearly all of the time.
        for (rows, columns) in pairs.step_by(if inner > 100 { 2 } else { 1 }) {
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
                let uncut = by_tiles((rows, columns));
                let cuts: BTreeSet<_> = [2, 3, 4, 6, 16].map(|tiles| cut([rows, columns], tiles)).into();
                for tiles in cuts.into_iter().filter(|tiles| *tiles != (rows, columns)) {
                    cut_count += 1;
                    assert!(
                        by_tiles(tiles) == uncut,
                        "[{rows}, {inner}, {columns}] by {tiles:?}, {transposed:?}"
                    );
                }
            }
        }
    }
    assert!(cut_count > 1_000, "{cut_count} cuts");
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
fn large_products_are_bitwise_equal_across_thread_counts() {
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
