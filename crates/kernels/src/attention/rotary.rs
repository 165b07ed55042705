//! Rotary position embeddings (Su et al., *RoFormer*, 2021): at position `t`, the pair of columns `(2 i, 2 i + 1)` of a
//! query or key is rotated by an angle `t * frequency_i`. Scores then depend on the distance between positions.

use rayon::prelude::*;

use crate::parallel::for_each;
use crate::{matrix::MatrixMut, vector::vectorized};

/// The direction of a rotation; gradients are rotated back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationDirection {
    /// The rotation of queries and keys.
    Forward = 1,
    /// The inverse rotation, for their gradients.
    Inverse = -1,
}

/// Rotates the heads of sequences in place, starting at position zero in each sequence.
///
/// # Shapes
/// `values` `[batch, time, width]`, made of adjacent heads of width `d_head`.
///
/// # Panics
/// Panics if the tables hold fewer positions than a sequence, or if the width of a head is odd.
pub fn rotate_sequences(
    direction: RotationDirection,
    rotary: &RotaryTables,
    [time, width, d_head]: [usize; 3],
    values: &mut [f32],
) {
    rotary.check(d_head, time);
    for_each(values.par_chunks_exact_mut(time * width), 2 * time * width, |sequence| {
        rotary.rotate_heads(direction, 0, d_head, &mut MatrixMut::new(sequence, width));
    });
}

/// The cosines and sines of the rotation angles.
#[derive(Clone, Copy, Debug)]
pub struct RotaryTables<'a> {
    /// The cosines, `[positions, d_head / 2]`.
    pub cosines: &'a [f32],
    /// The sines, `[positions, d_head / 2]`.
    pub sines: &'a [f32],
    /// The position of the first query; more than zero with a KV cache. The first key is at position zero.
    pub first_query: usize,
}

impl RotaryTables<'_> {
    pub(super) fn check(&self, d_head: usize, positions: usize) {
        assert!(d_head.is_multiple_of(2), "rotary positions require an even head width, not {d_head}");
        let length = positions * d_head / 2;
        assert!(
            self.cosines.len() >= length && self.sines.len() == self.cosines.len(),
            "cosines and sines must both have at least [{positions}, {}]",
            d_head / 2
        );
    }

    /// Rotates the rows of each head in place, for the positions from `first` on.
    pub(super) fn rotate_heads(
        &self,
        direction: RotationDirection,
        first: usize,
        d_head: usize,
        rows: &mut MatrixMut,
    ) {
        for head in 0..rows.columns() / d_head {
            let columns = head * d_head..(head + 1) * d_head;
            rotate_rows(direction, self, first, &mut rows.part(0..rows.rows(), columns));
        }
    }

    /// Rotates the row of a head at a position.
    #[inline(always)]
    pub(super) fn rotate(&self, direction: RotationDirection, position: usize, row: &mut [f32]) {
        let sign = f32::from(direction as i8);
        let range = position * (row.len() / 2)..(position + 1) * (row.len() / 2);
        let angles = self.cosines[range.clone()].iter().zip(&self.sines[range]);
        for ([even, odd], (&cosine, &sine)) in row.as_chunks_mut().0.iter_mut().zip(angles) {
            let (x, y, sine) = (*even, *odd, sign * sine);
            *even = x * cosine - y * sine;
            *odd = x * sine + y * cosine;
        }
    }
}

vectorized! {
    fn rotate_rows(simd; direction: RotationDirection, rotary: &RotaryTables<'_>, first: usize, rows: &mut MatrixMut<'_>) {
        let _ = simd;
        for row in 0..rows.rows() {
            rotary.rotate(direction, first + row, rows.row(row));
        }
    }
}
