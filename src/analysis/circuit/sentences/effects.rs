//! The effects of ablations as parts of sentences.

use super::{interval_of_share, rounded};
use crate::analysis::circuit::criteria::{CircuitGain, Minimality};
use crate::analysis::circuit::explanation::{Component, Explanation};
use crate::analysis::circuit::question::Quantity;
use crate::numbers::{counted, percent, signed};

/// Formats an ablation, as "mean-ablating it at all positions".
pub(super) fn ablating(gain: &CircuitGain, what: &str) -> String {
    format!("{} {what} at all positions", gain.ablation.verb())
}

/// Formats the 95 % interval of a change, or nothing if it is unknown.
pub(super) fn interval_of_change(interval: Option<[f64; 2]>) -> String {
    let text = interval.map(|interval| interval.map(|change| signed(change, 2)));
    text.map_or(String::new(), |[low, high]| format!(" (95 % interval of the change: {low} to {high})"))
}

/// Formats the effect of an ablation at the explained targets, as "raises the loss from 1.20 to 1.94 over 32 targets".
pub(super) fn effect_at_targets(Explanation { gain, basis, .. }: &Explanation, ablated: f64) -> String {
    let targets = match basis.positions[..] {
        [position] if basis.sequences == 1 => format!("at position {position}"),
        _ => format!("over {}", counted(basis.targets, "target")),
    };
    format!("{} {targets}", effect(gain.quantity, gain.model, ablated))
}

/// Formats the effect of an ablation, as "raises the loss from 1.20 to 1.94".
fn effect(quantity: Quantity, full: f64, ablated: f64) -> String {
    let ([before, after], name) = ([full, ablated].map(rounded), quantity.name());
    match before == after {
        true => format!("leaves the {name} at {before}"),
        false if ablated > full => format!("raises the {name} from {before} to {after}"),
        false => format!("lowers the {name} from {before} to {after}"),
    }
}

/// States the effect of a component in the full model and in the circuit.
pub(super) fn describe_effect(explanation: &Explanation, component: &Component) -> String {
    let Component { ablated, interval, minimality, .. } = component;
    let Minimality { without, without_interval, without_kind } = minimality;
    let gain = &explanation.gain;
    let mut effect = effect_at_targets(explanation, *ablated) + &interval_of_change(*interval);
    if gain.is_harmful(*ablated, *interval) {
        let this = if explanation.basis.sequences == 1 { "this sequence" } else { "these sequences" };
        effect += &format!(", so it makes the model worse on {this}");
    }
    if let Some(direct) = explanation.views.direct.iter().find(|it| it.is_of(component)) {
        let (verb, change) = (gain.ablation.verb(), self::effect(gain.quantity, gain.model, direct.ablated));
        effect += &format!("; {verb} only its path to the output {change}");
    }
    let without = without.map(|without| {
        let interval = without_interval.map(|change| gain.share_interval(change));
        format!(
            "; without it, the circuit recovers {}{} instead of {}",
            percent(gain.share(without)),
            interval_of_share(interval),
            percent(gain.shares.faithfulness)
        )
    });
    let of_kind = without_kind.map(|values| values.map(|value| percent(gain.share(value))));
    let of_kind = of_kind.map(|[none, with]| {
        format!(
            "; with the other induction heads ablated, it recovers {none} without this one and {with} with it"
        )
    });
    format!("{effect}{}{}.", without.unwrap_or_default(), of_kind.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_states_the_sign_of_the_change() {
        assert_eq!(effect(Quantity::Loss, 1.94, 1.53), "lowers the loss from 1.94 to 1.53");
        assert_eq!(effect(Quantity::Loss, 1.53, 1.94), "raises the loss from 1.53 to 1.94");
        assert_eq!(effect(Quantity::Loss, 1.531, 1.534), "leaves the loss at 1.53");
        let difference = Quantity::LogitDifference;
        assert_eq!(effect(difference, 1.0, -0.5), "lowers the logit difference from 1.00 to −0.50");
        assert_eq!(effect(difference, -1e-9, 1e-9), "leaves the logit difference at 0.00");
    }
}
