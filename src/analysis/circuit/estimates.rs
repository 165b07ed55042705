//! Estimates of what ablations change, from gradients: attribution patching with integrated gradients (Syed et al., 2023,
//! arXiv 2310.10348; Hanna et al., 2024, arXiv 2403.17806).
//!
//! If the output `a` of a component is replaced by `r`, the quantity `q` changes by about `(r - a) · dq/da`. A few backward
//! passes thus estimate the ablation of every component. The gradient is averaged over embeddings between those of the
//! sequence and those of the corrupted one (without one: their mean), because it vanishes where the model is certain.
//! All reported numbers come from ablations.

use std::collections::HashMap;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::tensor::{Int, Tensor, backend::Backend};

use super::bench::{Bench, select_positions};
use super::pass::{Activations, Interventions, Site, run};
use super::question::Quantity;
use super::replaced::replaced_output;
use super::variants::batched_variants;
use crate::Result;
use crate::analysis::view::floats;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, ReplacedOutput};
use crate::model::{Decoder, Inputs, Source};
use crate::ops;

/// The number of embeddings over which gradients are averaged, as in Hanna et al. (2024).
pub(super) const STEPS: usize = 5;

/// Returns an estimate of the change of the mean quantity when each component is ablated. The bench's model has no encoder.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn estimates<B: Backend>(bench: &Bench<B>) -> Result<Vec<(Site, f64)>> {
    estimates_at(bench, (&bench.full, &[]), &shares::<STEPS>())
}

/// Returns estimates for each component outside `ablated` when it is ablated too, in the model with these ablated. They are
/// accurate for small changes, so that they order the further steps of a search.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn local_estimates<B: Backend>(bench: &Bench<B>, ablated: &[Site]) -> Result<Vec<(Site, f64)>> {
    estimates_at(bench, (&ablated_pass(bench, ablated)?, ablated), &[0.0])
}

/// Returns the activations of the model with components ablated.
fn ablated_pass<B: Backend>(bench: &Bench<B>, ablated: &[Site]) -> Result<Activations<B>> {
    let interventions = bench.ablation(ablated).into_iter();
    let interventions = interventions.fold(Interventions::default(), |it, (site, new)| it.replace(site, new));
    run(bench.model, bench.batch.inputs.clone(), &[], &interventions)
}

/// Returns the estimates for a pass with components ablated, from the gradients at the given shares of the way from the
/// sequence's embeddings to the others.
fn estimates_at<B: Backend>(
    bench: &Bench<B>,
    (pass, ablated): (&Activations<B>, &[Site]),
    shares: &[f64],
) -> Result<Vec<(Site, f64)>> {
    let gradients = Gradients::new(bench, ablated, shares, Probed::Outputs)?;
    let estimate = |(site, replacement): &(Site, Tensor<B, 3>)| {
        let gradient = gradients.at(*site)?;
        let change = replacement.clone() - pass.at(*site);
        Some((*site, f64::from(floats((gradient * change).sum())[0])))
    };
    let others = bench.replacements.iter().filter(|(site, _)| !ablated.contains(site));
    Ok(others.filter_map(estimate).collect())
}

/// Returns the mean gradients at the queries, keys and values of all heads, and at the outputs of feed-forward layers.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn reader_gradients<B: Backend>(bench: &Bench<B>) -> Result<Gradients<B>> {
    Gradients::new(bench, &[], &shares::<STEPS>(), Probed::Readers)
}

/// Returns evenly spaced shares of the way between two embeddings.
pub(super) fn shares<const COUNT: usize>() -> [f64; COUNT] {
    std::array::from_fn(|step| (step as f64 + 0.5) / COUNT as f64)
}

/// The activations at which gradients are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probed {
    /// The outputs of heads and feed-forward layers.
    Outputs,
    /// The queries, keys and values of heads, and the outputs of feed-forward layers.
    Readers,
}

/// The gradients of the mean quantity.
pub(super) struct Gradients<B: Backend> {
    /// The gradients at all heads of a hook, `[batch, heads, time, ..]`.
    by_hook: Vec<(HookSite, Tensor<B, 4>)>,
}

