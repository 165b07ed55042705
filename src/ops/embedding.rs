//! Tokens to vectors: a row of a table for each token, and for each position one more.

use burn::nn::Embedding;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Shape, Tensor, TensorMetadata};

use super::{Backend, Floats, HostAccess, IntoFloat, Operation, float};
use crate::kernels::embedding as kernel;
use crate::kernels::pool;

/// The row of each token, plus the row of `positions` for each place in time if there is one.
///
/// # Shapes
/// `tokens` `[batch, time]` with ids below the table's rows, `positions` `[time, d_model]`;
/// the result is `[batch, time, d_model]`.
pub fn embedding<B: Backend>(
    table: &Embedding<B>,
    tokens: Tensor<B, 2, Int>,
    positions: Option<Tensor<B, 2>>,
) -> Tensor<B, 3> {
    let positions = positions.map(IntoFloat::into_float);
    float(run::<B>(tokens.into_primitive(), table.weight.val().into_float(), positions))
}

fn run<B: Backend>(
    tokens: IntTensor<B>,
    table: FloatTensor<B>,
    positions: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    match Fused::<B::Host>::new(&tokens, B::host(&table), positions.as_ref().map(B::host)) {
        Some(operation) => B::run(operation, &[Some(table), positions]),
        None => composed::<B>(tokens, table, positions),
    }
}

fn composed<B: Backend>(
    tokens: IntTensor<B>,
    table: FloatTensor<B>,
    positions: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let embedded = B::embedding(table, tokens);
    let Some(positions) = positions else { return embedded };
    let [time, d_model] = positions.shape().dims();
    B::float_add(embedded, B::float_reshape(positions, [1, time, d_model].into()))
}

#[derive(Debug, Clone)]
struct Fused<B: HostAccess> {
    ids: Vec<i64>,
    batch: usize,
    table: Floats<B>,
    positions: Option<Floats<B>>,
}

impl<B: HostAccess> Fused<B> {
    fn new(
        tokens: &IntTensor<B>,
        table: &FloatTensor<B>,
        positions: Option<&FloatTensor<B>>,
    ) -> Option<Self> {
        let (positions, table) = (Floats::optional(positions)?, Floats::new(table)?);
        let ids = B::integers(tokens)?.widened();
        let [batch, time] = tokens.shape().dims();
        let fits =
            batch * time > 0 && positions.as_ref().is_none_or(|positions| positions.shape()[0] == time);
        fits.then_some(Self { ids, batch, table, positions })
    }

    fn sequences(&self) -> kernel::Sequences<'_> {
        kernel::Sequences { ids: &self.ids, time: self.ids.len() / self.batch }
    }
}

impl<B: HostAccess> Operation<B> for Fused<B> {
    fn forward(&mut self, _keep: bool) -> FloatTensor<B> {
        let (sequences, d_model) = (self.sequences(), self.table.width());
        let mut output = pool::take(self.ids.len() * d_model);
        let positions = self.positions.as_ref().map(Floats::slice);
        kernel::forward(sequences, d_model, self.table.slice(), positions, &mut output);
        self.table.place(output, Shape::from([self.batch, sequences.time, d_model]))
    }

    fn backward(self, gradient: &Floats<B>, _wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let (sequences, d_model) = (self.sequences(), self.table.width());
        let mut for_table = pool::take(self.table.slice().len());
        let mut for_positions = self.positions.as_ref().map(|positions| pool::take(positions.slice().len()));
        let positions = for_positions.as_deref_mut();
        kernel::backward(sequences, d_model, gradient.slice(), &mut for_table, positions);
        let for_positions = self.positions.as_ref().zip(for_positions);
        vec![
            Some(self.table.place(for_table, self.table.shape())),
            for_positions.map(|(positions, values)| positions.place(values, positions.shape())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::AutodiffBackend;
    use crate::ops::agreement::*;

    #[test]
    fn an_embedding_is_the_row_of_the_token_plus_that_of_the_place() {
        let device = Default::default();
        let table = Tensor::<NdArray, 2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device);
        let table = Embedding { weight: Param::from_tensor(table) };
        let tokens = Tensor::from_ints([[2, 0], [1, 1]], &device);
        let positions = Tensor::from_floats([[10.0, 20.0], [30.0, 40.0]], &device);
        let embedded = embedding(&table, tokens, Some(positions));
        let expected = [15.0, 26.0, 31.0, 42.0, 13.0, 24.0, 33.0, 44.0];
        assert_eq!(embedded.into_data().to_vec::<f32>().unwrap(), expected);
    }

    fn embedding_agrees<B: AutodiffBackend>(
        [batch, time, width, vocab]: [usize; 4],
        positions: bool,
        seed: u64,
    ) {
        check("embedding", || {
            let table = leaf::<B, 2>(seed, [vocab, width]).require_grad();
            let positions = positions.then(|| leaf::<B, 2>(seed + 1, [time, width]).require_grad());
            let tokens = ids::<B>(seed + 2, [batch, time], vocab);
            let output = float::<B, 3>(run::<B>(
                tokens.clone().into_primitive(),
                table.clone().into_float(),
                positions.clone().map(IntoFloat::into_float),
            ));
            let inner = float::<B::InnerBackend, 3>(run::<B::InnerBackend>(
                tokens.inner().into_primitive(),
                table.clone().inner().into_float(),
                positions.clone().map(|positions| positions.inner().into_float()),
            ));
            match &positions {
                Some(positions) => outcome!(output, inner, [table, positions]),
                None => outcome!(output, inner, [table]),
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn embeddings_agree(
            sizes in [1usize..4, 1usize..131, 1usize..70, 1usize..30], positions: bool, seed in 0u64..1_000,
        ) {
            embedding_agrees::<Ndarray>(sizes, positions, seed);
            embedding_agrees::<Flexible>(sizes, positions, seed);
        }
    }
}
