//! Muon, compared with its definition in double precision.

use super::*;
use crate::testing::{assert_same_on_any_number_of_threads, random};

fn orthogonal(precision: Precision, rows: usize, columns: usize) -> Vec<f32> {
    let mut matrix = pool::take(rows * columns);
    matrix.copy_from_slice(&random(7, rows * columns));
    orthogonalize(precision, &mut matrix, columns);
    matrix.to_vec()
}

#[test]
fn orthogonalized_rows_or_columns_have_near_unit_norm() {
    let shapes = [(5, 23), (23, 5), (11, 11)];
    let cases = [Precision::F32, Precision::Bf16].map(|precision| shapes.map(|shape| (precision, shape)));
    for (precision, (rows, columns)) in cases.into_iter().flatten() {
        let matrix = orthogonal(precision, rows, columns);
        // Each row or column of the shorter side has a length of about one.
        for direction in 0..rows.min(columns) {
            let (row, column) = if rows < columns { (1, 0) } else { (0, 1) };
            let numbers = (0..rows.max(columns))
                .map(|i| matrix[(direction * row + i * column) * columns + direction * column + i * row]);
            let length = numbers.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            assert!((0.6..1.25).contains(&length), "{length} of [{rows}, {columns}]");
        }
    }
}

/// Returns the change of a matrix by the first step, for a gradient of random numbers times `scale`.
fn change(precision: Precision, max_norm: Option<f64>, scale: f32) -> Vec<f32> {
    let columns = 40;
    let [values, mut gradient] = [1, 2].map(|seed| random(seed, 70 * columns));
    gradient.iter_mut().for_each(|x| *x *= scale);
    let mut momentum = vec![0.0; values.len()];
    let norm = global_norm(&[&gradient]);
    let settings = Muon { learning_rate: 1.0, momentum: 0.9, max_norm, precision };
    let parameter = Matrices {
        values: &values,
        gradient: &mut gradient,
        momentum: &mut momentum,
        widths: &[columns],
        weight_decay: 0.0,
    };
    step(&settings, norm, &mut [parameter]);
    gradient.iter().zip(&values).map(|(new, old)| new - old).collect()
}

/// Returns the difference of two changes relative to the first.
fn difference([a, b]: [&[f32]; 2]) -> f64 {
    let difference = a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
    global_norm(&[&difference]) / global_norm(&[a])
}

#[test]
fn bf16_step_is_close_to_f32_step() {
    let [single, rounded] = [Precision::F32, Precision::Bf16].map(|precision| change(precision, None, 1.0));
    let error = difference([&single, &rounded]);
    assert!((1e-4..0.1).contains(&error), "{error} of the change");
}

#[test]
fn step_does_not_depend_on_gradient_scale() {
    for (precision, tolerance) in [(Precision::F32, 1e-3), (Precision::Bf16, 0.1)] {
        for max_norm in [None, Some(1.0)] {
            let plain = change(precision, max_norm, 1.0);
            for scale in [1e-3, 1e30] {
                let error = difference([&plain, &change(precision, max_norm, scale)]);
                assert!(error < tolerance, "{error} of the change at {scale}, {precision:?}, {max_norm:?}");
            }
        }
    }
}

#[test]
fn column_blocks_step_independently_on_any_thread_count() {
    let (rows, widths) = (67, [67, 33, 140]);
    let settings =
        Muon { learning_rate: 1e-2, momentum: 0.95, max_norm: Some(1.0), precision: Precision::F32 };
    let numbers = |seed| random(seed, rows * 240);
    let together = || {
        let (values, mut gradient, mut momentum) = (numbers(1), numbers(2), numbers(3));
        let parameter = Matrices {
            values: &values,
            gradient: &mut gradient,
            momentum: &mut momentum,
            widths: &widths,
            weight_decay: 0.1,
        };
        step(&settings, 3.0, &mut [parameter]);
        vec![gradient, momentum]
    };
    assert_same_on_any_number_of_threads(together);
    let together = together();
    let mut start = 0;
    for width in widths {
        let cut = |numbers: &[f32]| {
            numbers.chunks(240).flat_map(|row| row[start..start + width].to_vec()).collect::<Vec<_>>()
        };
        let (values, mut gradient, mut momentum) = (cut(&numbers(1)), cut(&numbers(2)), cut(&numbers(3)));
        let parameter = Matrices {
            values: &values,
            gradient: &mut gradient,
            momentum: &mut momentum,
            widths: &[width],
            weight_decay: 0.1,
        };
        step(&settings, 3.0, &mut [parameter]);
        assert_eq!([gradient, momentum], [cut(&together[0]), cut(&together[1])]);
        start += width;
    }
}
