//! Sequences with the attention and the predictions of a model, as text.

use causal_attention_report::reading::{Reading, Target, TargetRole, TokenProbability};
use causal_attention_report::{ComparedToken, Outcome};

use crate::analysis::{FreeRunning, Sample, Snapshot, Snapshots, View};
use crate::data::{Role, Vocabulary};
use crate::generation::sampling;
use crate::numbers::counted;

/// The number of most likely tokens kept per position.
const TOP_TOKENS: usize = 5;

/// Returns a sequence as text, with the attention weights and the predictions of a model.
pub fn reading(sequence: String, sample: Sample, view: View, vocabulary: &Vocabulary) -> Reading {
    let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
    let targets = sample.targets.iter().zip(&sample.roles).zip(&view.probabilities);
    let targets = targets.map(|((&target, &role), probabilities)| {
        let role = match role {
            Role::Padding => return None,
            Role::Undetermined => TargetRole::Undetermined,
            Role::Determined => TargetRole::Determined,
            Role::Unknown => TargetRole::Unknown,
        };
        let probability = probabilities[target as usize];
        Some(Target { id: target, text: vocabulary.token(target), probability, role })
    });
    let most_likely = view.probabilities.iter().map(|probabilities| {
        let named = |token: u32| {
            let probability = probabilities[token as usize];
            TokenProbability { id: token, token: vocabulary.token(token), probability }
        };
        sampling::top(probabilities, TOP_TOKENS).into_iter().map(named).collect()
    });
    Reading {
        sequence,
        source: sample.source.as_deref().map(texts),
        inputs: texts(&sample.inputs),
        targets: targets.collect(),
        most_likely: most_likely.collect(),
        maps: view.maps,
    }
}

/// Returns the readings of a sequence at the snapshots of its run, each with its number of steps. Snapshots that do not
/// match the sequence are skipped.
pub(super) fn snapshot_frames(
    snapshots: &Snapshots,
    reading: &Reading,
    vocabulary: &Vocabulary,
) -> Vec<(usize, Reading)> {
    let source = reading.source.as_ref().map_or(0, Vec::len);
    let known = |id: u32| (id as usize) < vocabulary.size();
    let frame = |snapshot: &Snapshot| {
        let Snapshot { step, most_likely, truth, .. } = snapshot;
        let fits = truth.len() <= reading.inputs.len() && most_likely.iter().all(|&(id, _)| known(id));
        let maps = snapshot.maps(&reading.maps, source).filter(|_| fits)?;
        let targets = reading.targets.iter().zip(truth);
        let targets = targets.map(|(target, &probability)| {
            let target = target.clone()?;
            Some(Target { probability, ..target })
        });
        let named =
            |&(id, probability)| vec![TokenProbability { id, token: vocabulary.token(id), probability }];
        let frame = Reading {
            sequence: format!("{} after {}", reading.sequence, counted(*step, "step")),
            source: reading.source.clone(),
            inputs: reading.inputs[..truth.len()].to_vec(),
            targets: targets.collect(),
            most_likely: most_likely.iter().map(named).collect(),
            maps,
        };
        Some((*step, frame))
    };
    snapshots.all.iter().filter_map(frame).collect()
}

/// Returns a prompt and its continuation, compared token by token with the true one.
pub(super) fn continuation(free: &FreeRunning, vocabulary: &Vocabulary) -> Vec<ComparedToken> {
    let FreeRunning { prompt, generated, truth } = free;
    let text = |&token: &u32| vocabulary.token(token);
    let given = prompt.iter().map(|token| ComparedToken {
        truth: Some(text(token)),
        predicted: None,
        outcome: Outcome::Unknown,
    });
    let continued = generated.iter().enumerate().map(|(i, token)| ComparedToken {
        truth: truth.get(i).map(text),
        predicted: Some(text(token)),
        outcome: match truth.get(i) {
            None => Outcome::Unknown,
            Some(truth) if truth == token => Outcome::Hit,
            Some(_) => Outcome::Miss,
        },
    });
    given.chain(continued).collect()
}
