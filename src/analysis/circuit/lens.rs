//! The logit lens and direct logit attribution.
//!
//! The *logit lens* (nostalgebraist, 2020) applies the final norm and the unembedding to the residual stream after each
//! block.
//! *Direct logit attribution* (Elhage et al., 2021) decomposes the target's logit. The residual stream `x` is the sum
//! of what the components add. With the norm's divisor `s` frozen, the logit minus its mean over the vocabulary
//! is linear in `x`:
//!
//! ```text
//! logit_t - mean(logits) = sum_components added · (gamma (w_t - mean(w)) / s)  + biases
//! ```
//!
//! A layer norm also subtracts the mean of what each component adds. A softcap is applied after this sum.

use burn::tensor::{Int, Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use super::bench::{self, mean};
use super::gain::interval;
use super::pass::{Activations, Site, residual_streams};
use super::stream_parts::{StreamParts, centred};
use super::tuned::Translator;
use super::variants::batched_variants;
use super::weights::unembedding;
use crate::analysis::view::floats;
use crate::evaluation::DeviceBatch;
use crate::model::Decoder;

/// The predictions of the final norm and the unembedding from the residual stream at each depth: before the first
/// block, then after each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lens {
    /// The mean loss at each depth, in nats per token.
    pub loss: Vec<f64>,
    /// The 95 % interval of each loss, over sequences or targets; empty for a single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_interval: Vec<[f64; 2]>,
    /// The probability of each target of the first sequence, `[depth][position]`.
    pub probability: Vec<Vec<f64>>,
    /// The rank of each target, `[depth][position]`: the number of tokens that are at least as likely, including the
    /// target itself. The argmax has rank 1.
    pub rank: Vec<Vec<usize>>,
    /// The most likely tokens at each position of the first sequence with their probabilities, `[depth][position]`.
    pub top: Vec<Vec<Vec<(u32, f64)>>>,
}

/// The number of most likely tokens at each position.
const TOP_TOKENS: usize = 5;

impl Lens {
    /// Applies the lens to the residual streams of a pass over `batch`, whose targets are of these groups. If `maps` is not
    /// empty, its maps are first applied to the residual stream before each block.
    pub(super) fn new<B: Backend>(
        model: &Decoder<B>,
        pass: &Activations<B>,
        batch: (&DeviceBatch<B>, &[usize]),
        maps: &[Translator<B>],
    ) -> Self {
        let translate = |(depth, site): (usize, Site)| match maps.get(depth) {
            Some(map) => map.translate(pass.at(site)),
            None => pass.at(site),
        };
        let streams = residual_streams(model).enumerate().map(translate);
        Self::of_streams(model, streams, batch, &|| false).expect("the lens does not end early")
    }

    /// Applies the lens to the residual streams of a pass over `batch`. Returns `None` if it `ends` early.
    pub(super) fn until<B: Backend>(
        model: &Decoder<B>,
        pass: &Activations<B>,
        batch: (&DeviceBatch<B>, &[usize]),
        ends: &dyn Fn() -> bool,
    ) -> Option<Self> {
        Self::of_streams(model, residual_streams(model).map(|site| pass.at(site)), batch, ends)
    }

    /// Applies the lens to the residual stream after the attention of each block, before its feed-forward layer. Returns
    /// `None` if it `ends` early.
    pub(super) fn after_attention<B: Backend>(
        model: &Decoder<B>,
        pass: &Activations<B>,
        batch: (&DeviceBatch<B>, &[usize]),
        ends: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let after_blocks = residual_streams(model).skip(1).enumerate();
        let parts = StreamParts::new(model, pass);
        let streams = after_blocks.map(|(layer, end)| pass.at(end) - parts.feed_forward(layer));
        Self::of_streams(model, streams, batch, ends)
    }

