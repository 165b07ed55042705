//! Explanations of a run's model as pictures.

use causal_attention_report::Picture;
use causal_attention_report::circuit::{self as plain, Circuit, HeadInput, LogitLens, Part};

use crate::analysis::circuit::{Component, Edge, Explanation, Input, Lens, Patching};
use crate::data::Vocabulary;

/// Draws what was found in `run`.
pub fn pictures(run: &str, found: &Explanation, vocabulary: &Vocabulary) -> Vec<Picture> {
    let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
    let attribution = found.attribution.iter().map(|it| plain::Attribution {
        part: it.part.clone(),
        mean: it.mean,
        first: it.first.clone(),
    });
    let plain = plain::Explanation {
        circuit: found.no_circuit.is_none().then(|| circuit(found)),
        sequences: found.sequences,
        inputs: texts(&found.inputs),
        targets: texts(&found.next),
        lens: lens(&found.lens),
        tuned_lens: found.tuned_lens.as_ref().map(lens),
        attribution: attribution.collect(),
        patching: found.patching.as_ref().map(|found| patching(found, vocabulary)),
    };
    plain::pictures(run, &plain)
}

fn lens(Lens { loss, probability, .. }: &Lens) -> LogitLens {
    LogitLens { loss: loss.clone(), probability: probability.clone() }
}

fn circuit(found: &Explanation) -> Circuit {
    let head = |[layer, head]: [usize; 2], is_cross: bool| {
        (layer, if is_cross { Part::CrossHead(head) } else { Part::Head(head) })
    };
    let component = |it: &Component| plain::Component {
        layer: it.layer,
        part: it.head.map_or(Part::FeedForward, |number| head([it.layer, number], it.cross).1),
        kinds: it.kinds.iter().map(|kind| kind.name().replace('_', " ")).collect(),
        rise: it.mean_ablated_loss - found.loss,
    };
    let edge = |it: &Edge| plain::Edge {
        from: head(it.from, it.from_cross),
        to: head(it.to, it.to_cross),
        input: match it.input {
            Input::Query => HeadInput::Query,
            Input::Key => HeadInput::Key,
            Input::Value => HeadInput::Value,
        },
        rise: it.path_ablated_loss - found.loss,
    };
    Circuit {
        components: found.components.iter().map(component).collect(),
        edges: found.edges.iter().map(edge).collect(),
        parts: found.parts(),
        gain: found.baseline - found.loss,
        gain_kept: found.gain_kept,
        baseline: found.baseline_of.name().to_string(),
    }
}

fn patching(found: &Patching, vocabulary: &Vocabulary) -> plain::Patching {
    let text = |token: u32| vocabulary.token(token);
    // What was exchanged is named with what came in its place.
    let pair = found.pair.clean.iter().zip(&found.pair.corrupted);
    let tokens = pair.map(|(&clean, &corrupted)| match clean == corrupted {
        true => text(clean),
        false => format!("{}→{}", text(clean), text(corrupted)),
    });
    plain::Patching {
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
