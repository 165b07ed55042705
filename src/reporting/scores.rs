//! The scores of heads, and the heads that are shown first.

use std::collections::BTreeMap;

use causal_attention_report::page::Heads;
use causal_attention_report::reading::{AttentionKind, Reading};
use causal_attention_report::scores::{self, ScoreKind};

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
/// it. Otherwise layers of causal self-attention show [`shown_head`], which depends on their scores.
pub(super) fn heads(
    measured_on: String,
    (scores, chance): (&[Vec<HeadScores>], Vec<scores::HeadScores>),
    reading: &Reading,
    head: Option<usize>,
) -> Heads {
    let of_layer = |(index, layer): (usize, &Vec<HeadScores>)| {
        let shown = head.map_or_else(|| shown_head(layer), |head| head.min(layer.len().saturating_sub(1)));
        (shown, layer.get(shown).map_or_else(String::new, |head| note(head, chance.get(index))))
    };
    let (causal, notes) = scores.iter().enumerate().map(of_layer).unzip();
    let shown = match head {
        Some(head) => AttentionKind::ALL.map(|kind| (kind, vec![head; reading.maps.of(kind).len()])).into(),
        None => [(AttentionKind::Decoder, causal)].into(),
    };
    Heads { measured_on, scores: by_kind(scores), chance, shown, kinds: kinds(), notes, ..Heads::default() }
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
        let opened = |head: Option<usize>| {
            let scores = [[HeadScores::default(); 2]; 2].map(Vec::from);
            let heads = heads(String::new(), (&scores, Vec::new()), &reading, head);
            let page = Page::new(String::new(), (vec![reading.clone()], 0), heads);
            let names = reading.layers(&page.heads.shown, &[]).into_iter().map(|layer| layer.name).collect();
            (page.heads.shown, names)
        };
        let shown = |heads: [[usize; 2]; 3]| -> BTreeMap<AttentionKind, Vec<usize>> {
            AttentionKind::ALL.into_iter().zip(heads.map(Vec::from)).collect()
        };
        let (sharpest, names): (_, Vec<String>) = opened(None);
        assert_eq!(sharpest, shown([[0, 0], [1, 0], [1, 1]]));
        assert!(names[2].contains("cross-attention, layer 0, head 1"), "{names:?}");
        assert!(names[3].contains("cross-attention, layer 1, head 0"), "{names:?}");
        assert_eq!(opened(Some(1)).0, shown([[1, 1]; 3]));
    }
}
