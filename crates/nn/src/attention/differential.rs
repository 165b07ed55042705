//! Differential attention (Ye et al., 2024, arXiv 2410.05258): each head subtracts two softmax maps, which cancels the
//! attention that both give to irrelevant keys.
//!
//! ```text
//! [q1 | q2] = q,  [k1 | k2] = k                        two halves of width d_head / 2
//! map       = softmax(q1 k1^T / sqrt(d_head / 2)) - lambda softmax(q2 k2^T / sqrt(d_head / 2))
//! lambda    = exp(l_q1 . l_k1) - exp(l_q2 . l_k2) + lambda_init
//! head      = (1 - lambda_init) RMSNorm(map V),  lambda_init = 0.8 - 0.6 exp(-0.3 layer)
//! ```
//!
//! Layers count from 0. The heads of a layer share `lambda` and the gains of the norm. Both maps share the position bias
//! of their head; rotary positions rotate each half by the same angles, and each map has its own sink. QK norms cover both
//! halves together. Gates multiply the normalised outputs.
//!
//! The halves `[q1 | 0]` and `[0 | q2]` are two queries of the same key `[k1 | k2]`: a head is two heads that share keys
//! and values, which every kernel and the KV cache can compute.

use burn::config::Config;
use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use crate::display::display_line;
use crate::ops::{self, AttentionOptions, Norm, Projections, ScorePosition};
use crate::role::{ParamRole, ParamRoles};

/// The configuration of [`Differential`].
#[derive(Config, Debug)]
pub struct DifferentialConfig {
    /// The zero-based index of the layer.
    pub layer: usize,
    /// The epsilon of the norm of each head's output.
    pub epsilon: f64,
    /// True if the norm stores its gains minus one.
    #[config(default = false)]
    pub unit_offset: bool,
}

/// The parameters of differential attention.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Differential<B: Backend> {
    /// The vector `l_q1`, `[d_head / 2]`.
    pub query_1: Param<Tensor<B, 1>>,
    /// The vector `l_k1`, `[d_head / 2]`.
    pub key_1: Param<Tensor<B, 1>>,
    /// The vector `l_q2`, `[d_head / 2]`.
    pub query_2: Param<Tensor<B, 1>>,
    /// The vector `l_k2`, `[d_head / 2]`.
    pub key_2: Param<Tensor<B, 1>>,
    /// The norm of each head's output.
    pub norm: Norm<B>,
    /// The constant `lambda_init` of the layer.
    #[module(skip)]
    pub lambda_init: f64,
}

display_line!(Differential, self => {
    d_head: self.norm.gamma.lazy_shape().dims::<1>()[0],
    lambda_init: self.lambda_init,
});

impl<B: Backend> ParamRoles for Differential<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { query_1, key_1, query_2, key_2, norm, lambda_init: _ } = self;
        [query_1, key_1, query_2, key_2].iter().for_each(|vector| visit(vector.id, ParamRole::Gain));
        norm.visit_roles(visit);
    }
}

impl DifferentialConfig {
    /// Returns the module for heads of width `d_head`, an even number, with Burn's lazy initialisation.
    pub fn init<B: Backend>(&self, d_head: usize, device: &B::Device) -> Differential<B> {
        // As in the authors' program.
        let vector = || Initializer::Normal { mean: 0.0, std: 0.1 }.init([d_head / 2], device);
        Differential {
            query_1: vector(),
            key_1: vector(),
            query_2: vector(),
            key_2: vector(),
            norm: Norm::rms(d_head, self.epsilon, device).with_unit_offset(self.unit_offset),
            lambda_init: 0.8 - 0.6 * (-0.3 * self.layer as f64).exp(),
        }
    }
}

impl<B: Backend> Differential<B> {
    /// Returns the factor of the second maps, `[1]`.
    pub fn lambda(&self) -> Tensor<B, 1> {
        let exp =
            |query: &Param<Tensor<B, 1>>, key: &Param<Tensor<B, 1>>| (query.val() * key.val()).sum().exp();
        exp(&self.query_1, &self.key_1) - exp(&self.query_2, &self.key_2) + self.lambda_init
    }

