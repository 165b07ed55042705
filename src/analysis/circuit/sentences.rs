//! An explanation as sentences.

use super::explanation::{AttendedToken, CircuitGain, Component, Cut, Edge, Explanation, TestedConnections};
use super::kind::HeadKind;
use super::patching::Patching;
use super::question::Quantity;
use super::repeat::{HeadOfKind, Repeated};
use super::watch::ExplanationStage;
use super::weights::HeadInput;
use crate::analysis::{HeadScores, Score};
use crate::data::Vocabulary;
use crate::numbers::{counted, fixed, signed, thousands};

/// The minimum share of the gain by which the ablation of a harmful component improves the model.
const MIN_HARM: f64 = 0.01;

/// Formats the explanation as sentences: first the circuit, then its components, the most important first. The paths
/// into a component follow it. Tokens are named if the vocabulary is known.
pub(super) fn sentences(
    explanation: &Explanation,
    scores: &[Vec<HeadScores>],
    vocabulary: Option<&Vocabulary>,
) -> Vec<String> {
    let mut sentences = explanation.repeated.as_ref().map(describe_repeated).unwrap_or_default();
    if let Some(reason) = &explanation.gain.no_circuit {
        let is_cut =
            explanation.cut.as_ref().is_some_and(|cut| cut.stages.contains(&ExplanationStage::Components));
        let beginning = if is_cut { "Not explained" } else { "Nothing to explain" };
        sentences.push(format!("{beginning}: {reason}."));
        return sentences;
    }
    sentences.extend(describe_selection(explanation));
    sentences.push(describe_circuit(explanation));
    sentences.push(match explanation.gain.smaller_sets {
        Some(sets) => format!(
            "No smaller circuit exists at this tolerance: {} evaluated.",
            match sets {
                1 => "the only smaller set of components was".to_string(),
                _ => format!("all {} smaller sets of components were", thousands(sets as f64)),
            }
        ),
        None => "The search was greedy, so a smaller circuit may exist.".to_string(),
    });
    sentences.extend(explanation.cut.as_ref().map(describe_cut));
    sentences.extend(describe_tested(explanation));
    for component in &explanation.components {
        sentences.push(describe_component(explanation, component, scores));
        sentences.extend(describe_attended(&explanation.basis.inputs, component, vocabulary));
        let at = (component.layer, component.head, component.cross);
        let into = |edge: &&Edge| (edge.to.0, edge.to.1, edge.to_cross) == at;
        sentences
            .extend(explanation.edges.iter().filter(into).map(|edge| describe_edge(edge, &explanation.gain)));
    }
    sentences.extend(explanation.views.patching.as_ref().and_then(describe_patching));
    sentences
}

impl Explanation {
    /// Records that a stage ended early, also in the sentence about all such stages.
    pub(super) fn cut(&mut self, stage: ExplanationStage) {
        let cut = self.cut.get_or_insert_default();
        let before = describe_cut(cut);
        cut.stages.push(stage);
        let after = describe_cut(cut);
        match self.sentences.iter_mut().find(|sentence| **sentence == before) {
            Some(sentence) => *sentence = after,
            None => self.sentences.push(after),
        }
    }
}

fn rounded(value: f64) -> String {
    fixed(value, 2)
}

fn percent(share: f64) -> String {
    format!("{} %", fixed(share * 100.0, 0))
}

/// Formats the 95 % interval of a change, or nothing if it is unknown.
fn interval_of_change(interval: Option<[f64; 2]>) -> String {
    let signed = |change: f64| signed(change, 2).replace('-', "−");
    let text = interval.map(|interval| interval.map(signed));
    text.map_or(String::new(), |[low, high]| format!(" (95 % interval of the change: {low} to {high})"))
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

/// Names the positions of the targets, if the model is better than the unigram baseline only at some.
fn describe_selection(Explanation { basis, gain, repeated, .. }: &Explanation) -> Option<String> {
    let is_selection = gain.quantity == Quantity::Loss
        && repeated.is_none()
        && basis.sequences == 1
        && basis.positions.len() < basis.inputs.len();
    let runs = basis.positions.chunk_by(|one, next| one + 1 == *next);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => String::new(),
        })
        .collect();
    is_selection.then(|| {
        format!(
            "The loss is that of the next tokens after the positions {}, where the model is better than the unigram baseline.",
            runs.join(", ")
        )
    })
}

