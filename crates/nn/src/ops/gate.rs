//! Sigmoid gates of the outputs of heads (Qiu et al., 2025, arXiv 2505.06708).

use burn::tensor::{Tensor, backend::Backend};

use super::fused::{self, fused};
use super::host::Floats;
use super::operation::{Input, Operation, gradients, inputs};
use crate::kernels::gate as kernel;
use crate::kernels::pool;

/// Multiplies the outputs of heads by the sigmoids of `logits`; each gate applies to adjacent numbers.
///
/// # Shapes
/// `context` and the result are `[batch, time, width]`, `logits` is `[batch, time, gates]`, and `gates` divides `width`.
pub fn gate<B: Backend>(context: Tensor<B, 3>, logits: Tensor<B, 3>) -> Tensor<B, 3> {
    let inputs = GateInputs { context: fused::input(&context), logits: fused::input(&logits) };
    fused(inputs, |_| Some(Gate)).unwrap_or_else(|| {
        let ([batch, time, width], [_, _, gates]) = (context.dims(), logits.dims());
        let by_gate = context.reshape([batch, time, gates, width / gates]);
        (by_gate * sigmoid(logits).unsqueeze_dim(3)).reshape([batch, time, width])
    })
}

/// Returns the logistic function of `x`, by tanh: Burn's own computes in single precision on every backend.
pub fn sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    (x * 0.5).tanh() * 0.5 + 0.5
}

inputs!(GateInputs<2> { context, logits });

#[derive(Debug, Clone, Copy)]
struct Gate;

impl Operation<2> for Gate {
    type Inputs<T> = GateInputs<T>;
    type Saved = ();

    const BACKWARD_INPUTS: GateInputs<bool> = GateInputs { context: true, logits: true };

    fn forward(&self, inputs: &GateInputs<Input>) -> (Floats, ()) {
        let context = inputs.context.slice();
        let mut output = pool::take(context.len());
        kernel::forward(inputs.logits.slice(), context, &mut output);
        (inputs.context.with_values(output, inputs.context.shape()), ())
    }

    fn backward(&self, inputs: &GateInputs<Input>, (): (), gradient: &Floats) -> GateInputs<Option<Floats>> {
        gradients::<Self, 2>(inputs, |found| {
            let [context, logits] = <[_; 2]>::from(found).map(|part| part.expect("no input is ever absent"));
            let read = [&inputs.logits, &inputs.context].map(|input| input.slice());
            kernel::backward(read[0], read[1], gradient.slice(), logits, context);
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::agreement::*;

    fn agrees<B: AutodiffBackend>([time, gates, width]: [usize; 3], seed: u64) {
        check("gates", || {
            let context = leaf::<B, 3>(seed, [2, time, gates * width]).require_grad();
            let logits = leaf::<B, 3>(seed + 1, [2, time, gates]).require_grad();
            let output = gate(context.clone(), logits.clone());
            let inner = gate(context.clone().inner(), logits.clone().inner());
            outcome!(output, inner, [context, logits])
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn gates_agree(sizes in [1usize..40, 1usize..9, 1usize..40], seed in 0u64..1_000) {
            agrees::<AutodiffNdArray>(sizes, seed);
            agrees::<AutodiffFlex>([sizes[0], sizes[1] * sizes[2], 1], seed);
        }
    }
}
