//! The tuned lens (Belrose et al., 2023, arXiv 2303.08112): the logit lens through an affine map at each depth.
//!
//! A stream in the middle need not be written in the directions that the head reads. So for each depth an affine map
//! into them is trained, from the identity on, to the smallest mean divergence of the model's own prediction `p`:
//!
//! ```text
//! KL(p || softmax(head(norm(x + A x + b))))
//! ```
//!
//! on sequences of the training set alone. What it predicts is what an affine map can find in the stream, so it says
//! where a prediction is ready, and where the logit lens says less it stands in other directions.

use burn::tensor::{Int, Tensor, activation::softmax, backend::Backend};

use super::bench;
use super::pass::{Interventions, run};
use super::weights::centred;
use super::weights::unembedding;
use crate::Result;
use crate::analysis::view::floats;
use crate::data::{Loader, Role, Sequences};
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::model::Decoder;

/// Training tokens that the maps learn from, and how many of them are passed through the model at a time.
const TOKENS: usize = 1 << 15;
const PASSED: usize = 1 << 12;
/// Updates of Adam, the first of which has this rate; it falls to nothing in a straight line.
const STEPS: usize = 300;
const RATE: f64 = 1e-2;
/// Tokens in a step, the fewest with which it is worth while, and the operations that all steps may take.
const STEP_TOKENS: usize = 1 << 9;
const LEAST_TOKENS: usize = 1 << 6;
const OPERATIONS: usize = 400_000_000_000;

/// The affine map of one depth.
#[derive(Debug, Clone)]
pub(super) struct Translator<B: Backend> {
    /// What the stream is divided by first, so that all depths learn alike.
    scale: f64,
    /// `[d_model, d_model]`.
    weight: Tensor<B, 2>,
    /// `[1, d_model]`.
    bias: Tensor<B, 2>,
}

impl<B: Backend> Translator<B> {
    /// The maps for the stream before each block; none of a model so wide that training them takes too long.
    ///
    /// # Errors
    /// As [`run`].
    pub fn all(model: &Decoder<B>, train: &Sequences, device: &B::Device) -> Result<Option<Vec<Self>>> {
        let [vocab, d_model] = unembedding(model).dims();
        let a_token = 6 * model.blocks.len() * d_model * (d_model + vocab);
        let together = (OPERATIONS / STEPS / a_token).min(STEP_TOKENS);
        if together < LEAST_TOKENS {
            return Ok(None);
        }
        let rows = (PASSED / train.time().max(1)).max(1);
        let (mut kept, mut tokens) = (Vec::new(), 0);
        for batch in Loader::new(train.clone(), rows, 0).epoch(0) {
            let counted = batch.roles.iter().enumerate().filter(|(_, role)| **role != Role::Padding);
            let places: Vec<i64> = counted.map(|(place, _)| place as i64).collect();
            tokens += places.len();
            let places = Tensor::<B, 1, Int>::from_data(places.as_slice(), device);
            let inputs = DeviceBatch::new(&batch, device).inputs;
            let memories = model.project_memory(inputs.source, &mut NoHooks)?;
            let pass = run(model, inputs.tokens, &memories, &Interventions::default())?;
            let rows = |site| pass.at(site).flatten::<2>(0, 1).select(0, places.clone());
            kept.push(bench::streams(model).map(rows).collect::<Vec<_>>());
            if tokens >= TOKENS {
                break;
            }
        }
        let at = |depth: usize| Tensor::cat(kept.iter().map(|streams| streams[depth].clone()).collect(), 0);
        let streams: Vec<_> = (0..model.blocks.len()).map(at).collect();
        Ok(Some(Self::trained(model, &streams, &at(model.blocks.len()), together)))
    }

