//! The effects of components in a model with random weights, which show what chance gives on the same sequences.

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::explanation::{Explanation, RandomEffects};
use super::pass::explainable;
use super::question::Question;
use super::watch::ExplanationStage;
use crate::Result;
use crate::analysis::Sample;
use crate::data::Role;
use crate::model::Model;
use crate::numbers::{counted, fixed};

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

    /// Adds the effects of the components of `random`, a model of the same architecture with random weights, on the same
    /// targets of `samples`. An explanation without a circuit is returned unchanged.
    ///
    /// # Errors
    /// Same as [`explain`](super::explain).
    pub fn with_random_effects<B: Backend>(
        mut self,
        random: &Model<B>,
        samples: &[Sample],
        question: &Question,
        device: &B::Device,
    ) -> Result<Self> {
        if self.gain.no_circuit.is_some() {
            return Ok(self);
        }
        let samples = self.explained(samples);
        let bench = Bench::new(explainable(random)?, &samples, question, device)?;
        let full = mean(&bench.values(&bench.full));
        let effects = RandomEffects {
            largest: bench.largest_change(full)?,
            components: bench.replacements.len(),
            targets: bench.batch.tokens,
        };
        self.sentences.push(format!(
            "With random weights, ablating any one of the {} changes the {} by at most {} on the same {}.",
            counted(effects.components, "component"),
            self.gain.quantity.name(),
            fixed(effects.largest, 2),
            counted(effects.targets, "target"),
        ));
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
