//! The comparison of circuits as sentences with numbers.

use super::CircuitComparison;
use super::consensus::{ConsensusComponent, ConsensusEdge, ConsensusPhase};
use super::explained::ExplainedRun;
use super::overlap::ConnectionOverlap;
use super::transplants::RunTransplant;
use crate::comparison::GroupMean;
use crate::numbers::{counted, fixed, percent, thousands};

/// The maximum number of components or connections that a sentence names.
const MAX_NAMED: usize = 6;
/// The largest p-value at which connections are called more alike than by chance.
const SIGNIFICANCE_LEVEL: f64 = 0.05;

/// Returns the findings about runs.
pub(super) fn sentences(found: &CircuitComparison, runs: &[ExplainedRun]) -> Vec<String> {
    let count = found.runs.len();
    let mut sentences = vec![shared(found, count)];
    sentences.push(format!(
        "The runs have {}; heads have the numbers of `{}`, to whose heads the others are matched by their effects and \
         attention.",
        runs[0].architecture(),
        found.reference
    ));
    if !found.keys.is_empty() {
        sentences.push(format!("The runs also differ in {}.", found.keys.join(", ")));
    }
    let common = found.components.iter().filter(|component| component.runs == count);
    sentences.extend(common.take(MAX_NAMED).map(|component| of_all(component, count)));
    sentences.extend(missing(found, count));
    sentences.extend(found.components.iter().filter_map(different_kinds));
    sentences.extend(connections(found, count));
    sentences.extend(found.overlap.map(overlap));
    sentences.extend(phases(found, runs));
    for (run, reason) in &found.no_circuit {
        sentences.push(format!("`{run}` has no circuit: {reason}."));
    }
    for run in runs.iter().filter(|run| run.unconfirmed > 0) {
        sentences.push(format!(
            "The search in `{}` ended early, so {} of its circuit may be missing here.",
            run.name,
            counted(run.unconfirmed, "component")
        ));
    }
    sentences
}

/// States what all runs share.
fn shared(found: &CircuitComparison, count: usize) -> String {
    let of_all = [
        found.components.iter().filter(|it| it.runs == count).count(),
        found.edges.iter().filter(|it| it.runs == count).count(),
    ];
    let all = [(found.components.len(), "component"), (found.edges.len(), "connection")];
    let [components, connections] = [0, 1].map(|at| match all[at] {
        (all, noun) if of_all[at] == all => format!("all {}", counted(all, noun)),
        (all, noun) => format!("{} of {}", of_all[at], counted(all, noun)),
    });
    format!("The circuits of {count} runs share {components} and {connections} that any of them has.")
}

/// Describes a component that all circuits have.
fn of_all(component: &ConsensusComponent, count: usize) -> String {
    let kinds = component.kinds_in_words().map(|(kind, runs)| format!("{kind} in {runs}"));
    let kinds = kinds.collect::<Vec<_>>();
    let kinds = match kinds.is_empty() {
        true => String::new(),
        false => format!(" ({} of {count} runs)", kinds.join(", ")),
    };
    format!("{}{kinds}: its ablation {}.", component.node, rise(&component.effect))
}

/// Returns such as "raises the loss by 3.91 nats on average (95 % interval 3.75 to 4.07)".
fn rise(effect: &GroupMean) -> String {
    let (verb, sign) = if effect.mean < 0.0 { ("lowers", -1.0) } else { ("raises", 1.0) };
    let average = if effect.count > 1 { " on average" } else { "" };
    let mut ends = effect.interval.map(|ends| ends.map(|end| sign * end));
    if sign < 0.0 {
        ends.iter_mut().for_each(|ends| ends.reverse());
    }
    let interval = ends.map(|ends| {
        let [low, high] = ends.map(|end| fixed(end, 2));
        format!(" (95 % interval {low} to {high})")
    });
    format!(
        "{verb} the loss by {} nats{average}{}",
        fixed(sign * effect.mean, 2),
        interval.unwrap_or_default()
    )
}

/// Names the components that only some circuits have.
fn missing(found: &CircuitComparison, count: usize) -> Option<String> {
    let some: Vec<&ConsensusComponent> = found.components.iter().filter(|it| it.runs < count).collect();
    let name = |component: &&ConsensusComponent| {
        let has = component.matched.iter().filter(|it| it.effect.is_some()).map(|it| format!("`{}`", it.run));
        // The shorter list of names.
        let lacks = component.matched.iter().filter(|it| it.effect.is_none());
        let lacks: Vec<String> = lacks.map(|it| format!("`{}`", it.run)).collect();
        let which = match lacks.len() < component.runs {
            true => format!("not {}", lacks.join(", ")),
            false => has.collect::<Vec<_>>().join(", "),
        };
        format!("{} ({} of {count}: {which})", component.node, component.runs)
    };
    let named: Vec<String> = some.iter().take(MAX_NAMED).map(name).collect();
    (!named.is_empty())
        .then(|| format!("Only some circuits have {}{}.", named.join("; "), more(some.len(), "component")))
}

