//! `prediction`: predicted and true tokens by position.

use crate::draw::{ComparedToken, Outcome, Picture, TokenStrip};
use crate::numbers::{counted, thousands};
use crate::reading::{Reading, Target, TargetRole, TokenProbability};

/// A true token and the model's most likely token.
type Prediction<'a> = (&'a Target, &'a TokenProbability);

/// Draws a model's predictions for one sequence next to the true tokens, in a picture of this width. Returns `None` if
/// no true token is known.
pub fn picture(run: &str, reading: &Reading, width: f64) -> Option<Picture> {
    let all = reading.targets.iter().zip(&reading.most_likely);
    let known = all.filter_map(|(target, most_likely)| Some((target.as_ref()?, most_likely.first()?)));
    let predictions: Vec<Prediction<'_>> = known.collect();
    if predictions.is_empty() {
        return None;
    }
    let token = |&(target, predicted): &Prediction<'_>| ComparedToken {
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
        tokens: predictions.iter().map(token).collect(),
        predicted: "predicted",
        shade: "undetermined",
        outcomes: ["correct", "wrong", "correct by chance", "wrong by chance"],
    };
    let title = format!("{run}: predicted and true tokens");
    let note = format!("{}: {}", reading.sequence, result(&predictions));
    Some(strip.picture("prediction", width, &title, &note))
}

/// Reports the number of correct predictions, among the determined targets if the roles of targets are known.
fn result(predictions: &[Prediction<'_>]) -> String {
    let counts = |is_determined: bool| {
        let selected = predictions
            .iter()
            .filter(move |(target, _)| (target.role != TargetRole::Undetermined) == is_determined);
        (selected.clone().filter(|(target, predicted)| target.id == predicted.id).count(), selected.count())
    };
    let ((hits, determined), (guessed, undetermined)) = (counts(true), counts(false));
    let (tokens, others) = (counted(determined, "token"), thousands(undetermined as f64));
    let targets = counted(determined, "determined target");
    if predictions.iter().any(|(target, _)| target.role == TargetRole::Unknown) {
        let percents = predictions.iter().map(|(target, _)| f64::from(target.probability) * 100.0);
        let mean = percents.sum::<f64>() / predictions.len() as f64;
        return format!("{hits} of {tokens} correct; mean probability of the true token {mean:.1} %");
    }
    match (determined, undetermined) {
        (_, 0) => format!("{hits} of {tokens} correct"),
        (0, _) => format!("no target is determined; {guessed} of {others} predicted correctly"),
        _ => format!("{hits} of {targets} correct; {others} undetermined"),
    }
}