fn describe_circuit(explanation: &Explanation) -> String {
    let Explanation { components, gain, basis, .. } = explanation;
    let sequences = match basis.sequences {
        1 => String::new(),
        count => format!(" of {}", counted(count, "sequence")),
    };
    let heads = components.iter().filter(|component| component.head.is_some()).count();
    let unconfirmed = explanation.circuit_components() - components.len();
    format!(
        "{} of {} ({}, {}{}) recover {} of the gain over {} on {}{sequences}: {} {} with all others {}, {} for the full \
         model, {} for the baseline; with these ablated, the others recover {}.",
        explanation.circuit_components(),
        counted(explanation.model_components(), "component"),
        counted(heads, "head"),
        counted(components.len() - heads, "feed-forward layer"),
        if unconfirmed == 0 { String::new() } else { format!(", {unconfirmed} not ablated alone") },
        percent(gain.faithfulness),
        gain.baseline_of.name(),
        counted(basis.targets, "target"),
        gain.quantity.name(),
        rounded(gain.circuit),
        gain.ablation.participle(),
        rounded(gain.model),
        rounded(gain.baseline),
        percent(gain.complement_share),
    )
}

/// Formats the stages that ended early.
fn describe_cut(Cut { stages, .. }: &Cut) -> String {
    let missing = stages.iter().map(|stage| match stage {
        ExplanationStage::Components => "the circuit may contain components that do not matter",
        ExplanationStage::Proof => "a smaller circuit may exist",
        ExplanationStage::SingleAblations => "not all components were ablated alone",
        ExplanationStage::Weights => "the weights of the heads were not analysed",
        ExplanationStage::Connections => "not all connections were ablated",
        ExplanationStage::Lens => "the logit lens is missing",
        ExplanationStage::TunedLens => "the tuned lens was not trained",
        ExplanationStage::Patching => "activation patching was skipped",
        ExplanationStage::Neurons => "the neurons are unknown",
        ExplanationStage::RandomWeights => "the effects of random weights are unknown",
    });
    format!("The search ended early, so {}.", missing.collect::<Vec<_>>().join("; "))
}

/// Formats how many connections were tested, unless all were.
fn describe_tested(explanation: &Explanation) -> Option<String> {
    let TestedConnections { possible, patched } = explanation.connections;
    (patched < possible).then(|| {
        format!(
            "Of {} between these components, {} with the largest estimated effects were ablated.",
            counted(possible, "possible connection"),
            thousands(patched as f64)
        )
    })
}

/// Formats the losses on both copies, and the heads of each kind.
fn describe_repeated(Repeated { length, first_copy, second_copy, heads, .. }: &Repeated) -> Vec<String> {
    let [first, second] = [*first_copy, *second_copy].map(rounded);
    let mut sentences = vec![format!(
        "Random tokens, repeated after {length}: the loss is {first} nats on the first copy and {second} nats on the second."
    )];
    for kind in [HeadKind::Induction, HeadKind::PreviousToken, HeadKind::Duplicate] {
        let of_kind = heads.iter().filter(|head| head.kind == kind);
        let named: Vec<String> = of_kind
            .clone()
            .map(|HeadOfKind { layer, head, weight, interval, .. }| {
                let interval = interval.map(|interval| interval.map(rounded));
                let interval = interval.map(|[low, high]| format!(", {low} to {high}")).unwrap_or_default();
                format!("{layer}.{head} ({}{interval})", fixed(*weight, 2))
            })
            .collect();
        let kind = kind.name().replace('_', "-");
        sentences.push(match of_kind.clone().next() {
            None => format!("Heads of the kind {kind}: none."),
            Some(HeadOfKind { queries, .. }) => format!(
                "Heads of the kind {kind}, with their attention weight on average over {} queries and its 95 % interval over the \
                 sequences: {}.",
                thousands(*queries as f64),
                named.join(", ")
            ),
        });
    }
    sentences
}