    /// The maps from `streams` to the prediction from `last`, each `[tokens, d_model]`.
    fn trained(
        model: &Decoder<B>,
        streams: &[Tensor<B, 2>],
        last: &Tensor<B, 2>,
        together: usize,
    ) -> Vec<Self> {
        let [tokens, d_model] = last.dims();
        let together = together.min(tokens);
        let zeros = |rows: usize| Tensor::zeros([rows, d_model], &last.device());
        let start = |stream: &Tensor<B, 2>| {
            let scale = f64::from(floats(stream.clone().powf_scalar(2.0).mean().sqrt())[0]);
            let map = Self { scale: scale.max(1e-6), weight: zeros(d_model), bias: zeros(1) };
            (map, [d_model, 1].map(|rows| [zeros(rows), zeros(rows)]))
        };
        let mut maps: Vec<_> = streams.iter().map(start).collect();
        for step in 0..STEPS {
            let place = step * together % (tokens - together + 1);
            let part = |rows: &Tensor<B, 2>| rows.clone().narrow(0, place, together);
            let expected = softmax(logits(model, part(last)), 1);
            let rate = RATE * (1.0 - step as f64 / STEPS as f64);
            for (stream, (map, [of_weight, of_bias])) in streams.iter().zip(&mut maps) {
                let [weight, bias] = map.gradients(model, part(stream), expected.clone());
                let moved = |moments, gradient| adam(moments, gradient, step) * (rate * map.scale);
                let [weight, bias] = [moved(of_weight, weight), moved(of_bias, bias)];
                (map.weight, map.bias) = (map.weight.clone() - weight, map.bias.clone() - bias);
            }
        }
        maps.into_iter().map(|(map, _)| map).collect()
    }

    /// What the map makes of a stream, `[tokens, d_model]`.
    fn apply(&self, stream: Tensor<B, 2>) -> Tensor<B, 2> {
        (stream.clone() / self.scale).matmul(self.weight.clone()) + self.bias.clone() + stream
    }

    /// The same, `[batch, time, d_model]`.
    pub fn translate(&self, stream: Tensor<B, 3>) -> Tensor<B, 3> {
        let shape = stream.dims();
        self.apply(stream.flatten(0, 1)).reshape(shape)
    }

    /// The gradients by weight and bias of the mean divergence from the prediction `expected`, `[tokens, vocab]`.
    fn gradients(
        &self,
        model: &Decoder<B>,
        stream: Tensor<B, 2>,
        expected: Tensor<B, 2>,
    ) -> [Tensor<B, 2>; 2] {
        let [tokens, _] = stream.dims();
        let mapped = self.apply(stream.clone());
        let found = logits(model, mapped.clone());
        let predicted = softmax(found.clone(), 1);
        let mut gradient = (predicted - expected) / tokens as f64; // [tokens, vocab]
        if model.softcap > 0.0 {
            gradient = gradient * (-(found / model.softcap).powf_scalar(2.0) + 1.0);
        }
        let mut gradient = gradient.matmul(unembedding(model)); // [tokens, d_model]
        if let Some(norm) = &model.norm {
            let spread = centred(norm.kind, mapped, 1);
            let deviation = (spread.clone().powf_scalar(2.0).mean_dim(1) + norm.epsilon).sqrt();
            let normal = spread / deviation.clone();
            gradient = centred(norm.kind, gradient * norm.gamma.val().unsqueeze(), 1);
            gradient = (gradient.clone() - normal.clone() * (gradient * normal).mean_dim(1)) / deviation;
        }
        let weight = (stream / self.scale).transpose().matmul(gradient.clone());
        [weight, gradient.sum_dim(0)]
    }
}

/// `[tokens, d_model]` to `[tokens, vocab]`.
fn logits<B: Backend>(model: &Decoder<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    model.logits(x.unsqueeze::<3>()).squeeze_dim(0)
}

