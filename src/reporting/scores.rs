//! The scores of heads, and the heads that are shown first.

use std::collections::BTreeMap;

use causal_attention_report::page::Heads;
use causal_attention_report::reading::{AttentionKind, Reading, ShownHeads};
use causal_attention_report::scores::{self, ScoreKind};

use crate::analysis::circuit::{Component, Explanation};
use crate::analysis::{HeadScores, HeadTallies, Sample, Score, ScoredStep, shown_head};
use crate::model::{Architecture, ModelConfig};

/// The scores that show the formation of a head, in the order of their panels.
const FORMATION_SCORES: [Score; 3] = [Score::Induction, Score::Previous, Score::Duplicate];

/// Returns all kinds of scores, in display order.
pub(super) fn kinds() -> Vec<ScoreKind> {
    Score::ALL.map(Score::about).to_vec()
}

/// Returns the kinds of scores that show the formation of a head.
pub(super) fn formed() -> [ScoreKind; 3] {
    FORMATION_SCORES.map(Score::about)
}

/// Converts scores, `[layer][head]`, to the types of the report crate.
pub(super) fn by_kind(heads: &[Vec<HeadScores>]) -> Vec<Vec<scores::HeadScores>> {
    heads.iter().map(|layer| layer.iter().map(of_head).collect()).collect()
}

fn of_head(head: &HeadScores) -> scores::HeadScores {
    scores::HeadScores::new(Score::ALL.map(|score| (score.about(), head[score])))
}

/// Returns the chance level of each score on the samples, for each layer of the decoder: layers with a window see fewer
/// keys.
pub fn chance(samples: &[Sample], model: &ModelConfig) -> Vec<scores::HeadScores> {
    let layers = if model.architecture == Architecture::OneLayer { 1 } else { model.layers };
    let windows: Vec<_> = (0..layers).map(|layer| model.window_of(layer)).collect();
    let mut known = BTreeMap::new();
    for &window in &windows {
        known.entry(window).or_insert_with(|| of_head(&HeadTallies::chance(samples, window)));
    }
    windows.iter().map(|window| known[window].clone()).collect()
}

/// Converts the scores by step to the types of the report crate.
pub(super) fn history(steps: &[ScoredStep]) -> Vec<scores::ScoredStep> {
    let by_kind =
        |ScoredStep { step, heads }: &ScoredStep| scores::ScoredStep { step: *step, heads: by_kind(heads) };
    steps.iter().map(by_kind).collect()
}

/// Returns the heads of a model with these scores and the chance level of each layer. If `head` is given, every layer shows
/// it. Otherwise each layer shows its most important head: by ablation, or if its heads were not ablated, by the
/// `circuit`. Layers without known importance show [`shown_head`] if they have scores, and else their sharpest head.
pub(super) fn heads(
    measured_on: String,
    (scores, chance): (&[Vec<HeadScores>], Vec<scores::HeadScores>),
    reading: &Reading,
    (head, circuit): (Option<usize>, Option<&Explanation>),
) -> Heads {
    let of_layer = |(index, layer): (usize, &Vec<HeadScores>)| {
        let is_ablated = layer.iter().any(|head| head[Score::Ablation].is_some());
        let important = || circuit.filter(|_| !is_ablated).and_then(|it| important_head(it, index, false));
        let shown = head.or_else(important).unwrap_or_else(|| shown_head(layer));
        let shown = shown.min(layer.len().saturating_sub(1));
        (shown, layer.get(shown).map_or_else(String::new, |head| note(head, chance.get(index))))
    };
    let (causal, notes) = scores.iter().enumerate().map(of_layer).unzip();
    let given = match head {
        Some(head) => AttentionKind::ALL.map(|kind| (kind, vec![head; reading.maps.of(kind).len()])).into(),
        None => [(AttentionKind::Decoder, causal)].into(),
    };
    let shown = shown_heads(reading, &given, circuit);
    Heads { measured_on, scores: by_kind(scores), chance, shown, kinds: kinds(), notes, ..Heads::default() }
}

/// Returns the head that each layer of each kind of attention shows: the `given` one; without one, the most important
/// cross-attention head of the circuit, and else the sharpest head.
fn shown_heads(reading: &Reading, given: &ShownHeads, circuit: Option<&Explanation>) -> ShownHeads {
    let mut shown = ShownHeads::new();
    for layer in reading.layers(given, &[]) {
        let is_open = layer.kind == AttentionKind::Cross && !given.contains_key(&layer.kind);
        let important = circuit.filter(|_| is_open).and_then(|it| important_head(it, layer.index, true));
        shown.entry(layer.kind).or_default().push(important.unwrap_or(layer.shown));
    }
    shown
}

/// Returns the head of a layer that matters most in a circuit, whose components are in the order of their importance;
/// `None` if no useful head of the layer is in the circuit.
fn important_head(circuit: &Explanation, layer: usize, is_cross: bool) -> Option<usize> {
    let is_of_layer = |it: &&Component| it.layer == layer && it.cross == is_cross && it.head.is_some();
    let mut heads = circuit.components.iter().filter(is_of_layer);
    heads.find(|it| !circuit.gain.is_harmful(it.ablated, it.interval))?.head
}