    fn of_streams<B: Backend>(
        model: &Decoder<B>,
        streams: impl Iterator<Item = Tensor<B, 3>>,
        (batch, groups): (&DeviceBatch<B>, &[usize]),
        ends: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let mut lens = Self::default();
        let [rows, time] = batch.targets.dims();
        let targets = batch.targets.clone().narrow(0, 0, 1).into_data();
        let targets: Vec<usize> = targets.iter::<i64>().map(|token| token as usize).collect();
        let (mut streams, size) = (streams.peekable(), batched_variants(rows, time));
        while streams.peek().is_some() {
            if ends() {
                return None;
            }
            let part: Vec<Tensor<B, 3>> = streams.by_ref().take(size).collect();
            let (depths, device) = (part.len(), batch.targets.device());
            let logits = model.logits(Tensor::cat(part, 0)); // [depths * rows, time, vocab]
            let [_, _, vocab] = logits.dims();
            let logits = logits.into_data().convert::<f32>();
            for of_depth in logits.as_slice::<f32>().expect("single precision").chunks(rows * time * vocab) {
                lens.add(&of_depth[..time * vocab], &targets, vocab);
            }
            let logits = Tensor::<B, 3>::from_data(logits, &device);
            for depth in 0..depths {
                let losses = bench::losses_of(logits.clone().narrow(0, depth * rows, rows), batch);
                lens.loss.push(mean(&losses));
                lens.loss_interval.extend(interval(&losses, groups));
            }
        }
        Some(lens)
    }

    /// Adds the predictions at one depth from the logits of the first sequence, `[time, vocab]`.
    fn add(&mut self, logits: &[f32], targets: &[usize], vocab: usize) {
        let rows = || logits.chunks(vocab).zip(targets);
        let normalizers: Vec<f64> = logits.chunks(vocab).map(log_sum_exp).collect();
        let rank = |(row, &target): (&[f32], &usize)| row.iter().filter(|&&it| it >= row[target]).count();
        self.rank.push(rows().map(rank).collect());
        let probability = |logit: f32, normalizer: f64| (f64::from(logit) - normalizer).exp();
        let of_targets = rows().map(|(row, &target)| row[target]).zip(&normalizers);
        self.probability.push(of_targets.map(|(logit, &it)| probability(logit, it)).collect());
        let of_top = |(row, &it): (&[f32], &f64)| {
            top(row).into_iter().map(|(token, logit)| (token, probability(logit, it))).collect()
        };
        self.top.push(logits.chunks(vocab).zip(&normalizers).map(of_top).collect());
    }
}

/// Returns the logarithm of the sum of the exponentials of logits.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + f64::from(logits.iter().map(|logit| (logit - max).exp()).sum::<f32>()).ln()
}

/// Returns the tokens with the largest logits, and these logits; of equal ones, the first tokens.
fn top(logits: &[f32]) -> Vec<(u32, f32)> {
    let mut top: Vec<(u32, f32)> = Vec::new();
    for (&logit, token) in logits.iter().zip(0..) {
        if top.len() < TOP_TOKENS || logit > top[TOP_TOKENS - 1].1 {
            let at = top.partition_point(|(_, other)| *other >= logit);
            top.insert(at, (token, logit));
            top.truncate(TOP_TOKENS);
        }
    }
    top
}

/// The contribution of a component to the logits of the targets, minus its mean over the vocabulary; or to the difference
/// between the logits of two answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// The name of the component, such as "layer 0 head 1"; "biases" for the sum of all biases.
    pub part: String,
    /// The mean over all non-padding targets.
    pub mean: f64,
    /// The 95 % interval of the mean, over sequences or targets; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The contribution at each position of the first sequence.
    pub first: Vec<f64>,
}

/// Returns the contribution of each component, in model order, from a pass over `batch`, whose targets are of these groups:
/// to the logits of the targets or, with other tokens `against`, `[batch, time]`, to the differences from their logits.
pub fn attribute<B: Backend>(
    model: &Decoder<B>,
    pass: &Activations<B>,
    (batch, groups): (&DeviceBatch<B>, &[usize]),
    (answers, against): (Tensor<B, 2, Int>, Option<&Tensor<B, 2, Int>>),
) -> Vec<Attribution> {
    let [_, time] = batch.targets.dims();
    let is_target = bench::is_target(batch);
    let attribution = |(site, added): (Option<Site>, Tensor<B, 2>)| {
        let added: Vec<f64> = floats(added).into_iter().map(f64::from).collect();
        let unpadded = added.iter().zip(&is_target).filter(|(_, is_target)| **is_target);
        let unpadded: Vec<f64> = unpadded.map(|(added, _)| *added).collect();
        Attribution {
            part: site.map_or("biases".to_string(), |site| site.to_string()),
            mean: mean(&unpadded),
            interval: interval(&unpadded, groups),
            first: added[..time].to_vec(),
        }
    };
    let to_targets = contributions(model, pass, answers);
    let Some(against) = against else { return to_targets.into_iter().map(attribution).collect() };
    let to_others = contributions(model, pass, against.clone());
    let differences =
        to_targets.into_iter().zip(to_others).map(|((site, to), (_, other))| (site, to - other));
    differences.map(attribution).collect()
}