/// States the effect of a component in the full model and in the circuit.
fn describe_effect(
    Component { ablated, interval, without, without_kind, .. }: &Component,
    gain: &CircuitGain,
) -> String {
    let mut effect = effect(gain.quantity, gain.model, *ablated) + &interval_of_change(*interval);
    // A change may be due to chance, or negligible.
    let is_certain = interval.is_none_or(|[low, high]| low > 0.0 || high < 0.0);
    let is_large = (ablated - gain.model).abs() >= MIN_HARM * (gain.model - gain.baseline).abs();
    if gain.quantity.is_worse(gain.model, *ablated) && is_certain && is_large {
        effect += ", so it makes the model worse on these sequences";
    }
    let without = without.map(|without| percent(gain.share(without)));
    let without = without.map(|share| format!("; without it, the circuit recovers {share}"));
    let of_kind = without_kind.map(|values| values.map(|value| percent(gain.share(value))));
    let of_kind = of_kind.map(|[none, with]| {
        format!(
            "; with the other induction heads ablated, it recovers {none} without this one and {with} with it"
        )
    });
    format!("{effect}{}{}.", without.unwrap_or_default(), of_kind.unwrap_or_default())
}

fn describe_component(
    explanation: &Explanation,
    component: &Component,
    scores: &[Vec<HeadScores>],
) -> String {
    let Component { layer, head, cross, .. } = component;
    let gain = &explanation.gain;
    let verb = gain.ablation.verb();
    let effect = describe_effect(component, gain);
    let Some(head) = *head else {
        let verb = verb[..1].to_uppercase() + &verb[1..];
        return format!("{verb} the feed-forward layer of layer {layer} {effect}");
    };
    let scores = &scores[*layer][head];
    let weight = |score: Score| score.text(scores[score].unwrap_or_default());
    let behaviours = component.kinds.iter().map(|kind| match kind {
        HeadKind::NextToken => "attends to the next token of the source".to_string(),
        HeadKind::FirstToken if *cross => "attends to the first token of the source".to_string(),
        HeadKind::Positional if *cross => "attends to the source by position alone".to_string(),
        HeadKind::PreviousToken => {
            format!("attends to the previous token (weight {})", weight(Score::Previous))
        }
        HeadKind::Induction => {
            let weight = weight(Score::Induction);
            format!("attends to the token after an earlier occurrence of the same token (weight {weight})")
        }
        HeadKind::Duplicate => {
            format!("attends to earlier occurrences of the same token (weight {})", weight(Score::Duplicate))
        }
        HeadKind::Itself => format!("attends to its own token (weight {})", weight(Score::Itself)),
        HeadKind::FirstToken => {
            format!("attends to the first token, an attention sink (weight {})", weight(Score::First))
        }
        HeadKind::Separator => "attends to one token wherever it occurs".to_string(),
        HeadKind::Positional => {
            format!("attends by position alone, {} tokens back on average", weight(Score::Distance))
        }
        HeadKind::Copying => {
            let heads = [&explanation.heads.weights[*layer][head], &explanation.heads.random_weights];
            let [copying, random] = heads.map(|weights| fixed(weights.copying, 2));
            format!("copies tokens (copying score {copying}, random weights {random})")
        }
    });
    let behaviours = behaviours.collect::<Vec<_>>();
    let behaviour =
        if behaviours.is_empty() { "is not of a known kind".to_string() } else { behaviours.join(" and ") };
    let head = after_layer([*layer, head], *cross);
    format!("Layer {head} {behaviour}; {verb} it {effect}")
}