/// Returns such as "; 3 more components" if not all are named.
fn more(count: usize, noun: &str) -> String {
    match count.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        others => format!("; and {}", counted(others, &format!("more {noun}"))),
    }
}

/// States the kinds that a head has in some of the circuits only.
fn different_kinds(component: &ConsensusComponent) -> Option<String> {
    let some: Vec<String> = component
        .kinds_in_words()
        .filter(|(_, runs)| *runs < component.runs)
        .map(|(kind, runs)| format!("{kind} in {runs}"))
        .collect();
    (!some.is_empty()).then(|| {
        format!(
            "The head matched to {} differs in kind: of the {} with it in the circuit, it is {}.",
            component.node,
            counted(component.runs, "run"),
            some.join(" and ")
        )
    })
}

/// Names the connections that all circuits have.
fn connections(found: &CircuitComparison, count: usize) -> Option<String> {
    let common: Vec<&ConsensusEdge> = found.edges.iter().filter(|edge| edge.runs == count).collect();
    let name = |edge: &&ConsensusEdge| {
        format!("{} to {} ({} nats)", edge.from, receiver(edge), fixed(edge.effect.mean, 2))
    };
    let named: Vec<String> = common.iter().take(MAX_NAMED).map(name).collect();
    (!named.is_empty()).then(|| {
        format!(
            "All circuits have the connections {}{}; in brackets, the mean rise of the loss when only the connection is \
             ablated.",
            named.join("; "),
            more(common.len(), "connection")
        )
    })
}

/// Returns the receiver of a connection, with its input.
fn receiver(edge: &ConsensusEdge) -> String {
    match edge.input {
        Some(input) => format!("the {} of {}", input.plural(), edge.to),
        None => edge.to.to_string(),
    }
}

fn overlap(ConnectionOverlap { matched, chance, p }: ConnectionOverlap) -> String {
    let [matched, chance] = [matched, chance].map(percent);
    let verdict = match p < SIGNIFICANCE_LEVEL {
        true => "matched heads have the same connections more often than by chance",
        false => "the connections are no evidence that matched heads do the same",
    };
    format!(
        "Two runs have {matched} of their connections in common on average, and {chance} if the heads of each layer are \
         exchanged at random (p = {p:.3}): {verdict}."
    )
}

/// States what the heads of the reference recover in the place of the matched heads of other runs.
pub(super) fn transplants(found: &CircuitComparison) -> Vec<String> {
    let of_head = |component: &ConsensusComponent| {
        let is_it = |it: &&RunTransplant| {
            (it.transplant.layer, Some(it.transplant.donor_head))
                == (component.node.layer, component.node.head)
        };
        let all: Vec<&RunTransplant> = found.transplants.iter().filter(is_it).collect();
        let mean = GroupMean::of(&all.iter().map(|it| it.recovered).collect::<Vec<_>>())?;
        let interval = mean.interval.map(|ends| ends.map(percent));
        let interval = interval.map(|[low, high]| format!(" on average (95 % interval {low} to {high})"));
        let others = GroupMean::of(&all.iter().filter_map(|it| it.recovered_by_others).collect::<Vec<_>>());
        let others =
            others.map(|it| format!("; the best other head of its layer recovers {}", percent(it.mean)));
        let basis = match (all.iter().all(|it| it.is_aligned), all.iter().any(|it| it.is_aligned)) {
            (true, _) => ", with the residual streams aligned by the embeddings,",
            (_, true) => {
                ", with the residual streams aligned by the embeddings where the runs started differently,"
            }
            _ => "",
        };
        Some(format!(
            "Head {} of `{}` in the place of the matched head of {}{basis} recovers {}{} of the rise of the loss when that \
             head is ablated{}.",
            component.node,
            found.reference,
            counted(all.len(), "other run"),
            percent(mean.mean),
            interval.unwrap_or_default(),
            others.unwrap_or_default()
        ))
    };
    let heads = found.components.iter().filter(|component| !component.node.cross);
    heads.filter(|component| component.node.head.is_some()).filter_map(of_head).collect()
}

/// States the steps of the phases, or how to find them.
fn phases(found: &CircuitComparison, runs: &[ExplainedRun]) -> Vec<String> {
    let known = runs.iter().filter(|run| run.phases.is_some()).count();
    if known == 0 {
        return Vec::new();
    }
    let of_head = |component: &ConsensusComponent| {
        let ConsensusPhase { located, began, half } = component.phase.as_ref()?;
        let [began, half] = [began, half].map(|step| {
            let interval = step.interval.map(|ends| ends.map(|end| thousands(end.max(0.0))));
            let interval = interval.map(|[low, high]| format!(" (95 % interval {low} to {high})"));
            format!("{}{}", thousands(step.mean), interval.unwrap_or_default())
        });
        let count = component.phase.as_ref()?.began.count;
        let located = match located == &count {
            true => String::new(),
            false => format!("; replays located {located} of these phases"),
        };
        Some(format!(
            "{} has a phase in {count} of {known} runs with phases.json: it begins at step {began} and is half complete by \
             step {half}{located}.",
            component.node
        ))
    };
    found.components.iter().filter_map(of_head).collect()
}
