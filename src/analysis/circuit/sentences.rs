//! An explanation as sentences.

mod effects;
mod heads;
mod random;

use self::effects::{ablating, describe_effect, effect_at_targets, interval_of_change};
use self::heads::{after_layer, behaviour, describe_attended};
use super::explanation::{Component, Cut, Edge, Explanation, TestedConnections};
use super::kind::HeadKind;
use super::patching::Patching;
use super::question::Quantity;
use super::repeat::{HeadOfKind, Repeated};
use super::watch::ExplanationStage;
use crate::analysis::HeadScores;
use crate::data::Vocabulary;
use crate::numbers::{counted, fixed, percent, thousands};

/// Formats the explanation as sentences: first the circuit, then its components, the most important first. The paths
/// into a component follow it. Tokens are named if the vocabulary is known.
pub(super) fn sentences(
    explanation: &Explanation,
    scores: &[Vec<HeadScores>],
    vocabulary: Option<&Vocabulary>,
) -> Vec<String> {
    let mut sentences = explanation.repeated.as_ref().map(describe_repeated).unwrap_or_default();
    if let Some(reason) = &explanation.gain.no_circuit {
        let is_cut = explanation.is_cut(ExplanationStage::Components);
        let beginning = if is_cut { "Not explained" } else { "Nothing to explain" };
        sentences.push(format!("{beginning}: {reason}."));
        return sentences;
    }
    sentences.extend(describe_selection(explanation));
    sentences.push(describe_circuit(explanation));
    sentences.extend(describe_proof(explanation));
    sentences.extend(explanation.cut.as_ref().map(describe_cut));
    sentences.extend(describe_tested(explanation));
    for component in &explanation.components {
        sentences.push(describe_component(explanation, component, scores));
        sentences.extend(describe_attended(&explanation.basis.inputs, component, vocabulary));
        let at = (component.layer, component.head, component.cross);
        let into = |edge: &&Edge| (edge.to.0, edge.to.1, edge.to_cross) == at;
        sentences.extend(explanation.edges.iter().filter(into).map(|edge| describe_edge(explanation, edge)));
    }
    sentences.extend(explanation.views.patching.as_ref().and_then(describe_patching));
    sentences
}

impl Explanation {
    /// Returns true if the stage ended early.
    fn is_cut(&self, stage: ExplanationStage) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.stages.contains(&stage))
    }

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

/// Formats the 95 % interval of a share, or nothing if it is unknown.
fn interval_of_share(interval: Option<[f64; 2]>) -> String {
    interval_of(interval, percent)
}

/// Formats the 95 % interval of a number, or nothing if it is unknown.
fn interval_of(interval: Option<[f64; 2]>, number: impl Fn(f64) -> String) -> String {
    let text = interval.map(|interval| interval.map(number));
    text.map_or(String::new(), |[low, high]| format!(" (95 % interval: {low} to {high})"))
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
    if explanation.circuit_components() == explanation.model_components() {
        return describe_whole_model(explanation, &sequences);
    }
    let unconfirmed = explanation.circuit_components() - components.len();
    let complete = match gain.is_complete() {
        true => "so the circuit is complete",
        false => "so the circuit is not complete: others do part of the task too",
    };
    format!(
        "{} of {} ({}, {}{}) recover {}{} of the gain over {} on {}{sequences}: {} {} with all others {}, {} for the full \
         model, {} for the baseline; with these ablated, the others recover {}{}, {complete}.",
        explanation.circuit_components(),
        counted(explanation.model_components(), "component"),
        counted(heads, "head"),
        counted(components.len() - heads, "feed-forward layer"),
        if unconfirmed == 0 { String::new() } else { format!(", {unconfirmed} not ablated alone") },
        percent(gain.shares.faithfulness),
        interval_of_share(gain.shares.faithfulness_interval),
        gain.baseline_of.name(),
        counted(basis.targets, "target"),
        gain.quantity.name(),
        rounded(gain.circuit),
        gain.ablation.participle(),
        rounded(gain.model),
        rounded(gain.baseline),
        percent(gain.shares.complement_share),
        interval_of_share(gain.shares.complement_interval),
    )
}

/// States whether a smaller circuit may exist, unless the sentence about stages that ended early does.
fn describe_proof(explanation: &Explanation) -> Option<String> {
    let (gain, is_cut) = (&explanation.gain, explanation.is_cut(ExplanationStage::Proof));
    match gain.smaller_sets {
        Some(1) => Some(
            "No smaller circuit exists at this tolerance: the only smaller set of components was evaluated."
                .into(),
        ),
        Some(sets) => Some(format!(
            "No smaller circuit exists at this tolerance: all {} smaller sets of components were evaluated.",
            thousands(sets as f64)
        )),
        None => (!is_cut).then(|| "The search was greedy, so a smaller circuit may exist.".into()),
    }
}

