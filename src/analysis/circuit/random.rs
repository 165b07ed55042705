//! The effects in a model with random weights, which show what chance gives on the same sequences.

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::chance::{RandomEffect, RandomEffects};
use super::explain::scores;
use super::explanation::Explanation;
use super::kind::HeadKind;
use super::lens::{Lens, attribute};
use super::pass::explainable;
use super::question::Question;
use super::repeat::largest_weights;
use super::watch::{ExplanationStage, Watch};
use super::{neurons, patching, paths};
use crate::Result;
use crate::analysis::Sample;
use crate::data::Role;
use crate::model::Model;
use crate::numbers::{counted, fixed, thousands};

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
        let mut effects = RandomEffects {
            largest,
            components,
            targets: bench.batch.tokens,
            connections: None,
            direct: Some(bench.largest_direct_change(full)),
            neurons: None,
            patching: None,
            attribution: Some(largest_contribution(&bench)),
            lens: Lens::until(bench.model, &bench.full, &bench.batch, &|| watch.ends(STAGE))
                .map_or_else(Vec::new, |lens| lens.loss),
            kinds: self.largest_weights(&bench, &samples),
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
        let pairs = self.views.patching.as_ref().map_or(0, |it| it.pairs);
        let sizes = [bench.replacements.len(), pairs];
        self.sentences.extend(describe(&effects, self.gain.quantity.name(), sizes));
        self.random_effects = Some(effects);
        Ok(self)
    }

    /// Returns the largest weight of any head of a model, for each kind of the circuit's heads that depends on attention
    /// weights, and for each kind that a repetition reveals.
    fn largest_weights<B: Backend>(&self, bench: &Bench<B>, samples: &[Sample]) -> Vec<(HeadKind, f64)> {
        let mut found = self.repeated.as_ref().map_or(Vec::new(), |it| largest_weights(bench, it.length));
        let scores = scores(bench, samples);
        let heads = self.components.iter().filter(|component| !component.cross);
        for &kind in heads.flat_map(|component| &component.kinds) {
            if found.iter().any(|(known, _)| *known == kind) {
                continue;
            }
            let largest = |weights: &mut dyn Iterator<Item = f64>| weights.fold(0.0, f64::max);
            let weight = match (kind, kind.score()) {
                (HeadKind::Positional, _) => {
                    let layers = scores.iter().enumerate();
                    let sites =
                        layers.flat_map(|(layer, heads)| (0..heads.len()).map(move |head| [layer, head]));
                    largest(&mut sites.filter_map(|site| bench.positional_score(site, samples)))
                }
                (_, Some(score)) => largest(&mut scores.iter().flatten().filter_map(|head| head[score])),
                (_, None) => continue,
            };
            found.push((kind, weight));
        }
        found
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
    let parts = attribute(model, full, batch, (bench.answers(), bench.against.as_ref()));
    let largest = parts.iter().map(|part| part.mean.abs()).fold(0.0, f64::max);
    RandomEffect { largest, tested: parts.len() }
}

/// Formats the effects as sentences. The sizes are the number of components of the model, and of pairs of sequences.
fn describe(effects: &RandomEffects, quantity: &str, [all, pairs]: [usize; 2]) -> Vec<String> {
    let RandomEffects {
        largest,
        components,
        targets,
        connections,
        direct,
        neurons,
        patching,
        attribution,
        kinds,
        ..
    } = effects;
    let chosen = match *components < all {
        true => format!(" with the largest estimates, of {},", thousands(all as f64)),
        false => String::new(),
    };
    let mut sentences = vec![format!(
        "With random weights, ablating any one of the {}{chosen} changes the {quantity} by at most {} on the same {}.",
        counted(*components, "component"),
        fixed(*largest, 2),
        counted(*targets, "target"),
    )];
    let of = |of_what: &str, what: &str, RandomEffect { largest, tested }: RandomEffect, digits| {
        format!(
            "With random weights, ablating {of_what}any one of {} changes the {quantity} by at most {}.",
            counted(tested, what),
            fixed(largest, digits)
        )
    };
    sentences.extend(connections.map(|it| of("", "connection", it, 2)));
    sentences.extend(direct.map(|it| of("the path to the output of ", "component", it, 2)));
    sentences.extend(neurons.map(|it| of("", "neuron", it, 4)));
    sentences.extend(patching.map(|RandomEffect { largest, tested }| {
        format!(
            "With random weights, restoring any one of {} in {} changes the logit difference by at most {}.",
            counted(tested, "component"),
            counted(pairs, "pair"),
            fixed(largest, 2)
        )
    }));
    sentences.extend(attribution.map(|RandomEffect { largest, tested }| {
        format!(
            "With random weights, the largest mean contribution of {} to the logits is {}.",
            counted(tested, "component"),
            fixed(largest, 2)
        )
    }));
    let weights =
        kinds.iter().map(|(kind, weight)| format!("{} {}", kind.name().replace('_', "-"), fixed(*weight, 2)));
    let weights = weights.collect::<Vec<_>>().join(", ");
    let sentence = format!("With random weights, the largest attention weights of heads are: {weights}.");
    sentences.extend((!weights.is_empty()).then_some(sentence));
    sentences
}
