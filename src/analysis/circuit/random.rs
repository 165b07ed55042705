//! The effects in a model with random weights, which show what chance gives on the same sequences.

use burn::tensor::backend::Backend;

use super::bench::{Bench, components, mean};
use super::chance::{RandomEffect, RandomEffects};
use super::explanation::{Component, Explanation};
use super::kind::HeadKind;
use super::kind_scores::KindScore;
use super::lens::{Lens, attribute};
use super::pass::{Site, explainable};
use super::question::Question;
use super::repeat::{copy_losses, largest_weights};
use super::watch::{ExplanationStage, Watch};
use super::weights::{HeadMatrices, to_embedding};
use super::{neurons, patching, paths};
use crate::Result;
use crate::analysis::Sample;
use crate::data::Role;
use crate::model::Model;

/// The largest score of the heads of a model with random weights for a kind.
pub(super) struct KindOfRandom {
    pub kind: HeadKind,
    /// True for cross-attention heads.
    pub cross: bool,
    pub score: f64,
}

/// Follows the search in a model with random weights, which is a single stage.
struct RandomWatch<'a>(&'a dyn Watch);

impl Watch for RandomWatch<'_> {
    fn report(&self, _stage: ExplanationStage, _done: usize, _total: usize) {}

    fn ends(&self, _stage: ExplanationStage) -> bool {
        self.0.ends(ExplanationStage::RandomWeights)
    }
}

impl Explanation {
    /// Returns the samples with the explained targets; other targets are padding.
    pub(super) fn explained(&self, samples: &[Sample]) -> Vec<Sample> {
        let mut samples = samples.to_vec();
        if let [sample] = &mut samples[..] {
            // Only some targets of a single sequence may have been explained.
            let positions = &self.basis.positions;
            let roles = sample.roles.iter_mut().enumerate();
            roles.filter(|(at, _)| !positions.contains(at)).for_each(|(_, role)| *role = Role::Padding);
        }
        samples
    }

    /// Adds the effects of the same searches in `random`, a model of the same architecture with random weights, on the same
    /// targets of `samples`. An explanation without a circuit is returned unchanged.
    ///
    /// # Errors
    /// Same as [`explain`](super::explain).
    pub fn with_random_effects<B: Backend>(
        mut self,
        random: &Model<B>,
        (samples, question): (&[Sample], &Question),
        watch: &dyn Watch,
        device: &B::Device,
    ) -> Result<Self> {
        if self.gain.no_circuit.is_some() {
            return Ok(self);
        }
        const STAGE: ExplanationStage = ExplanationStage::RandomWeights;
        const PARTS: usize = 4;
        let (samples, random_watch) = (self.explained(samples), RandomWatch(watch));
        let mut bench = Bench::new(explainable(random)?, &samples, question, device)?;
        bench.watch = &random_watch;
        let full = mean(&bench.values(&bench.full));
        watch.report(STAGE, 0, PARTS);
        let (largest, components) = bench.largest_change(full, self.gain.ablated_alone)?;
        let kinds = self.largest_scores(&bench, &samples);
        let mut effects = RandomEffects {
            largest,
            components,
            circuit: Some(self.random_circuit(&bench, full)?),
            copies: self
                .repeated
                .as_ref()
                .map(|it| copy_losses(&bench, it.length).map(|losses| mean(&losses))),
            targets: bench.batch.tokens,
            connections: None,
            direct: Some(bench.largest_direct_change(full)),
            neurons: None,
            patching: None,
            attribution: Some(largest_contribution(&bench)),
            lens: Lens::until(bench.model, &bench.full, (&bench.batch, &[]), &|| watch.ends(STAGE))
                .map_or_else(Vec::new, |lens| lens.loss),
            kinds: kinds.iter().filter(|it| !it.cross).map(|it| (it.kind, it.score)).collect(),
        };
        watch.report(STAGE, 1, PARTS);
        if !self.edges.is_empty() && !watch.ends(STAGE) {
            effects.connections =
                Some(paths::largest_change(&bench, &self.components, (full, self.connections.patched))?);
        }
        watch.report(STAGE, 2, PARTS);
        if !self.neurons.neurons.is_empty() && !watch.ends(STAGE) {
            let tested = (full, self.neurons.tested);
            effects.neurons = neurons::largest_change(&bench, (&samples, question), tested, device)?;
        }
        watch.report(STAGE, 3, PARTS);
        if let Some(found) = self.views.patching.as_ref().filter(|_| !watch.ends(STAGE)) {
            effects.patching =
                patching::largest_change(bench.model, found.all_pairs(), device, &random_watch)?;
        }
        if watch.ends(STAGE) {
            self.cut(STAGE);
        }
        self.compare_kinds(&kinds);
        self.sentences.extend(self.describe_random(&effects, &kinds, bench.replacements.len()));
        self.random_effects = Some(effects);
        Ok(self)
    }

