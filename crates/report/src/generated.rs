//! `generated`: the free-running continuation of a model, compared with the true one.

use crate::draw::{ComparedToken, Outcome, Picture, TokenStrip};
use crate::numbers::{counted, thousands};

/// Draws a free-running continuation in a picture of this width: the model reads its own output, so one wrong token can
/// lead to others. The prompt comes from `sequence`; its tokens have no prediction. Returns `None` if nothing was
/// generated.
pub fn picture(run: &str, sequence: &str, tokens: Vec<ComparedToken>, width: f64) -> Option<Picture> {
    let generated = || tokens.iter().filter(|token| token.predicted.is_some());
    let pairs = || generated().filter(|token| token.truth.is_some());
    let (generated_count, compared_count) = (generated().count(), pairs().count());
    if generated_count == 0 {
        return None;
    }
    let prompt = tokens.len() - generated_count;
    let all = counted(compared_count, "token");
    let result = match pairs().position(|token| token.outcome != Outcome::Hit) {
        _ if compared_count == 0 => format!("{} generated", counted(generated_count, "token")),
        None => format!("all {all} correct"),
        Some(first) => format!(
            "{} of {all} correct; first difference at position {}",
            pairs().filter(|token| token.outcome == Outcome::Hit).count(),
            thousands((prompt + first) as f64)
        ),
    };
    let note = format!("{sequence}, after {}: {result}", counted(prompt, "token"));
    let strip = TokenStrip {
        tokens,
        predicted: "generated",
        shade: "prompt",
        outcomes: ["correct", "different", "generated", ""],
    };
    Some(strip.picture("generated", width, &format!("{run}: free-running continuation"), &note))
}