impl<B: Backend> Gradients<B> {
    /// Returns the mean gradients over the given shares of the way from the sequence's embeddings to the others.
    fn new(bench: &Bench<B>, ablated: &[Site], shares: &[f64], probed: Probed) -> Result<Self> {
        let model = differentiable(bench.model);
        let ([rows, _], inputs) = (bench.batch.targets.dims(), &bench.batch.inputs);
        let mut by_hook = Vec::<(HookSite, Tensor<B, 4>)>::new();
        for shares_of_pass in shares.chunks(max_copies(inputs)) {
            let ablated = ablated.iter().map(|&site| {
                let new = bench.replacement(site);
                let is_per_sequence = new.dims()[0] > 1;
                let new = if is_per_sequence { new.repeat_dim(0, shares_of_pass.len()) } else { new };
                (site, Tensor::from_inner(new))
            });
            let ablated = ablated.collect();
            let mut probe = Probe { bench, ablated, shares: shares_of_pass, probed, zeros: Vec::new() };
            let inputs = copied(inputs, shares_of_pass.len());
            let stream = model.hidden_states(inputs, &[], None, &mut probe)?;
            let gradients = mean_quantity(bench, &model, stream).backward();
            for (at, (hook, zeros)) in probe.zeros.into_iter().enumerate() {
                let Some(gradient) = zeros.grad(&gradients) else { continue };
                let [_, heads, time, width] = gradient.dims();
                let of_shares = gradient.reshape([shares_of_pass.len(), rows * heads, time, width]);
                let mean = of_shares.sum_dim(0).reshape([rows, heads, time, width]) / shares.len() as f64;
                match by_hook.get_mut(at) {
                    Some((_, sum)) => *sum = sum.clone() + mean,
                    None => by_hook.push((hook, mean)),
                }
            }
        }
        Ok(Self { by_hook })
    }

    /// Returns the gradient at a site, `[batch, time, ..]`; `None` if there is none.
    pub fn at(&self, site: Site) -> Option<Tensor<B, 3>> {
        let heads = self.all_heads(site)?.clone();
        let [_, count, ..] = heads.dims();
        Some(heads.narrow(1, if count > 1 { site.head() } else { 0 }, 1).squeeze_dim(1))
    }

    /// Returns the gradients at all heads of the layer of `site`, `[batch, heads, time, ..]`; `None` if there are none. The
    /// outputs of heads share their gradient.
    pub fn all_heads(&self, site: Site) -> Option<&Tensor<B, 4>> {
        let is_at = |hook: &HookSite| match (hook.point, site) {
            (HookPoint::ResidualMid, Site::Head(layer, _))
            | (HookPoint::ResidualPost, Site::FeedForward(layer)) => hook.layer == layer,
            _ => Site::of(*hook, site.head()) == Some(site),
        };
        self.by_hook.iter().find(|(hook, _)| is_at(hook)).map(|(_, heads)| heads)
    }
}

/// Returns the maximum number of copies of inputs that run as one batch. Documents and sources belong to single sequences.
pub(super) fn max_copies<B: Backend>(inputs: &Inputs<B>) -> usize {
    let [rows, time] = inputs.tokens.dims();
    let is_single = inputs.documents.is_some() || inputs.source.is_some();
    if is_single { 1 } else { batched_variants(rows, time) }
}

/// Returns copies of inputs, which follow each other in the batch, to take gradients.
pub(super) fn copied<B: Backend>(inputs: &Inputs<B>, copies: usize) -> Inputs<Autodiff<B>> {
    let source = inputs.source.as_ref().map(|source| Source {
        tokens: Tensor::from_inner(source.tokens.clone()),
        lengths: source.lengths.clone(),
    });
    let tokens = Tensor::from_inner(inputs.tokens.clone()).repeat_dim(0, copies);
    Inputs { tokens, source, documents: inputs.documents.clone() }
}

/// Returns the embeddings at the given shares of the way from the sequences to the others, `[shares * batch, time, d_model]`.
pub(super) fn embeddings<B: Backend>(bench: &Bench<B>, shares: &[f64]) -> Tensor<B, 3> {
    let [clean, change] = bench.embedding_and_change();
    let embeddings = shares.iter().map(|&share| clean.clone() + change.clone() * share);
    Tensor::cat(embeddings.collect(), 0)
}

/// Returns a model to take gradients at activations. Dropout is off, which acts in models with gradients.
pub(super) fn differentiable<B: Backend>(model: &Decoder<B>) -> Decoder<Autodiff<B>> {
    let mut model = Decoder::<Autodiff<B>>::from_inner(model.clone()).no_grad();
    model.embedding.dropout.prob = 0.0;
    let mut blocks: Vec<_> = model.blocks.iter_mut().collect();
    if let Some(encoder) = &mut model.encoder {
        encoder.embedding.dropout.prob = 0.0;
        blocks.extend(&mut encoder.blocks);
    }
    for block in blocks {
        block.attention.dropout.prob = 0.0;
        block.feed_forward.dropout.prob = 0.0;
        block.cross_attention.iter_mut().for_each(|attention| attention.dropout.prob = 0.0);
    }
    model
}

