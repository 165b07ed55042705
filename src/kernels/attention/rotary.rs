//! Rotary positions (Su et al., *RoFormer*, 2021): at position `t`, the pair of columns `(2 i, 2 i + 1)` of a
//! query or key is turned by an angle `t * frequency_i`. Scores then depend on the distance of two positions.

use super::super::matrix::{Matrix, MatrixMut};
use super::super::vector::{mul_add, vectorized};

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

    /// The angles of `rows` positions from `first` on.
    fn from(&self, first: usize, rows: usize, pairs: usize) -> (&[f32], &[f32]) {
        let range = first * pairs..(first + rows) * pairs;
        (&self.cosines[range.clone()], &self.sines[range])
    }

    /// `output = turned(input)` for rows at the positions from `first` on.
    pub(super) fn turn(&self, first: usize, input: Matrix, output: &mut MatrixMut) {
        let (cosines, sines) = self.from(first, input.rows(), input.columns() / 2);
        for row in 0..input.rows() {
            output.row(row).copy_from_slice(input.row(row));
        }
        turn_rows(Turn::Forth, cosines, sines, output);
    }

    /// Turns gradients back, in place.
    pub(super) fn turn_back(&self, first: usize, gradient: &mut MatrixMut) {
        let (cosines, sines) = self.from(first, gradient.rows(), gradient.columns() / 2);
        turn_rows(Turn::Back, cosines, sines, gradient);
    }
}

vectorized! {
    fn turn_rows<FMA>(turn: Turn, cosines: &[f32], sines: &[f32], rows: &mut MatrixMut<'_>) {
        let pairs = rows.columns() / 2;
        let sign = match turn {
            Turn::Forth => 1.0,
            Turn::Back => -1.0,
        };
        for row in 0..rows.rows() {
            let angles = cosines[row * pairs..][..pairs].iter().zip(&sines[row * pairs..][..pairs]);
            for ([even, odd], (&cosine, &sine)) in rows.row(row).as_chunks_mut().0.iter_mut().zip(angles) {
                let (x, y, sine) = (*even, *odd, sign * sine);
                *even = mul_add::<FMA>(x, cosine, -(y * sine));
                *odd = mul_add::<FMA>(x, sine, y * cosine);
            }
        }
    }
}
