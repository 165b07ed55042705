//! Embedding of tokens: the table row of each token, plus a row for its position.

use burn::nn::Embedding;
use burn::tensor::{Int, Shape, Tensor, backend::Backend};

use super::fused::{fused, input};
use super::host::{self, Floats};
use super::operation::{Input, Operation, gradients, inputs};
use crate::kernels::{embedding as kernel, pool};

/// Returns the row of each token, plus the row of its position if there are `positions`.
///
/// # Shapes
/// `tokens` `[batch, time]` with ids below the number of table rows, `positions` `[time, d_model]`;
/// the result is `[batch, time, d_model]`.
pub fn embedding<B: Backend>(
    table: &Embedding<B>,
    tokens: Tensor<B, 2, Int>,
    positions: Option<Tensor<B, 2>>,
) -> Tensor<B, 3> {
    run(table.weight.val(), tokens, positions)
}

fn run<B: Backend>(
    table: Tensor<B, 2>,
    tokens: Tensor<B, 2, Int>,
    positions: Option<Tensor<B, 2>>,
) -> Tensor<B, 3> {
    let [_, time] = tokens.dims();
    let output = fused(
        EmbeddingInputs { table: input(&table), positions: positions.as_ref().and_then(input) },
        |_| {
            let ids = host::integers::<B>(tokens.clone().into_primitive())?;
            (!ids.is_empty()).then_some(Fused { ids, time })
        },
    );
    if let Some(output) = output {
        return output;
    }
    let embedded = burn::tensor::module::embedding(table, tokens);
    match positions {
        Some(positions) => embedded + positions.unsqueeze(),
        None => embedded,
    }
}

inputs!(EmbeddingInputs<2> { table, positions });

#[derive(Debug, Clone)]
struct Fused {
    ids: Vec<i64>,
    time: usize,
}

impl Fused {
    fn sequences(&self) -> kernel::Sequences<'_> {
        kernel::Sequences { ids: &self.ids, time: self.time }
    }
}

impl Operation<2> for Fused {
    type Inputs<T> = EmbeddingInputs<T>;
    type Saved = ();

    const BACKWARD_INPUTS: EmbeddingInputs<bool> = EmbeddingInputs { table: true, positions: true };

    fn forward(&self, inputs: &EmbeddingInputs<Input>) -> (Floats, ()) {
        let EmbeddingInputs { table, positions } = inputs;
        let d_model = table.width();
        let mut output = pool::take(self.ids.len() * d_model);
        kernel::forward(self.sequences(), d_model, table.slice(), positions.numbers(), &mut output);
        (table.with_values(output, Shape::from([self.ids.len() / self.time, self.time, d_model])), ())
    }

    fn backward(
        &self,
        inputs: &EmbeddingInputs<Input>,
        (): (),
        gradient: &Floats,
    ) -> EmbeddingInputs<Option<Floats>> {
        gradients::<Self, 2>(inputs, |EmbeddingInputs { table, positions }| {
            let table = table.expect("the table is never absent");
            kernel::backward(self.sequences(), inputs.table.width(), gradient.slice(), table, positions);
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::agreement::*;

    #[test]
    fn embedding_adds_token_and_position_rows() {
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
            let output = run(table.clone(), tokens.clone(), positions.clone());
            let inner = run(table.clone().inner(), tokens.inner(), positions.clone().map(Tensor::inner));
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
            embedding_agrees::<AutodiffNdArray>(sizes, positions, seed);
            embedding_agrees::<AutodiffFlex>(sizes, positions, seed);
        }
    }
}
