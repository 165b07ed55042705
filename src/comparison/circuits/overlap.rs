//! The connections that two runs share, compared with those that they share if the heads are matched at random.

use std::collections::{BTreeMap, BTreeSet};

use rand::seq::SliceRandom;
use serde::Serialize;

use super::consensus::{Connection, connections};
use super::explained::ExplainedRun;
use super::matching::Matching;
use super::node::CircuitNode;
use crate::analysis::circuit::HeadInput;
use crate::data::seed::{Purpose, generator};

/// The number of random matchings.
const DRAWS: u64 = 500;

/// The share of connections that two runs have in common (Jaccard, 1912), on average over all pairs of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConnectionOverlap {
    /// The share with matched heads.
    pub matched: f64,
    /// The mean share if the heads of the circuit are exchanged at random within each layer.
    pub chance: f64,
    /// The p-value: the share of random exchanges, counting the matching itself, with a share at least as large.
    pub p: f64,
}

/// The connections of a run, and the heads of its circuit that can be exchanged, by layer and kind of attention.
struct MatchedCircuit {
    connections: Vec<(CircuitNode, CircuitNode, u8)>,
    heads: BTreeMap<(usize, bool), Vec<CircuitNode>>,
}

impl ConnectionOverlap {
    /// Compares the runs that have connections; returns `None` if fewer than two have.
    pub(super) fn new(runs: &[ExplainedRun], matchings: &[Matching]) -> Option<Self> {
        let circuits = runs.iter().zip(matchings).map(|(run, matching)| MatchedCircuit::new(run, matching));
        let circuits: Vec<MatchedCircuit> = circuits.filter(|it| !it.connections.is_empty()).collect();
        if circuits.len() < 2 {
            return None;
        }
        let matched = mean_overlap(&circuits.iter().map(MatchedCircuit::matched).collect::<Vec<_>>());
        let draw = |draw: u64| {
            let exchanged = (0..).zip(&circuits).map(|(run, circuit)| circuit.exchanged([draw, run]));
            mean_overlap(&exchanged.collect::<Vec<_>>())
        };
        let draws: Vec<f64> = (0..DRAWS).map(draw).collect();
        let as_large = draws.iter().filter(|draw| **draw >= matched - 1e-12).count();
        Some(Self {
            matched,
            chance: draws.iter().sum::<f64>() / DRAWS as f64,
            p: (1 + as_large) as f64 / (1 + DRAWS) as f64,
        })
    }
}

impl MatchedCircuit {
    fn new(run: &ExplainedRun, matching: &Matching) -> Self {
        let mut heads = BTreeMap::<_, Vec<CircuitNode>>::new();
        let nodes = run.components.iter().map(|component| matching.reference_of(component.into()));
        for node in nodes.filter(|node| node.head.is_some()) {
            heads.entry(node.group()).or_default().push(node);
        }
        let connections = connections(run, matching).into_iter().map(|(found, _)| ordered(found)).collect();
        Self { connections, heads }
    }

    fn matched(&self) -> BTreeSet<(CircuitNode, CircuitNode, u8)> {
        self.connections.iter().copied().collect()
    }

    /// Returns the connections with the heads of each layer exchanged at random.
    fn exchanged(&self, position: [u64; 2]) -> BTreeSet<(CircuitNode, CircuitNode, u8)> {
        let mut random = generator(0, Purpose::Expectation, position);
        let mut new = BTreeMap::new();
        for heads in self.heads.values() {
            let mut shuffled = heads.clone();
            shuffled.shuffle(&mut random);
            new.extend(heads.iter().copied().zip(shuffled));
        }
        let of = |node: CircuitNode| new.get(&node).copied().unwrap_or(node);
        self.connections.iter().map(|&(from, to, input)| (of(from), of(to), input)).collect()
    }
}

/// Returns a connection whose input can be ordered.
fn ordered((from, to, input): Connection) -> (CircuitNode, CircuitNode, u8) {
    let input = match input {
        None => 0,
        Some(HeadInput::Query) => 1,
        Some(HeadInput::Key) => 2,
        Some(HeadInput::Value) => 3,
    };
    (from, to, input)
}

/// Returns the mean over all pairs of sets of the share of their elements that both have.
fn mean_overlap<T: Ord>(sets: &[BTreeSet<T>]) -> f64 {
    let (mut sum, mut pairs) = (0.0, 0.0);
    for (index, one) in sets.iter().enumerate() {
        for other in &sets[..index] {
            let shared = one.intersection(other).count();
            sum += shared as f64 / (one.len() + other.len() - shared) as f64;
            pairs += 1.0;
        }
    }
    sum / pairs
}
