//! Token embedding with optional learned positions: `y[batch, time] = tokens[id] + positions[time]`.

use rayon::prelude::*;

use super::matrix::{Matrix, MatrixMut};
use super::parallel::{for_each, rows_per_piece};
use super::sums::add_piece;
use super::vector::LANES;

/// A batch of token sequences.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// The token ids, `[batch, time]`.
    pub ids: &'a [i64],
    /// The length of a sequence.
    pub time: usize,
}

/// Computes `output = tokens[id] + positions[position]`, or `tokens[id]` without positions.
///
/// # Shapes
/// `tokens` `[vocab, d_model]`, `positions` `[positions, d_model]`, `output` `[batch, time, d_model]`.
///
/// # Panics
/// Panics if the lengths do not match, or if an id or position is outside its table.
pub fn forward(
    sequences: Sequences,
    d_model: usize,
    tokens: &[f32],
    positions: Option<&[f32]>,
    output: &mut [f32],
) {
    let tokens = Matrix::new(tokens, d_model);
    let positions = positions.map(|positions| Matrix::new(positions, d_model));
    sequences.check(d_model, output.len(), positions.map(|positions| positions.rows()));
    let piece_rows = rows_per_piece(sequences.ids.len(), d_model);
    let pieces = output.par_chunks_mut(piece_rows * d_model).enumerate();
    for_each(pieces, piece_rows * d_model, |(piece, output)| {
        for (index, output) in output.chunks_exact_mut(d_model).enumerate() {
            let row = piece * piece_rows + index;
            output.copy_from_slice(tokens.row(sequences.token(row, tokens.rows())));
            if let Some(positions) = &positions {
                add_piece(output, positions.row(sequences.position(row)));
            }
        }
    });
}

/// Computes the gradients of both tables, which are overwritten. Rows are added in the order of the tokens.
///
/// # Shapes
/// `output_gradient` `[batch, time, d_model]`, the other gradients like their tables.
///
/// # Panics
/// Panics if the lengths do not match, or if an id or position is outside its table.
pub fn backward(
    sequences: Sequences,
    d_model: usize,
    output_gradient: &[f32],
    tokens_gradient: &mut [f32],
    positions_gradient: Option<&mut [f32]>,
) {
    /// The number of columns per piece. Each piece visits all rows, and no two pieces add to the same number.
    const PIECE_COLUMNS: usize = 8 * LANES;
    let output_gradient = Matrix::new(output_gradient, d_model);
    let rows = output_gradient.rows();
    let scatter = |table: &mut [f32], row_of: &(dyn Fn(usize, usize) -> usize + Sync)| {
        let table = MatrixMut::new(table, d_model);
        let table_rows = table.rows();
        let tiles = table.tiles(table_rows.max(1), PIECE_COLUMNS).into_par_iter();
        for_each(tiles, rows * PIECE_COLUMNS, |mut tile| {
            tile.numbers.fill(0.0);
            let gradient = output_gradient.part(0..rows, tile.columns);
            (0..rows).for_each(|row| add_piece(tile.numbers.row(row_of(row, table_rows)), gradient.row(row)));
        });
    };
    let positions = positions_gradient.as_ref().map(|positions| positions.len() / d_model);
    sequences.check(d_model, rows * d_model, positions);
    scatter(tokens_gradient, &|row, vocab| sequences.token(row, vocab));
    if let Some(positions_gradient) = positions_gradient {
        scatter(positions_gradient, &|row, _| sequences.position(row));
    }
}