/// Names the tokens that a head attends to at the target of a prompt.
fn describe_attended(
    inputs: &[u32],
    Component { layer, head, attends, .. }: &Component,
    vocabulary: Option<&Vocabulary>,
) -> Option<String> {
    let name = |position: usize| match vocabulary {
        Some(vocabulary) => format!("`{}`", vocabulary.token(inputs[position])),
        None => format!("token {}", inputs[position]),
    };
    let weight = |it: &AttendedToken| {
        format!("{} (position {}, weight {})", name(it.position), it.position, fixed(it.weight, 2))
    };
    let (last, tokens) = (inputs.len() - 1, attends.iter().map(weight).collect::<Vec<_>>());
    let head = after_layer([*layer, (*head)?], false);
    (!tokens.is_empty()).then(|| {
        let from = name(last);
        format!("Layer {head} attends from {from} (position {last}) to {}.", tokens.join(" and "))
    })
}

/// Formats the name of a head without its first word, "layer": "1 head 0" or "1 cross-attention head 0".
fn after_layer([layer, head]: [usize; 2], cross: bool) -> String {
    let kind = if cross { "cross-attention " } else { "" };
    format!("{layer} {kind}head {head}")
}

/// Formats the name of the end of a connection.
fn end_name((layer, head): (usize, Option<usize>), cross: bool) -> String {
    match head {
        Some(head) => format!("layer {}", after_layer([layer, head], cross)),
        None => format!("the feed-forward layer of layer {layer}"),
    }
}

fn describe_edge(edge: &Edge, gain: &CircuitGain) -> String {
    let (from, to) = (end_name(edge.from, edge.from_cross), end_name(edge.to, edge.to_cross));
    let input = edge.input.map(|input| match input {
        HeadInput::Query => ("queries", "Q"),
        HeadInput::Key => ("keys", "K"),
        HeadInput::Value => ("values", "V"),
    });
    let scores = edge.composition.zip(edge.random).map(|scores| [scores.0, scores.1].map(rounded));
    let through = match (input, scores) {
        (Some((name, letter)), Some([composition, random])) => {
            format!(" through its {name} ({letter}-composition {composition}, random weights {random})")
        }
        (Some((name, _)), None) => format!(" through its {name}"),
        (None, _) => String::new(),
    };
    format!(
        "{}{} reads the output of {from}{through}; ablating this path {}{}.",
        to[..1].to_uppercase(),
        &to[1..],
        effect(gain.quantity, gain.model, edge.ablated),
        interval_of_change(edge.interval),
    )
}

fn describe_patching(patching: &Patching) -> Option<String> {
    let heads = patching.heads.iter().enumerate().flat_map(|(layer, heads)| {
        heads.iter().enumerate().map(move |(head, share)| (format!("head {head}"), layer, share))
    });
    let layers = patching.feed_forward.iter().enumerate();
    let all = heads.chain(layers.map(|(layer, share)| ("the feed-forward layer".to_string(), layer, share)));
    let of_heads = patching.head_intervals.iter().flatten();
    let intervals: Vec<&[f64; 2]> = of_heads.chain(&patching.feed_forward_intervals).collect();
    let (at, (component, layer, share)) = all.enumerate().max_by(|a, b| a.1.2.total_cmp(b.1.2))?;
    let interval = intervals.get(at).map(|[low, high]| {
        format!(" (95 % interval over the pairs: {} to {})", percent(*low), percent(*high))
    });
    let changes = if patching.corrupted < patching.clean { "lowers" } else { "raises" };
    Some(format!(
        "Exchanging the tokens that determine the answer {changes} the logit difference from {} to {} ({}); \
         restoring {component} of layer {layer} recovers {} of the change{}.",
        rounded(patching.clean),
        rounded(patching.corrupted),
        counted(patching.pairs, "pair"),
        percent(*share),
        interval.unwrap_or_default()
    ))
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
