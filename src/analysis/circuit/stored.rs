//! Reads and validates `circuit.json`, so that code that draws it can rely on lists of matching sizes.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use super::explanation::{Component, Explanation};
use super::lens::Lens;
use super::patching::Patching;
use crate::Result;
use crate::error::Error;
use crate::files::read_json;

/// The largest magnitude accepted in such a file, far above any loss, logit or count.
const MAX_NUMBER: f64 = 1e12;
/// The longest name of a component, in characters.
const MAX_NAME: usize = 100;

impl Serialize for Explanation {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // The inherent function derived by serde, which takes precedence over the trait's.
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
    /// Returns an error if the file cannot be read, or if the sizes of its lists disagree.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let what = "the circuit of a run; remove it, and `explain` writes it again";
        path.exists().then(|| read_json(path, what)).transpose()
    }

    /// Refuses tokens outside a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`Error::Input`] naming the file at `path`.
    pub fn check_tokens(&self, vocab: usize, path: &Path) -> Result<()> {
        let pair = self.patching.iter().map(|patching| &patching.pair);
        let pair = pair.flat_map(|pair| pair.clean.iter().chain(&pair.corrupted).chain(&pair.answers));
        let mut tokens = self.inputs.iter().chain(&self.next).chain(pair);
        match tokens.all(|&token| (token as usize) < vocab) {
            true => Ok(()),
            false => Err(Error::file(
                path,
                "holds tokens that the vocabulary of the run lacks: run `explain` again",
            )),
        }
    }

    /// Describes the first inconsistent list or number.
    fn problem(&self) -> Option<&'static str> {
        let layers = self.weights.len();
        let has_head = |layer: usize, head: usize| self.weights.get(layer).is_some_and(|it| head < it.len());
        let is_component = |it: &Component| match it.head {
            Some(head) => !it.feed_forward && has_head(it.layer, head) && (!it.cross || self.cross_heads > 0),
            None => it.feed_forward && !it.cross && it.layer < layers,
        };
        let is_end = |[layer, head]: [usize; 2], cross: bool| {
            self.components.iter().any(|it| (it.layer, it.head, it.cross) == (layer, Some(head), cross))
        };
        let are_named = self.components.is_empty() == self.no_circuit.is_some();
        let is_refused = self.no_circuit.is_some() && (!self.edges.is_empty() || self.patching.is_some());
        let has_gain = self.no_circuit.is_some() || self.baseline > self.loss;
        let share = (self.baseline - self.loss_of_circuit) / (self.baseline - self.loss);
        let is_share =
            self.no_circuit.is_some() || (self.gain_kept - share).abs() <= 1e-6 * share.abs().max(1.0);
        let losses = [self.loss, self.baseline, self.loss_of_circuit];
        let positions = self.next.len();
        let is_attributed =
            |it: &super::Attribution| it.first.len() >= positions && it.part.chars().count() <= MAX_NAME;
        let checks = [
            (
                layers > 0 && self.weights.iter().all(|heads| !heads.is_empty()),
                "`weights` lacks layers or heads",
            ),
            (positions > 0 && self.inputs.len() == positions, "`inputs` and `next` differ in length"),
            (self.components.iter().all(is_component), "`components` names a head that the model lacks"),
            (are_named && !is_refused, "`components` and `no_circuit` contradict each other"),
            (has_gain, "`baseline` is not above `loss`"),
            (is_share, "`gain_kept` is not the share that its losses give"),
            (losses.iter().all(|&loss| loss >= 0.0), "a loss is negative"),
            (
                self.edges.iter().all(|it| is_end(it.from, it.from_cross) && is_end(it.to, it.to_cross)),
                "`edges` joins what is no component",
            ),
            (fits(&self.lens, layers, positions), "`lens` has another number of layers or positions"),
            (
                self.tuned_lens.iter().all(|lens| fits(lens, layers, positions)),
                "`tuned_lens` has another number of layers or positions",
            ),
            (
                !self.attribution.is_empty() && self.attribution.iter().all(is_attributed),
                "`attribution` lacks components or positions",
            ),
            (
                self.patching.iter().all(|patching| self.is_patched(patching)),
                "`patching` has another number of layers, heads or positions",
            ),
            (self.has_moderate_numbers(), "a number is too large"),
        ];
        checks.into_iter().find(|(holds, _)| !holds).map(|(_, problem)| problem)
    }

    fn is_patched(&self, patching: &Patching) -> bool {
        let Patching { heads, feed_forward, stream, together, pair, .. } = patching;
        let (layers, time) = (self.weights.len(), pair.clean.len());
        let of_layer = |(heads, weights): (&Vec<f64>, &Vec<_>)| heads.len() == weights.len();
        time > 0
            && pair.corrupted.len() == time
            && (1..=time).contains(together)
            && [heads.len(), feed_forward.len()] == [layers; 2]
            && heads.iter().zip(&self.weights).all(of_layer)
            && stream.len() == layers + 1
            && stream.iter().all(|row| row.len() == time)
    }

    fn has_moderate_numbers(&self) -> bool {
        fn is_moderate(value: &Value) -> bool {
            match value {
                Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() <= MAX_NUMBER),
                Value::Array(values) => values.iter().all(is_moderate),
                Value::Object(values) => values.values().all(is_moderate),
                Value::Null | Value::Bool(_) | Value::String(_) => true,
            }
        }
        serde_json::to_value(self).is_ok_and(|value| is_moderate(&value))
    }
}

/// Returns true if a lens covers the residual stream before the first of `layers` and after each, at `positions` or
/// more.
fn fits(lens: &Lens, layers: usize, positions: usize) -> bool {
    let Lens { loss, probability, rank } = lens;
    [loss.len(), probability.len(), rank.len()] == [layers + 1; 3]
        && probability.iter().all(|row| row.len() >= positions)
        && rank.iter().all(|row| row.len() >= positions)
}
