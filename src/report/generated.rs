//! `generated`: what a model goes on to write by itself, beside what truly follows.

use super::picture::Picture;
use super::range::{counted, whole};
use super::token_strip::{Outcome, Step, TokenStrip, Words};
use crate::analysis::FreeRunning;
use crate::data::Vocabulary;

const WORDS: Words = Words {
    predicted: "generated",
    hit: "as in truth",
    miss: "different",
    unknown: "generated",
    shade: "prompt",
};

/// A continuation that runs free: after the prompt, which comes from `sequence`, the model reads what it wrote
/// itself, so that one wrong token can lead to others. None where nothing was written.
pub fn generated(run: &str, sequence: &str, free: &FreeRunning, vocabulary: &Vocabulary) -> Option<Picture> {
    let texts =
        |tokens: &[u32]| -> Vec<String> { tokens.iter().map(|&token| vocabulary.token(token)).collect() };
    let (prompt, written, truth) = (texts(&free.prompt), texts(&free.generated), texts(&free.truth));
    if written.is_empty() {
        return None;
    }
    let given = prompt.iter().map(|token| Step {
        truth: Some(token.clone()),
        predicted: None,
        outcome: Outcome::Given,
    });
    let continued = written.iter().enumerate().map(|(i, token)| {
        let truth = truth.get(i);
        let outcome = match truth {
            None => Outcome::Unknown,
            Some(truth) if truth == token => Outcome::Hit,
            Some(_) => Outcome::Miss,
        };
        Step { truth: truth.cloned(), predicted: Some(token.clone()), outcome }
    });
    let strip = TokenStrip { steps: given.chain(continued).collect(), words: WORDS };
    let pairs = || written.iter().zip(&truth);
    let compared = counted(pairs().count(), "token");
    let result = match pairs().position(|(written, truth)| written != truth) {
        _ if truth.is_empty() => format!("{} generated", counted(written.len(), "token")),
        None => format!("all {compared} as in truth"),
        Some(first) => format!(
            "{} of {compared} as in truth; the first difference at step {}",
            pairs().filter(|(written, truth)| written == truth).count(),
            whole((prompt.len() + first) as u64)
        ),
    };
    let note = format!("{sequence}, after {}: {result}{}", counted(prompt.len(), "token"), strip.cut());
    let title = format!("{run}: free-running continuation");
    let mut picture = Picture::new("generated", strip.height(), &title, &note);
    strip.draw(&mut picture.canvas);
    Some(picture)
}
