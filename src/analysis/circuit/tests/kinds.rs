//! The evidence for the kinds of heads.

use super::*;
use crate::analysis::circuit::bench::Bench;
use crate::analysis::circuit::question::Question;

/// Returns the part of each head's weights that depends on positions alone, `[layer][head]`.
fn positional(model: &Decoder<B>, samples: &[Sample]) -> [[Option<f64>; 2]; 2] {
    let bench = Bench::new(model, samples, &Question::default(), &Default::default()).unwrap();
    [0, 1].map(|layer| [0, 1].map(|head| bench.positional_score([layer, head], samples)))
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
