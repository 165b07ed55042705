//! An explanation in words.

use super::explanation::{Component, Explanation};
use super::kind::Kind;
use super::weights::Input;
use crate::analysis::{HeadScores, Score};
use crate::terminal::{counted, fixed};

/// The explanation in words: first the circuit, then its parts from the one worth most on, each with the paths into it.
pub(super) fn sentences(explanation: &Explanation, scores: &[Vec<HeadScores>]) -> Vec<String> {
    let Explanation { loss, baseline, components, edges, .. } = explanation;
    let heads = components.iter().filter(|part| part.head.is_some()).count();
    let (layers, nats) = (components.len() - heads, |loss: f64| fixed(loss, 2));
    let from = if explanation.is_unigram { "the unigram" } else { "the model without any of them" };
    let rises = |without: f64| format!("the loss rises from {} to {}", nats(*loss), nats(without));
    let mut sentences = vec![format!(
        "{} and {} of {} such parts keep {:.0} % of the gain over {from}: with all others at their means the loss is {} \
         instead of {}, where {from} has {}.",
        counted(heads, "head"),
        counted(layers, "feed-forward layer"),
        explanation.parts(),
        explanation.gain_kept * 100.0,
        nats(explanation.loss_of_circuit),
        nats(*loss),
        nats(*baseline),
    )];
    let paths = |part: &Component| {
        let at = (part.layer, part.head, part.cross);
        let into = edges.iter().filter(move |edge| (edge.to[0], Some(edge.to[1]), edge.to_cross) == at);
        into.map(|edge| {
            let (by, letter) = match edge.input {
                Input::Query => ("queries", "Q"),
                Input::Key => ("keys", "K"),
                Input::Value => ("values", "V"),
            };
            format!(
                "It reads layer {} {}head {} by its {by} ({letter}-composition {}, random weights {}): without this path \
                 {}.",
                edge.from[0],
                if edge.from_cross { "cross-attention " } else { "" },
                edge.from[1],
                fixed(edge.composition, 2),
                fixed(edge.random, 2),
                rises(edge.loss_without),
            )
        })
        .collect::<Vec<_>>()
    };
    for part in components {
        let (layer, rise) = (part.layer, rises(part.loss_without));
        let Some(head) = part.head else {
            sentences.push(format!("Without the feed-forward layer of layer {layer} {rise}."));
            continue;
        };
        let scores = &scores[layer][head];
        let weight = |score: Score| score.text(scores[score].unwrap_or_default());
        let does = part.kinds.iter().map(|kind| match kind {
            Kind::NextToken => "looks in the source at the token that comes next".to_string(),
            Kind::FirstToken if part.cross => "rests on the first token of the source".to_string(),
            Kind::Positional if part.cross => "looks in the source by position alone".to_string(),
            Kind::PreviousToken => format!("looks at the token before (weight {})", weight(Score::Previous)),
            Kind::Induction => {
                format!("looks at what followed the same token earlier (weight {})", weight(Score::Induction))
            }
            Kind::Duplicate => {
                format!("looks at the same token earlier (weight {})", weight(Score::Duplicate))
            }
            Kind::Itself => format!("looks at its own token (weight {})", weight(Score::Itself)),
            Kind::FirstToken => format!("rests on the first token (weight {})", weight(Score::First)),
            Kind::Separator => "looks at one token wherever it stands".to_string(),
            Kind::Positional => {
                format!("looks by position alone, {} tokens back in the mean", weight(Score::Distance))
            }
            Kind::Copying => {
                let heads = [&explanation.weights[layer][head], &explanation.random_weights];
                let [copying, random] = heads.map(|weights| fixed(weights.copying, 2));
                format!("copies (copying score {copying}, random weights {random})")
            }
        });
        let does = does.collect::<Vec<_>>();
        let does = if does.is_empty() { "is of no known kind".to_string() } else { does.join(" and ") };
        let of = if part.cross { "cross-attention " } else { "" };
        sentences.push(format!("Layer {layer} {of}head {head} {does}; without it {rise}."));
        sentences.extend(paths(part));
    }
    if let Some(patching) = &explanation.patching {
        let heads = patching.heads.iter().enumerate().flat_map(|(layer, heads)| {
            heads.iter().enumerate().map(move |(head, share)| (format!("head {head}"), layer, share))
        });
        let layers = patching.feed_forward.iter().enumerate();
        let parts =
            heads.chain(layers.map(|(layer, share)| ("feed-forward layer".to_string(), layer, share)));
        if let Some((part, layer, share)) = parts.max_by(|a, b| a.2.total_cmp(b.2)) {
            sentences.push(format!(
                "Where the tokens that the answer follows from are exchanged the difference of both answers' logits \
                 falls from {} to {}; the {part} of layer {layer}, as it was, brings {:.0} % of that back.",
                nats(patching.clean),
                nats(patching.corrupted),
                share * 100.0
            ));
        }
    }
    sentences
}
