//! Heads of different runs matched by their function: the effects of their ablation, and the tokens that they attend to.

use std::collections::BTreeMap;

use super::explained::ExplainedRun;
use super::node::CircuitNode;
use crate::analysis::circuit::HeadKind;
use crate::analysis::{Score, assignment};

/// The attention weights that are known for all self-attention heads.
const WEIGHTS: [Score; 5] =
    [Score::Itself, Score::Previous, Score::First, Score::Induction, Score::Duplicate];
/// The kinds whose scores are known for heads of the circuit only.
const KINDS: [HeadKind; 3] = [HeadKind::Separator, HeadKind::Positional, HeadKind::NextToken];
/// The effects of a head: by all paths, and by its path to the output alone.
const EFFECTS: usize = 2;
/// The number of values that describe the function of a head; one of them is the copying score.
const VALUES: usize = EFFECTS + WEIGHTS.len() + KINDS.len() + 1;

/// The function of each head of a run, by layer and kind of attention.
type Functions = BTreeMap<(usize, bool), Vec<[f64; VALUES]>>;

/// The heads of a run matched to the heads of the reference in the same layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Matching {
    /// For each layer and kind of attention, the head of the reference for each head, and the distance of both.
    matched: BTreeMap<(usize, bool), Vec<(usize, f64)>>,
    /// The sum of the squared distances.
    cost: f64,
}

impl Matching {
    /// Matches heads so that the sum of the squared distances between their functions is least.
    fn new(run: &Functions, reference: &Functions) -> Self {
        let mut found = Self::default();
        for (group, heads) in run {
            let others = &reference[group];
            let costs: Vec<Vec<f64>> = heads
                .iter()
                .map(|head| others.iter().map(|other| squared_distance(head, other)).collect())
                .collect();
            let matched = assignment(&costs).into_iter().zip(&costs);
            let matched = matched.map(|(other, costs)| (other, costs[other].sqrt())).collect::<Vec<_>>();
            found.cost += matched.iter().map(|(_, distance)| distance * distance).sum::<f64>();
            found.matched.insert(*group, matched);
        }
        found
    }

    /// Returns the node of the reference for a node of the run. Feed-forward layers are matched by layer.
    pub fn reference_of(&self, node: CircuitNode) -> CircuitNode {
        let head = node.head.map(|head| self.matched[&node.group()][head].0);
        CircuitNode { head, ..node }
    }

    /// Returns the node of the run for a node of the reference, with the distance of two heads.
    pub fn own_of(&self, node: CircuitNode) -> (CircuitNode, Option<f64>) {
        let Some(wanted) = node.head else { return (node, None) };
        let matched = &self.matched[&node.group()];
        let head = matched.iter().position(|(other, _)| *other == wanted);
        (CircuitNode { head, ..node }, head.map(|head| matched[head].1))
    }
}

/// Matches the heads of runs with the same numbers of heads. Returns the index of the reference, the run with a circuit
/// whose heads differ least from those of all other runs with one, and the matching of each run.
pub(super) fn match_heads(runs: &[ExplainedRun]) -> (usize, Vec<Matching>) {
    let functions: Vec<Functions> = runs.iter().map(functions).collect();
    let has_circuit: Vec<usize> = (0..runs.len()).filter(|&run| runs[run].no_circuit.is_none()).collect();
    let cost = |&reference: &usize| -> f64 {
        has_circuit.iter().map(|&run| Matching::new(&functions[run], &functions[reference]).cost).sum()
    };
    let costs = has_circuit.iter().map(|run| (*run, cost(run)));
    let reference = costs.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(run, _)| run);
    let matching = |run: &Functions| Matching::new(run, &functions[reference]);
    (reference, functions.iter().map(matching).collect())
}

fn squared_distance(one: &[f64; VALUES], other: &[f64; VALUES]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum()
}

fn functions(run: &ExplainedRun) -> Functions {
    let mut found = Functions::new();
    let heads = run.heads_by_layer();
    let cross = run.cross_heads / heads.len().max(1);
    for (layer, heads) in heads.into_iter().enumerate() {
        for (count, cross) in [(heads, false), (cross, true)] {
            let node = |head| CircuitNode { layer, head: Some(head), cross };
            let of_group = (0..count).map(|head| function(run, node(head))).collect();
            found.insert((layer, cross), of_group);
        }
    }
    found
}

/// Returns the function of a head: its effects as shares of the gain, 0 outside the circuit, then attention weights, and
/// its copying score. Values that are unknown or do not apply are 0.
fn function(run: &ExplainedRun, node: CircuitNode) -> [f64; VALUES] {
    let component = run.component(node);
    let direct = run.direct.iter().find(|effect| CircuitNode::from(*effect) == node);
    let effects = [component.map(|it| it.ablated), direct.map(|it| it.ablated)]
        .map(|ablated| ablated.map_or(0.0, |ablated| (ablated - run.loss) / run.gain));
    let kind_score = |kind: HeadKind| {
        let scores = component.iter().flat_map(|component| &component.kind_scores);
        scores.clone().find(|score| score.kind == kind).map_or(0.0, |score| score.score)
    };
    let own = node.head.filter(|_| !node.cross);
    let weight = |score: Score| match (own, score) {
        (Some(head), _) => {
            run.scores.get(node.layer).and_then(|heads| heads.get(head)?[score]).unwrap_or(0.0)
        }
        (None, Score::First) => kind_score(HeadKind::FirstToken),
        (None, _) => 0.0,
    };
    let copying = own.map_or(0.0, |head| run.copying[node.layer][head]);
    let all = effects.into_iter().chain(WEIGHTS.map(weight)).chain(KINDS.map(kind_score)).chain([copying]);
    let mut values = [0.0; VALUES];
    values.iter_mut().zip(all).for_each(|(value, found)| *value = found);
    values
}
