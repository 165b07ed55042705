//! Rotary positions on interleaved pairs (Su et al., 2021, arXiv 2104.09864): elements `2i` and `2i + 1` of each head
//! are a point in a plane, rotated by an angle that depends on position and pair.

use burn::tensor::{Tensor, backend::Backend};

use crate::kernels::attention::rotary::{RotaryTables, RotationDirection, rotate_sequences};
use crate::kernels::pool::{self, Buffer};
use crate::ops::fused::{fused, input};
use crate::ops::host::Floats;
use crate::ops::operation::{Input, Operation, inputs};

/// Rotates queries or keys by their position.
///
/// # Shapes
/// `x` and the result `[batch, time, heads * d_head]`, tables `[time, d_head / 2]`.
pub fn rotate<B: Backend>(x: Tensor<B, 3>, cosine: Tensor<B, 2>, sine: Tensor<B, 2>) -> Tensor<B, 3> {
    let inputs = RotationInputs { cosine: input(&cosine), sine: input(&sine), x: input(&x) };
    fused(inputs, |_| Some(Rotate)).unwrap_or_else(|| reference(x, cosine, sine))
}

fn reference<B: Backend>(input: Tensor<B, 3>, cosine: Tensor<B, 2>, sine: Tensor<B, 2>) -> Tensor<B, 3> {
    let ([batch, time, width], [_, pairs]) = (input.dims(), cosine.dims());
    let points = input.reshape([batch, time, width / (2 * pairs), pairs, 2]);
    let table = |table: Tensor<B, 2>| table.reshape([1, time, 1, pairs, 1]);
    let (cosine, sine) = (table(cosine), table(sine));
    let x = points.clone().narrow(4, 0, 1); // [batch, time, heads, d_head / 2, 1]
    let y = points.narrow(4, 1, 1);
    let rotated =
        Tensor::cat(vec![x.clone() * cosine.clone() - y.clone() * sine.clone(), x * sine + y * cosine], 4);
    rotated.reshape([batch, time, width])
}

inputs! {
    /// The inputs of a rotation. The tables come first, since the backward pass reads them but not `x`.
    RotationInputs<3> { cosine, sine, x }
}

#[derive(Debug, Clone)]
struct Rotate;

impl Rotate {
    fn rotated(inputs: &RotationInputs<Input>, direction: RotationDirection, values: &Floats) -> Buffer {
        let [_, time, width] = values.shape().dims();
        let rotary =
            RotaryTables { cosines: inputs.cosine.slice(), sines: inputs.sine.slice(), first_query: 0 };
        let mut rotated = pool::take(values.slice().len());
        rotated.copy_from_slice(values.slice());
        rotate_sequences(direction, &rotary, [time, width, 2 * inputs.cosine.width()], &mut rotated);
        rotated
    }
}

impl Operation<3> for Rotate {
    type Inputs<T> = RotationInputs<T>;
    type Saved = ();

    const BACKWARD_INPUTS: RotationInputs<bool> = RotationInputs { cosine: true, sine: true, x: false };

    fn forward(&self, inputs: &RotationInputs<Input>) -> (Floats, ()) {
        let x = &inputs.x;
        (x.with_values(Self::rotated(inputs, RotationDirection::Forward, x), x.shape()), ())
    }

    fn backward(
        &self,
        inputs: &RotationInputs<Input>,
        (): (),
        gradient: &Floats,
    ) -> RotationInputs<Option<Floats>> {
        let rotated = Self::rotated(inputs, RotationDirection::Inverse, gradient);
        RotationInputs { cosine: None, sine: None, x: Some(gradient.with_values(rotated, gradient.shape())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::*;

    #[test]
    fn fused_and_reference_rotation_agree() {
        fn agrees<B: AutodiffBackend>([batch, time, heads, pairs]: [usize; 4]) {
            check("rotation", || {
                let x = leaf::<B, 3>(1, [batch, time, heads * 2 * pairs]).require_grad();
                let [cosine, sine] = [2, 3].map(|seed| leaf::<B, 2>(seed, [time, pairs]));
                let output = rotate(x.clone(), cosine, sine);
                outcome!(output.clone(), output.inner(), [x])
            });
        }
        for shape in [[1, 1, 1, 1], [3, 7, 5, 2], [2, 67, 3, 8]] {
            agrees::<AutodiffNdArray>(shape);
            agrees::<AutodiffFlex>(shape);
        }
    }
}
