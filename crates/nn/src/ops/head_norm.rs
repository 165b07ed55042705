//! RMS norms of each head's query and key within a packed projection (Henry et al., 2020, arXiv 2010.04245).

use burn::tensor::{Tensor, backend::Backend};

use super::fused::{self, fused};
use super::host::Floats;
use super::norm::{self, Norm};
use super::operation::{Input, Operation, gradients, inputs};
use super::{AttentionOptions, Projections};
use crate::kernels::norm as kernel;
use crate::kernels::pool::{self, Buffer};

/// Normalises the queries and keys of each head separately; values are unchanged.
///
/// # Shapes
/// `packed` and the result are `[batch, time, (heads + 2 * key_value_heads) * d_head]`; both norms are `d_head` wide.
pub fn normalise_heads<B: Backend>(
    packed: Tensor<B, 3>,
    norms: [&Norm<B>; 2],
    options: &AttentionOptions<B>,
) -> Tensor<B, 3> {
    run(packed, norms.map(|norm| norm.gain()), norms.map(|norm| norm.epsilon), options)
}

fn run<B: Backend>(
    packed: Tensor<B, 3>,
    gammas: [Tensor<B, 1>; 2],
    epsilons: [f64; 2],
    options: &AttentionOptions<B>,
) -> Tensor<B, 3> {
    let [query_gamma, key_gamma] = gammas.each_ref().map(fused::input);
    let inputs = HeadNormInputs { packed: fused::input(&packed), query_gamma, key_gamma };
    let settings = Settings { heads: [options.heads, options.key_value_heads], epsilons };
    fused(inputs, |_| Some(settings)).unwrap_or_else(|| {
        let [query, key, value] = Projections::Packed(packed).split(options);
        let normalise = |part: Tensor<B, 3>, at: usize| {
            let [batch, time, width] = part.dims();
            let [d_head] = gammas[at].dims();
            let heads = part.reshape([batch, time, width / d_head, d_head]);
            norm::run(heads, gammas[at].clone(), None, norm::Settings::rms(epsilons[at]))
                .reshape([batch, time, width])
        };
        Tensor::cat(vec![normalise(query, 0), normalise(key, 1), value], 2)
    })
}

inputs!(HeadNormInputs<3> { packed, query_gamma, key_gamma });

#[derive(Debug, Clone, Copy)]
struct Settings {
    /// The numbers of query heads and of key heads.
    heads: [usize; 2],
    epsilons: [f64; 2],
}

impl Settings {
    fn norms<'a>(&self, inputs: &'a HeadNormInputs<Input>) -> [kernel::Norm<'a>; 2] {
        let [query, key] = self.epsilons.map(|epsilon| epsilon as f32);
        [(&inputs.query_gamma, query), (&inputs.key_gamma, key)].map(|(gamma, epsilon)| kernel::Norm {
            is_centred: false,
            gamma: gamma.slice(),
            beta: None,
            epsilon,
        })
    }
}

impl Operation<3> for Settings {
    type Inputs<T> = HeadNormInputs<T>;
    /// The mean and the inverse standard deviation of each head.
    type Saved = [Buffer; 2];

    const BACKWARD_INPUTS: HeadNormInputs<bool> =
        HeadNormInputs { packed: true, query_gamma: true, key_gamma: true };

    fn forward(&self, inputs: &HeadNormInputs<Input>) -> (Floats, [Buffer; 2]) {
        let (input, width) = (inputs.packed.slice(), inputs.packed.width());
        let statistics = input.len() / width * self.heads.iter().sum::<usize>();
        let [mut output, mut mean, mut inverse] = [input.len(), statistics, statistics].map(pool::take);
        let norms = self.norms(inputs);
        kernel::forward_heads(norms.each_ref(), self.heads, input, [&mut mean, &mut inverse], &mut output);
        (inputs.packed.with_values(output, inputs.packed.shape()), [mean, inverse])
    }

    fn backward(
        &self,
        inputs: &HeadNormInputs<Input>,
        [mean, inverse]: [Buffer; 2],
        gradient: &Floats,
    ) -> HeadNormInputs<Option<Floats>> {
        let (norms, statistics) = (self.norms(inputs), [&*mean, &*inverse]);
        gradients::<Self, 3>(inputs, |found| {
            let [input, query, key] =
                <[_; 3]>::from(found).map(|part| part.expect("no input is ever absent"));
            let (norms, read) = (norms.each_ref(), inputs.packed.slice());
            kernel::backward_heads(
                norms,
                self.heads,
                read,
                statistics,
                gradient.slice(),
                input,
                [query, key],
            );
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::{Mask, ScorePosition, agreement::*};

    fn agrees<B: AutodiffBackend>([rows, heads, group, d_head]: [usize; 4], seed: u64) {
        fn options<B: Backend>(heads: usize, key_value_heads: usize) -> AttentionOptions<B> {
            let (mask, position) = (Mask::none(), ScorePosition::None);
            AttentionOptions::new([heads, key_value_heads], mask, position)
        }
        check("norms of heads", || {
            let packed = leaf::<B, 3>(seed, [1, rows, (heads * group + 2 * heads) * d_head]).require_grad();
            let [query, key] = [1, 2].map(|at| leaf::<B, 1>(seed + at, [d_head]).require_grad());
            let gammas = [query.clone(), key.clone()];
            let output = run(packed.clone(), gammas.clone(), [1e-5, 1e-3], &options(heads * group, heads));
            let gammas = gammas.map(Tensor::inner);
            let inner = run(packed.clone().inner(), gammas, [1e-5, 1e-3], &options(heads * group, heads));
            outcome!(output, inner, [packed, query, key])
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn norms_of_heads_agree(sizes in [1usize..71, 1usize..4, 1usize..4, 2usize..37], seed in 0u64..1_000) {
            agrees::<AutodiffNdArray>(sizes, seed);
            agrees::<AutodiffFlex>(sizes, seed);
        }
    }
}
