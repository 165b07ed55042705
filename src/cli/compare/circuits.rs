//! `compare --circuits`: the circuits of runs.

use crate::analysis::circuit::HeadInput;
use crate::comparison::{CircuitComparison, ConsensusComponent, ConsensusEdge, GroupMean};
use crate::numbers::{fixed, thousands};
use crate::terminal::{say, table};

/// The maximum number of connections in the table.
const MAX_CONNECTIONS: usize = 24;

/// Prints the components and the connections of all circuits as tables, then the findings.
pub(super) fn print(found: &CircuitComparison) {
    let count = found.runs.len();
    let row = |component: &ConsensusComponent| {
        let kinds = component.kinds_in_words().map(|(kind, runs)| format!("{kind} ({runs})"));
        let [effect, interval] = cells(&component.effect);
        let step = component.phase.as_ref().map(|phase| thousands(phase.half.mean));
        [
            component.node.to_string(),
            format!("{} of {count}", component.runs),
            effect,
            interval,
            step.unwrap_or_default(),
            kinds.collect::<Vec<_>>().join(", "),
        ]
    };
    let names =
        ["component", "runs", "rise of the loss", "95 % interval", "step of its phase", "kinds (runs)"];
    table("lrrrrl", &names, &found.components.iter().map(row).collect::<Vec<_>>());
    say("");
    let row = |edge: &ConsensusEdge| {
        let input = edge.input.map_or("", HeadInput::plural);
        let [effect, interval] = cells(&edge.effect);
        let runs = format!("{} of {count}", edge.runs);
        [edge.from.to_string(), edge.to.to_string(), input.to_string(), runs, effect, interval]
    };
    let shown = found.edges.iter().take(MAX_CONNECTIONS);
    let names = ["from", "to", "input", "runs", "rise of the loss", "95 % interval"];
    table("lllrrr", &names, &shown.map(row).collect::<Vec<_>>());
    if found.edges.len() > MAX_CONNECTIONS {
        say(&format!("{} of {} connections; see --json", MAX_CONNECTIONS, found.edges.len()));
    }
    say("");
    found.sentences.iter().for_each(|sentence| say(sentence));
}

/// Returns the mean and the interval of an effect in nats.
fn cells(effect: &GroupMean) -> [String; 2] {
    let interval = effect.interval.map(|ends| ends.map(|end| fixed(end, 3)).join(" to "));
    [fixed(effect.mean, 3), interval.unwrap_or_default()]
}
