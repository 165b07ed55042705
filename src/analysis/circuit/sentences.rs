//! An explanation as sentences.

use super::explanation::{CircuitGain, Component, Edge, Explanation};
use super::kind::Kind;
use super::patching::Patching;
use super::weights::Input;
use crate::analysis::{HeadScores, Score};
use crate::numbers::{counted, fixed};

/// Formats the explanation as sentences: first the circuit, then its components, the most important first. The paths
/// into a component follow it.
pub(super) fn sentences(explanation: &Explanation, scores: &[Vec<HeadScores>]) -> Vec<String> {
    if let Some(reason) = &explanation.gain.no_circuit {
        return vec![format!("No circuit is reported: {reason}.")];
    }
    let mut sentences = vec![describe_circuit(explanation)];
    for component in &explanation.components {
        sentences.push(describe_component(explanation, component, scores));
        let at = (component.layer, component.head, component.cross);
        let into = |edge: &&Edge| (edge.to[0], Some(edge.to[1]), edge.to_cross) == at;
        sentences.extend(
            explanation.edges.iter().filter(into).map(|edge| describe_edge(edge, explanation.gain.loss)),
        );
    }
    sentences.extend(explanation.views.patching.as_ref().and_then(describe_patching));
    sentences
}

fn nats(loss: f64) -> String {
    fixed(loss, 2)
}

/// Formats the effect of an ablation on the loss, as "raises the loss from 1.20 to 1.94".
fn effect(loss: f64, ablated: f64) -> String {
    let [before, after] = [loss, ablated].map(nats);
    match before == after {
        true => format!("leaves the loss at {before}"),
        false if ablated > loss => format!("raises the loss from {before} to {after}"),
        false => format!("lowers the loss from {before} to {after}"),
    }
}

fn describe_circuit(explanation: &Explanation) -> String {
    let Explanation { components, gain: CircuitGain { baseline_of, .. }, .. } = explanation;
    let heads = components.iter().filter(|component| component.head.is_some()).count();
    format!(
        "{} of {} ({}, {}) recover {:.0} % of the gain over {}: loss {} with all others mean-ablated, \
         {} for the full model, {} for the baseline.",
        components.len(),
        counted(explanation.model_components(), "component"),
        counted(heads, "head"),
        counted(components.len() - heads, "feed-forward layer"),
        explanation.gain.gain_kept * 100.0,
        baseline_of.name(),
        nats(explanation.gain.loss_of_circuit),
        nats(explanation.gain.loss),
        nats(explanation.gain.baseline),
    )
}

fn describe_component(
    explanation: &Explanation,
    component: &Component,
    scores: &[Vec<HeadScores>],
) -> String {
    let Component { layer, head, cross, mean_ablated_loss, .. } = component;
    let mut effect = effect(explanation.gain.loss, *mean_ablated_loss);
    if effect.starts_with("lowers") {
        effect += ", so it makes the model worse on these sequences";
    }
    let Some(head) = *head else {
        return format!("Mean-ablating the feed-forward layer of layer {layer} {effect}.");
    };
    let scores = &scores[*layer][head];
    let weight = |score: Score| score.text(scores[score].unwrap_or_default());
    let behaviours = component.kinds.iter().map(|kind| match kind {
        Kind::NextToken => "attends to the next token of the source".to_string(),
        Kind::FirstToken if *cross => "attends to the first token of the source".to_string(),
        Kind::Positional if *cross => "attends to the source by position alone".to_string(),
        Kind::PreviousToken => format!("attends to the previous token (weight {})", weight(Score::Previous)),
        Kind::Induction => {
            let weight = weight(Score::Induction);
            format!("attends to the token after an earlier occurrence of the same token (weight {weight})")
        }
        Kind::Duplicate => {
            format!("attends to earlier occurrences of the same token (weight {})", weight(Score::Duplicate))
        }
        Kind::Itself => format!("attends to its own token (weight {})", weight(Score::Itself)),
        Kind::FirstToken => {
            format!("attends to the first token, an attention sink (weight {})", weight(Score::First))
        }
        Kind::Separator => "attends to one token wherever it occurs".to_string(),
        Kind::Positional => {
            format!("attends by position alone, {} tokens back on average", weight(Score::Distance))
        }
        Kind::Copying => {
            let heads = [&explanation.heads.weights[*layer][head], &explanation.heads.random_weights];
            let [copying, random] = heads.map(|weights| fixed(weights.copying, 2));
            format!("copies tokens (copying score {copying}, random weights {random})")
        }
    });
    let behaviours = behaviours.collect::<Vec<_>>();
    let behaviour =
        if behaviours.is_empty() { "is not of a known kind".to_string() } else { behaviours.join(" and ") };
    let head = after_layer([*layer, head], *cross);
    format!("Layer {head} {behaviour}; mean-ablating it {effect}.")
}

/// Formats the name of a head without its first word, "layer": "1 head 0" or "1 cross-attention head 0".
fn after_layer([layer, head]: [usize; 2], cross: bool) -> String {
    let kind = if cross { "cross-attention " } else { "" };
    format!("{layer} {kind}head {head}")
}

fn describe_edge(edge: &Edge, loss: f64) -> String {
    let (input, letter) = match edge.input {
        Input::Query => ("queries", "Q"),
        Input::Key => ("keys", "K"),
        Input::Value => ("values", "V"),
    };
    format!(
        "Layer {} reads the output of layer {} through its {input} ({letter}-composition {}, random \
         weights {}); ablating this path {}.",
        after_layer(edge.to, edge.to_cross),
        after_layer(edge.from, edge.from_cross),
        fixed(edge.composition, 2),
        fixed(edge.random, 2),
        effect(loss, edge.path_ablated_loss),
    )
}

fn describe_patching(patching: &Patching) -> Option<String> {
    let heads = patching.heads.iter().enumerate().flat_map(|(layer, heads)| {
        heads.iter().enumerate().map(move |(head, share)| (format!("head {head}"), layer, share))
    });
    let layers = patching.feed_forward.iter().enumerate();
    let all = heads.chain(layers.map(|(layer, share)| ("the feed-forward layer".to_string(), layer, share)));
    let (component, layer, share) = all.max_by(|a, b| a.2.total_cmp(b.2))?;
    let changes = if patching.corrupted < patching.clean { "lowers" } else { "raises" };
    Some(format!(
        "Exchanging the tokens that determine the answer {changes} the logit difference from {} to {} ({}); \
         restoring {component} of layer {layer} recovers {:.0} % of the change.",
        nats(patching.clean),
        nats(patching.corrupted),
        counted(patching.pairs, "pair"),
        share * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_states_the_sign_of_the_change() {
        assert_eq!(effect(1.94, 1.53), "lowers the loss from 1.94 to 1.53");
        assert_eq!(effect(1.53, 1.94), "raises the loss from 1.53 to 1.94");
        assert_eq!(effect(1.531, 1.534), "leaves the loss at 1.53");
    }
}
