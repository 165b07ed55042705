//! Products in bf16, compared bit by bit with their definition.

use super::rounding::{fill, rounded};
use super::tile::{TILE_COLUMNS, TILE_ROWS, Tile, sum_in_registers};
use super::*;
use crate::activation::Activation;
use crate::linear::{Epilogue, Linear, WeightLayout, forward, forward_gated};
use crate::matmul::{Precision, tiled_product};
use crate::matrix::Matrix;
use crate::testing::{assert_same_on_any_number_of_threads, random, transposed};

fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { x * 0.0 } else { x }
}

/// Sums the products of rounded numbers as defined for `VDPBF16PS`.
fn sum_as_vdpbf16ps(left: &[f32], right: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (left, right) in left.chunks(2).zip(right.chunks(2)) {
        for k in [1, 0] {
            let [left, right] = [left, right].map(|pair| pair.get(k).copied().unwrap_or(0.0));
            sum = flushed(left.mul_add(right, sum));
        }
    }
    sum
}

/// Sums the products of rounded numbers as defined for `TDPBF16PS`.
fn sum_as_tdpbf16ps(left: &[f32], right: &[f32]) -> f32 {
    left.chunks(32).zip(right.chunks(32)).fold(0.0, |total, (left, right)| {
        let [lower, upper] = [0, 1].map(|half| {
            let products = left.iter().zip(right).skip(half).step_by(2);
            products.fold(0.0, |sum, (left, right)| flushed(left.mul_add(*right, sum)))
        });
        flushed(total + flushed(lower + upper))
    })
}