impl Sequences<'_> {
    fn check(&self, d_model: usize, length: usize, positions: Option<usize>) {
        let Self { ids, time } = *self;
        assert!(time > 0 && ids.len().is_multiple_of(time), "{} ids in sequences of {time}", ids.len());
        assert_eq!(length, ids.len() * d_model, "output of [{}, {d_model}]", ids.len());
        let max_time = positions.unwrap_or(time);
        assert!(
            time <= max_time,
            "sequences of {time} tokens are longer than the position table ({max_time})"
        );
    }

    /// Returns the token at a row of `[batch * time]`.
    fn token(&self, row: usize, vocab: usize) -> usize {
        let id = self.ids[row];
        match usize::try_from(id) {
            Ok(token) if token < vocab => token,
            _ => panic!("id {id} is not a token of a vocabulary of {vocab}"),
        }
    }

    /// Returns the position of a row of `[batch * time]`.
    fn position(&self, row: usize) -> usize {
        row % self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_same_on_any_number_of_threads, random, widened};

    const VOCAB: usize = 13;
    const POSITIONS: usize = 11;

    fn check(batch: usize, time: usize, d_model: usize) {
        let ids: Vec<i64> = (0..batch * time).map(|i| (i * i * 7 % VOCAB) as i64).collect();
        let sequences = Sequences { ids: &ids, time };
        let (tokens, positions) = (random(1, VOCAB * d_model), random(2, POSITIONS * d_model));
        let row = |i: usize| (ids[i / d_model] as usize, i / d_model % time);
        let mut output = vec![f32::NAN; ids.len() * d_model];
        forward(sequences, d_model, &tokens, Some(&positions), &mut output);
        for (i, y) in output.iter().enumerate() {
            let (token, position) = row(i);
            assert_eq!(
                *y,
                tokens[token * d_model + i % d_model] + positions[position * d_model + i % d_model]
            );
        }
        forward(sequences, d_model, &tokens, None, &mut output);
        assert!(output.iter().enumerate().all(|(i, y)| *y == tokens[row(i).0 * d_model + i % d_model]));

        let gradient = random(3, output.len());
        let mut dtokens = vec![f32::NAN; tokens.len()];
        let mut dpositions = vec![f32::NAN; positions.len()];
        backward(sequences, d_model, &gradient, &mut dtokens, Some(&mut dpositions));
        let (mut expected_tokens, mut expected_positions) =
            (vec![0.0; tokens.len()], vec![0.0; positions.len()]);
        for (i, g) in widened(&gradient).into_iter().enumerate() {
            let (token, position) = row(i);
            expected_tokens[token * d_model + i % d_model] += g;
            expected_positions[position * d_model + i % d_model] += g;
        }
        assert_close("token gradient", &dtokens, &expected_tokens);
        assert_close("position gradient", &dpositions, &expected_positions);
    }

    #[test]
    fn forward_gathers_rows_and_backward_scatters_gradients() {
        for (batch, time, d_model) in [(1, 1, 1), (5, 7, 3), (3, 11, 37), (2, 5, 257)] {
            check(batch, time, d_model);
        }
    }

    #[test]
    #[should_panic(expected = "id -1 is not a token of a vocabulary of 13")]
    fn ids_outside_the_table_are_refused() {
        let sequences = Sequences { ids: &[0, -1], time: 2 };
        forward(sequences, 1, &[0.0; VOCAB], None, &mut [0.0; 2]);
    }

    #[test]
    #[should_panic(expected = "sequences of 2 tokens are longer than the position table (1)")]
    fn positions_outside_the_table_are_refused() {
        let sequences = Sequences { ids: &[0, 1], time: 2 };
        forward(sequences, 1, &[0.0; VOCAB], Some(&[0.0; 1]), &mut [0.0; 2]);
    }

    #[test]
    fn gradients_are_bitwise_equal_across_thread_counts() {
        let ids: Vec<i64> = (0..1_009).map(|i| i * i % 17).collect();
        let gradient = random(1, ids.len() * 613);
        assert_same_on_any_number_of_threads(|| {
            let (mut tokens, mut positions) = (vec![0.0; 17 * 613], vec![0.0; 1_009 * 613]);
            let sequences = Sequences { ids: &ids, time: 1_009 };
            backward(sequences, 613, &gradient, &mut tokens, Some(&mut positions));
            vec![tokens, positions]
        });
    }
}
