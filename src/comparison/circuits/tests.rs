//! Circuits of hand-made runs, whose heads have different numbers.

use super::explained::ExplainedRun;
use super::*;
use crate::analysis::circuit::{Component, DirectEffect, Edge, HeadInput, HeadKind, KindScore, Minimality};
use crate::analysis::{HeadScores, Score};
use crate::training::{HeadPhase, Phase, PhaseChange, PhaseCurve, Phases, StoredPhases};

/// The loss and the gain of each run.
const LOSS: f64 = 1.5;
const GAIN: f64 = 2.5;

/// The numbers of the heads of a run: in layer 0 of the previous-token head, the positional head and the idle head; in
/// layer 1 of the induction head and of two idle ones.
type Numbers = [[usize; 3]; 2];

fn component(layer: usize, head: Option<usize>, kind: Option<HeadKind>, effect: f64) -> Component {
    let kind_score =
        |kind| KindScore { kind, score: 0.9, queries: 7, interval: None, chance: 0.1, random: None };
    Component {
        layer,
        head,
        cross: false,
        feed_forward: head.is_none(),
        kinds: Vec::from_iter(kind),
        kind_scores: kind.into_iter().map(kind_score).collect(),
        estimated: None,
        ablated: LOSS + effect,
        interval: None,
        minimality: Minimality::default(),
        attends: Vec::new(),
    }
}

fn edge(from: [usize; 2], to: (usize, Option<usize>), input: Option<HeadInput>, effect: f64) -> Edge {
    Edge {
        from: (from[0], Some(from[1])),
        to,
        from_cross: false,
        to_cross: false,
        input,
        composition: None,
        random: None,
        estimated: None,
        ablated: LOSS + effect,
        interval: None,
    }
}

/// Returns a run with an induction circuit whose heads have these numbers. All effects are multiples of `strength`.
fn run(name: &str, numbers: Numbers, strength: f64) -> ExplainedRun {
    let [[previous, positional, _], [induction, ..]] = numbers;
    let mut scores = vec![vec![HeadScores::new(|_| Some(0.1)); 3]; 2];
    let weights = |score: Score| HeadScores::new(move |it| Some(if it == score { 0.9 } else { 0.05 }));
    scores[0][previous] = weights(Score::Previous);
    scores[1][induction] = weights(Score::Induction);
    let mut copying = vec![vec![0.0; 3]; 2];
    copying[1][induction] = 0.8;
    let direct =
        DirectEffect { layer: 1, head: Some(induction), cross: false, ablated: LOSS + 1.0, interval: None };
    ExplainedRun {
        name: name.to_string(),
        loss: LOSS,
        gain: GAIN,
        no_circuit: None,
        unconfirmed: 0,
        components: vec![
            component(0, Some(previous), Some(HeadKind::PreviousToken), 2.0 * strength),
            component(0, Some(positional), Some(HeadKind::Positional), 0.5 * strength),
            component(1, Some(induction), Some(HeadKind::Induction), 1.0 * strength),
            component(1, None, None, 0.25 * strength),
        ],
        direct: vec![direct],
        edges: vec![
            edge([0, previous], (1, Some(induction)), Some(HeadInput::Key), 1.5 * strength),
            edge([0, positional], (1, None), None, 0.25 * strength),
        ],
        scores,
        copying,
        cross_heads: 0,
        phases: None,
    }
}

/// Returns three runs with the same circuit.
fn same_circuits() -> Vec<ExplainedRun> {
    vec![
        run("a", [[0, 1, 2], [2, 0, 1]], 1.0),
        run("b", [[2, 0, 1], [0, 1, 2]], 1.2),
        run("c", [[1, 2, 0], [1, 2, 0]], 0.8),
    ]
}

fn compared(runs: &[ExplainedRun]) -> CircuitComparison {
    CircuitComparison::new(runs, Vec::new()).unwrap()
}

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-4, "{found} for {expected}");
}

#[test]
fn permuted_heads_are_matched() {
    let found = compared(&same_circuits());
    assert_eq!(found.reference, "a", "its effects are in the middle");
    let nodes: Vec<String> = found.components.iter().map(|it| it.node.to_string()).collect();
    assert_eq!(nodes, ["0.0", "1.2", "0.1", "1.mlp"], "in descending order of the effect");
    let heads = |at: usize| found.components[at].matched.iter().map(|it| it.head).collect::<Vec<_>>();
    assert_eq!(heads(0), [Some(0), Some(2), Some(1)]);
    assert_eq!(heads(1), [Some(2), Some(0), Some(1)]);
    assert_eq!(heads(3), [None; 3]);
    assert!(found.components.iter().all(|it| (it.runs, it.share) == (3, 1.0)), "{found:#?}");
    assert_eq!(found.components[0].kinds, BTreeMap::from([("previous_token", 3)]));
    assert_eq!(found.components[0].matched[0].distance, Some(0.0));
    let effect = found.components[1].effect;
    assert_close(effect.mean, 1.0);
    // Student's t with two degrees of freedom: 4.3027 times the standard error of 0.2 / √3.
    assert_close(effect.interval.unwrap()[1], 1.496_83);
    let first = "The circuits of 3 runs share all 4 components and all 2 connections that any of them has.";
    assert_eq!(found.sentences[0], first);
}

