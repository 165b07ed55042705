//! The components and the connections of the circuits of several runs, with the runs that have them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::explained::ExplainedRun;
use super::matching::Matching;
use super::node::CircuitNode;
use crate::analysis::circuit::{HeadInput, HeadKind};
use crate::comparison::GroupMean;
use crate::training::HeadPhase;

/// A connection as a sender, a receiver, and the input of a receiving head.
pub(super) type Connection = (CircuitNode, CircuitNode, Option<HeadInput>);

/// A component of the circuit of at least one run. Effects are rises of the loss when it is mean-ablated, in nats per
/// token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsensusComponent {
    /// The component, as numbered in the reference.
    #[serde(flatten)]
    pub node: CircuitNode,
    /// The number of runs whose circuit has the component.
    pub runs: usize,
    /// The share of the runs.
    pub share: f64,
    /// The kinds of the head in these runs, each with the number of runs.
    pub kinds: BTreeMap<&'static str, usize>,
    /// The mean effect over these runs.
    pub effect: GroupMean,
    /// The steps of the phase of the head; `None` without a run that has one.
    pub phase: Option<ConsensusPhase>,
    /// The component in each run.
    pub matched: Vec<MatchedComponent>,
}

impl ConsensusComponent {
    /// Iterates over the kinds in words, each with the number of runs.
    pub fn kinds_in_words(&self) -> impl Iterator<Item = (String, usize)> {
        self.kinds.iter().map(|(kind, &runs)| (kind.replace('_', " "), runs))
    }
}

/// The component of a run that is matched to a component of the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatchedComponent {
    /// The name of the run.
    pub run: String,
    /// The head in this run; `None` for a feed-forward layer.
    pub head: Option<usize>,
    /// The kinds of the head.
    pub kinds: Vec<HeadKind>,
    /// The effect; `None` if the component is outside the circuit.
    pub effect: Option<f64>,
    /// The distance between the functions of the head and of the head of the reference.
    pub distance: Option<f64>,
    /// The first phase of the head.
    pub phase: Option<HeadPhase>,
}

/// The steps of the phases of matched heads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsensusPhase {
    /// The number of runs in which a replay located the steps; in the others, they are bracketed by recorded steps.
    pub located: usize,
    /// The step at which the phase began.
    pub began: GroupMean,
    /// The step at which half of the change was completed.
    pub half: GroupMean,
}

/// A connection of the circuit of at least one run. Its effect is the rise of the loss when it is ablated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsensusEdge {
    /// The sender, as numbered in the reference.
    pub from: CircuitNode,
    /// The receiver, as numbered in the reference.
    pub to: CircuitNode,
    /// The input of a receiving head; `None` for a feed-forward layer.
    pub input: Option<HeadInput>,
    /// The number of runs whose circuit has the connection.
    pub runs: usize,
    /// The share of the runs.
    pub share: f64,
    /// The mean effect over these runs.
    pub effect: GroupMean,
    /// The names of these runs.
    pub in_runs: Vec<String>,
}

/// Returns the components of all circuits, sorted by the number of runs, then by the size of the effect.
pub(super) fn components(runs: &[ExplainedRun], matchings: &[Matching]) -> Vec<ConsensusComponent> {
    let in_reference = |(run, matching): (&ExplainedRun, &Matching)| {
        let nodes = run.components.iter().map(|component| matching.reference_of(component.into()));
        nodes.collect::<Vec<_>>()
    };
    let mut nodes: Vec<CircuitNode> = runs.iter().zip(matchings).flat_map(in_reference).collect();
    nodes.sort();
    nodes.dedup();
    let mut found: Vec<_> = nodes.into_iter().filter_map(|node| component(node, runs, matchings)).collect();
    found.sort_by(|a, b| by_importance((a.runs, &a.effect), (b.runs, &b.effect)));
    found
}

fn component(node: CircuitNode, runs: &[ExplainedRun], matchings: &[Matching]) -> Option<ConsensusComponent> {
    let matched = |(run, matching): (&ExplainedRun, &Matching)| {
        let (own, distance) = matching.own_of(node);
        let component = run.component(own);
        MatchedComponent {
            run: run.name.clone(),
            head: own.head,
            kinds: component.map_or_else(Vec::new, |component| component.kinds.clone()),
            effect: component.map(|component| component.ablated - run.loss),
            distance,
            phase: run.phase(own),
        }
    };
    let matched: Vec<MatchedComponent> = runs.iter().zip(matchings).map(matched).collect();
    let effects: Vec<f64> = matched.iter().filter_map(|it| it.effect).collect();
    let mut kinds = BTreeMap::new();
    for kind in matched.iter().flat_map(|it| &it.kinds) {
        *kinds.entry(kind.name()).or_default() += 1;
    }
    Some(ConsensusComponent {
        node,
        runs: effects.len(),
        share: effects.len() as f64 / runs.len() as f64,
        kinds,
        effect: GroupMean::of(&effects)?,
        phase: phase(&matched),
        matched,
    })
}

fn phase(matched: &[MatchedComponent]) -> Option<ConsensusPhase> {
    let phases: Vec<HeadPhase> = matched.iter().filter_map(|it| it.phase).collect();
    let mean = |step: fn(&HeadPhase) -> f64| GroupMean::of(&phases.iter().map(step).collect::<Vec<_>>());
    Some(ConsensusPhase {
        located: phases.iter().filter(|phase| phase.is_located).count(),
        began: mean(|phase| phase.began)?,
        half: mean(|phase| phase.half)?,
    })
}

/// Returns the connections of a run, as numbered in the reference, with their effects.
pub(super) fn connections(run: &ExplainedRun, matching: &Matching) -> Vec<(Connection, f64)> {
    let connection = |edge: &crate::analysis::circuit::Edge| {
        let [from, to] = CircuitNode::ends(edge).map(|node| matching.reference_of(node));
        ((from, to, edge.input), edge.ablated - run.loss)
    };
    run.edges.iter().map(connection).collect()
}

/// Returns the connections of all circuits, sorted by the number of runs, then by the size of the effect.
pub(super) fn edges(runs: &[ExplainedRun], matchings: &[Matching]) -> Vec<ConsensusEdge> {
    let mut by_connection: Vec<(Connection, Vec<(&str, f64)>)> = Vec::new();
    for (run, matching) in runs.iter().zip(matchings) {
        for (connection, effect) in connections(run, matching) {
            let of_run = (run.name.as_str(), effect);
            match by_connection.iter_mut().find(|(known, _)| *known == connection) {
                Some((_, effects)) => effects.push(of_run),
                None => by_connection.push((connection, vec![of_run])),
            }
        }
    }
    let edge = |((from, to, input), effects): (Connection, Vec<(&str, f64)>)| {
        let values: Vec<f64> = effects.iter().map(|(_, effect)| *effect).collect();
        Some(ConsensusEdge {
            from,
            to,
            input,
            runs: values.len(),
            share: values.len() as f64 / runs.len() as f64,
            effect: GroupMean::of(&values)?,
            in_runs: effects.iter().map(|(name, _)| name.to_string()).collect(),
        })
    };
    let mut found: Vec<ConsensusEdge> = by_connection.into_iter().filter_map(edge).collect();
    found.sort_by(|a, b| by_importance((a.runs, &a.effect), (b.runs, &b.effect)));
    found
}

/// Orders by the number of runs, then by the size of the effect, both in descending order.
fn by_importance(one: (usize, &GroupMean), other: (usize, &GroupMean)) -> std::cmp::Ordering {
    other.0.cmp(&one.0).then(other.1.mean.abs().total_cmp(&one.1.mean.abs()))
}
