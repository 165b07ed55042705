//! Pictures of the explanation of a run's model.

use causal_attention_report::circuit::{self as plain, Circuit, ComponentId};
use causal_attention_report::color::{color, diverging};
use causal_attention_report::token_matrix::TokenMatrix;
use causal_attention_report::{Interval, Picture, patching, round_up};

use crate::analysis::circuit::{Attribution, Component, Edge, Explanation, HeadInput, Patching, Quantity};
use crate::data::Vocabulary;
use crate::numbers::{counted, fixed, signed};

/// The maximum number of positions shown.
const MAX_POSITIONS: usize = 128;
/// The maximum number of parts of a logit shown, so that each row has room for its name.
const MAX_PARTS: usize = 72;

/// Draws the explanation found for `run` in pictures of this width.
pub fn pictures((run, width): (&str, f64), found: &Explanation, vocabulary: &Vocabulary) -> Vec<Picture> {
    let shown = found.basis.next.len().min(MAX_POSITIONS);
    let texts = |tokens: &[u32]| tokens[..shown].iter().map(|&token| vocabulary.token(token)).collect();
    let (inputs, next): (Vec<String>, Vec<String>) = (texts(&found.basis.inputs), texts(&found.basis.next));
    let circuit = found.gain.no_circuit.is_none().then(|| circuit(found).picture(run, width));
    let patching = found.views.patching.as_ref().map(|found| patching(found, vocabulary).picture(run, width));
    // The lens is missing if the search ended early.
    let lens = (!found.views.lens.loss.is_empty()).then(|| lens((run, width), found, &next));
    let attribution = attribution((run, width), found, &inputs);
    circuit.into_iter().chain(lens).chain([attribution]).chain(patching).collect()
}

fn lens((run, width): (&str, f64), found: &Explanation, tokens: &[String]) -> Picture {
    // The last layer is on top: the residual stream flows upwards.
    let name = |depth: usize, how: &str, loss: f64| match depth {
        0 => format!("embedding{how}: {} nats", fixed(loss, 2)),
        depth => format!("after layer {}{how}: {} nats", depth - 1, fixed(loss, 2)),
    };
    let plain = &found.views.lens;
    // The last depth is the model's own output, so it needs no tuned lens.
    let last = plain.loss.len() - 1;
    let tuned = |depth: usize| {
        let lens = found.views.tuned_lens.as_ref().filter(|_| depth < last)?;
        Some((name(depth, ", tuned", lens.loss[depth]), lens.probability[depth].as_slice()))
    };
    let row = |depth: usize| (name(depth, "", plain.loss[depth]), plain.probability[depth].as_slice());
    // Below the row of a layer: the stream before its feed-forward layer.
    let middle = &found.views.lens_after_attention;
    let after_attention = |depth: usize| {
        let layer = depth.checked_sub(1)?;
        let loss = fixed(*middle.loss.get(layer)?, 2);
        Some((format!("after attention {layer}: {loss} nats"), middle.probability[layer].as_slice()))
    };
    let of_depth = |depth| [Some(row(depth)), tuned(depth), after_attention(depth)];
    let rows = (0..=last).rev().flat_map(of_depth).flatten().collect();
    let tuned_note =
        if found.views.tuned_lens.is_some() { ", directly and through a trained affine map" } else { "" };
    let chosen = chosen_positions(found, tokens.len());
    let losses = match (found.basis.sequences, chosen.is_empty()) {
        (1, true) => "; next to the names, mean losses".to_string(),
        (1, false) => "; next to the names, mean losses at the framed positions".to_string(),
        (count, true) => format!("; first of {}, with mean losses over all", counted(count, "sequence")),
        (count, false) => {
            format!(
                "; first of {}, with mean losses over the explained positions of all",
                counted(count, "sequence")
            )
        }
    };
    let note = format!(
        "probability of each target when the final norm and the output layer read the residual stream after each \
         layer{tuned_note}, and after its attention{losses}"
    );
    let scale = ("probability", Interval { start: 0.0, end: 1.0 });
    let lens = TokenMatrix { rows, tokens, role: "target", color, framed: &chosen };
    lens.picture(("logit_lens", width), &format!("{run}: logit lens"), &note, scale)
}

fn attribution((run, width): (&str, f64), found: &Explanation, tokens: &[String]) -> Picture {
    let (kept, others) = largest_parts(&found.views.attribution);
    let row = |it: &Attribution| (format!("{} {}", it.part, signed(it.mean, 2)), it.first.clone());
    let rows: Vec<_> = kept.into_iter().rev().map(row).chain(others.as_ref().map(row)).collect();
    let rows: Vec<_> = rows.iter().map(|(name, values)| (name.clone(), values.as_slice())).collect();
    let chosen = chosen_positions(found, tokens.len());
    let (largest, is_exceeded) = scale(&rows, &chosen, tokens.len());
    let mut note = match found.gain.quantity {
        Quantity::LogitDifference => {
            "contribution of each component to the logit of the answer minus that of the other token, at every position; \
             next to its name, the mean over the explained positions of all sequences"
        }
        Quantity::LogProbability => {
            "contribution of each component to the logit of the answer, minus the mean over the vocabulary, at every position; \
             next to its name, the mean over the explained positions of all sequences"
        }
        Quantity::Loss => {
            "contribution of each component to the logit of the target, minus the mean over the vocabulary; next to its \
             name, the mean over all sequences"
        }
    }
    .to_string();
    if is_exceeded {
        note += "; the framed positions set the colours, and + and − mark larger contributions at others";
    }
    let scale = ("logit", Interval { start: -largest, end: largest });
    let attribution = TokenMatrix { rows, tokens, role: "input", color: diverging, framed: &chosen };
    attribution.picture(("attribution", width), &format!("{run}: logit attribution"), &note, scale)
}