#[test]
fn a_missing_component_has_the_share_of_the_others() {
    let mut runs = same_circuits();
    runs[1].components.remove(1);
    runs[1].edges.remove(1);
    let found = compared(&runs);
    let positional = found.components.last().unwrap();
    assert_eq!((positional.node.to_string().as_str(), positional.runs), ("0.1", 2));
    assert_close(positional.share, 2.0 / 3.0);
    assert_close(positional.effect.mean, 0.45);
    assert_eq!(positional.matched[1].effect, None);
    let words = found.sentences.join("\n");
    assert!(
        words.starts_with("The circuits of 3 runs share 3 of 4 components and 1 of 2 connections"),
        "{words}"
    );
    assert!(words.contains("Only some circuits have 0.1 (2 of 3: not `b`)."), "{words}");
}

#[test]
fn connections_follow_the_match() {
    let mut runs = same_circuits();
    let found = compared(&runs);
    let ends = |at: usize| {
        let edge = &found.edges[at];
        (edge.from.to_string(), edge.to.to_string(), edge.input, edge.runs)
    };
    assert_eq!(ends(0), ("0.0".to_string(), "1.2".to_string(), Some(HeadInput::Key), 3));
    assert_eq!(ends(1), ("0.1".to_string(), "1.mlp".to_string(), None, 3));
    assert_close(found.edges[0].effect.mean, 1.5);
    // In another run, the positional head feeds the induction head.
    runs[2].edges[0].from = (0, Some(2));
    let found = compared(&runs);
    let key: Vec<_> = found.edges.iter().filter(|edge| edge.input.is_some()).collect();
    assert_eq!(
        key.iter().map(|edge| (edge.from.head, edge.runs)).collect::<Vec<_>>(),
        [(Some(0), 2), (Some(1), 1)]
    );
    assert_eq!(key[1].in_runs, ["c"]);
}

#[test]
fn overlap_of_connections_is_compared_with_chance() {
    let found = compared(&same_circuits()).overlap.unwrap();
    assert_close(found.matched, 1.0);
    // Only the two heads of layer 0 can be exchanged: all three runs agree with a probability of 1/4, else two do.
    assert!((found.chance - 0.5).abs() < 0.05 && (found.p - 0.25).abs() < 0.06, "{found:?}");
    let mut runs = same_circuits();
    runs.iter_mut().skip(1).for_each(|run| run.edges.clear());
    assert_eq!(compared(&runs).overlap, None);
}

#[test]
fn runs_without_a_circuit_count_as_runs() {
    let mut runs = same_circuits();
    (runs[0].no_circuit, runs[0].gain) = (Some("the loss is 4.1 nats".to_string()), 0.0);
    (runs[0].components, runs[0].edges, runs[0].direct) = Default::default();
    let found = compared(&runs);
    assert_ne!(found.reference, "a");
    assert!(found.components.iter().all(|it| it.runs == 2), "{found:#?}");
    assert!(found.sentences.contains(&"`a` has no circuit: the loss is 4.1 nats.".to_string()), "{found:#?}");
    runs.iter_mut().for_each(|run| run.no_circuit = Some("the loss is 4.1 nats".to_string()));
    let error = CircuitComparison::new(&runs, Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "none of the runs has a circuit; in `a`, the loss is 4.1 nats");
}

#[test]
fn phases_of_matched_heads_are_averaged() {
    let mut runs = same_circuits();
    for (run, (head, began, is_located)) in runs.iter_mut().zip([(2, 200.0, true), (0, 260.0, false)]) {
        let phase = HeadPhase { began, half: began + 40.0, is_located };
        run.phases = Some(BTreeMap::from([([1, head], phase)]));
    }
    let found = compared(&runs);
    let phase = found.components[1].phase.as_ref().unwrap();
    assert_eq!((phase.located, phase.began.count, phase.began.mean, phase.half.mean), (1, 2, 230.0, 270.0));
    assert!(found.components[0].phase.is_none());
    let words = found.sentences.join("\n");
    assert!(
        words.contains("1.2 has a phase in 2 of 2 runs with phases.json: it begins at step 230"),
        "{words}"
    );
    assert!(words.contains("replays located 1 of these phases"), "{words}");
}

#[test]
fn models_with_different_heads_are_refused() {
    let mut runs = same_circuits();
    runs[2].copying[1].pop();
    let error = CircuitComparison::new(&runs, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("`a` has 2 layers of 3 heads and `c` has 2 layers of 3, 2 heads"), "{error}");
    let error = CircuitComparison::new(&runs[..1], Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("all runs have the same weights"), "{error}");
}

#[test]
fn phases_of_heads_are_read_from_phases_json() {
    let change = |curve, steps| PhaseChange {
        curve,
        between: [150, 250],
        values: [0.1, 0.9],
        steps,
        measured: Vec::new(),
    };
    let score = |head, score| PhaseCurve::HeadScore { layer: 1, head, score };
    let phase = |changes| Phase {
        between: [150, 250],
        steps: None,
        losses: Vec::new(),
        changes,
        circuits: None,
        end: None,
        sentences: Vec::new(),
    };
    let first = vec![
        change(PhaseCurve::TrainingLoss, Some([1, 2, 3])),
        change(score(2, "induction"), Some([170, 190, 230])),
        change(score(2, "self"), Some([180, 185, 190])),
    ];
    let second = vec![change(score(2, "first"), Some([600, 610, 620])), change(score(0, "first"), None)];
    let phases = Phases {
        steps: 700,
        curves: 20,
        recorded_every: 50,
        phases: [first, second].map(phase).into(),
        stages: Vec::new(),
        replay: None,
        sentences: Vec::new(),
    };
    let stored: StoredPhases = serde_json::from_value(serde_json::to_value(phases).unwrap()).unwrap();
    let expected = [
        ([1, 0], HeadPhase { began: 150.0, half: 200.0, is_located: false }),
        ([1, 2], HeadPhase { began: 170.0, half: 190.0, is_located: true }),
    ];
    assert_eq!(stored.by_head(), BTreeMap::from(expected));
}
