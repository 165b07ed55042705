//! Steps of the backward pass that keep their results in rows or squares.

use pulp::Simd;

use super::super::piece::Piece;
use super::{Rows, Square, registers::load_rows};
use crate::matrix::MatrixMut;
use crate::vector::{LANES, Vector};

/// The keys and values of a head, which the query heads of a group share, and their gradients.
pub(super) struct KeysAndValues<const D: usize> {
    pub(super) key: Rows<D>,
    pub(super) value: Rows<D>,
    /// The gradients of the keys, without the scale of the scores.
    pub(super) key_gradient: Rows<D>,
    pub(super) value_gradient: Rows<D>,
}

impl<const D: usize> KeysAndValues<D> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let zeros = [[0.0; D]; LANES];
        Self { key: zeros, value: zeros, key_gradient: zeros, value_gradient: zeros }
    }

    /// Loads the head that begins at `column`, and sets the gradients to zero.
    #[inline(always)]
    pub(super) fn load(&mut self, piece: &Piece, column: usize) {
        load_rows(piece.key, column, piece.attention.rotary, 0, &mut self.key);
        load_rows(piece.value, column, None, 0, &mut self.value);
        (self.key_gradient, self.value_gradient) = ([[0.0; D]; LANES], [[0.0; D]; LANES]);
    }

    /// Writes both gradients to the columns from `column` on.
    #[inline(always)]
    pub(super) fn write_gradients(
        &self,
        piece: &Piece,
        column: usize,
        [for_key, for_value]: [&mut MatrixMut; 2],
    ) {
        let scale = piece.attention.scale();
        for j in 0..piece.attention.key_time {
            let key_row = &mut for_key.row(j)[column..column + D];
            key_row.iter_mut().zip(&self.key_gradient[j]).for_each(|(x, sum)| *x = scale * sum);
            for_value.row(j)[column..column + D].copy_from_slice(&self.value_gradient[j]);
        }
    }
}

/// The weights of a head with their dropout factors, and the score_gradients of its scores.
pub(super) struct WeightsAndScoreGradients {
    pub(super) weights: Square,
    pub(super) score_gradients: Square,
}

impl WeightsAndScoreGradients {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { weights: [[0.0; LANES]; LANES], score_gradients: [[0.0; LANES]; LANES] }
    }

    /// Computes the weights and score_gradients of the queries from `first` on. The scores of each key become weights,
    /// and the products of value and context gradient become score_gradients.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(
        &mut self,
        simd: S,
        (first, log_sums): (usize, Vector<S>),
        factors: Option<&Square>,
        [scores, products]: [&mut [Vector<S>]; 2],
    ) {
        // The sum over keys of d p (g . v) is g . c.
        let mut dots = Vector::splat(simd, 0.0);
        for (j, (weight, slope)) in scores.iter_mut().zip(products.iter_mut()).enumerate() {
            *weight = (*weight - log_sums).exp();
            if let Some(factors) = factors {
                *slope = *slope * Vector::load(simd, &factors[j][first..]);
            }
            dots = weight.mul_add(*slope, dots);
        }
        for (j, (weight, slope)) in scores.iter_mut().zip(products).enumerate() {
            *slope = *weight * (*slope - dots);
            slope.store(&mut self.score_gradients[j][first..]);
            if let Some(factors) = factors {
                *weight = *weight * Vector::load(simd, &factors[j][first..]);
            }
            weight.store(&mut self.weights[j][first..]);
        }
    }

    /// Sums the score_gradients by the distance between query and key into `bias`.
    #[inline(always)]
    pub(super) fn sum_by_distance(&self, [query_time, key_time]: [usize; 2], bias: &mut [f32]) {
        bias.fill(0.0);
        for j in 0..key_time {
            for i in 0..query_time {
                bias[query_time - 1 - i + j] += self.score_gradients[j][i];
            }
        }
    }
}
