//! Reads and validates `circuit.json`, so that drawing code can rely on lists of matching sizes.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use super::explanation::{Component, Edge, Explanation};
use super::lens::Lens;
use super::patching::Patching;
use super::question::Quantity;
use super::watch::ExplanationStage;
use crate::Result;
use crate::error::Error;
use crate::files::read_json;

/// The maximum magnitude of a number in the file, far above any loss, logit or count.
const MAX_NUMBER: f64 = 1e12;
/// The maximum length of a component's name, in characters.
const MAX_NAME_LENGTH: usize = 100;

/// True if the data is consistent, and the problem otherwise.
type Condition = (bool, &'static str);

impl Serialize for Explanation {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // Calls the inherent function derived by serde, which takes precedence over the trait's.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Explanation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let found = Self::deserialize(deserializer)?;
        match found.problem() {
            Some(problem) => Err(D::Error::custom(problem)),
            None => Ok(found),
        }
    }
}

impl Explanation {
    /// Reads the explanation at `path`; returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if its lists or numbers are inconsistent.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let what = "the circuit of a run; remove the file and run `explain` again";
        path.exists().then(|| read_json(path, what)).transpose()
    }

    /// Checks that all tokens are in a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Returns [`Error::File`] for `path` if a token is outside the vocabulary.
    pub fn check_tokens(&self, vocab: usize, path: &Path) -> Result<()> {
        let pair = self.views.patching.iter().map(|patching| &patching.pair);
        let pair = pair.flat_map(|pair| pair.clean.iter().chain(&pair.corrupted).chain(&pair.answers));
        let lenses =
            [Some(&self.views.lens), Some(&self.views.lens_after_attention), self.views.tuned_lens.as_ref()];
        let top = lenses.into_iter().flatten().flat_map(|lens| lens.top.iter().flatten().flatten());
        let contexts = self.neurons.neurons.iter().flat_map(|neuron| &neuron.contexts);
        let contexts = contexts.flat_map(|context| &context.tokens);
        let first = self.basis.inputs.iter().chain(&self.basis.next).chain(pair);
        let mut tokens = first.chain(top.map(|(token, _)| token)).chain(contexts);
        match tokens.all(|&token| (token as usize) < vocab) {
            true => Ok(()),
            false => Err(Error::file(
                path,
                "contains tokens outside the vocabulary of the run; run `explain` again",
            )),
        }
    }

    /// Returns the first problem with the lists and numbers, if any.
    fn problem(&self) -> Option<&'static str> {
        let checks =
            self.checks_of_basis().into_iter().chain(self.checks_of_circuit()).chain(self.checks_of_views());
        checks
            .chain([(self.has_bounded_numbers(), "the magnitude of a number exceeds 1e12")])
            .find(|(holds, _)| !holds)
            .map(|(_, problem)| problem)
    }

    fn checks_of_basis(&self) -> [Condition; 3] {
        let positions = self.basis.next.len();
        [
            (
                !self.heads.weights.is_empty() && self.heads.weights.iter().all(|heads| !heads.is_empty()),
                "`weights` lacks layers or heads",
            ),
            (
                positions > 0 && self.basis.inputs.len() == positions,
                "`inputs` and `next` are empty or of different lengths",
            ),
            (
                self.basis.positions.iter().all(|&position| position < positions),
                "`positions` contains a position outside `inputs`",
            ),
        ]
    }

    fn checks_of_circuit(&self) -> [Condition; 7] {
        let layers = self.heads.weights.len();
        let has_head =
            |layer: usize, head: usize| self.heads.weights.get(layer).is_some_and(|it| head < it.len());
        let is_component = |it: &Component| match it.head {
            Some(head) => {
                !it.feed_forward && has_head(it.layer, head) && (!it.cross || self.heads.cross_heads > 0)
            }
            None => it.feed_forward && !it.cross && it.layer < layers,
        };
        let is_in_circuit = |(layer, head): (usize, Option<usize>), cross: bool| {
            self.components.iter().any(|it| (it.layer, it.head, it.cross) == (layer, head, cross))
        };
        let is_edge = |it: &Edge| {
            is_in_circuit(it.from, it.from_cross)
                && is_in_circuit(it.to, it.to_cross)
                && it.input.is_some() == it.to.1.is_some()
        };
        let is_consistent = self.components.is_empty() == self.gain.no_circuit.is_some();
        let has_leftovers =
            self.gain.no_circuit.is_some() && (!self.edges.is_empty() || self.views.patching.is_some());
        let gain = &self.gain;
        let has_gain = gain.no_circuit.is_some() || gain.quantity.is_worse(gain.baseline, gain.model);
        let is_share = |share: f64, value: f64| {
            let expected = gain.share(value);
            (share - expected).abs() <= 1e-6 * expected.abs().max(1.0)
        };
        let has_shares = gain.no_circuit.is_some()
            || is_share(gain.shares.faithfulness, gain.circuit)
                && is_share(gain.shares.complement_share, gain.complement);
        let values = [gain.model, gain.baseline, gain.circuit, gain.complement];
        let is_loss = gain.quantity == Quantity::Loss;
        [
            (self.components.iter().all(is_component), "`components` contains a component outside the model"),
            (
                self.neurons.neurons.iter().all(|it| it.layer < layers),
                "`neurons` contains a layer outside the model",
            ),
            (is_consistent && !has_leftovers, "`components` and `no_circuit` contradict each other"),
            (has_gain, "`baseline` is not worse than `model`"),
            (has_shares, "`faithfulness` or `complement_share` does not match the other numbers"),
            (!is_loss || values.iter().all(|&loss| loss >= 0.0), "a loss is negative"),
            (
                self.edges.iter().all(is_edge),
                "`edges` connects components outside `components`, or by an input that they lack",
            ),
        ]
    }

    fn checks_of_views(&self) -> [Condition; 5] {
        let (layers, positions) = (self.heads.weights.len(), self.basis.next.len());
        let is_cut = self.cut.as_ref().is_some_and(|cut| cut.stages.contains(&ExplanationStage::Lens));
        let fits =
            |lens: &Lens, depths: usize| is_cut && *lens == Lens::default() || fits(lens, depths, positions);
        let covers_positions = |it: &super::Attribution| {
            it.first.len() >= positions && it.part.chars().count() <= MAX_NAME_LENGTH
        };
        [
            (fits(&self.views.lens, layers + 1), "`lens` does not match the number of layers or positions"),
            (
                fits(&self.views.lens_after_attention, layers),
                "`lens_after_attention` does not match the number of layers or positions",
            ),
            (
                self.views.tuned_lens.iter().all(|lens| fits(lens, layers + 1)),
                "`tuned_lens` does not match the number of layers or positions",
            ),
            (
                !self.views.attribution.is_empty() && self.views.attribution.iter().all(covers_positions),
                "`attribution` lacks components or positions",
            ),
            (
                self.views.patching.iter().all(|patching| self.fits_patching(patching)),
                "`patching` does not match the number of layers, heads or positions",
            ),
        ]
    }

    fn fits_patching(&self, patching: &Patching) -> bool {
        let Patching { heads, feed_forward, stream, together, pair, .. } = patching;
        let (layers, time) = (self.heads.weights.len(), pair.clean.len());
        let of_layer = |(heads, weights): (&Vec<f64>, &Vec<_>)| heads.len() == weights.len();
        time > 0
            && pair.corrupted.len() == time
            && (1..=time).contains(together)
            && [heads.len(), feed_forward.len()] == [layers; 2]
            && heads.iter().zip(&self.heads.weights).all(of_layer)
            && stream.len() == layers + 1
            && stream.iter().all(|row| row.len() == time)
    }

    fn has_bounded_numbers(&self) -> bool {
        fn is_bounded(value: &Value) -> bool {
            match value {
                Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() <= MAX_NUMBER),
                Value::Array(values) => values.iter().all(is_bounded),
                Value::Object(values) => values.values().all(is_bounded),
                Value::Null | Value::Bool(_) | Value::String(_) => true,
            }
        }
        serde_json::to_value(self).is_ok_and(|value| is_bounded(&value))
    }
}

/// Returns true if a lens covers the residual stream at this many depths, at `positions` or more positions.
fn fits(lens: &Lens, depths: usize, positions: usize) -> bool {
    let Lens { loss, loss_interval, probability, rank, top } = lens;
    [loss.len(), probability.len(), rank.len(), top.len()] == [depths; 4]
        && [0, depths].contains(&loss_interval.len())
        && top.iter().all(|row| row.len() >= positions)
        && probability.iter().all(|row| row.len() >= positions)
        && rank.iter().all(|row| row.len() >= positions)
}
