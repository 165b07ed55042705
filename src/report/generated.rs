//! `generated`: what a model goes on to write by itself, beside what truly follows.

use super::draw::{Outcome, Picture, Step, TokenStrip};
use crate::analysis::FreeRunning;
use crate::data::Vocabulary;
use crate::terminal::{counted, thousands};

/// A continuation that runs free: after the prompt, which comes from `sequence`, the model reads what it wrote
/// itself, so that one wrong token can lead to others. None where nothing was written.
pub fn picture(run: &str, sequence: &str, free: &FreeRunning, vocabulary: &Vocabulary) -> Option<Picture> {
    let FreeRunning { prompt, generated: written, truth } = free;
    if written.is_empty() {
        return None;
    }
    let text = |&token: &u32| vocabulary.token(token);
    let step = |truth: Option<&u32>, predicted: Option<&u32>, outcome| Step {
        truth: truth.map(text),
        predicted: predicted.map(text),
        outcome,
    };
    let given = prompt.iter().map(|token| step(Some(token), None, Outcome::Unknown));
    let continued = written.iter().enumerate().map(|(i, token)| match truth.get(i) {
        None => step(None, Some(token), Outcome::Unknown),
        Some(truth) if truth == token => step(Some(truth), Some(token), Outcome::Hit),
        Some(truth) => step(Some(truth), Some(token), Outcome::Miss),
    });
    let strip = TokenStrip {
        steps: given.chain(continued).collect(),
        predicted: "generated",
        shade: "prompt",
        outcomes: ["correct", "different", "generated", ""],
    };
    let pairs = || written.iter().zip(truth);
    let compared = counted(pairs().count(), "token");
    let result = match pairs().position(|(written, truth)| written != truth) {
        _ if truth.is_empty() => format!("{} generated", counted(written.len(), "token")),
        None => format!("all {compared} correct"),
        Some(first) => format!(
            "{} of {compared} correct; the first difference at step {}",
            pairs().filter(|(written, truth)| written == truth).count(),
            thousands((prompt.len() + first) as f64)
        ),
    };
    let note = format!("{sequence}, after {}: {result}", counted(prompt.len(), "token"));
    Some(strip.picture("generated", &format!("{run}: free-running continuation"), &note))
}
