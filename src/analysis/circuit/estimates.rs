//! Estimates of what ablations change, from gradients: attribution patching with integrated gradients (Syed et al., 2023,
//! arXiv 2310.10348; Hanna et al., 2024, arXiv 2403.17806).
//!
//! If the output `a` of a component is replaced by `r`, the quantity `q` changes by about `(r - a) · dq/da`. A few backward
//! passes thus estimate the ablation of every component. The gradient is averaged over embeddings between those of the
//! sequence and those of the corrupted one (without one: their mean), because it vanishes where the model is certain.
//! All reported numbers come from ablations.

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, backend::Backend};

use super::bench::Bench;
use super::pass::Site;
use super::question::Quantity;
use crate::Result;
use crate::analysis::view::floats;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks};
use crate::model::{Decoder, Inputs};

/// The number of embeddings over which gradients are averaged, as in Hanna et al. (2024).
pub(super) const STEPS: usize = 5;

/// Returns an estimate of the change of the mean quantity when each component outside `ablated` is ablated too. The
/// bench's model has no encoder.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn estimates<B: Backend>(bench: &Bench<B>, ablated: &[Site]) -> Result<Vec<(Site, f64)>> {
    let steps = (0..STEPS).map(|step| (step as f64 + 0.5) / STEPS as f64).collect::<Vec<_>>();
    estimates_at(bench, ablated, &steps)
}

/// Returns the estimates from the gradients at the given shares of the way from the sequence's embeddings to the others.
fn estimates_at<B: Backend>(bench: &Bench<B>, ablated: &[Site], shares: &[f64]) -> Result<Vec<(Site, f64)>> {
    let model = Decoder::<Autodiff<B>>::from_inner(bench.model.clone()).no_grad();
    let mut estimates: Vec<(Site, f64)> = bench.replacements.iter().map(|(site, _)| (*site, 0.0)).collect();
    estimates.retain(|(site, _)| !ablated.contains(site));
    for &share in shares {
        let gradients = gradients(&model, bench, ablated, share)?;
        for (site, estimate) in &mut estimates {
            let Some(gradient) = gradients.iter().find_map(|layer| layer.of(*site)) else { continue };
            let change = bench.replacement(*site) - bench.full.at(*site);
            *estimate += f64::from(floats((gradient * change).sum())[0]) / shares.len() as f64;
        }
    }
    Ok(estimates)
}

/// The gradients of the quantity at the outputs of the components at a hook, `[batch, heads, time, d_model]`.
struct Gradients<B: Backend>(HookSite, Tensor<B, 4>);

impl<B: Backend> Gradients<B> {
    /// Returns the gradient at a component, `[batch, time, d_model]`; `None` if it is at another hook.
    fn of(&self, site: Site) -> Option<Tensor<B, 3>> {
        let [_, count, ..] = self.1.dims();
        let head = (0..count).find(|&head| Site::of(self.0, head) == Some(site))?;
        Some(self.1.clone().narrow(1, head, 1).squeeze_dim(1))
    }
}

fn gradients<B: Backend>(
    model: &Decoder<Autodiff<B>>,
    bench: &Bench<B>,
    ablated: &[Site],
    share: f64,
) -> Result<Vec<Gradients<B>>> {
    let mut probe = Probe { bench, ablated, share, zeros: Vec::new() };
    let inputs = &bench.batch.inputs;
    let tokens = Tensor::from_inner(inputs.tokens.clone());
    let inputs = Inputs { tokens, source: None, documents: inputs.documents.clone() };
    let stream = model.hidden_states(inputs, &[], None, &mut probe)?;
    let gradients = mean_quantity(bench, model.logits(stream)).backward();
    let of =
        |(site, zeros): (HookSite, Tensor<Autodiff<B>, 4>)| Some(Gradients(site, zeros.grad(&gradients)?));
    Ok(probe.zeros.into_iter().filter_map(of).collect())
}