    /// Returns the quantity of a model with random weights, of it with all components ablated but those of this circuit, and
    /// with all components ablated.
    fn random_circuit<B: Backend>(&self, bench: &Bench<B>, full: f64) -> Result<[f64; 3]> {
        let is_outside = |site: &Site| self.components.iter().all(|component| component.site() != *site);
        let outside: Vec<Site> = components(bench.model).filter(is_outside).collect();
        Ok([full, bench.ablated(&outside)?, bench.all_ablated()?])
    }

    /// Returns the largest score of any head of a model, for each kind of the circuit's heads that depends on attention
    /// weights, and for each kind that a repetition reveals.
    fn largest_scores<B: Backend>(&self, bench: &Bench<B>, samples: &[Sample]) -> Vec<KindOfRandom> {
        let of_repetition = self.repeated.as_ref().map_or(Vec::new(), |it| largest_weights(bench, it.length));
        let mut found: Vec<KindOfRandom> = of_repetition
            .into_iter()
            .map(|(kind, score)| KindOfRandom { kind, cross: false, score })
            .collect();
        for Component { cross, kind_scores, .. } in &self.components {
            for &KindScore { kind, .. } in kind_scores {
                if found.iter().any(|known| (known.kind, known.cross) == (kind, *cross)) {
                    continue;
                }
                let pattern = if *cross { Site::CrossPattern } else { Site::Pattern };
                let blocks = bench.model.blocks.iter().enumerate();
                let sites = blocks.flat_map(|(layer, block)| {
                    (0..block.attention.heads).map(move |head| pattern(layer, head))
                });
                let scores = sites.filter_map(|site| bench.kind_score(kind, site, samples));
                found.push(KindOfRandom { kind, cross: *cross, score: scores.fold(0.0, f64::max) });
            }
        }
        if self.components.iter().any(|component| component.kinds.contains(&HeadKind::Copying)) {
            let (logits, [vocab, _]) = (to_embedding(bench.model), bench.model.embedding.token.weight.dims());
            let heads = HeadMatrices::all(bench.model).into_iter().flatten();
            let score = heads.map(|head| head.copying(&logits, vocab)).fold(f64::NEG_INFINITY, f64::max);
            found.push(KindOfRandom { kind: HeadKind::Copying, cross: false, score });
        }
        found
    }

    /// Records the scores with random weights next to those of the heads.
    fn compare_kinds(&mut self, random: &[KindOfRandom]) {
        for Component { cross, kind_scores, .. } in &mut self.components {
            for score in kind_scores {
                let of_kind = random.iter().find(|it| (it.kind, it.cross) == (score.kind, *cross));
                score.random = of_kind.map(|it| it.score);
            }
        }
    }

    /// Records that the explanation ended before the effects with random weights were known.
    #[must_use]
    pub fn without_random_effects(mut self) -> Self {
        if self.gain.no_circuit.is_none() {
            self.cut(ExplanationStage::RandomWeights);
        }
        self
    }
}

/// Returns the largest mean contribution of a component to the logits, up or down.
fn largest_contribution<B: Backend>(bench: &Bench<B>) -> RandomEffect {
    let Bench { model, full, batch, .. } = bench;
    let parts = attribute(model, full, (batch, &[]), (bench.answers(), bench.against.as_ref()));
    let largest = parts.iter().map(|part| part.mean.abs()).fold(0.0, f64::max);
    RandomEffect { largest, tested: parts.len() }
}
