//! The Fourier analysis of a run as sentences with numbers.

use super::{FourierAnalysis, StageKind, TrainingStage};
use crate::numbers::{counted, fixed, percent, thousands};

/// The maximum number of key frequencies that are listed.
const MAX_LISTED: usize = 8;
/// The minimum share of the variance of a neuron that follows one frequency (Nanda et al., 2023, section 4.2).
const MIN_NEURON_SHARE: f64 = 0.85;
/// The maximum share of the frequencies that a model of few frequencies has as key frequencies.
const MAX_KEY_FRACTION: f64 = 0.3;

/// Describes the frequencies of a run, and its stages.
pub fn sentences(found: &FourierAnalysis) -> Vec<String> {
    let mut sentences = vec![frequencies(found), embedding(found)];
    sentences.extend(found.neurons.iter().enumerate().filter_map(|(layer, _)| neurons(found, layer)));
    sentences.push(losses(found));
    sentences.extend(stages(found));
    sentences
}

fn frequencies(found: &FourierAnalysis) -> String {
    let (n, all) = (found.modulus, found.logits.len());
    if found.keys.len() as f64 > MAX_KEY_FRACTION * all as f64 {
        return format!(
            "No small set of frequencies makes the logits: {} of {all} are needed for 95 % of their variance over the sums, where \
             a model that has learned modular addition needs a few.",
            found.keys.len()
        );
    }
    format!(
        "The logits of the sum a + b modulo {n} are waves of {}, which hold {} of their variance over the sums: the logit of \
         c adds up cos(2 π k (a + b - c) / {n}) over these k.",
        listed(&found.keys),
        percent(held(&found.logits, &found.keys)),
    )
}

fn embedding(found: &FourierAnalysis) -> String {
    let chance = found.keys.len() as f64 / found.embedding.len() as f64;
    format!(
        "The same frequencies hold {} of the variance of the token embedding over the numbers, {} if all frequencies had equal \
         shares.",
        percent(held(&found.embedding, &found.keys)),
        percent(chance)
    )
}

fn neurons(found: &FourierAnalysis, layer: usize) -> Option<String> {
    let all = &found.neurons[layer];
    let follows = |frequency: Option<usize>| {
        let follows = |it: &&crate::analysis::fourier::NeuronFrequency| {
            it.share >= MIN_NEURON_SHARE && frequency.is_none_or(|frequency| frequency == it.frequency)
        };
        all.iter().flatten().filter(follows).count()
    };
    if all.is_empty() {
        return None;
    }
    let of_keys: Vec<String> = found
        .keys
        .iter()
        .take(MAX_LISTED)
        .map(|&key| format!("{} follow {key}", thousands(follows(Some(key)) as f64)))
        .collect();
    Some(format!(
        "Of {} of feed-forward layer {layer}, {} follow one frequency, which explains at least 85 % of their variance over all \
         pairs: {}.",
        counted(all.len(), "neuron"),
        thousands(follows(None) as f64),
        of_keys.join(", ")
    ))
}

fn losses(found: &FourierAnalysis) -> String {
    let best = &found.best;
    format!(
        "With only these frequencies in its logits, the model has a loss of {} nats on all pairs (restricted loss). Without \
         them, it has {} nats on the training set (excluded loss); with all of its logits {} there and {} on the \
         validation set. Guessing costs {}.",
        fixed(best.restricted, 4),
        fixed(best.excluded, 2),
        fixed(best.training, 4),
        fixed(best.validation, 4),
        fixed((found.modulus as f64).ln(), 2)
    )
}

fn stages(found: &FourierAnalysis) -> Vec<String> {
    if found.progress.is_empty() {
        return vec![
            "The run kept no copies of its weights, which date the stages of training; keep them with --set \
             analysis.weights_every=100."
                .to_string(),
        ];
    }
    if found.stages.is_empty() {
        let last = found.progress[found.progress.len() - 1];
        return vec![format!(
            "The run has no separate stages: its validation loss did not fall after the training loss had fallen (at the end, \
             {} and {} nats).",
            fixed(last.validation, 2),
            fixed(last.training, 2)
        )];
    }
    found.stages.iter().map(stage_sentence).collect()
}

/// Describes a stage.
pub fn stage_sentence(stage: &TrainingStage) -> String {
    let (start, end) = (&stage.start, &stage.end);
    let steps = format!("steps {} to {}", thousands(start.step as f64), thousands(end.step as f64));
    let change = |values: [f64; 2]| {
        let [before, after] = values.map(|value| fixed(value, 2));
        let verb = if values[1] < values[0] { "falls" } else { "rises" };
        format!("{verb} from {before} to {after}")
    };
    let [validation, restricted, excluded] = [
        change([start.validation, end.validation]),
        change([start.restricted, end.restricted]),
        change([start.excluded, end.excluded]),
    ];
    let training = change([start.training, end.training]);
    let [before, after] = [start.squared_weights, end.squared_weights].map(thousands);
    match stage.kind {
        StageKind::Memorisation => {
            format!("Memorisation, {steps}: the training loss {training}, the validation loss {validation}.")
        }
        StageKind::CircuitFormation => format!(
            "Circuit formation, {steps}: the restricted loss {restricted}, while the validation loss {validation}; the \
             excluded loss {excluded}."
        ),
        StageKind::Cleanup => format!(
            "Cleanup, {steps}: the validation loss {validation}, the restricted loss {restricted} and the excluded loss \
             {excluded}; the sum of squared weights goes from {before} to {after}."
        ),
    }
}

/// Returns such as "frequencies 14, 35 and 41".
fn listed(keys: &[usize]) -> String {
    let shown: Vec<String> = keys.iter().take(MAX_LISTED).map(usize::to_string).collect();
    match (keys.len() > MAX_LISTED, &shown[..]) {
        (true, _) => format!("{} and {} more", shown.join(", "), keys.len() - MAX_LISTED),
        (_, [only]) => format!("frequency {only}"),
        (_, [first @ .., last]) => format!("frequencies {} and {last}", first.join(", ")),
        (_, []) => "no frequency".to_string(),
    }
}

fn held(shares: &[f64], keys: &[usize]) -> f64 {
    keys.iter().map(|key| shares[key - 1]).sum()
}
