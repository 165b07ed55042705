//! The behaviour of heads as parts of sentences.

use super::rounded;
use crate::analysis::circuit::explanation::{AttendedToken, Component, HeadAnalysis};
use crate::analysis::circuit::kind::HeadKind;
use crate::analysis::circuit::kind_scores::KindScore;
use crate::analysis::{HeadScores, Score};
use crate::data::Vocabulary;
use crate::numbers::{fixed, thousands};

/// Formats what a head does: its kinds, each with its evidence.
pub(super) fn behaviour(analysis: &HeadAnalysis, component: &Component, scores: &HeadScores) -> String {
    let behaviours = component.kinds.iter().map(|&kind| {
        let evidence = component.kind_scores.iter().find(|it| it.kind == kind).map(evidence);
        let evidence = evidence.map(|evidence| format!(" ({evidence})")).unwrap_or_default();
        let copying = |component: &Component| {
            let head = component.head.map(|head| &analysis.weights[component.layer][head]);
            let scores = [head, Some(&analysis.random_weights)];
            let [copying, random] = scores.map(|it| rounded(it.map_or(0.0, |it| it.copying)));
            format!("copies tokens (copying score {copying}, random weights {random} on average)")
        };
        match kind {
            HeadKind::NextToken => format!("attends to the next token of the source{evidence}"),
            HeadKind::FirstToken if component.cross => {
                format!("attends to the first token of the source{evidence}")
            }
            HeadKind::Positional if component.cross => {
                format!("attends to the same positions of the source in all sequences{evidence}")
            }
            HeadKind::PreviousToken => format!("attends to the previous token{evidence}"),
            HeadKind::Induction => {
                format!("attends to the token after an earlier occurrence of the same token{evidence}")
            }
            HeadKind::Duplicate => format!("attends to earlier occurrences of the same token{evidence}"),
            HeadKind::Itself => format!("attends to its own token{evidence}"),
            HeadKind::FirstToken => format!("attends to the first token, an attention sink{evidence}"),
            HeadKind::Separator => format!("attends to one token wherever it occurs{evidence}"),
            HeadKind::Positional => {
                let distance = Score::Distance.text(scores[Score::Distance].unwrap_or_default());
                format!("attends to the same positions in all sequences, {distance} tokens back on average{evidence}")
            }
            HeadKind::Copying => copying(component),
        }
    });
    let behaviours = behaviours.collect::<Vec<_>>();
    if behaviours.is_empty() { "is not of a known kind".to_string() } else { behaviours.join(" and ") }
}

/// Formats the evidence for a kind, as "weight 0.91, 95 % interval 0.88 to 0.93, over 496 queries, chance 0.10".
fn evidence(KindScore { kind, score, queries, interval, chance, .. }: &KindScore) -> String {
    let name = if *kind == HeadKind::Positional { "distance from uniform weights" } else { "weight" };
    let interval = interval.map(|interval| interval.map(rounded));
    let interval =
        interval.map(|[low, high]| format!(", 95 % interval {low} to {high},")).unwrap_or_default();
    let noun = if *queries == 1 { "query" } else { "queries" };
    let queries = thousands(*queries as f64);
    // Uniform attention has no distance from itself, which says nothing about chance.
    let chance = match kind {
        HeadKind::Positional => String::new(),
        _ => format!(", chance {}", rounded(*chance)),
    };
    format!("{name} {}{interval} over {queries} {noun}{chance}", rounded(*score))
}

/// Names the tokens that a head attends to at the target of a prompt.
pub(super) fn describe_attended(
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
pub(super) fn after_layer([layer, head]: [usize; 2], cross: bool) -> String {
    let kind = if cross { "cross-attention " } else { "" };
    format!("{layer} {kind}head {head}")
}
