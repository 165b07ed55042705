//! `prediction`: predicted against true tokens over time steps.

use super::picture::Picture;
use super::range::{counted, whole};
use super::reading::{Reading, Target};
use super::token_strip::{Outcome, Step, TokenStrip, Words};
use crate::data::Role;

const WORDS: Words = Words {
    predicted: "predicted",
    hit: "predicted right",
    miss: "missed",
    unknown: "guessed",
    shade: "cannot be known",
};

/// What a model predicted along one sequence, each time after the true tokens; none where no true token is
/// known.
pub fn prediction(run: &str, reading: &Reading) -> Option<Picture> {
    let steps: Vec<(&Target, &str)> = reading
        .targets
        .iter()
        .zip(&reading.likeliest)
        .filter_map(|(target, likeliest)| Some((target.as_ref()?, likeliest.first()?.token.as_str())))
        .collect();
    let outcome = |target: &Target, predicted: &str| match (target.role, target.text == predicted) {
        (Role::Undetermined, _) => Outcome::Unknown,
        (_, true) => Outcome::Hit,
        (_, false) => Outcome::Miss,
    };
    let strip = TokenStrip {
        steps: steps
            .iter()
            .map(|&(target, predicted)| Step {
                truth: Some(target.text.clone()),
                predicted: Some(predicted.to_string()),
                outcome: outcome(target, predicted),
            })
            .collect(),
        words: WORDS,
    };
    if steps.is_empty() {
        return None;
    }
    let note = format!("{}: {}{}", reading.sequence, result(&steps), strip.cut());
    let title = format!("{run}: predicted and true tokens");
    let mut picture = Picture::new("prediction", strip.height(), &title, &note);
    strip.draw(&mut picture.canvas);
    Some(picture)
}

/// How many predictions are right: of those that can be known, where a rule says which these are.
fn result(steps: &[(&Target, &str)]) -> String {
    let right = |is_meant: &dyn Fn(Role) -> bool| {
        let meant = steps.iter().filter(|(target, _)| is_meant(target.role));
        (meant.clone().filter(|(target, predicted)| target.text == *predicted).count(), meant.count())
    };
    let (hits, known) = right(&|role| role != Role::Undetermined);
    let (guessed, unknowable) = right(&|role| role == Role::Undetermined);
    if steps.iter().any(|(target, _)| target.role == Role::Unknown) {
        let probability =
            steps.iter().map(|(target, _)| f64::from(target.probability)).sum::<f64>() / steps.len() as f64;
        let tokens = counted(known, "token");
        return format!(
            "{hits} of {tokens} are right; on average the true one is {:.1} % probable",
            probability * 100.0
        );
    }
    match (known, unknowable) {
        (_, 0) => format!("{hits} of {} are right", counted(known, "token")),
        (0, all) => {
            format!("nothing determines these tokens; {guessed} of {} guessed right", whole(all as u64))
        }
        (_, unknowable) => format!(
            "{hits} of the {} that can be known are right; {} cannot be known",
            counted(known, "token"),
            whole(unknowable as u64)
        ),
    }
}
