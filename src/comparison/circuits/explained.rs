//! The circuit of a run, with the scores of its heads and the steps of their phases.

use std::collections::BTreeMap;

use super::node::CircuitNode;
use crate::analysis::HeadScores;
use crate::analysis::circuit::{Component, DirectEffect, Edge, Explanation};
use crate::comparison::ComparedRun;
use crate::error::{Error, Result};
use crate::training::{HeadPhase, RunFolder, StoredPhases};

/// The circuit of a run.
#[derive(Debug, Clone)]
pub(super) struct ExplainedRun {
    /// The name of the run.
    pub name: String,
    /// The loss of the full model.
    pub loss: f64,
    /// The gain of the model over its baseline.
    pub gain: f64,
    /// The reason why the run has no circuit, if it has none.
    pub no_circuit: Option<String>,
    /// The number of components that are unknown because the search ended early.
    pub unconfirmed: usize,
    /// The components of the circuit.
    pub components: Vec<Component>,
    /// The effects of the components by their path to the output alone.
    pub direct: Vec<DirectEffect>,
    /// The connections of the circuit.
    pub edges: Vec<Edge>,
    /// The scores of all heads, `[layer][head]`.
    pub scores: Vec<Vec<HeadScores>>,
    /// The copying scores of all heads, `[layer][head]`.
    pub copying: Vec<Vec<f64>>,
    /// The number of cross-attention heads.
    pub cross_heads: usize,
    /// The first phase of each head that has one; `None` if the phases of the run are unknown.
    pub phases: Option<BTreeMap<[usize; 2], HeadPhase>>,
}

impl ExplainedRun {
    /// Reads the circuit of a run, and returns it with the SHA-256 of the explained weights.
    ///
    /// # Errors
    /// Returns an error if the run has no circuit or no scores of heads, or a file is invalid.
    pub fn read(run: &ComparedRun) -> Result<(Self, Option<String>)> {
        let folder = RunFolder::at(&run.path);
        let path = run.path.display();
        let Some(found) = Explanation::read(&folder.circuit())? else {
            return Err(Error::Input(format!(
                "the run `{path}` has no circuit.json; find its circuit with explain {path}"
            )));
        };
        if run.heads.is_empty() {
            return Err(Error::Input(format!(
                "the run `{path}` has no analysis.json with the scores of its heads; compute them with train --resume \
                 {path}"
            )));
        }
        let phases = StoredPhases::read(&folder)?.map(|it| it.by_head());
        let unconfirmed = found.cut.as_ref().map_or(0, |cut| cut.unconfirmed);
        let weights = found.heads.weights;
        let explained = Self {
            name: run.name.clone(),
            loss: found.gain.model,
            gain: (found.gain.baseline - found.gain.model).abs(),
            no_circuit: found.gain.no_circuit,
            unconfirmed,
            components: found.components,
            direct: found.views.direct,
            edges: found.edges,
            scores: run.heads.clone(),
            copying: weights.iter().map(|heads| heads.iter().map(|head| head.copying).collect()).collect(),
            cross_heads: found.heads.cross_heads,
            phases,
        };
        Ok((explained, found.basis.weights_sha256))
    }

    /// Returns the number of heads per layer.
    pub fn heads_by_layer(&self) -> Vec<usize> {
        self.copying.iter().map(Vec::len).collect()
    }

    /// Describes the architecture, as far as circuits depend on it.
    pub fn architecture(&self) -> String {
        let cross = if self.cross_heads > 0 { ", with cross-attention" } else { "" };
        let heads = self.heads_by_layer();
        let shown = match heads.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other == first) => first.to_string(),
            _ => heads.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        };
        let layers = crate::numbers::counted(heads.len(), "layer");
        let noun = if shown == "1" { "head" } else { "heads" };
        format!("{layers} of {shown} {noun}{cross}")
    }

    /// Returns the component of the circuit at a node.
    pub fn component(&self, node: CircuitNode) -> Option<&Component> {
        self.components.iter().find(|component| CircuitNode::from(*component) == node)
    }

    /// Returns the phase of a head.
    pub fn phase(&self, node: CircuitNode) -> Option<HeadPhase> {
        let head = node.head.filter(|_| !node.cross)?;
        self.phases.as_ref()?.get(&[node.layer, head]).copied()
    }
}