/// The direction of a step of Adam, from the moments of gradients and of their squares.
fn adam<B: Backend>(moments: &mut [Tensor<B, 2>; 2], gradient: Tensor<B, 2>, step: usize) -> Tensor<B, 2> {
    let [first, second] = [(0, 0.9, gradient.clone()), (1, 0.999, gradient.clone() * gradient)].map(
        |(at, decay, new): (usize, f64, Tensor<B, 2>)| {
            moments[at] = moments[at].clone() * decay + new * (1.0 - decay);
            moments[at].clone() / (1.0 - decay.powi(step as i32 + 1))
        },
    );
    // Gradients of a mean over many tokens are small.
    first / (second.sqrt() + 1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::circuit::explained;
    use crate::model::{Model, ModelConfig, Sizes};
    use crate::ops::NormKind;
    use burn::module::{Module, ModuleMapper, Param};
    use burn::tensor::Distribution;
    use burn_ndarray::NdArray;

    type B = NdArray;

    /// No gain is one and no bias zero.
    struct Stir;
    impl ModuleMapper<B> for Stir {
        fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            parameter.map(|it| it.random_like(Distribution::Normal(0.0, 0.3)) + it)
        }
    }

    fn models() -> impl Iterator<Item = Model<B>> {
        let plain = ModelConfig { d_model: 20, heads: 5, head_bias: true, ..ModelConfig::default() };
        let rms = ModelConfig { norm_kind: NormKind::Rms, tie_embeddings: true, ..plain.clone() };
        let capped = ModelConfig { softcap: 3.0, ..plain.clone() };
        let sizes = Sizes { vocab: 13, context: 7, source_context: None };
        [plain, rms, capped]
            .into_iter()
            .map(move |config| config.init::<B>(sizes, &Default::default()).unwrap().map(&mut Stir))
    }

    fn rows(tokens: usize, size: f64) -> Tensor<B, 2> {
        Tensor::random([tokens, 20], Distribution::Normal(0.0, size), &Default::default())
    }

    /// The mean divergence of the prediction after the map from that of `last`.
    fn loss(map: &Translator<B>, model: &Decoder<B>, stream: &Tensor<B, 2>, last: &Tensor<B, 2>) -> f64 {
        let [expected, found] =
            [last.clone(), map.apply(stream.clone())].map(|x| softmax(logits(model, x), 1));
        f64::from(floats((expected.clone() * (expected / found).log()).sum_dim(1).mean())[0])
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for model in models() {
            let model = explained(&model).unwrap();
            let (stream, last) = (rows(11, 2.0), rows(11, 2.0));
            let map = Translator { scale: 2.0, weight: rows(20, 0.3), bias: rows(1, 0.3) };
            let loss = |map: &Translator<B>| loss(map, model, &stream, &last);
            let expected = softmax(logits(model, last.clone()), 1);
            let [weight, bias] = map.gradients(model, stream.clone(), expected);
            for [row, column] in [[0, 0], [3, 17], [19, 5]] {
                let by = |rows: usize, size: f64| {
                    Tensor::<B, 2>::zeros([rows, 20], &Default::default()).slice_assign(
                        [row % rows..row % rows + 1, column..column + 1],
                        Tensor::full([1, 1], size, &Default::default()),
                    )
                };
                let slope =
                    |moved: &dyn Fn(f64) -> Translator<B>| (loss(&moved(1e-2)) - loss(&moved(-1e-2))) / 2e-2;
                let of_weight =
                    slope(&|size| Translator { weight: map.weight.clone() + by(20, size), ..map.clone() });
                let of_bias =
                    slope(&|size| Translator { bias: map.bias.clone() + by(1, size), ..map.clone() });
                let at = |tensor: &Tensor<B, 2>, place: usize| f64::from(floats(tensor.clone())[place]);
                for (slope, gradient) in
                    [(of_weight, at(&weight, row * 20 + column)), (of_bias, at(&bias, column))]
                {
                    assert!((slope - gradient).abs() < 2e-3 + 0.02 * gradient.abs(), "{slope} {gradient}");
                }
            }
        }
    }

    #[test]
    fn a_stream_in_other_directions_is_translated() {
        for model in models() {
            let model = explained(&model).unwrap();
            let last = rows(1024, 1.5);
            // The last stream turned, moved and made small.
            let stream = (last.clone().flip([1]) + 0.7) * 0.1;
            let [map] =
                Translator::trained(model, std::slice::from_ref(&stream), &last, 256).try_into().unwrap();
            let identity = Translator { weight: rows(20, 0.0), bias: rows(1, 0.0), ..map.clone() };
            let loss = |map: &Translator<B>| loss(map, model, &stream, &last);
            assert!(loss(&map) < 0.05 * loss(&identity), "{} of {}", loss(&map), loss(&identity));
        }
    }
}
