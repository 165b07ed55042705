//! `generated`: the free-running continuation of a model, compared with the true one.

use crate::draw::{Outcome, Picture, Step, TokenStrip};
use crate::numbers::{counted, thousands};

/// Draws a free-running continuation: the model reads its own output, so one wrong token can lead to others. The
/// prompt comes from `sequence`; its steps lack a predicted token. Returns `None` if nothing was generated.
pub fn picture(run: &str, sequence: &str, steps: Vec<Step>) -> Option<Picture> {
    let generated = || steps.iter().filter(|step| step.predicted.is_some());
    let pairs = || generated().filter(|step| step.truth.is_some());
    let (written, compared) = (generated().count(), pairs().count());
    if written == 0 {
        return None;
    }
    let prompt = steps.len() - written;
    let tokens = counted(compared, "token");
    let result = match pairs().position(|step| step.outcome != Outcome::Hit) {
        _ if compared == 0 => format!("{} generated", counted(written, "token")),
        None => format!("all {tokens} correct"),
        Some(first) => format!(
            "{} of {tokens} correct; first difference at position {}",
            pairs().filter(|step| step.outcome == Outcome::Hit).count(),
            thousands((prompt + first) as f64)
        ),
    };
    let note = format!("{sequence}, after {}: {result}", counted(prompt, "token"));
    let strip = TokenStrip {
        steps,
        predicted: "generated",
        shade: "prompt",
        outcomes: ["correct", "different", "generated", ""],
    };
    Some(strip.picture("generated", &format!("{run}: free-running continuation"), &note))
}
