//! The evidence for the kinds of heads.

use super::*;
use crate::analysis::circuit::bench::Bench;
use crate::analysis::circuit::question::Question;
use crate::model::Architecture;
use crate::position::PositionScheme;

/// Returns the part of each head's weights that depends on positions alone, `[layer][head]`.
fn positional(model: &Decoder<B>, samples: &[Sample]) -> [[Option<f64>; 2]; 2] {
    let bench = Bench::new(model, samples, &Question::default(), &Default::default()).unwrap();
    [0, 1].map(|layer| {
        [0, 1].map(|head| bench.kind_score(HeadKind::Positional, Site::Pattern(layer, head), samples))
    })
}

#[test]
fn positional_heads_prefer_positions_in_all_sequences() {
    let both: Vec<_> = [3, 5].into_iter().flat_map(motifs).collect();
    let [[uniform, previous], [induction, _]] = positional(&induction_model(), &both);
    assert!(previous.unwrap() > 0.5, "the head of the previous position: {previous:?}");
    assert!(uniform.unwrap() < 1e-5, "uniform weights prefer no position: {uniform:?}");
    assert_eq!(induction, None, "the head matches tokens");
}

#[test]
fn untrained_heads_are_not_positional() {
    let both: Vec<_> = [3, 5].into_iter().flat_map(motifs).collect();
    for seed in 0..5 {
        let Model::Decoder(model) = randomly_initialised(seed) else { panic!("a decoder") };
        let scores = positional(&model, &both);
        assert!(scores.iter().flatten().all(|score| score.is_none_or(|it| it < 0.5)), "{seed}: {scores:?}");
    }
}

#[test]
fn equal_repetitions_reveal_no_positional_head() {
    // Every sequence repeats its tokens after three, so that a head that matches tokens always finds them there.
    let scores = positional(&induction_model(), &motifs(3));
    assert_eq!(scores, [[None; 2]; 2]);
}

#[test]
fn kinds_are_compared_with_chance() {
    let samples: Vec<_> = [3, 5].into_iter().flat_map(motifs).collect();
    let found = explained_induction()
        .with_random_effects(
            &randomly_initialised(1),
            (&samples, &Question::default()),
            &Unwatched,
            &Default::default(),
        )
        .unwrap();
    let random = &found.random_effects.as_ref().unwrap().kinds;
    let mut scored = Vec::new();
    for component in &found.components {
        let kinds = component.kinds.iter().filter(|kind| **kind != HeadKind::Copying);
        assert!(kinds.eq(component.kind_scores.iter().map(|it| &it.kind)), "{component:?}");
        for KindScore { kind, score, queries, interval, chance, .. } in &component.kind_scores {
            let [low, high] = interval.unwrap();
            assert!(low <= *score && *score <= high && *score >= 0.5 && *queries > 30, "{component:?}");
            let (_, of_random) = random.iter().find(|(name, _)| name == kind).unwrap();
            assert!(*chance < 0.5 && *of_random < 0.5, "{kind:?}: {of_random} with random weights");
            scored.push(*kind);
        }
    }
    let mut expected = vec![HeadKind::Induction, HeadKind::PreviousToken, HeadKind::Positional];
    expected.retain(|kind| !scored.contains(kind));
    assert!(expected.is_empty(), "{expected:?} lack evidence");
}

#[test]
fn kinds_that_random_weights_reach_are_named() {
    let samples: Vec<_> = [3, 5].into_iter().flat_map(motifs).collect();
    let compared = |random: &Model<B>| {
        let (question, device) = (Question::default(), Default::default());
        explained_induction().with_random_effects(random, (&samples, &question), &Unwatched, &device).unwrap()
    };
    let is_named =
        |found: &Explanation| found.sentences.iter().any(|it| it.starts_with("These kinds are no evidence"));
    let found = compared(&randomly_initialised(1));
    assert!(!is_named(&found), "{:?}", found.sentences);
    // Scores of the same weights are as high.
    let found = compared(&Model::Decoder(induction_model()));
    let scores = found.components.iter().flat_map(|it| &it.kind_scores);
    assert!(scores.clone().count() >= 3 && scores.clone().all(KindScore::may_be_chance), "{scores:?}");
    let last = found.sentences.last().unwrap();
    assert!(last.contains("induction of layer 1 head 0"), "{last}");
    assert!(last.contains("previous-token of layer 0 head 1"), "{last}");
    assert!(last.contains("copying of layer 1 head 0"), "{last}");
    let small = "The effects of 2 of the 2 components and ";
    assert!(found.sentences.iter().any(|it| it.starts_with(small)), "{:?}", found.sentences);
}

#[test]
fn answers_of_any_length_are_compared_with_the_keys_that_they_see() {
    let config = ModelConfig {
        architecture: Architecture::EncoderDecoder,
        d_model: 16,
        heads: 2,
        layers: 1,
        position: PositionScheme::None,
        ..ModelConfig::default()
    };
    let sizes = Sizes { vocab: 9, context: 9, source_context: Some(9) };
    let Model::Decoder(model) = config.init::<B>(sizes, &Default::default()).unwrap() else {
        panic!("a decoder")
    };
    let sample = |number: usize| {
        let length = 1 + number % 8;
        let source: Vec<u32> = (0..length).map(|at| ((number * 5 + at * 3) % 8 + 1) as u32).collect();
        Sample {
            inputs: [&[0], &source[..]].concat(),
            targets: [&source[..], &[0]].concat(),
            roles: vec![Role::Unknown; length + 1],
            source: Some(source),
            documents: None,
        }
    };
    let samples: Vec<Sample> = (0..16).map(sample).collect();
    let bench = Bench::new(&model, &samples, &Question::default(), &Default::default()).unwrap();
    for head in [0, 1] {
        let score = bench.kind_score(HeadKind::Positional, Site::Pattern(0, head), &samples).unwrap();
        assert!(score < 0.2, "weights without training are nearly uniform over the visible keys: {score}");
    }
}