/// Returns the mean of the bench's quantity over the targets that count, from logits `[batch, time, vocab]`.
pub(super) fn mean_quantity<B: Backend>(
    bench: &Bench<B>,
    logits: Tensor<Autodiff<B>, 3>,
) -> Tensor<Autodiff<B>, 1> {
    let targets: Tensor<Autodiff<B>, 2, Int> = Tensor::from_inner(bench.batch.targets.clone());
    let at = |scores: &Tensor<Autodiff<B>, 3>, tokens: Tensor<Autodiff<B>, 2, Int>| {
        scores.clone().gather(2, tokens.unsqueeze_dim(2))
    };
    let values = match (&bench.against, bench.quantity) {
        (Some(against), _) => at(&logits, targets) - at(&logits, Tensor::from_inner(against.clone())),
        (None, Quantity::Loss) => -at(&log_softmax(logits, 2), targets),
        (None, _) => at(&log_softmax(logits, 2), targets),
    };
    let values: Tensor<Autodiff<B>, 2> = values.squeeze_dim(2);
    let values = match &bench.batch.hidden {
        Some(hidden) => values.mask_fill(Tensor::from_inner(hidden.clone()), 0.0),
        None => values,
    };
    values.sum() / bench.batch.tokens as f64
}

/// Interpolates the embedding, ablates components, and adds zeros, at which gradients are taken, to the outputs of all
/// components.
struct Probe<'a, B: Backend> {
    bench: &'a Bench<'a, B>,
    ablated: &'a [Site],
    share: f64,
    zeros: Vec<(HookSite, Tensor<Autodiff<B>, 4>)>,
}

impl<B: Backend> Hooks<Autodiff<B>> for Probe<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        let outputs = [HookPoint::SelfAttention(AttentionPoint::Output), HookPoint::FeedForwardOutput];
        site.point == HookPoint::Embedding || outputs.contains(&site.point)
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<Autodiff<B>, 3>) -> Tensor<Autodiff<B>, 3> {
        if site.point != HookPoint::Embedding {
            return self.hook_heads(site, activation.unsqueeze_dim(1)).squeeze_dim(1);
        }
        let clean = self.bench.full.at(Site::Embedding);
        let other = match &self.bench.corrupted {
            Some(corrupted) => corrupted.at(Site::Embedding),
            None => self.bench.mean(clean.clone()).expand(clean.shape()),
        };
        Tensor::from_inner(clean.clone() + (other - clean) * self.share)
    }

    fn hook_heads(&mut self, site: HookSite, mut heads: Tensor<Autodiff<B>, 4>) -> Tensor<Autodiff<B>, 4> {
        let [batch, count, time, width] = heads.dims();
        let is_ablated =
            |head: &usize| Site::of(site, *head).is_some_and(|site| self.ablated.contains(&site));
        for head in (0..count).filter(is_ablated) {
            let Some(component) = Site::of(site, head) else { continue };
            let new = self.bench.replacement(component).expand([batch, time, width]);
            let new = Tensor::from_inner(new.unsqueeze_dim(1));
            heads = heads.slice_assign([0..batch, head..head + 1, 0..time, 0..width], new);
        }
        let zeros = Tensor::zeros(heads.shape(), &heads.device()).require_grad();
        self.zeros.push((site, zeros.clone()));
        heads + zeros
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::analysis::Sample;
    use crate::analysis::circuit::bench::mean;
    use crate::analysis::circuit::{Interventions, Question, QuestionPrompt};
    use crate::data::Role;
    use crate::model::{Model, ModelConfig, Sizes};
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
    fn gradients_match_small_changes_of_each_component() {
        let plain = ModelConfig { d_model: 20, heads: 5, ..ModelConfig::default() };
        let grouped = ModelConfig { heads: 4, key_value_heads: 2, norm_kind: NormKind::Rms, ..plain.clone() };
        for config in [plain, grouped] {
            let model = model(&config);
            for bench in benches(&model) {
                let ablated = [Site::Head(0, 1), Site::FeedForward(1)];
                let base = ablated
                    .into_iter()
                    .fold(Interventions::default(), |base, site| base.replace(site, bench.replacement(site)));
                let value =
                    |interventions: &Interventions<B>| mean(&bench.values_with(interventions).unwrap());
                let estimates = estimates_at(&bench, &ablated, &[0.0]).unwrap();
                assert_eq!(estimates.len(), bench.replacements.len() - 2);
                for (site, estimate) in estimates {
                    const SMALL: f32 = 1e-2;
                    // The activation at the site depends on the ablated components before it.
                    let pass = bench.run(&base).unwrap();
                    let change = (bench.replacement(site) - bench.full.at(site)) * SMALL;
                    let moved =
                        |sign: f32| value(&base.clone().replace(site, pass.at(site) + change.clone() * sign));
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
