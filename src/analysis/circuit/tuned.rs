//! The tuned lens (Belrose et al., 2023, arXiv 2303.08112): the logit lens through an affine map at each depth.
//!
//! The intermediate residual stream need not use the directions that the output layer reads. An affine map is therefore
//! trained for each depth, starting from the identity. It minimises the mean KL divergence from the model's own
//! prediction `p`:
//!
//! ```text
//! KL(p || softmax(head(norm(x + A x + b))))
//! ```
//!
//! on sequences of the training set only. The tuned lens measures what an affine map can decode from the residual
//! stream, and so shows at which depth the prediction is present. Where the logit lens decodes less, the residual
//! stream encodes the prediction in other directions.

use burn::module::{AutodiffModule, Module, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::{Int, Tensor, backend::Backend};
use burn_autodiff::Autodiff;

use super::pass::{Interventions, residual_streams, run};
use super::weights::unembedding;
use crate::Result;
use crate::analysis::view::floats;
use crate::data::{Loader, Role, Sequences};
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::model::Decoder;

/// The number of training tokens for the maps.
const TRAINING_TOKENS: usize = 1 << 15;
/// The number of training tokens per forward pass.
const TOKENS_PER_PASS: usize = 1 << 12;
/// The number of Adam updates.
const STEPS: usize = 300;
/// The initial learning rate, which decays linearly to zero.
const LEARNING_RATE: f64 = 1e-2;
/// The maximum number of tokens per step.
const MAX_STEP_TOKENS: usize = 1 << 9;
/// The minimum number of tokens per step.
const MIN_STEP_TOKENS: usize = 1 << 6;
/// The maximum number of floating-point operations of all steps.
const MAX_OPERATIONS: usize = 400_000_000_000;

/// The affine map of one depth.
#[derive(Module, Debug)]
pub(super) struct Translator<B: Backend> {
    /// The divisor of the residual stream, so that all depths train at the same pace.
    #[module(skip)]
    scale: f64,
    /// `[d_model, d_model]`.
    weight: Param<Tensor<B, 2>>,
    /// `[1, d_model]`.
    bias: Param<Tensor<B, 2>>,
}

impl<B: Backend> Translator<B> {
    /// Trains the maps for the residual stream before each block. Returns `None` if it `ends` early, or if the model is so
    /// wide that training exceeds the maximum number of operations.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn all(
        model: &Decoder<B>,
        train: &Sequences,
        ends: &dyn Fn() -> bool,
        device: &B::Device,
    ) -> Result<Option<Vec<Self>>> {
        let [vocab, d_model] = unembedding(model).dims();
        let operations_per_token = 6 * model.blocks.len() * d_model * (d_model + vocab);
        let step_tokens = (MAX_OPERATIONS / STEPS / operations_per_token).min(MAX_STEP_TOKENS);
        if step_tokens < MIN_STEP_TOKENS {
            return Ok(None);
        }
        let rows = (TOKENS_PER_PASS / train.time().max(1)).max(1);
        let (mut kept, mut tokens) = (Vec::new(), 0);
        for batch in Loader::new(train.clone(), rows, 0).epoch(0) {
            if ends() {
                return Ok(None);
            }
            let counted = batch.roles.iter().enumerate().filter(|(_, role)| **role != Role::Padding);
            let positions: Vec<i64> = counted.map(|(position, _)| position as i64).collect();
            tokens += positions.len();
            let positions = Tensor::<B, 1, Int>::from_data(positions.as_slice(), device);
            let inputs = DeviceBatch::new(&batch, device).inputs;
            let memories = model.project_memory(inputs.source.clone(), &mut NoHooks)?;
            let pass = run(model, inputs, &memories, &Interventions::default())?;
            let rows = |site| pass.at(site).flatten::<2>(0, 1).select(0, positions.clone());
            kept.push(residual_streams(model).map(rows).collect::<Vec<_>>());
            if tokens >= TRAINING_TOKENS {
                break;
            }
        }
        let at = |depth: usize| Tensor::cat(kept.iter().map(|streams| streams[depth].clone()).collect(), 0);
        let streams: Vec<_> = (0..model.blocks.len()).map(at).collect();
        Ok(Self::train_maps(model, (&streams, &at(model.blocks.len())), step_tokens, ends))
    }

    /// Trains one map per stream to match the prediction from `last`; all are `[tokens, d_model]`. Returns `None` if it
    /// `ends` early.
    fn train_maps(
        model: &Decoder<B>,
        (streams, last): (&[Tensor<B, 2>], &Tensor<B, 2>),
        step_tokens: usize,
        ends: &dyn Fn() -> bool,
    ) -> Option<Vec<Self>> {
        let frozen = Decoder::<Autodiff<B>>::from_inner(model.clone()).no_grad();
        let [tokens, d_model] = last.dims();
        let step_tokens = step_tokens.min(tokens);
        // Gradients of a mean over many tokens are small, so Adam's default epsilon would dominate.
        let adam = AdamConfig::new().with_epsilon(1e-12);
        let initialise = |stream: &Tensor<B, 2>| {
            let scale = f64::from(floats(stream.clone().powf_scalar(2.0).mean().sqrt())[0]);
            let zeros = |rows: usize| {
                Param::from_tensor(Tensor::<Autodiff<B>, 2>::zeros([rows, d_model], &last.device()))
            };
            let map = Translator { scale: scale.max(1e-6), weight: zeros(d_model), bias: zeros(1) };
            (map, adam.init())
        };
        let mut maps: Vec<_> = streams.iter().map(initialise).collect();
        for step in 0..STEPS {
            if ends() {
                return None;
            }
            let first = step * step_tokens % (tokens - step_tokens + 1);
            let part = |rows: &Tensor<B, 2>| rows.clone().narrow(0, first, step_tokens);
            let expected = Tensor::from_inner(softmax(logits(model, part(last)), 1));
            let rate = LEARNING_RATE * (1.0 - step as f64 / STEPS as f64);
            for (stream, (map, optimizer)) in streams.iter().zip(&mut maps) {
                let predicted = logits(&frozen, map.apply(Tensor::from_inner(part(stream))));
                let loss = -(log_softmax(predicted, 1) * expected.clone()).sum_dim(1).mean();
                let gradients = GradientsParams::from_grads(loss.backward(), map);
                *map = optimizer.step(rate * map.scale, map.clone(), gradients);
            }
        }
        Some(maps.into_iter().map(|(map, _)| map.valid()).collect())
    }

    /// Applies the map to a residual stream, `[tokens, d_model]`.
    fn apply(&self, stream: Tensor<B, 2>) -> Tensor<B, 2> {
        (stream.clone() / self.scale).matmul(self.weight.val()) + self.bias.val() + stream
    }

    /// Applies the map to a residual stream, `[batch, time, d_model]`.
    pub fn translate(&self, stream: Tensor<B, 3>) -> Tensor<B, 3> {
        let shape = stream.dims();
        self.apply(stream.flatten(0, 1)).reshape(shape)
    }
}