/// Returns the mean of the bench's quantity over the targets that count, from residual streams `[shares * batch, time,
/// d_model]`, summed over the shares.
pub(super) fn mean_quantity<B: Backend>(
    bench: &Bench<B>,
    model: &Decoder<Autodiff<B>>,
    stream: Tensor<Autodiff<B>, 3>,
) -> Tensor<Autodiff<B>, 1> {
    let [rows, ..] = stream.dims();
    let shares = rows / bench.batch.targets.dims()[0];
    let positions = Tensor::from_inner(bench.counted_indices(shares));
    let logits = model.logits(select_positions(stream, positions, shares));
    let targets = Tensor::from_inner(bench.counted_tokens(&bench.batch.targets, shares));
    let at = |tokens: Tensor<Autodiff<B>, 2, Int>| logits.clone().gather(2, tokens.unsqueeze_dim(2)).sum();
    let sum = match (&bench.against, bench.quantity) {
        (Some(against), _) => at(targets) - at(Tensor::from_inner(bench.counted_tokens(against, shares))),
        (None, Quantity::Loss) => ops::cross_entropy(logits, targets, None, 0.0),
        (None, _) => -ops::cross_entropy(logits, targets, None, 0.0),
    };
    sum / bench.batch.tokens as f64
}

/// Interpolates the embedding once per share, ablates components, and adds zeros to take gradients at. Outputs of pre-norm
/// models share the gradient of the residual stream after them, so that attention stays fused.
struct Probe<'a, B: Backend> {
    bench: &'a Bench<'a, B>,
    ablated: HashMap<Site, Tensor<Autodiff<B>, 3>>,
    shares: &'a [f64],
    probed: Probed,
    zeros: Vec<(HookSite, Tensor<Autodiff<B>, 4>)>,
}

impl<B: Backend> Probe<'_, B> {
    /// Ablates outputs that are probed, so that they are computed before they can be replaced.
    fn ablated_at(&self, site: HookSite, mut heads: Tensor<Autodiff<B>, 4>) -> Tensor<Autodiff<B>, 4> {
        let [rows, count, time, width] = heads.dims();
        for head in 0..count {
            let component = Site::of(site, head).filter(|it| it.is_component());
            let Some(new) = component.and_then(|it| self.ablated.get(&it)) else { continue };
            let new = new.clone().expand([rows, time, width]).unsqueeze_dim(1);
            heads = heads.slice_assign([0..rows, head..head + 1, 0..time, 0..width], new);
        }
        heads
    }
}

