//! Token embedding with positions.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorMetadata};

use super::Operation;
use crate::kernels::embedding::{Sequences, backward, forward};
use crate::kernels::pool;
use crate::ops::Backend;
use crate::ops::host::Floats;

/// Rows of a table by token, plus the row of each position.
#[derive(Debug, Clone)]
pub struct Embedding<B: Backend> {
    ids: Vec<i64>,
    batch: usize,
    table: Floats<B>,
    positions: Option<Floats<B>>,
}

/// The embedding; the inputs of its gradient are the table, and the positions if there are any.
pub fn embedding<B: Backend>(
    tokens: &IntTensor<B>,
    table: &FloatTensor<B>,
    positions: Option<&FloatTensor<B>>,
) -> Option<Embedding<B>> {
    let positions = match positions {
        Some(positions) => Some(Floats::new(positions)?),
        None => None,
    };
    let table = Floats::new(table)?;
    let ids = B::integers(tokens)?.widened();
    let [batch, time] = tokens.shape().dims();
    let fits = batch * time > 0 && positions.as_ref().is_none_or(|positions| positions.shape()[0] == time);
    fits.then_some(Embedding { ids, batch, table, positions })
}

impl<B: Backend> Embedding<B> {
    fn sequences(&self) -> Sequences<'_> {
        Sequences { ids: &self.ids, time: self.ids.len() / self.batch }
    }
}

impl<B: Backend> Operation<B> for Embedding<B> {
    fn forward(&mut self, _keep: bool) -> FloatTensor<B> {
        let (sequences, d_model) = (self.sequences(), self.table.width());
        let mut output = pool::take(self.ids.len() * d_model);
        let positions = self.positions.as_ref().map(Floats::slice);
        forward(sequences, d_model, self.table.slice(), positions, &mut output);
        self.table.place(output, Shape::from([self.batch, sequences.time, d_model]))
    }

    fn backward(self, gradient: FloatTensor<B>, _wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let mut for_table = pool::take(self.table.slice().len());
        let mut for_positions = self.positions.as_ref().map(|positions| pool::take(positions.slice().len()));
        backward(
            self.sequences(),
            self.table.width(),
            gradient.slice(),
            &mut for_table,
            for_positions.as_deref_mut(),
        );
        gradient.recycle();
        let mut gradients = vec![Some(self.table.place(for_table, self.table.shape()))];
        if let (Some(positions), Some(values)) = (&self.positions, for_positions) {
            gradients.push(Some(positions.place(values, positions.shape())));
        }
        gradients
    }
}
