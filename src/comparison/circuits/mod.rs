//! The circuits of several runs compared: heads matched by function, and the components and connections that the circuits
//! share.
//!
//! | file | holds |
//! |---|---|
//! | `node` | a head or a feed-forward layer, as a node of a circuit |
//! | `explained` | the circuit of a run, with the scores of its heads and the steps of their phases |
//! | `matching` | heads matched between runs by their function |
//! | `consensus` | the components and the connections, with the runs that have them |
//! | `overlap` | the connections that two runs share, compared with chance |
//! | `transplants` | heads of the reference in the place of the matched heads of the other runs |
//! | `sentences` | the result as sentences |

mod consensus;
mod explained;
mod matching;
mod node;
mod overlap;
mod sentences;
mod transplants;

use std::collections::BTreeMap;

use serde::Serialize;

use super::settings::Comparison;
use crate::error::{Error, Result, ensure};

use self::explained::ExplainedRun;

pub use consensus::{ConsensusComponent, ConsensusEdge, ConsensusPhase, MatchedComponent};
pub use node::CircuitNode;
pub use overlap::ConnectionOverlap;
pub use transplants::RunTransplant;

/// A comparison of the circuits of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CircuitComparison {
    /// The names of the runs whose circuits are compared.
    pub runs: Vec<String>,
    /// The keys in which the runs differ, without the seed.
    pub keys: Vec<String>,
    /// The run in which heads have the numbers that the comparison uses.
    pub reference: String,
    /// The runs without a circuit, each with the reason.
    pub no_circuit: BTreeMap<String, String>,
    /// The components of all circuits, sorted by the number of runs.
    pub components: Vec<ConsensusComponent>,
    /// The connections of all circuits, sorted by the number of runs.
    pub edges: Vec<ConsensusEdge>,
    /// The share of connections that two runs have in common; `None` if fewer than two have any.
    pub overlap: Option<ConnectionOverlap>,
    /// The heads of the reference in the place of the matched heads of other runs; empty unless they are requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transplants: Vec<RunTransplant>,
    /// The findings as sentences.
    pub sentences: Vec<String>,
}

impl CircuitComparison {
    /// Compares the circuits of the runs of a comparison. Runs with the same weights count once.
    ///
    /// # Errors
    /// Returns an error if a run has no circuit.json or no scores of heads, the runs differ in their layers or heads, all
    /// have the same weights, or none has a circuit.
    pub fn read(comparison: &Comparison) -> Result<Self> {
        let mut weights: BTreeMap<String, String> = BTreeMap::new();
        let (mut runs, mut notes) = (Vec::new(), Vec::new());
        for run in &comparison.runs {
            let (explained, hash) = ExplainedRun::read(run)?;
            match hash.as_ref().and_then(|hash| weights.get(hash)) {
                Some(first) => notes.push(format!(
                    "{} is not counted, because it has the same weights as {first}.",
                    run.name
                )),
                None => {
                    weights.extend(hash.map(|hash| (hash, run.name.clone())));
                    runs.push(explained);
                }
            }
        }
        let mut found = Self::new(&runs, comparison.keys.clone())?;
        found.sentences.extend(notes);
        Ok(found)
    }

    fn new(runs: &[ExplainedRun], keys: Vec<String>) -> Result<Self> {
        check(runs)?;
        let (reference, matchings) = matching::match_heads(runs);
        let no_circuit = runs.iter().filter_map(|run| Some((run.name.clone(), run.no_circuit.clone()?)));
        let mut found = Self {
            runs: runs.iter().map(|run| run.name.clone()).collect(),
            keys,
            reference: runs[reference].name.clone(),
            no_circuit: no_circuit.collect(),
            components: consensus::components(runs, &matchings),
            edges: consensus::edges(runs, &matchings),
            overlap: ConnectionOverlap::new(runs, &matchings),
            transplants: Vec::new(),
            sentences: Vec::new(),
        };
        found.sentences = sentences::sentences(&found, runs);
        Ok(found)
    }

    /// Puts each self-attention head of the reference's circuit in the place of the matched head of every other run whose
    /// circuit has it, and adds what this recovers, with a sentence for each head.
    ///
    /// # Errors
    /// Returns an error if the runs differ in their vocabulary or width, a model cannot be explained, or the data of a run
    /// has changed.
    pub fn add_transplants(&mut self, comparison: &Comparison) -> Result<()> {
        self.transplants = transplants::transplants(self, comparison)?;
        self.sentences.extend(sentences::transplants(self));
        Ok(())
    }
}

/// Rejects runs whose circuits cannot be compared.
fn check(runs: &[ExplainedRun]) -> Result<()> {
    ensure(runs.len() > 1, Error::Input, || {
        "all runs have the same weights, so their circuits are the same; pass runs with other values of run.seed"
            .to_string()
    })?;
    let shape = |run: &ExplainedRun| (run.heads_by_layer(), run.cross_heads);
    if let Some(other) = runs.iter().find(|run| shape(run) != shape(&runs[0])) {
        return Err(Error::Input(format!(
            "heads are matched only between models of the same architecture, but `{}` has {} and `{}` has {}; compare runs \
             with the same model.layers and model.heads",
            runs[0].name,
            runs[0].architecture(),
            other.name,
            other.architecture()
        )));
    }
    ensure(runs.iter().any(|run| run.no_circuit.is_none()), Error::Input, || {
        let reason = runs[0].no_circuit.as_deref().unwrap_or_default();
        format!("none of the runs has a circuit; in `{}`, {reason}", runs[0].name)
    })
}

#[cfg(test)]
mod tests;
