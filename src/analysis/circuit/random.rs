//! The effects in a model with random weights, which show what chance gives on the same sequences.

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::chance::{RandomEffect, RandomEffects};
use super::explanation::Explanation;
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
        let (largest, components) = bench.largest_change(full)?;
        let mut effects = RandomEffects {
            largest,
            components,
            targets: bench.batch.tokens,
            connections: None,
            neurons: None,
            patching: None,
            kinds: self.repeated.as_ref().map_or(Vec::new(), |it| largest_weights(&bench, it.length)),
        };
        watch.report(STAGE, 1, PARTS);
        if !self.edges.is_empty() && !watch.ends(STAGE) {
            effects.connections = Some(paths::largest_change(&bench, &self.components, full)?);
        }
        watch.report(STAGE, 2, PARTS);
        if !self.neurons.neurons.is_empty() && !watch.ends(STAGE) {
            effects.neurons = neurons::largest_change(&bench, (&samples, question), full, device)?;
        }
        watch.report(STAGE, 3, PARTS);
        if let Some(found) = self.views.patching.as_ref().filter(|_| !watch.ends(STAGE)) {
            effects.patching = patching::largest_change(bench.model, &found.pair, device, &random_watch)?;
        }
        if watch.ends(STAGE) {
            self.cut(STAGE);
        }
        self.sentences.extend(describe(&effects, self.gain.quantity.name(), bench.replacements.len()));
        self.random_effects = Some(effects);
        Ok(self)
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

/// Formats the effects in a model of `all` components as sentences.
fn describe(effects: &RandomEffects, quantity: &str, all: usize) -> Vec<String> {
    let RandomEffects { largest, components, targets, connections, neurons, patching, kinds } = effects;
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
    let of = |what: &str, RandomEffect { largest, tested }: RandomEffect, digits| {
        format!(
            "With random weights, ablating any one of {} changes the {quantity} by at most {}.",
            counted(tested, what),
            fixed(largest, digits)
        )
    };
    sentences.extend(connections.map(|it| of("connection", it, 2)));
    sentences.extend(neurons.map(|it| of("neuron", it, 4)));
    sentences.extend(patching.map(|RandomEffect { largest, tested }| {
        format!(
            "With random weights, restoring any one of {} in one pair changes the logit difference by at most {}.",
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
