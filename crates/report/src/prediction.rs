//! `prediction`: predicted and true tokens over time steps.

use crate::draw::{Outcome, Picture, Step, TokenStrip};
use crate::numbers::{counted, thousands};
use crate::reading::{Reading, Target, TargetRole, TokenProbability};

/// A true token, and the token that the model considers the most likely.
type Predicted<'a> = (&'a Target, &'a TokenProbability);

/// Draws a model's predictions for one sequence next to the true tokens. Returns `None` if no true token is known.
pub fn picture(run: &str, reading: &Reading) -> Option<Picture> {
    let steps = reading.targets.iter().zip(&reading.most_likely);
    let steps = steps.filter_map(|(target, most_likely)| Some((target.as_ref()?, most_likely.first()?)));
    let steps: Vec<Predicted<'_>> = steps.collect();
    if steps.is_empty() {
        return None;
    }
    let step = |&(target, predicted): &Predicted<'_>| Step {
        truth: Some(target.text.clone()),
        predicted: Some(predicted.token.clone()),
        outcome: match (target.role, target.id == predicted.id) {
            (TargetRole::Undetermined, true) => Outcome::Unknown,
            (TargetRole::Undetermined, false) => Outcome::WrongGuess,
            (_, true) => Outcome::Hit,
            (_, false) => Outcome::Miss,
        },
    };
    let strip = TokenStrip {
        steps: steps.iter().map(step).collect(),
        predicted: "predicted",
        shade: "undetermined",
        outcomes: ["correct", "wrong", "correct by chance", "wrong by chance"],
    };
    let title = format!("{run}: predicted and true tokens");
    Some(strip.picture("prediction", &title, &format!("{}: {}", reading.sequence, result(&steps))))
}

/// Reports the number of correct predictions, among the determined targets if the roles of targets are known.
fn result(steps: &[Predicted<'_>]) -> String {
    let right = |is_known: bool| {
        let meant =
            steps.iter().filter(move |(target, _)| (target.role != TargetRole::Undetermined) == is_known);
        (meant.clone().filter(|(target, predicted)| target.id == predicted.id).count(), meant.count())
    };
    let ((hits, known), (guessed, unknowable)) = (right(true), right(false));
    let (tokens, others) = (counted(known, "token"), thousands(unknowable as f64));
    let determined = counted(known, "determined target");
    if steps.iter().any(|(target, _)| target.role == TargetRole::Unknown) {
        let percents = steps.iter().map(|(target, _)| f64::from(target.probability) * 100.0);
        let mean = percents.sum::<f64>() / steps.len() as f64;
        return format!("{hits} of {tokens} correct; mean probability of the true token {mean:.1} %");
    }
    match (known, unknowable) {
        (_, 0) => format!("{hits} of {tokens} correct"),
        (0, _) => format!("no target is determined; {guessed} of {others} predicted correctly"),
        _ => format!("{hits} of {determined} correct; {others} undetermined"),
    }
}