impl<B: Backend> Hooks<Autodiff<B>> for Probe<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        use AttentionPoint::{Key, Output, Query, Value};
        let adds_outputs = self.bench.model.config.norm.adds_outputs();
        match site.point {
            HookPoint::Embedding => true,
            HookPoint::ResidualPost => adds_outputs,
            HookPoint::FeedForwardOutput => !adds_outputs,
            HookPoint::ResidualMid => self.probed == Probed::Outputs && adds_outputs,
            HookPoint::SelfAttention(Output) => self.probed == Probed::Outputs && !adds_outputs,
            HookPoint::SelfAttention(Query | Key | Value) => self.probed == Probed::Readers,
            _ => false,
        }
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<Autodiff<B>, 3>) -> Tensor<Autodiff<B>, 3> {
        if site.point != HookPoint::Embedding {
            return self.hook_heads(site, activation.unsqueeze_dim(1)).squeeze_dim(1);
        }
        Tensor::from_inner(embeddings(self.bench, self.shares))
    }

    fn hook_heads(&mut self, site: HookSite, heads: Tensor<Autodiff<B>, 4>) -> Tensor<Autodiff<B>, 4> {
        let heads = self.ablated_at(site, heads);
        let zeros = Tensor::zeros(heads.shape(), &heads.device()).require_grad();
        self.zeros.push((site, zeros.clone()));
        heads + zeros
    }

    fn replaced_output(
        &mut self,
        site: HookSite,
        [rows, heads, time]: [usize; 3],
    ) -> Option<ReplacedOutput<Autodiff<B>>> {
        let sites: Vec<Site> = (0..heads).filter_map(|head| Site::of(site, head)).collect();
        replaced_output(&self.ablated, &[], &sites, [rows, time])
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::analysis::Sample;
    use crate::analysis::circuit::bench::mean;
    use crate::analysis::circuit::{Question, QuestionPrompt};
    use crate::data::Role;
    use crate::model::{Model, ModelConfig, NormPlacement, Sizes};
    use crate::ops::NormKind;

    type B = NdArray;

    fn model(config: &ModelConfig) -> Decoder<B> {
        let sizes = Sizes { vocab: 11, context: 8, source_context: None };
        match config.init::<B>(sizes, &Default::default()).unwrap() {
            Model::Decoder(model) => model,
            Model::OneLayer(_) => panic!("the config specifies a decoder"),
        }
    }

    /// Returns a bench for each quantity and ablation.
    fn benches(model: &Decoder<B>) -> Vec<Bench<'_, B>> {
        let device = Default::default();
        let tokens = [[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]].map(|tokens| tokens.to_vec());
        let sample = |inputs: &Vec<u32>| Sample {
            targets: inputs.iter().map(|token| token + 1).collect(),
            roles: vec![Role::Unknown; inputs.len()],
            inputs: inputs.clone(),
            source: None,
            documents: None,
        };
        let samples: Vec<Sample> = tokens.iter().map(sample).collect();
        let prompt = |(tokens, corrupted): (&Vec<u32>, &Vec<u32>)| QuestionPrompt {
            tokens: tokens.clone(),
            answer: Some(10),
            against: Some(0),
            corrupted: Some(corrupted.clone()),
            documents: None,
        };
        let prompts: Vec<QuestionPrompt> = tokens.iter().zip(tokens.iter().rev()).map(prompt).collect();
        let plain: Vec<QuestionPrompt> = prompts
            .iter()
            .map(|it| QuestionPrompt { against: None, corrupted: None, ..it.clone() })
            .collect();
        let of_prompts = |prompts: &[QuestionPrompt]| {
            let (samples, question) = Question::of_prompts(model, prompts, &device).unwrap();
            Bench::new(model, &samples, &question, &device).unwrap()
        };
        let loss = Bench::new(model, &samples, &Question::default(), &device).unwrap();
        vec![loss, of_prompts(&prompts), of_prompts(&plain)]
    }

    #[test]
    fn gradients_match_small_changes_of_each_input() {
        let config = ModelConfig {
            d_model: 20,
            heads: 4,
            key_value_heads: 2,
            norm_kind: NormKind::Rms,
            ..ModelConfig::default()
        };
        let sandwich = ModelConfig { norm: NormPlacement::Sandwich, ..config.clone() };
        let models = [config, sandwich].map(|config| model(&config));
        for bench in models.iter().flat_map(benches) {
            let gradients = Gradients::new(&bench, &[], &[0.0], Probed::Readers).unwrap();
            let base = bench.full_pass();
            let value = |replacement| {
                let values = bench.values_of_variants(&base, &[vec![replacement]], |_| true).unwrap();
                mean(values[0].as_ref().unwrap())
            };
            for site in [Site::Query(1, 0), Site::Key(1, 3), Site::Value(0, 2), Site::FeedForward(0)] {
                const SMALL: f32 = 1e-2;
                let full = bench.full.at(site);
                let change = full.clone().flip([1]) - full.clone();
                let moved = |sign: f32| value((site, full.clone() + change.clone() * (sign * SMALL)));
                let slope = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(SMALL));
                let estimate = f64::from(floats((gradients.at(site).unwrap() * change).sum())[0]);
                assert!((estimate - slope).abs() < 5e-3 * slope.abs().max(0.1), "{site}: {estimate} {slope}");
            }
        }
    }

    #[test]
    fn gradients_match_small_changes_of_each_component() {
        let plain = ModelConfig { d_model: 20, heads: 5, dropout: 0.3, ..ModelConfig::default() };
        let grouped = ModelConfig { heads: 4, key_value_heads: 2, norm_kind: NormKind::Rms, ..plain.clone() };
        let output = ModelConfig { norm: NormPlacement::Output, ..grouped.clone() };
        let sandwich = ModelConfig { norm: NormPlacement::Sandwich, ..plain.clone() };
        for config in [plain, grouped, output, sandwich] {
            let model = model(&config);
            for bench in benches(&model) {
                let ablated = [Site::Head(0, 1), Site::FeedForward(1)];
                let base = bench.full_pass().with(&bench.ablation(&ablated)).unwrap();
                let value = |replacement| {
                    let values = bench.values_of_variants(&base, &[vec![replacement]], |_| true).unwrap();
                    mean(values[0].as_ref().unwrap())
                };
                // The activation at a site depends on the ablated components before it.
                let pass = ablated_pass(&bench, &ablated).unwrap();
                let estimates = estimates_at(&bench, (&pass, &ablated), &[0.0]).unwrap();
                assert_eq!(estimates.len(), bench.replacements.len() - 2);
                for (site, estimate) in estimates {
                    const SMALL: f32 = 1e-2;
                    let change = (bench.replacement(site) - pass.at(site)) * SMALL;
                    let moved = |sign: f32| value((site, pass.at(site) + change.clone() * sign));
                    let slope = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(SMALL));
                    assert!(
                        (estimate - slope).abs() < 2e-3 * slope.abs().max(0.05),
                        "{site}: {estimate} {slope}"
                    );
                }
            }
        }
    }
}