/// Computes the product of rounded factors with a given definition of the sum.
fn expected(
    sum: fn(&[f32], &[f32]) -> f32,
    left: &[f32],
    right: &[f32],
    inner: usize,
    columns: usize,
) -> Vec<f32> {
    let number = |x: &f32| f32::from_bits(rounded(*x));
    let columns = (0..columns).map(|column| right[column..].iter().step_by(columns).map(number).collect());
    let columns = columns.collect::<Vec<Vec<f32>>>();
    let rows = left.chunks(inner).map(|row| row.iter().map(number).collect::<Vec<_>>());
    rows.flat_map(|row| columns.iter().map(move |column| sum(&row, column)).collect::<Vec<_>>()).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn numbers_round_to_nearest_even() {
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
fn factors_round_every_kind_of_number() {
    let kinds =
        [f32::NAN, f32::from_bits(0x7F80_0001), f32::INFINITY, -1e-40, f32::MIN_POSITIVE, 3.4e38, -0.0];
    let mut numbers = random(1, 29 * 41);
    numbers.iter_mut().step_by(3).zip(kinds.into_iter().cycle()).for_each(|(x, kind)| *x = kind);
    let lines = numbers.chunks(41).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let number = |line: usize, index: usize| {
        lines.get(line).and_then(|line| line.get(index)).map_or(0, |x| rounded(*x))
    };
    let numbers_t = transposed(&numbers, 41);
    for matrix in [Matrix::new(&numbers, 41), Matrix::new(&numbers_t, 29).transposed()] {
        let mut slots = vec![f32::NAN; 2 * 2 * BLOCK];
        fill(Side::Left, matrix, &mut MatrixMut::new(&mut slots, 2 * BLOCK));
        for (index, slot) in slots.iter().enumerate() {
            let (block, line, pair) = (index / BLOCK, index % BLOCK / SIDE, index % SIDE);
            let (line, at) = (block / 2 * SIDE + line, (block % 2 * SIDE + pair) * 2);
            let expected = number(line, at) >> 16 | number(line, at + 1);
            assert_eq!(slot.to_bits(), expected, "line {line} at {at}: {slot:?}");
        }
    }
}

/// Computes a product into `output`, with or without the matrix unit.
fn multiply(unit: Option<amx::Unit>, output: &mut [f32], columns: usize, update: Update, factors: [Part; 2]) {
    product_by(unit, &mut MatrixMut::new(output, columns), update, factors);
}

/// Checks every update of the complete product against the `expected` bits of `[rows, columns]`.
fn check_updates(unit: Option<amx::Unit>, [left, right]: [&Factor; 2], expected: &[f32], columns: usize) {
    let mut output = vec![f32::NAN; expected.len()];
    for (update, definition) in [
        (Update::Set(1.0), expected.to_vec()),
        (Update::Add(2.0), expected.iter().map(|x| x.mul_add(2.0, *x)).collect()),
        (Update::Set(0.3), expected.iter().map(|x| x * 0.3).collect()),
    ] {
        multiply(unit, &mut output, columns, update, [left.all(), right.all()]);
        assert_eq!(bits(&output), bits(&definition), "{update:?} of {columns} columns");
    }
}

/// Checks products of the last columns, of the last rows, and in halves of the inner dimension.
fn check_parts(
    unit: Option<amx::Unit>,
    [left, right]: [&Factor; 2],
    expected: &[f32],
    [rows, inner, columns]: [usize; 3],
) {
    let first = columns / SIDE * SIDE;
    let mut last = vec![f32::NAN; rows * (columns - first)];
    if first < columns {
        let factors = [left.all(), right.part(first, 0..inner)];
        multiply(unit, &mut last, columns - first, Update::Set(1.0), factors);
    }
    let last_columns = expected.chunks(columns).flat_map(|row| bits(&row[first..]));
    assert!(last_columns.eq(bits(&last)), "[{rows}, {inner}, {columns}], the last columns");
    let first = rows / SIDE * SIDE;
    let mut last = vec![f32::NAN; (rows - first) * columns];
    multiply(unit, &mut last, columns, Update::Set(1.0), [left.part(first, 0..inner), right.all()]);
    assert_eq!(bits(&last), bits(&expected[first * columns..]), "the last rows");
    let half = inner / 2 / 32 * 32;
    let mut output = vec![f32::NAN; rows * columns];
    for (range, update) in [(0..half, Update::Set(1.0)), (half..inner, Update::Continue)] {
        let factors = [left.part(0, range.clone()), right.part(0, range)];
        multiply(unit, &mut output, columns, update, factors);
    }
    assert_eq!(bits(&output), bits(expected), "[{rows}, {inner}, {columns}], by halves");
}

/// Checks the fallback for processors without bf16 instructions, on the first tile of a product.
fn check_registers([left, right]: [&Factor; 2], expected: &[f32], [rows, columns]: [usize; 2]) {
    let (used, width) = (rows.min(TILE_ROWS), columns.min(TILE_COLUMNS));
    let tile = Tile { left: left.all(), right: right.all(), first: [0; 2], width };
    let mut sums = [[0.0; TILE_COLUMNS]; TILE_ROWS];
    sum_in_registers(used, &tile, &mut sums);
    for (sums, expected) in sums.iter().zip(expected.chunks(columns)).take(used) {
        assert_eq!(bits(&sums[..width]), bits(&expected[..width]), "[{rows}, {columns}] in registers");
    }
}

#[test]
fn products_match_reference_bits_in_every_layout() {
    for shape in
        [[1, 1, 1], [1, 7, 5], [7, 3, 1], [3, 2, 17], [17, 64, 13], [67, 131, 71], [6, 32, 64], [5, 33, 130]]
    {
        let [rows, inner, columns] = shape;
        let (mut left, mut right) = (random(1, rows * inner), random(2, inner * columns));
        // Magnitudes whose products may be denormal.
        left.iter_mut().step_by(5).for_each(|x| *x *= 1e-20);
        right.iter_mut().step_by(3).for_each(|x| *x *= 1e-19);
        let (left_t, right_t) = (transposed(&left, inner), transposed(&right, columns));
        let lefts = [Matrix::new(&left, inner), Matrix::new(&left_t, rows).transposed()];
        let rights = [Matrix::new(&right, columns), Matrix::new(&right_t, inner).transposed()];
        let lefts = lefts.map(|left| Factor::new(Side::Left, left));
        let rights = rights.map(|right| Factor::new(Side::Right, right));
        let unit = amx::Unit::new();
        let methods = [(None, sum_as_vdpbf16ps as fn(&[f32], &[f32]) -> f32), (unit, sum_as_tdpbf16ps)];
        // Without a matrix unit, only the first method is tested.
        for (unit, sum) in &methods[..=usize::from(unit.is_some())] {
            let expected = expected(*sum, &left, &right, inner, columns);
            for factors in lefts.iter().flat_map(|left| rights.each_ref().map(|right| [left, right])) {
                check_updates(*unit, factors, &expected, columns);
                check_parts(*unit, factors, &expected, shape);
            }
        }
        let by_definition = expected(sum_as_vdpbf16ps, &left, &right, inner, columns);
        check_registers([&lefts[0], &rights[0]], &by_definition, [rows, columns]);
    }
}

#[test]
fn excess_rows_of_right_factor_are_ignored() {
    let (rows, inner, columns) = (19, 64, 33);
    let (left, right) = (random(1, rows * inner), random(2, 2 * inner * columns));
    let longer = Factor::new(Side::Right, Matrix::new(&right, columns));
    let exact = Factor::new(Side::Right, Matrix::new(&right[..inner * columns], columns));
    let left = Factor::new(Side::Left, Matrix::new(&left, inner));
    for unit in [None, amx::Unit::new()] {
        let [longer, exact] = [&longer, &exact].map(|right| {
            let mut output = vec![f32::NAN; rows * columns];
            let matrix = &mut MatrixMut::new(&mut output, columns);
            product_by(unit, matrix, Update::Set(1.0), [left.all(), right.part(0, 0..inner)]);
            bits(&output)
        });
        assert_eq!(longer, exact);
    }
    assert!(longer.begins_with(128) && longer.begins_with(96) && !longer.begins_with(65));
}

#[test]
fn tiled_products_match_reference_bits() {
    let sum = if amx::is_used() { sum_as_tdpbf16ps } else { sum_as_vdpbf16ps };
    for (rows, inner, columns) in
        [(67, 1_700, 300), (300, 1_537, 67), (40, 3_100, 40), (530, 768, 17), (1, 900, 65)]
    {
        let (left, right) = (random(1, rows * inner), random(2, inner * columns));
        let expected = expected(sum, &left, &right, inner, columns);
        let (left_t, right_t) = (transposed(&left, inner), transposed(&right, columns));
        let products = || {
            let lefts = [Matrix::new(&left, inner), Matrix::new(&left_t, rows).transposed()];
            let rights = [Matrix::new(&right, columns), Matrix::new(&right_t, inner).transposed()];
            let product = |(left, right)| {
                let mut output = vec![f32::NAN; rows * columns];
                tiled_product(Precision::Bf16, MatrixMut::new(&mut output, columns), left, right);
                output
            };
            lefts.into_iter().zip(rights).map(product).collect::<Vec<_>>()
        };
        assert_same_on_any_number_of_threads(products);
        for found in products() {
            assert_eq!(bits(&found), bits(&expected), "[{rows}, {inner}, {columns}]");
        }
    }
}

#[test]
fn gated_forward_matches_the_plain_product() {
    for (rows, d_in, d_out) in [(300, 800, 134), (30, 800, 134)] {
        let (input, weight) = (random(1, rows * d_in), random(2, d_in * d_out));
        let (layout, precision) = (WeightLayout::InputOutput, Precision::Bf16);
        let layer = Linear { weight: &weight, layout, bias: None, d_in, d_out, precision };
        let mut product = vec![f32::NAN; rows * d_out];
        forward(&layer, &input, Epilogue::None, &mut product);
        let (mut pre_activation, mut output) = (product.clone(), vec![f32::NAN; rows * d_out / 2]);
        pre_activation.fill(f32::NAN);
        forward_gated(&layer, &input, Activation::Relu, &mut pre_activation, &mut output);
        assert_eq!(bits(&pre_activation), bits(&product));
        let gated = product.chunks(d_out).flat_map(|row| {
            let (gates, ups) = row.split_at(d_out / 2);
            gates.iter().zip(ups).map(|(gate, up)| gate.max(0.0) * up)
        });
        assert!(gated.zip(output).all(|(expected, output)| expected == output), "[{rows}, {d_in}, {d_out}]");
    }
}

#[test]
fn rounded_factors_are_bitwise_equal_across_thread_counts() {
    let matrix = random(3, 700 * 901);
    assert_same_on_any_number_of_threads(|| {
        let matrix = Matrix::new(&matrix, 901);
        [matrix, matrix.transposed()].map(|matrix| Factor::new(Side::Left, matrix).slots().to_vec()).to_vec()
    });
}
