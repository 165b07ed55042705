//! Rotary positions on interleaved pairs (Su et al., 2021, arXiv 2104.09864): elements `2i` and `2i + 1` of each head
//! are one point in the plane, turned by the angle of time and pair.

use burn::tensor::{Tensor, backend::Backend};

use crate::kernels::attention::rotary::{Rotary, Turn, turn};
use crate::kernels::pool::{self, Buffer};
use crate::ops::host::Floats;
use crate::ops::operation::{Gradients, Operation, OperationInputs, fused, input};

/// Queries or keys turned by their positions.
///
/// # Shapes
/// `input` and the result `[batch, time, heads * d_head]`, tables `[time, d_head / 2]`.
pub fn rotate<B: Backend>(x: Tensor<B, 3>, cosine: Tensor<B, 2>, sine: Tensor<B, 2>) -> Tensor<B, 3> {
    let inputs = [input(&cosine), input(&sine), input(&x)];
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

/// Of cosines, sines, and what is turned.
#[derive(Debug, Clone)]
struct Rotate;

impl Rotate {
    fn turned(inputs: &OperationInputs<3>, way: Turn, values: &Floats) -> Buffer {
        let [_, time, width] = values.shape().dims();
        let rotary = Rotary { cosines: inputs[0].slice(), sines: inputs[1].slice(), first_query: 0 };
        let mut turned = pool::take(values.slice().len());
        turned.copy_from_slice(values.slice());
        turn(way, &rotary, [time, width, 2 * inputs[0].width()], &mut turned);
        turned
    }
}

impl Operation<3> for Rotate {
    type Saved = ();

    const READS: usize = 2;

    fn forward(&self, inputs: &OperationInputs<3>) -> (Floats, ()) {
        (inputs[2].place(Self::turned(inputs, Turn::Forth, &inputs[2]), inputs[2].shape()), ())
    }

    fn backward(&self, inputs: &OperationInputs<3>, (): (), gradient: &Floats) -> Gradients<3> {
        let turned = Self::turned(inputs, Turn::Back, gradient);
        [None, None, Some(gradient.place(turned, gradient.shape()))]
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
