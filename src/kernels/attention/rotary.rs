//! Rotary positions (Su et al., *RoFormer*, 2021): at position `t`, the pair of columns `(2 i, 2 i + 1)` of a
//! query or key is turned by an angle `t * frequency_i`. Scores then depend on the distance of two positions.

use crate::matrix::{Matrix, MatrixMut};
use crate::vector::vectorized;

/// Cosines and sines of the angles.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// `[positions, d_head / 2]`.
    pub cosines: &'a [f32],
    /// `[positions, d_head / 2]`.
    pub sines: &'a [f32],
}

/// Which way to turn: gradients are turned back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Forth,
    Back,
}

impl Rotary<'_> {
    pub(super) fn check(&self, d_head: usize, positions: usize) {
        assert!(d_head.is_multiple_of(2), "rotary positions need an even width of heads, not {d_head}");
        let length = positions * d_head / 2;
        assert!(
            self.cosines.len() >= length && self.sines.len() == self.cosines.len(),
            "cosines and sines of at least [{positions}, {}]",
            d_head / 2
        );
    }

    /// Cosines and sines at a position.
    #[inline(always)]
    pub(super) fn angles(&self, position: usize, pairs: usize) -> (&[f32], &[f32]) {
        let range = position * pairs..(position + 1) * pairs;
        (&self.cosines[range.clone()], &self.sines[range])
    }

    /// `output = turned(input)` for rows at the positions from `first` on.
    pub(super) fn turn(&self, first: usize, input: Matrix, output: &mut MatrixMut) {
        for row in 0..input.rows() {
            output.row(row).copy_from_slice(input.row(row));
        }
        turn_rows(Turn::Forth, self, first, output);
    }

    /// Turns gradients back, in place.
    pub(super) fn turn_back(&self, first: usize, gradient: &mut MatrixMut) {
        turn_rows(Turn::Back, self, first, gradient);
    }
}

vectorized! {
    fn turn_rows(simd; turn: Turn, rotary: &Rotary<'_>, first: usize, rows: &mut MatrixMut<'_>) {
        let _ = simd;
        for row in 0..rows.rows() {
            let (cosines, sines) = rotary.angles(first + row, rows.columns() / 2);
            turn_row(turn, cosines, sines, rows.row(row));
        }
    }
}

#[inline(always)]
pub(super) fn turn_row(turn: Turn, cosines: &[f32], sines: &[f32], row: &mut [f32]) {
    let sign = match turn {
        Turn::Forth => 1.0,
        Turn::Back => -1.0,
    };
    for ([even, odd], (&cosine, &sine)) in row.as_chunks_mut().0.iter_mut().zip(cosines.iter().zip(sines)) {
        let (x, y, sine) = (*even, *odd, sign * sine);
        *even = x * cosine - y * sine;
        *odd = x * sine + y * cosine;
    }
}