    /// Divides each head into two that share its keys and values: queries become `[q1 | 0]` and `[0 | q2]`. Doubles the
    /// heads of `options`, and their biases by distance; the sinks must be those of the divided heads.
    pub(super) fn divide_heads(
        &self,
        projections: Projections<B>,
        options: &mut AttentionOptions<B>,
    ) -> Projections<B> {
        let ([d_head], heads) = (self.norm.gamma.lazy_shape().dims(), options.heads);
        let divided = ops::divide_queries(projections, options);
        options.heads = 2 * heads;
        options.scale = options.scale.or(Some(((d_head / 2) as f64).powf(-0.5)));
        if let ScorePosition::Bias(bias) = &mut options.position {
            let [_, distances] = bias.dims();
            let both = bias.clone().unsqueeze_dim::<3>(1).expand([heads, 2, distances]);
            *bias = both.reshape([2 * heads, distances]);
        }
        divided
    }

    /// Subtracts the second map of each head from the first one.
    ///
    /// # Shapes
    /// `[batch, 2 * heads, query_time, key_time]` to `[batch, heads, query_time, key_time]`.
    pub fn subtract(&self, maps: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, count, query_time, key_time] = maps.dims();
        let parts = maps.reshape([batch, count / 2, 2, query_time, key_time]);
        let [first, second] = [0, 1].map(|at| parts.clone().narrow(2, at, 1));
        (first - second * self.lambda().unsqueeze()).reshape([batch, count / 2, query_time, key_time])
    }

    /// Returns the outputs of the heads, given the sums of the values by both maps.
    ///
    /// # Shapes
    /// `[batch, time, 2 * heads * d_head]` to `[batch, time, heads * d_head]`.
    pub(super) fn outputs(&self, contexts: Tensor<B, 3>) -> Tensor<B, 3> {
        let ([batch, time, width], [d_head]) = (contexts.dims(), self.norm.gamma.lazy_shape().dims());
        let differences = ops::subtract_pairs(contexts, self.lambda(), d_head);
        let by_head = differences.reshape([batch, time, width / 2 / d_head, d_head]);
        self.normalise(by_head).reshape([batch, time, width / 2])
    }

    /// Normalises the sums of the values by the maps, over the last axis.
    ///
    /// # Shapes
    /// `[.., d_head]`, in and out.
    pub fn normalise<const D: usize>(&self, contexts: Tensor<B, D>) -> Tensor<B, D> {
        self.norm.forward(contexts) * (1.0 - self.lambda_init)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};
    use burn_flex::Flex;

    use super::*;
    use crate::attention::{Mask, MultiHeadAttention, MultiHeadAttentionConfig};
    use crate::ops::Kernels;

    const BATCH: usize = 2;
    const TIME: usize = 7;
    const HEADS: usize = 3;
    const D_HEAD: usize = 10;
    const D_MODEL: usize = 11;

    fn attention(key_value_heads: usize) -> MultiHeadAttention<Flex> {
        MultiHeadAttentionConfig::new(D_MODEL, HEADS)
            .with_d_head(Some(D_HEAD))
            .with_key_value_heads(Some(key_value_heads))
            .with_differential(Some(DifferentialConfig::new(2, 1e-5)))
            .init(&Default::default())
            .unwrap()
    }

    fn numbers<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    /// Returns the outputs of the heads at one position, `[heads][d_head]`, by plain loops over `qkv`, `[time][width]`.
    fn expected(attention: &MultiHeadAttention<Flex>, qkv: &[f64], query: usize) -> Vec<f64> {
        let differential = attention.differential.as_ref().unwrap();
        let vectors =
            [&differential.query_1, &differential.key_1, &differential.query_2, &differential.key_2];
        let [q1, k1, q2, k2] = vectors.map(|vector| numbers(vector.val()));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let lambda_init = 0.8 - 0.6 * (-0.6f64).exp();
        let lambda = dot(&q1, &k1).exp() - dot(&q2, &k2).exp() + lambda_init;
        let width = qkv.len() / TIME;
        let (shared, half) = (attention.key_value_heads, D_HEAD / 2);
        let part = |row: usize, head: usize| &qkv[row * width + head * D_HEAD..][..D_HEAD];
        let of_head = |head: usize| {
            let key_head = head * shared / HEADS;
            let map = |from: usize| {
                let score = |key: usize| {
                    let (query, key) = (part(query, head), part(key, HEADS + key_head));
                    (dot(&query[from..from + half], &key[from..from + half]) / (half as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..=query).map(score).collect();
                let sum: f64 = scores.iter().sum();
                scores.into_iter().map(|score| score / sum).collect::<Vec<f64>>()
            };
            let weights: Vec<f64> =
                map(0).iter().zip(map(half)).map(|(one, two)| one - lambda * two).collect();
            let value = |key: usize| part(key, HEADS + shared + key_head);
            let context = |at: usize| (0..=query).map(|key| weights[key] * value(key)[at]).sum::<f64>();
            let context: Vec<f64> = (0..D_HEAD).map(context).collect();
            let scale = (1.0 - lambda_init) / (dot(&context, &context) / D_HEAD as f64 + 1e-5).sqrt();
            context.into_iter().map(|number| number * scale).collect::<Vec<f64>>()
        };
        (0..HEADS).flat_map(of_head).collect()
    }

    #[test]
    fn outputs_match_the_equation() {
        for key_value_heads in [HEADS, 1] {
            let attention = attention(key_value_heads);
            let input =
                Tensor::random([BATCH, TIME, D_MODEL], Distribution::Normal(0.0, 2.0), &Default::default());
            let Projections::Packed(qkv) = attention.project(input.clone()) else { panic!() };
            let qkv = numbers(qkv);
            let heads = qkv.chunks(qkv.len() / BATCH).flat_map(|qkv| {
                (0..TIME)
                    .flat_map(|query| expected(&attention, qkv, query))
                    .map(|number| number as f32)
                    .collect::<Vec<_>>()
            });
            let data = burn::tensor::TensorData::new(heads.collect(), [BATCH, TIME, HEADS * D_HEAD]);
            let heads = Tensor::<Flex, 3>::from_data(data, &Default::default());
            let expected = attention.output.forward(heads).into_data();
            let forward = || attention.forward(input.clone(), &Mask::causal(), &ScorePosition::None).unwrap();
            let stepwise =
                || attention.forward_with_weights(input.clone(), &Mask::causal(), &ScorePosition::None);
            let found = [forward(), Kernels::Reference.run(forward), stepwise().unwrap().0];
            for found in found {
                found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }

    #[test]
    fn vectors_of_lambda_are_half_a_head_wide() {
        let Differential { query_1, key_1, query_2, key_2, .. } = attention(HEADS).differential.unwrap();
        assert_eq!([query_1, key_1, query_2, key_2].map(|vector| vector.dims()), [[D_HEAD / 2]; 4]);
    }

    #[test]
    fn rows_sum_to_one_minus_lambda() {
        let attention = attention(HEADS);
        let input = Tensor::random([BATCH, TIME, D_MODEL], Distribution::Default, &Default::default());
        let found = attention.forward_with_weights(input, &Mask::causal(), &ScorePosition::None).unwrap();
        let [lambda] = <[f64; 1]>::try_from(numbers(attention.differential.unwrap().lambda())).unwrap();
        assert!((0.2..0.8).contains(&lambda), "{lambda}");
        assert!(numbers(found.1.sum_dim(3)).into_iter().all(|sum| (sum - 1.0 + lambda).abs() < 1e-5));
    }
}
