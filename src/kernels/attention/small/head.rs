//! What is particular to a head: which keys are hidden, biases, and which weights are dropped.

use pulp::Simd;

use super::super::Attention;
use super::registers::{products_with_rows, transpose};
use super::{Rows, Square};
use crate::dropout::Dropout;
use crate::vector::{LANES, Vector, vectorized};

/// Room for what a [`Head`] holds.
#[derive(Default)]
pub(super) struct Squares {
    addends: Square,
    factors: Square,
}

/// A query head.
pub(super) struct Head<'a> {
    attention: &'a Attention<'a>,
    /// Added to the scores, for each key and query: bias, and negative infinity for hidden keys. `None` where
    /// only causality hides.
    addends: Option<&'a Square>,
    /// What the weights of each key and query are multiplied by for dropout.
    pub(super) factors: Option<&'a Square>,
}

impl<'a> Head<'a> {
    pub(super) fn new(
        attention: &'a Attention,
        sequence: usize,
        head: usize,
        squares: &'a mut Squares,
    ) -> Self {
        let plain = attention.bias.is_none() && attention.key_padding.is_none() && attention.mask.is_none();
        if !plain {
            squares.addends = addends(attention, sequence, head);
        }
        if let Some(dropout) = attention.dropout {
            factors(attention, dropout, sequence * attention.heads + head, &mut squares.factors);
        }
        Self {
            attention,
            addends: (!plain).then_some(&squares.addends),
            factors: attention.dropout.map(|_| &squares.factors),
        }
    }

    /// The scores of all keys; hidden ones are negative infinity.
    #[inline(always)]
    pub(super) fn scores<S: Simd, const D: usize>(
        &self,
        simd: S,
        query: &[Vector<S>; D],
        key: &Rows<D>,
        first: usize,
        scores: &mut [Vector<S>; LANES],
    ) {
        let Attention { key_time, scale, causal, first_query, .. } = *self.attention;
        products_with_rows(simd, query, key, key_time, scores);
        let position = Vector::load(simd, &COUNTING) + (first_query + first) as f32;
        for j in 0..key_time {
            scores[j] = scores[j] * scale;
            if let Some(addends) = &self.addends {
                scores[j] = scores[j] + Vector::load(simd, &addends[j][first..]);
            }
            if causal {
                scores[j] = scores[j].replace(position.less_than(j as f32), f32::NEG_INFINITY);
            }
        }
    }
}

const COUNTING: [f32; LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Bias and hidden keys of a head.
fn addends(attention: &Attention, sequence: usize, head: usize) -> Square {
    let Attention { query_time, key_time, bias, key_padding, mask, .. } = *attention;
    let bias = bias.map(|bias| &bias[head * attention.distances()..][..attention.distances()]);
    let mut addends = [[0.0; LANES]; LANES];
    for (j, addends) in addends.iter_mut().enumerate().take(key_time) {
        let padded = key_padding.is_some_and(|padding| padding[sequence * key_time + j] != 0);
        for (i, addend) in addends.iter_mut().enumerate().take(query_time) {
            let masked = mask.is_some_and(|mask| {
                let own = if mask.len() == query_time * key_time { 0 } else { sequence * query_time };
                mask[(own + i) * key_time + j] != 0
            });
            let bias = bias.map_or(0.0, |bias| bias[query_time - 1 - i + j]);
            *addend = if padded || masked { f32::NEG_INFINITY } else { bias };
        }
    }
    addends
}

vectorized! {
    /// Dropout factors of a head, which is counted over all sequences.
    fn factors(simd; attention: &Attention<'_>, dropout: Dropout, head: usize, factors: &mut Square) {
        // A row of the mask is as long as a row of this square, so that the rows of a head follow each other.
        let mut rows = [[0.0; LANES]; LANES];
        let used = &mut rows.as_flattened_mut()[..attention.query_time * LANES];
        dropout.mask(attention.key_time).fill_row(simd, head * attention.query_time, 0, used);
        transpose(&rows, factors);
    }
}