/// Formats the circuit that is the whole model.
fn describe_whole_model(explanation: &Explanation, sequences: &str) -> String {
    let Explanation { gain, basis, .. } = explanation;
    let is_cut = explanation.is_cut(ExplanationStage::Components);
    format!(
        "{} of the model can be omitted at this tolerance for the gain over {} on {}{sequences}: {} {} for the full model, {} \
         for the baseline.",
        if is_cut { "It is unknown which components" } else { "No component" },
        gain.baseline_of.name(),
        counted(basis.targets, "target"),
        gain.quantity.name(),
        rounded(gain.model),
        rounded(gain.baseline),
    )
}

/// Formats the stages that ended early.
fn describe_cut(Cut { stages, .. }: &Cut) -> String {
    let missing = stages.iter().map(|stage| match stage {
        ExplanationStage::Components => "the circuit may contain components that do not matter",
        ExplanationStage::Proof => "the proof that no smaller circuit exists is unfinished",
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
    if explanation.is_cut(ExplanationStage::Connections) {
        return Some(format!(
            "{} of {} between the components found so far were ablated.",
            thousands(patched as f64),
            counted(possible, "possible connection")
        ));
    }
    (patched < possible).then(|| {
        format!(
            "Of {} between these components, {} with the largest estimated effects were ablated.",
            counted(possible, "possible connection"),
            thousands(patched as f64)
        )
    })
}

/// The maximum number of heads of a kind that a sentence names.
const MAX_NAMED_HEADS: usize = 10;

/// Formats the losses on both copies, and the heads of each kind.
fn describe_repeated(
    Repeated { length, first_copy, second_copy, copy_intervals, heads, .. }: &Repeated,
) -> Vec<String> {
    let [first, second] = [*first_copy, *second_copy].map(rounded);
    let [of_first, of_second] = [0, 1].map(|copy| interval_of(copy_intervals.map(|it| it[copy]), rounded));
    let mut sentences = vec![format!(
        "Random tokens, repeated after {length}: the loss is {first} nats{of_first} on the first copy and {second} \
         nats{of_second} on the second."
    )];
    for kind in [HeadKind::Induction, HeadKind::PreviousToken, HeadKind::Duplicate] {
        let of_kind = heads.iter().filter(|head| head.kind == kind);
        let count = of_kind.clone().count();
        let named: Vec<String> = of_kind
            .clone()
            .take(MAX_NAMED_HEADS)
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
                 sequences: {}{}.",
                thousands(*queries as f64),
                named.join(", "),
                if count > named.len() { format!(", and {} more", count - named.len()) } else { String::new() },
            ),
        });
    }
    sentences
}

fn describe_component(
    explanation: &Explanation,
    component: &Component,
    scores: &[Vec<HeadScores>],
) -> String {
    let Component { layer, head, cross, .. } = *component;
    let effect = describe_effect(explanation, component);
    let Some(head) = head else {
        let ablating = ablating(&explanation.gain, &format!("the feed-forward layer of layer {layer}"));
        return format!("{}{} {effect}", ablating[..1].to_uppercase(), &ablating[1..]);
    };
    let behaviour = behaviour(&explanation.heads, component, &scores[layer][head]);
    let ablating = ablating(&explanation.gain, "it");
    format!("Layer {} {behaviour}; {ablating} {effect}", after_layer([layer, head], cross))
}

/// Formats the name of the end of a connection.
fn end_name((layer, head): (usize, Option<usize>), cross: bool) -> String {
    match head {
        Some(head) => format!("layer {}", after_layer([layer, head], cross)),
        None => format!("the feed-forward layer of layer {layer}"),
    }
}

fn describe_edge(explanation: &Explanation, edge: &Edge) -> String {
    let (from, to) = (end_name(edge.from, edge.from_cross), end_name(edge.to, edge.to_cross));
    let input = edge.input.map(|input| (input.plural(), input.letter()));
    let scores = edge.composition.zip(edge.random).map(|scores| [scores.0, scores.1].map(rounded));
    let through = match (input, scores) {
        (Some((name, letter)), Some([composition, random])) => {
            format!(
                " through its {name} ({letter}-composition {composition}, random weights {random} on average)"
            )
        }
        (Some((name, _)), None) => format!(" through its {name}"),
        (None, _) => String::new(),
    };
    format!(
        "{}{} reads the output of {from}{through}; {} {}{}.",
        to[..1].to_uppercase(),
        &to[1..],
        ablating(&explanation.gain, "this path"),
        effect_at_targets(explanation, edge.ablated),
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
    use crate::analysis::circuit::tests::explained_induction;

    #[test]
    fn a_circuit_of_all_components_has_no_others() {
        let mut found = explained_induction();
        assert!(
            describe_circuit(&found)
                .starts_with("2 of 6 components (2 heads, 0 feed-forward layers) recover 100 % (")
        );
        // One layer with one head and a feed-forward layer.
        found.heads.weights.truncate(1);
        found.heads.weights[0].truncate(1);
        let all = describe_circuit(&found);
        assert!(
            all.starts_with("No component of the model can be omitted at this tolerance")
                && !all.contains("others")
        );
        found.cut = Some(Cut { stages: vec![ExplanationStage::Components], unconfirmed: 0 });
        assert!(describe_circuit(&found).starts_with("It is unknown which components"));
    }
}