/// Computes logits, `[tokens, d_model]` to `[tokens, vocab]`.
fn logits<B: Backend>(model: &Decoder<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    model.logits(x.unsqueeze::<3>()).squeeze_dim(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::circuit::explainable;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::model::{Model, ModelConfig, Sizes};
    use crate::ops::NormKind;
    use burn::tensor::Distribution;
    use burn_ndarray::NdArray;

    type B = NdArray;

    fn models() -> impl Iterator<Item = Model<B>> {
        let plain = ModelConfig { d_model: 20, heads: 5, head_bias: true, ..ModelConfig::default() };
        let rms = ModelConfig { norm_kind: NormKind::Rms, tie_embeddings: true, ..plain.clone() };
        let capped = ModelConfig { softcap: 3.0, ..plain.clone() };
        let sizes = Sizes { vocab: 13, context: 7, source_context: None };
        [plain, rms, capped].into_iter().map(move |config| noisy_model(&config, sizes, 0.3))
    }

    fn rows(tokens: usize, size: f64) -> Tensor<B, 2> {
        Tensor::random([tokens, 20], Distribution::Normal(0.0, size), &Default::default())
    }

    /// Returns the mean KL divergence of the prediction through the map from the prediction of `last`.
    fn loss(map: &Translator<B>, model: &Decoder<B>, stream: &Tensor<B, 2>, last: &Tensor<B, 2>) -> f64 {
        let [expected, found] =
            [last.clone(), map.apply(stream.clone())].map(|x| softmax(logits(model, x), 1));
        f64::from(floats((expected.clone() * (expected / found).log()).sum_dim(1).mean())[0])
    }

    #[test]
    fn maps_translate_streams_in_other_directions() {
        for model in models() {
            let model = explainable(&model).unwrap();
            let last = rows(1024, 1.5);
            // The last residual stream flipped, shifted and scaled down.
            let stream = (last.clone().flip([1]) + 0.7) * 0.1;
            let streams = (std::slice::from_ref(&stream), &last);
            let maps = Translator::train_maps(model, streams, 256, &|| false).unwrap();
            let [map] = maps.try_into().unwrap();
            let zeros = |rows: usize| Param::from_tensor(Tensor::zeros([rows, 20], &Default::default()));
            let identity = Translator { weight: zeros(20), bias: zeros(1), ..map.clone() };
            let loss = |map: &Translator<B>| loss(map, model, &stream, &last);
            assert!(loss(&map) < 0.05 * loss(&identity), "{} of {}", loss(&map), loss(&identity));
        }
    }
}
