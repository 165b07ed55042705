//! Queries, keys and values of all heads in rows of a token each, from one packed tensor or from three.

use super::{Attention, Saved};
use crate::matrix::{Matrix, MatrixMut};

/// Queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[batch * query_time, heads * d_head]`.
    pub query: Matrix<'a>,
    /// `[batch * key_time, key_value_heads * d_head]`.
    pub key: Matrix<'a>,
    /// `[batch * key_time, key_value_heads * d_head]`.
    pub value: Matrix<'a>,
}

/// Where the gradients go.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// `[batch * query_time, heads * d_head]`.
    pub query: MatrixMut<'a>,
    /// `[batch * key_time, key_value_heads * d_head]`.
    pub key: MatrixMut<'a>,
    /// `[batch * key_time, key_value_heads * d_head]`.
    pub value: MatrixMut<'a>,
    /// `[heads, query_time + key_time - 1]`, where it is wanted.
    pub bias: Option<&'a mut [f32]>,
}

impl<'a> Inputs<'a> {
    /// From rows that hold all queries, then all keys, then all values of a token:
    /// `[batch, time, (heads + 2 key_value_heads) * d_head]`.
    pub fn packed(attention: &Attention, data: &'a [f32]) -> Self {
        let [query, key, all] = packed_columns(attention);
        let rows = Matrix::new(data, all);
        let part = |columns| rows.part(0..rows.rows(), columns);
        Self { query: part(0..query), key: part(query..key), value: part(key..all) }
    }

    /// From three tensors: `query` `[batch, query_time, heads * d_head]`, `key` and `value`
    /// `[batch, key_time, key_value_heads * d_head]`.
    pub fn separate(attention: &Attention, query: &'a [f32], key: &'a [f32], value: &'a [f32]) -> Self {
        let width = attention.key_value_heads * attention.d_head;
        Self {
            query: Matrix::new(query, attention.heads * attention.d_head),
            key: Matrix::new(key, width),
            value: Matrix::new(value, width),
        }
    }

    pub(super) fn check(&self, attention: &Attention) {
        let [query, key] = shapes(attention);
        for (name, matrix, expected) in
            [("query", &self.query, query), ("key", &self.key, key), ("value", &self.value, key)]
        {
            assert_eq!((matrix.rows(), matrix.columns()), expected, "rows and columns of the {name}");
        }
    }

    /// The queries, keys and values of a piece.
    pub(super) fn piece(&self, attention: &Attention, piece: usize) -> Self {
        let key_width = attention.heads_of_piece() * attention.d_head;
        let query_width = attention.group() * key_width;
        Self {
            query: piece_of(self.query, piece, attention.query_time, query_width),
            key: piece_of(self.key, piece, attention.key_time, key_width),
            value: piece_of(self.value, piece, attention.key_time, key_width),
        }
    }
}

impl<'a> Gradients<'a> {
    /// Into rows that are packed like those of [`Inputs::packed`].
    pub fn packed(attention: &Attention, data: &'a mut [f32], bias: Option<&'a mut [f32]>) -> Self {
        let [query, key, all] = packed_columns(attention);
        let (query_matrix, rest) = MatrixMut::new(data, all).split_columns(query);
        let (key, value) = rest.split_columns(key - query);
        Self { query: query_matrix, key, value, bias }
    }

    /// Into three tensors, shaped like those of [`Inputs::separate`].
    pub fn separate(
        attention: &Attention,
        query: &'a mut [f32],
        key: &'a mut [f32],
        value: &'a mut [f32],
        bias: Option<&'a mut [f32]>,
    ) -> Self {
        let width = attention.key_value_heads * attention.d_head;
        Self {
            query: MatrixMut::new(query, attention.heads * attention.d_head),
            key: MatrixMut::new(key, width),
            value: MatrixMut::new(value, width),
            bias,
        }
    }

    pub(super) fn check(&self, attention: &Attention) {
        let [query, key] = shapes(attention);
        for (name, matrix, expected) in
            [("query", &self.query, query), ("key", &self.key, key), ("value", &self.value, key)]
        {
            assert_eq!(
                (matrix.rows(), matrix.columns()),
                expected,
                "rows and columns of the {name}'s gradient"
            );
        }
        assert!(
            self.bias.as_ref().is_none_or(|bias| bias.len() == attention.heads * attention.distances()),
            "bias gradient of [{}, {}]",
            attention.heads,
            attention.distances()
        );
    }
}

/// Where the gradients of a piece go.
pub(super) struct PieceGradients<'p, 'a> {
    /// `[query_time, query heads * d_head]`.
    pub query: &'p mut MatrixMut<'a>,
    /// `[key_time, key heads * d_head]`.
    pub key: &'p mut MatrixMut<'a>,
    /// `[key_time, key heads * d_head]`.
    pub value: &'p mut MatrixMut<'a>,
    /// `[query heads, distances]`.
    pub bias: Option<&'p mut [f32]>,
}

/// What the backward pass of a piece reads.
pub(super) struct PieceSaved<'a> {
    /// `[query_time, query heads * d_head]`.
    pub context: Matrix<'a>,
    /// `[query_time, query heads * d_head]`.
    pub context_gradient: Matrix<'a>,
    /// `[query heads, query_time]`.
    pub log_sum_exp: &'a [f32],
}

impl<'a> Saved<'a> {
    pub(super) fn piece(&self, attention: &Attention, piece: usize) -> PieceSaved<'a> {
        let Attention { query_time, heads, d_head, .. } = *attention;
        let heads_of_piece = attention.heads_of_piece() * attention.group();
        let part = |data: &'a [f32]| {
            piece_of(Matrix::new(data, heads * d_head), piece, query_time, heads_of_piece * d_head)
        };
        let rows = heads_of_piece * query_time;
        PieceSaved {
            context: part(self.context),
            context_gradient: part(self.context_gradient),
            log_sum_exp: &self.log_sum_exp[piece * rows..][..rows],
        }
    }
}

/// Pieces are counted along a sequence's columns first, then over the sequences.
fn piece_of(matrix: Matrix, piece: usize, time: usize, width: usize) -> Matrix {
    let across = matrix.columns() / width;
    let (sequence, column) = (piece / across * time, piece % across * width);
    matrix.part(sequence..sequence + time, column..column + width)
}

/// Where queries, keys and values end in a packed row.
fn packed_columns(attention: &Attention) -> [usize; 3] {
    let (query, key) = (attention.heads * attention.d_head, attention.key_value_heads * attention.d_head);
    [query, query + key, query + 2 * key]
}

/// Rows and columns of the queries, and of keys or values.
fn shapes(attention: &Attention) -> [(usize, usize); 2] {
    let Attention { batch, query_time, key_time, heads, key_value_heads, d_head, .. } = *attention;
    [(batch * query_time, heads * d_head), (batch * key_time, key_value_heads * d_head)]
}
