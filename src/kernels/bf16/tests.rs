//! Products in bf16 against their definition, to the bit.

use super::tile::sum_in_registers;
use super::*;
use crate::testing::{assert_same_on_any_number_of_threads, random, transposed};

/// The product of rounded factors by the definition.
fn expected(left: &[f32], right: &[f32], inner: usize, columns: usize) -> Vec<f32> {
    let flushed = |x: f32| if x.abs() < f32::MIN_POSITIVE { x * 0.0 } else { x };
    let number = |x: f32| f32::from_bits(rounded(x));
    let sum = |(row, column): (usize, usize)| {
        let term = |sum: f32, k: usize| match k < inner {
            true => flushed(number(left[row * inner + k]).mul_add(number(right[k * columns + column]), sum)),
            false => flushed(sum),
        };
        (0..inner).step_by(2).fold(0.0, |sum, k| term(term(sum, k + 1), k))
    };
    (0..left.len() / inner * columns).map(|place| sum((place / columns, place % columns))).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn numbers_are_rounded_to_the_nearest_and_to_even_between_two() {
    let nearest = |x: f32| f32::from_bits(rounded(x));
    for (x, expected) in [
        (1.0, 1.0),
        (1.003, 1.0),
        (1.004, 1.007_812_5),
        (f32::from_bits(0x3F80_8000), 1.0),
        (f32::from_bits(0x3F81_8000), 1.015_625),
        (-5.02, -5.031_25),
        (1e-40, 0.0),
        (f32::INFINITY, f32::INFINITY),
        (1e30, 1.000_255_6e30),
    ] {
        assert!(
            (nearest(x) - expected).abs() <= expected.abs() * 1e-6 || nearest(x) == expected,
            "{x}: {}",
            nearest(x)
        );
    }
    assert!(nearest(f32::NAN).is_nan() && nearest(f32::from_bits(0x7F80_0001)).is_nan());
}

#[test]
fn every_orientation_and_every_way_gives_the_bits_of_the_definition() {
    for (rows, inner, columns) in
        [(1, 1, 1), (1, 7, 5), (7, 3, 1), (3, 2, 17), (17, 64, 13), (67, 131, 71), (6, 32, 64), (5, 33, 130)]
    {
        let (mut left, mut right) = (random(1, rows * inner), random(2, inner * columns));
        // Numbers of any size, whose products may be denormal.
        left.iter_mut().step_by(5).for_each(|x| *x *= 1e-20);
        right.iter_mut().step_by(3).for_each(|x| *x *= 1e-19);
        let expected = expected(&left, &right, inner, columns);
        let (left_t, right_t) = (transposed(&left, inner), transposed(&right, columns));
        let lefts = [Matrix::new(&left, inner), Matrix::new(&left_t, rows).transposed()];
        let rights = [Matrix::new(&right, columns), Matrix::new(&right_t, inner).transposed()];
        for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
            let mut output = vec![f32::NAN; rows * columns];
            let (left, packed) = (Left::new(left), Right::new(right));
            let matrix = &mut MatrixMut::new(&mut output, columns);
            product(matrix, Destination::Overwrite, 1.0, (&left, &packed), [0; 2]);
            assert_eq!(bits(&output), bits(&expected), "[{rows}, {inner}, {columns}]");
            let matrix = &mut MatrixMut::new(&mut output, columns);
            product(matrix, Destination::AddTo, 2.0, (&left, &packed), [0; 2]);
            let tripled = expected.iter().map(|x| x.mul_add(2.0, *x)).collect::<Vec<_>>();
            assert_eq!(bits(&output), bits(&tripled), "[{rows}, {inner}, {columns}], added");

            // In registers, as processors without the instruction do it.
            if columns > TILE_COLUMNS {
                continue;
            }
            let (panel, width) = packed.panel(0);
            let strides = [left.row_stride, left.slot_stride];
            let tile = Tile { left: &left.slots, strides, panel, width };
            let mut sums = [[f32::NAN; TILE_COLUMNS]; TILE_ROWS];
            let count = rows.min(TILE_ROWS);
            sum_in_registers(count, &tile, &mut sums);
            for (sums, expected) in sums.iter().zip(expected.chunks(columns)).take(count) {
                assert_eq!(
                    bits(&sums[..columns]),
                    bits(expected),
                    "[{rows}, {inner}, {columns}] in registers"
                );
            }
        }
    }
}

#[test]
fn a_factor_is_rounded_to_the_same_bits_on_any_number_of_threads() {
    let matrix = random(3, 700 * 901);
    assert_same_on_any_number_of_threads(|| {
        let matrix = Matrix::new(&matrix, 901);
        [matrix, matrix.transposed()].map(|matrix| Left::new(matrix).slots.to_vec()).to_vec()
    });
}