/// Returns the largest value of the colour scale, which the chosen positions set, or all `shown` ones if none is chosen, and
/// true if values at other positions exceed it.
fn scale(rows: &[(String, &[f64])], chosen: &[usize], shown: usize) -> (f64, bool) {
    let largest_at = |positions: &[usize]| {
        let values = rows.iter().flat_map(|(_, row)| positions.iter().map(|&at| row[at].abs()));
        values.fold(0.0, f64::max)
    };
    let all: Vec<usize> = (0..shown).collect();
    let largest = round_up(largest_at(if chosen.is_empty() { &all } else { chosen }));
    (largest, largest_at(&all) > largest * (1.0 + 1e-3))
}

/// Returns the explained positions among the first ones, `shown`; empty if they are all of them, or none.
fn chosen_positions(found: &Explanation, shown: usize) -> Vec<usize> {
    let positions: Vec<usize> = found.basis.positions.iter().copied().filter(|at| *at < shown).collect();
    if positions.len() == shown { Vec::new() } else { positions }
}

/// Returns the parts with the largest means, as many as a picture has room to name, and the sum of the others.
fn largest_parts(all: &[Attribution]) -> (Vec<&Attribution>, Option<Attribution>) {
    if all.len() <= MAX_PARTS {
        return (all.iter().collect(), None);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[b].mean.abs().total_cmp(&all[a].mean.abs()));
    let mut others = order.split_off(MAX_PARTS - 1);
    order.sort_unstable();
    others.sort_unstable();
    let positions = all.iter().map(|it| it.first.len()).min().unwrap_or(0);
    let sum = |at: usize| others.iter().map(|&part| all[part].first[at]).sum();
    let sum = Attribution {
        part: format!("{} smaller ones, summed:", others.len()),
        mean: others.iter().map(|&part| all[part].mean).sum(),
        interval: None,
        first: (0..positions).map(sum).collect(),
    };
    (order.into_iter().map(|part| &all[part]).collect(), Some(sum))
}

fn circuit(found: &Explanation) -> Circuit {
    let id = |head: Option<usize>, is_cross: bool| match head {
        Some(head) if is_cross => ComponentId::CrossHead(head),
        Some(head) => ComponentId::Head(head),
        None => ComponentId::FeedForward,
    };
    let component = |it: &Component| plain::Component {
        layer: it.layer,
        id: id(it.head, it.cross),
        kinds: it.kinds.iter().map(|kind| kind.name().replace('_', " ")).collect(),
        change: it.ablated - found.gain.model,
        is_harmful: found.gain.is_harmful(it.ablated, it.interval),
    };
    let edge = |it: &Edge| plain::Edge {
        from: (it.from.0, id(it.from.1, it.from_cross)),
        to: (it.to.0, id(it.to.1, it.to_cross)),
        input: match it.input {
            Some(HeadInput::Query) => plain::ComponentInput::Query,
            Some(HeadInput::Key) => plain::ComponentInput::Key,
            Some(HeadInput::Value) => plain::ComponentInput::Value,
            None => plain::ComponentInput::FeedForward,
        },
        change: it.ablated - found.gain.model,
    };
    Circuit {
        unconfirmed: found.circuit_components() - found.components.len(),
        components: found.components.iter().map(component).collect(),
        edges: found.edges.iter().map(edge).collect(),
        model_components: found.model_components(),
        gain: (found.gain.model - found.gain.baseline).abs(),
        faithfulness: found.gain.shares.faithfulness,
        quantity: found.gain.quantity.name(),
        unit: found.gain.quantity.unit(),
        ablated: found.gain.ablation.participle(),
        baseline: found.gain.baseline_of.name().to_string(),
    }
}

fn patching(found: &Patching, vocabulary: &Vocabulary) -> patching::Patching {
    let text = |token: u32| vocabulary.token(token);
    // An exchanged token is shown together with its replacement.
    let pair = found.pair.clean.iter().zip(&found.pair.corrupted);
    let tokens = pair.map(|(&clean, &corrupted)| match clean == corrupted {
        true => text(clean),
        false => format!("{}→{}", text(clean), text(corrupted)),
    });
    patching::Patching {
        pairs: found.pairs,
        clean: found.clean,
        corrupted: found.corrupted,
        heads: found.heads.clone(),
        feed_forward: found.feed_forward.clone(),
        stream: found.stream.clone(),
        together: found.together,
        tokens: tokens.collect(),
        answers: found.pair.answers.map(text),
    }
}

#[cfg(test)]
mod tests;
