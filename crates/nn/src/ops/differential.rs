//! The parts of differential attention (Ye et al., 2024, arXiv 2410.05258) around its softmax maps.

use burn::tensor::{Tensor, backend::Backend};

use super::fused::{self, fused};
use super::host::Floats;
use super::operation::{Input, One, Operation, gradients, inputs};
use super::{AttentionOptions, Projections};
use crate::kernels::differential::{self as kernel, PackedRow};
use crate::kernels::pool;

/// Divides the query `[q1 | q2]` of each head into two queries, `[q1 | 0]` and `[0 | q2]`; keys and values are unchanged.
/// `options` are those before the division.
pub fn divide_queries<B: Backend>(
    projections: Projections<B>,
    options: &AttentionOptions<B>,
) -> Projections<B> {
    if let Projections::Packed(packed) = &projections {
        let [.., width] = packed.dims();
        let AttentionOptions { heads, key_value_heads, .. } = *options;
        let d_head = width / (heads + 2 * key_value_heads);
        let row = PackedRow { queries: heads * d_head, others: 2 * key_value_heads * d_head, d_head };
        if let Some(divided) = fused(One { input: fused::input(packed) }, |_| Some(Divide(row))) {
            return Projections::Packed(divided);
        }
    }
    let [query, key, value] = projections.split(options);
    let ([batch, time, width], heads) = (query.dims(), options.heads);
    let halves = query.reshape([batch, time, heads, 2, width / heads / 2]);
    let [first, second] = [0, 1].map(|at| halves.clone().narrow(3, at, 1));
    let zeros = first.zeros_like();
    let divided = Tensor::cat(vec![first, zeros.clone(), zeros, second], 3); // [batch, time, heads, 4, d_head / 2]
    Projections::Separate([divided.reshape([batch, time, 2 * width]), key, value])
}

/// Subtracts the second vector of each pair, times `lambda`, from the first one.
///
/// # Shapes
/// `[batch, time, pairs * 2 * width]` and `[1]` to `[batch, time, pairs * width]`.
pub fn subtract_pairs<B: Backend>(pairs: Tensor<B, 3>, lambda: Tensor<B, 1>, width: usize) -> Tensor<B, 3> {
    let inputs = SubtractInputs { pairs: fused::input(&pairs), lambda: fused::input(&lambda) };
    fused(inputs, |_| Some(Subtract { width })).unwrap_or_else(|| {
        let [batch, time, all] = pairs.dims();
        let pairs = pairs.reshape([batch, time, all / 2 / width, 2, width]);
        let [first, second] = [0, 1].map(|at| pairs.clone().narrow(3, at, 1));
        (first - second * lambda.unsqueeze()).reshape([batch, time, all / 2])
    })
}

#[derive(Debug, Clone, Copy)]
struct Divide(PackedRow);

impl Operation<1> for Divide {
    type Inputs<T> = One<T>;
    type Saved = ();

    const BACKWARD_INPUTS: One<bool> = One { input: false };

    fn forward(&self, inputs: &One<Input>) -> (Floats, ()) {
        let (packed, mut shape) = (inputs.input.slice(), inputs.input.shape());
        let [width, divided] = self.0.widths();
        let mut output = pool::take(packed.len() / width * divided);
        kernel::divide_queries(self.0, packed, &mut output);
        shape[2] = divided;
        (inputs.input.with_values(output, shape), ())
    }

    fn backward(&self, _: &One<Input>, (): (), gradient: &Floats) -> One<Option<Floats>> {
        let (divided, mut shape) = (gradient.slice(), gradient.shape());
        let [width, divided_width] = self.0.widths();
        let mut packed = pool::take(divided.len() / divided_width * width);
        kernel::divide_queries_backward(self.0, divided, &mut packed);
        shape[2] = width;
        One { input: Some(gradient.with_values(packed, shape)) }
    }
}

inputs!(SubtractInputs<2> { pairs, lambda });

#[derive(Debug, Clone, Copy)]
struct Subtract {
    width: usize,
}

impl Operation<2> for Subtract {
    type Inputs<T> = SubtractInputs<T>;
    type Saved = ();

    const BACKWARD_INPUTS: SubtractInputs<bool> = SubtractInputs { pairs: true, lambda: true };

    fn forward(&self, inputs: &SubtractInputs<Input>) -> (Floats, ()) {
        let (pairs, mut shape) = (inputs.pairs.slice(), inputs.pairs.shape());
        let mut output = pool::take(pairs.len() / 2);
        kernel::subtract(self.width, inputs.lambda.slice()[0], pairs, &mut output);
        shape[2] /= 2;
        (inputs.pairs.with_values(output, shape), ())
    }

    fn backward(
        &self,
        inputs: &SubtractInputs<Input>,
        (): (),
        gradient: &Floats,
    ) -> SubtractInputs<Option<Floats>> {
        gradients::<Self, 2>(inputs, |found| {
            let [pairs, lambda] = <[_; 2]>::from(found).map(|part| part.expect("no input is ever absent"));
            let read = [&inputs.lambda, &inputs.pairs].map(|input| input.slice());
            lambda[0] = kernel::subtract_backward(self.width, read[0][0], read[1], gradient.slice(), pairs);
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::{Mask, ScorePosition, agreement::*};

    fn divided<B: Backend>(packed: Tensor<B, 3>, heads: [usize; 2]) -> Tensor<B, 3> {
        let options = AttentionOptions::new(heads, Mask::none(), ScorePosition::None);
        match divide_queries(Projections::Packed(packed), &options) {
            Projections::Packed(divided) => divided,
            Projections::Separate(parts) => Tensor::cat(parts.into(), 2),
        }
    }

    fn agrees<B: AutodiffBackend>([time, heads, group, half]: [usize; 4], seed: u64) {
        check("divided queries", || {
            let counts = [heads * group, heads];
            let packed = leaf::<B, 3>(seed, [2, time, (heads * group + 2 * heads) * 2 * half]).require_grad();
            let output = divided(packed.clone(), counts);
            let inner = divided(packed.clone().inner(), counts);
            outcome!(output, inner, [packed])
        });
        check("differences of pairs", || {
            let pairs = leaf::<B, 3>(seed, [2, time, heads * 2 * half]).require_grad();
            let lambda = leaf::<B, 1>(seed + 1, [1]).require_grad();
            let output = subtract_pairs(pairs.clone(), lambda.clone(), half);
            let inner = subtract_pairs(pairs.clone().inner(), lambda.clone().inner(), half);
            outcome!(output, inner, [pairs, lambda])
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn parts_of_differential_attention_agree(
            sizes in [1usize..40, 1usize..4, 1usize..4, 1usize..20],
            seed in 0u64..1_000,
        ) {
            agrees::<AutodiffNdArray>(sizes, seed);
            agrees::<AutodiffFlex>(sizes, seed);
        }
    }
}