/// Returns the note on a head, such as "induction 0.93 (chance 0.05)".
fn note(scores: &HeadScores, chance: Option<&scores::HeadScores>) -> String {
    let notes = [Score::Ablation, Score::Induction].into_iter().filter_map(|score| {
        let value = scores[score].filter(|value| value.is_finite())?;
        let chance = chance.and_then(|chance| chance.get(&score.about())).filter(|chance| chance.is_finite());
        let chance = chance.map_or_else(String::new, |chance| format!(" (chance {})", score.text(chance)));
        Some(format!("{} {}{chance}", score.about().name, score.text(value)))
    });
    notes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use causal_attention_report::page::Page;
    use causal_attention_report::reading::AttentionMaps;

    use super::*;
    use crate::analysis::circuit::tests::explained_induction;

    #[test]
    fn page_and_pictures_open_on_the_same_heads() {
        let even = vec![0.2; 25];
        let identity: Vec<f32> = (0..25).map(|i| if i / 5 == i % 5 { 1.0 } else { 0.0 }).collect();
        let maps = AttentionMaps {
            attention: vec![vec![even.clone(), identity.clone()]; 2],
            cross: vec![vec![even.clone(), identity.clone()], vec![identity.clone(), even.clone()]],
            encoder: vec![vec![even, identity]; 2],
            visible: Vec::new(),
        };
        let tokens = vec!["a".to_string(); 5];
        let reading = Reading { source: Some(tokens.clone()), inputs: tokens, maps, ..Reading::default() };
        let opened = |head: Option<usize>, circuit: Option<&Explanation>| {
            let scores = [[HeadScores::default(); 2]; 2].map(Vec::from);
            let heads = heads(String::new(), (&scores, Vec::new()), &reading, (head, circuit));
            let page = Page::new(String::new(), (vec![reading.clone()], 0), heads);
            let names = reading.layers(&page.heads.shown, &[]).into_iter().map(|layer| layer.name).collect();
            (page.heads.shown, names)
        };
        let shown = |heads: [[usize; 2]; 3]| -> BTreeMap<AttentionKind, Vec<usize>> {
            AttentionKind::ALL.into_iter().zip(heads.map(Vec::from)).collect()
        };
        let (sharpest, names): (_, Vec<String>) = opened(None, None);
        assert_eq!(sharpest, shown([[0, 0], [1, 0], [1, 1]]));
        assert!(names[2].contains("cross-attention, layer 0, head 1"), "{names:?}");
        assert!(names[3].contains("cross-attention, layer 1, head 0"), "{names:?}");
        assert_eq!(opened(Some(1), None).0, shown([[1, 1]; 3]));
    }

    #[test]
    fn layers_open_on_important_heads_of_the_circuit() {
        let mut circuit = explained_induction();
        let first = circuit.components[0].clone();
        let component = |layer: usize, head: usize, cross: bool, change: f64| Component {
            layer,
            head: Some(head),
            cross,
            ablated: circuit.gain.model + change,
            interval: None,
            ..first.clone()
        };
        // Ablating the harmful head lowers the loss.
        let harmful = component(0, 0, true, (circuit.gain.model - circuit.gain.baseline) / 2.0);
        let decoder = [component(1, 2, false, 0.9), component(1, 1, false, 0.3)];
        let cross = [component(1, 1, true, 0.8), component(1, 2, true, 0.7), component(0, 2, true, 0.2)];
        circuit.components = [vec![harmful], decoder.to_vec(), cross.to_vec()].concat();

        let even = vec![0.5; 4];
        let layers = vec![vec![even; 3]; 2];
        let maps = AttentionMaps {
            attention: layers.clone(),
            cross: layers.clone(),
            encoder: layers,
            visible: Vec::new(),
        };
        let tokens = vec!["a".to_string(); 2];
        let reading = Reading { source: Some(tokens.clone()), inputs: tokens, maps, ..Reading::default() };
        let shown = |scores: HeadScores, head: Option<usize>, circuit: Option<&Explanation>| {
            let scores = vec![vec![HeadScores::default(), scores, HeadScores::default()]; 2];
            let opened = heads(String::new(), (&scores, Vec::new()), &reading, (head, circuit)).shown;
            AttentionKind::ALL.map(|kind| opened[&kind].clone())
        };
        let measured = |measured: Score| HeadScores::new(|score| (score == measured).then_some(0.5));
        let (ablated, attended) = (measured(Score::Ablation), measured(Score::Induction));
        assert_eq!(shown(ablated, None, Some(&circuit)), [[1, 1], [2, 1], [0, 0]]);
        assert_eq!(shown(attended, None, Some(&circuit)), [[1, 2], [2, 1], [0, 0]], "no head was ablated");
        assert_eq!(shown(attended, None, None), [[1, 1], [0, 0], [0, 0]]);
        assert_eq!(shown(ablated, Some(0), Some(&circuit)), [[0, 0]; 3]);
    }
}