/// Returns the contribution of each component to the logit of each target, `[batch, time]`. If the model has biases, an
/// entry without a site holds their sum.
pub fn contributions<B: Backend>(
    model: &Decoder<B>,
    pass: &Activations<B>,
    targets: Tensor<B, 2, Int>,
) -> Vec<(Option<Site>, Tensor<B, 2>)> {
    let stream = pass.at(Site::Logits);
    let shape @ [batch, time, _] = stream.dims();
    let targets = targets.reshape([batch * time]);
    let rows = unembedding(model); // [vocab, d_model]
    let mut direction = (rows.clone().select(0, targets.clone()) - rows.mean_dim(0)).reshape(shape);
    let mut biases = None;
    let mut add = |more: Tensor<B, 2>| {
        biases = Some(biases.take().unwrap_or_else(|| Tensor::zeros([batch, time], &more.device())) + more);
    };
    if let Some(bias) = model.head.as_ref().and_then(|head| head.bias.as_ref()).map(burn::module::Param::val)
    {
        add((bias.clone().select(0, targets) - bias.mean()).reshape([batch, time]));
    }
    let along = |output: Tensor<B, 3>, direction: &Tensor<B, 3>| -> Tensor<B, 2> {
        (output * direction.clone()).sum_dim(2).squeeze_dim(2)
    };
    if let Some(norm) = &model.norm {
        if let Some(beta) = &norm.beta {
            add(along(beta.val().unsqueeze(), &direction));
        }
        let spread = centred(norm.kind, stream, 2);
        direction = direction * norm.gain().unsqueeze();
        direction = direction / ((spread.clone() * spread).mean_dim(2) + norm.epsilon).sqrt();
        direction = centred(norm.kind, direction, 2);
    }
    let sites = [Site::Embedding].into_iter().chain(bench::components(model));
    let parts = StreamParts::new(model, pass);
    let mut contributions: Vec<_> =
        sites.map(|site| (Some(site), along(parts.of(site), &direction))).collect();
    for bias in parts.biases(model.blocks.len()) {
        add(along(bias, &direction));
    }
    contributions.extend(biases.map(|biases| (None, biases)));
    contributions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::analysis::circuit::{Interventions, explainable, run};
    use crate::data::{Batch, Role};
    use crate::evaluation::evaluate;
    use crate::hooks::{HookPoint, HookSite, Hooks};
    use crate::model::{Model, ModelConfig, NormPlacement, Sizes};
    use crate::ops::NormKind;
    use burn_ndarray::NdArray;

    type B = NdArray;

    fn models() -> impl Iterator<Item = Model<B>> {
        let plain = ModelConfig { d_model: 20, heads: 5, head_bias: true, ..ModelConfig::default() };
        let rms = ModelConfig { norm_kind: NormKind::Rms, tie_embeddings: true, ..plain.clone() };
        let capped = ModelConfig { softcap: 3.0, embedding_norm: true, ..plain.clone() };
        let no_bias = ModelConfig { bias: false, head_bias: false, ..plain.clone() };
        let sizes = Sizes { vocab: 13, context: 7, source_context: None };
        let output = ModelConfig { norm: NormPlacement::Output, ..rms.clone() };
        let sandwich = ModelConfig { norm: NormPlacement::Sandwich, ..plain.clone() };
        [plain, rms, capped, no_bias, output, sandwich]
            .into_iter()
            .map(move |config| noisy_model(&config, sizes, 0.1))
    }

    fn batch() -> Batch {
        use Role::{Padding, Undetermined};
        Batch {
            rows: 2,
            time: 5,
            inputs: vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
            targets: vec![1, 4, 1, 5, 9, 2, 6, 5, 3, 0],
            roles: [[Undetermined; 5], [Undetermined, Undetermined, Undetermined, Undetermined, Padding]]
                .concat(),
            source: None,
            documents: None,
        }
    }

    #[test]
    fn contributions_sum_to_the_logit() {
        for model in models() {
            let model = explainable(&model).unwrap();
            let DeviceBatch { inputs, targets, .. } = DeviceBatch::<B>::new(&batch(), &Default::default());
            let pass = run(model, inputs, &[], &Interventions::default()).unwrap();
            let mut logits = pass.logits.clone();
            if model.config.softcap > 0.0 {
                let tanh = logits / model.config.softcap;
                logits = ((tanh.clone() + 1.0) / (-tanh + 1.0)).log() * (model.config.softcap / 2.0);
            }
            let logits = logits.clone() - logits.mean_dim(2);
            let expected = floats(logits.gather(2, targets.clone().unsqueeze_dim(2)));
            let all = contributions(model, &pass, targets);
            let has_biases = model.blocks[0].attention.output.bias.is_some();
            assert_eq!(all.len(), 1 + 2 * (5 + 1) + usize::from(has_biases), "no entry without biases");
            let sum =
                floats(all.into_iter().map(|(_, added)| added).reduce(|sum, added| sum + added).unwrap());
            let largest = expected.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
            for (sum, logit) in sum.iter().zip(expected) {
                assert!((sum - logit).abs() < 1e-5 * largest.max(1.0), "{sum} {logit}");
            }
        }
    }

    /// Keeps the residual stream after the attention of each block.
    struct Middles(Vec<Tensor<B, 3>>);

    impl Hooks<B> for Middles {
        fn wants(&self, site: HookSite) -> bool {
            site.point == HookPoint::ResidualMid
        }

        fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
            self.0.push(activation.clone());
            activation
        }
    }

    #[test]
    fn lens_after_attention_reads_the_middle_stream() {
        for model in models() {
            let on_device = DeviceBatch::<B>::new(&batch(), &Default::default());
            let mut middles = Middles(Vec::new());
            model.forward_hooked(on_device.inputs.clone(), &mut middles).unwrap();
            let decoder = explainable(&model).unwrap();
            let pass = run(decoder, on_device.inputs.clone(), &[], &Interventions::default()).unwrap();
            let found = Lens::after_attention(decoder, &pass, (&on_device, &[]), &|| false).unwrap();
            let streams = middles.0.into_iter();
            let expected = Lens::of_streams(decoder, streams, (&on_device, &[]), &|| false).unwrap();
            assert_eq!(found.loss.len(), 2);
            for (found, expected) in found.loss.iter().zip(expected.loss) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }
    }

    #[test]
    fn attributions_to_answers_sum_to_their_difference() {
        for model in models().filter(|model| explainable(model).unwrap().config.softcap == 0.0) {
            let model = explainable(&model).unwrap();
            let on_device = DeviceBatch::<B>::new(&batch(), &Default::default());
            let pass = run(model, on_device.inputs.clone(), &[], &Interventions::default()).unwrap();
            let against = on_device.targets.ones_like() * 7;
            let all = attribute(model, &pass, (&on_device, &[]), (on_device.targets.clone(), Some(&against)));
            let logits = floats(pass.logits.clone());
            for (position, &target) in batch().targets[..5].iter().enumerate() {
                let sum: f64 = all.iter().map(|part| part.first[position]).sum();
                let logit = |token: usize| f64::from(logits[position * 13 + token]);
                assert!((sum - (logit(target as usize) - logit(7))).abs() < 1e-4, "{position}");
            }
        }
    }

    #[test]
    fn last_lens_equals_the_models_prediction() {
        for model in models() {
            let on_device = DeviceBatch::<B>::new(&batch(), &Default::default());
            let decoder = explainable(&model).unwrap();
            let pass = run(decoder, on_device.inputs.clone(), &[], &Interventions::default()).unwrap();
            let lens = Lens::new(decoder, &pass, (&on_device, &[]), &[]);
            let evaluation = evaluate(&model, std::iter::once(batch()), &Default::default());
            assert_eq!((lens.loss.len(), lens.probability.len(), lens.rank[2].len()), (3, 3, 5));
            assert!((lens.loss[2] - evaluation.loss).abs() < 1e-5, "{lens:?}");
            assert_ne!(lens.probability[0], lens.probability[2], "the blocks change the prediction");
            let logits = floats(pass.logits.clone());
            let rank = |position: usize| {
                let row = &logits[position * 13..][..13];
                row.iter().filter(|&&logit| logit >= row[batch().targets[position] as usize]).count()
            };
            assert_eq!(lens.rank[2], (0..5).map(rank).collect::<Vec<_>>());
            for (position, top) in lens.top[2].iter().enumerate() {
                let row = &logits[position * 13..][..13];
                let best = (0..13).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                assert!(top.len() == 5 && top[0].0 as usize == best, "{top:?}");
                assert!(top.is_sorted_by(|a, b| a.1 >= b.1), "{top:?}");
            }
        }
    }
}
