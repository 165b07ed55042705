//! A piece of work: a key-value head of a sequence with the query heads that share it, or all heads of a short
//! sequence.

use super::{Attention, Saved, rotary::RotationDirection};
use crate::matrix::{Matrix, MatrixMut};
use crate::pool::{self, Buffer};

/// The inputs of a piece. Pieces are numbered by sequence, and within a sequence by head.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub attention: &'a Attention<'a>,
    pub sequence: usize,
    /// The first query head of the piece.
    pub first_head: usize,
    /// The queries, `[query_time, query heads * d_head]`.
    pub query: Matrix<'a>,
    /// The keys, `[key_time, key heads * d_head]`, like the values.
    pub key: Matrix<'a>,
    pub value: Matrix<'a>,
}

impl<'a> Piece<'a> {
    pub fn new(attention: &'a Attention, [query, key, value]: [Matrix<'a>; 3], index: usize) -> Self {
        let Attention { query_time, key_time, heads, .. } = *attention;
        let piece_heads = attention.piece_heads();
        let pieces = heads / piece_heads;
        let [query_width, width] = attention.widths().map(|width| width / pieces);
        Self {
            attention,
            sequence: index / pieces,
            first_head: index % pieces * piece_heads,
            query: query.tile(index, query_time, query_width),
            key: key.tile(index, key_time, width),
            value: value.tile(index, key_time, width),
        }
    }

    /// Returns the piece with rotated queries and keys, which are stored in `buffers`; returns it unchanged without
    /// rotary positions.
    pub fn rotated(self, buffers: &'a mut [Option<Buffer>; 2]) -> Self {
        let Attention { d_head, rotary, .. } = *self.attention;
        let Some(rotary) = rotary else { return self };
        let [for_query, for_key] = buffers;
        let rotated = |buffer: &'a mut Option<Buffer>, first, rows: Matrix| {
            let buffer = buffer.insert(pool::take(rows.rows() * rows.columns()));
            let mut rotated = MatrixMut::new(buffer, rows.columns());
            (0..rows.rows()).for_each(|row| rotated.row(row).copy_from_slice(rows.row(row)));
            rotary.rotate_heads(RotationDirection::Forward, first, d_head, &mut rotated);
            Matrix::new(buffer, rows.columns())
        };
        let (query, key) =
            (rotated(for_query, rotary.first_query, self.query), rotated(for_key, 0, self.key));
        Self { query, key, ..self }
    }

    /// Returns the row of the dropout mask for a query; rows are numbered over all heads and sequences.
    #[inline(always)]
    pub fn mask_row(&self, head: usize, query: usize) -> usize {
        let Attention { heads, query_time, .. } = *self.attention;
        (self.sequence * heads + self.first_head + head) * query_time + query
    }
}

impl Saved<'_> {
    /// Returns the saved values of a piece.
    pub(super) fn piece(&self, attention: &Attention, index: usize) -> Self {
        let Attention { query_time, d_head, .. } = *attention;
        let heads = attention.piece_heads();
        let [context, context_gradient] =
            [self.context, self.context_gradient].map(|part| part.tile(index, query_time, heads * d_head));
        let log_sum_exp = &self.log_sum_exp[index * heads * query_time..][..heads * query_time];
        Self { context, log_sum_exp, context_gradient }
    }
}
