//! Rotary positions on interleaved pairs (Su et al., 2021, arXiv 2104.09864): elements `2i` and `2i + 1` of each head
//! are a point in a plane, rotated by an angle that depends on position and pair.

use burn::tensor::{Tensor, backend::Backend};

use crate::kernels::attention::rotary::{Rotary, Turn, turn};
use crate::kernels::pool::{self, Buffer};
use crate::ops::host::Floats;
use crate::ops::operation::{Input, Operation, fused, input, inputs};

/// Rotates queries or keys by their position.
///
/// # Shapes
/// `x` and the result `[batch, time, heads * d_head]`, tables `[time, d_head / 2]`.
pub fn rotate<B: Backend>(x: Tensor<B, 3>, cosine: Tensor<B, 2>, sine: Tensor<B, 2>) -> Tensor<B, 3> {
    let inputs = RotationInputs { cosine: input(&cosine), sine: input(&sine), x: input(&x) };
    fused(inputs, |_| Some(Rotate)).unwrap_or_else(|| composed(x, cosine, sine))
}

fn composed<B: Backend>(input: Tensor<B, 3>, cosine: Tensor<B, 2>, sine: Tensor<B, 2>) -> Tensor<B, 3> {
    let ([batch, time, width], [_, pairs]) = (input.dims(), cosine.dims());
    let points = input.reshape([batch, time, width / (2 * pairs), pairs, 2]);
    let table = |table: Tensor<B, 2>| table.reshape([1, time, 1, pairs, 1]);
    let (cosine, sine) = (table(cosine), table(sine));
    let x = points.clone().narrow(4, 0, 1); // [batch, time, heads, d_head / 2, 1]
    let y = points.narrow(4, 1, 1);
    let turned =
        Tensor::cat(vec![x.clone() * cosine.clone() - y.clone() * sine.clone(), x * sine + y * cosine], 4);
    turned.reshape([batch, time, width])
}

inputs! {
    /// The inputs of a rotation. The tables come first, since the backward pass reads them but not `x`.
    RotationInputs<3> { cosine, sine, x }
}

#[derive(Debug, Clone)]
struct Rotate;

impl Rotate {
    fn turned(inputs: &RotationInputs<Input>, way: Turn, values: &Floats) -> Buffer {
        let [_, time, width] = values.shape().dims();
        let rotary = Rotary { cosines: inputs.cosine.slice(), sines: inputs.sine.slice(), first_query: 0 };
        let mut turned = pool::take(values.slice().len());
        turned.copy_from_slice(values.slice());
        turn(way, &rotary, [time, width, 2 * inputs.cosine.width()], &mut turned);
        turned
    }
}

impl Operation<3> for Rotate {
    type Inputs<T> = RotationInputs<T>;
    type Saved = ();

    const READS: RotationInputs<bool> = RotationInputs { cosine: true, sine: true, x: false };

    fn forward(&self, inputs: &RotationInputs<Input>) -> (Floats, ()) {
        let x = &inputs.x;
        (x.place(Self::turned(inputs, Turn::Forth, x), x.shape()), ())
    }

    fn backward(
        &self,
        inputs: &RotationInputs<Input>,
        (): (),
        gradient: &Floats,
    ) -> RotationInputs<Option<Floats>> {
        let turned = Self::turned(inputs, Turn::Back, gradient);
        RotationInputs { cosine: None, sine: None, x: Some(gradient.place(turned, gradient.shape())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::*;

    #[test]
    fn both_ways_of_turning_agree() {
        fn agrees<B: AutodiffBackend>([batch, time, heads, pairs]: [usize; 4]) {
            check("rotation", || {
                let x = leaf::<B, 3>(1, [batch, time, heads * 2 * pairs]).require_grad();
                let [cosine, sine] = [2, 3].map(|seed| leaf::<B, 2>(seed, [time, pairs]));
                let output = rotate(x.clone(), cosine, sine);
                outcome!(output.clone(), output.inner(), [x])
            });
        }
        for shape in [[1, 1, 1, 1], [3, 7, 5, 2], [2, 67, 3, 8]] {
            agrees::<Ndarray>(shape);
            agrees::<Flexible>(shape);
        }
    }
}
