//! Tests activation patching of models with random weights.

use super::*;
use crate::analysis::Sample;
use crate::analysis::circuit::explainable;
use crate::analysis::circuit::pairs::PairCandidate;
use crate::analysis::circuit::testing::noisy_model;
use crate::model::{Model, ModelConfig, Sizes};
use burn_ndarray::NdArray;

type B = NdArray;

fn model() -> Model<B> {
    let config = ModelConfig { d_model: 20, heads: 5, ..ModelConfig::default() };
    let sizes = Sizes { vocab: 13, context: 7, source_context: None };
    // With strong noise, exchanged tokens matter.
    noisy_model(&config, sizes, 0.3)
}

/// Patches with the first pair of answers whose logit difference the corruption lowers. The weights determine which
/// pair this is.
fn patched(model: &Model<B>, clean: &[u32], corrupted: &[u32]) -> Patching {
    let new = |answers: [u32; 2]| {
        let pair = Pair { clean: clean.to_vec(), corrupted: corrupted.to_vec(), answers };
        Patching::new(explainable(model).unwrap(), &[pair], &Default::default()).unwrap()
    };
    let mut all = (0..13).flat_map(|a| (0..13).map(move |b| [a, b]));
    all.find_map(new).expect("the exchange lowers a logit difference")
}

#[test]
fn residual_stream_recovers_at_changed_and_final_positions() {
    let model = model();
    for position in [0, 2, 6] {
        let clean = vec![2, 7, 1, 8, 2, 8, 1];
        let mut corrupted = clean.clone();
        corrupted[position] = 3;
        let found = patched(&model, &clean, &corrupted);
        assert_eq!((found.stream.len(), found.together, found.heads.len()), (3, 1, 2));
        let is_only = |row: &[f64], position: usize| {
            row.iter().enumerate().all(|(at, share)| (share - f64::from(at == position)).abs() < 1e-4)
        };
        assert!(is_only(&found.stream[0], position) && is_only(&found.stream[2], 6), "{found:?}");
        assert!(position == 6 || !is_only(&found.stream[1], 6), "{found:?}");
        assert!(found.heads.iter().flatten().chain(&found.feed_forward).any(|&it| it != 0.0), "{found:?}");
    }
}

#[test]
fn padding_does_not_change_logit_differences() {
    let model = model();
    let short = Pair { clean: vec![3, 1, 4], corrupted: vec![3, 7, 4], answers: [9, 2] };
    let long =
        Pair { clean: vec![2, 7, 1, 8, 2, 8, 1], corrupted: vec![2, 7, 0, 8, 2, 8, 1], answers: [8, 6] };
    let model = explainable(&model).unwrap();
    let both = [short, long];
    let new = |pairs| PatchingBench::new(model, pairs, &Default::default(), &Unwatched).unwrap();
    let differences = |bench: PatchingBench<B>| bench.differences(bench.clean.at(Site::Logits), 0);
    let together = differences(new(&both));
    for (pair, expected) in both.iter().zip(together) {
        let alone = differences(new(std::slice::from_ref(pair)));
        assert!((alone[0] - expected).abs() < 1e-5);
    }
}

#[test]
fn equal_sequences_yield_no_patching() {
    let model = model();
    let same = Pair { clean: vec![3, 1, 4], corrupted: vec![3, 1, 4], answers: [9, 2] };
    let model = explainable(&model).unwrap();
    assert_eq!(Patching::new(model, &[same], &Default::default()).unwrap(), None);
    assert_eq!(Patching::new(model, &[], &Default::default()).unwrap(), None);
}

#[test]
fn pairs_end_where_the_models_answer_changes() {
    let sample = |inputs: &[u32]| Sample {
        inputs: inputs.to_vec(),
        targets: inputs[1..].iter().copied().chain([4]).collect(),
        roles: vec![crate::data::Role::Unknown; inputs.len()],
        source: None,
        documents: None,
    };
    let model = model();
    let model = explainable(&model).unwrap();
    let answer = |tokens: &[u32]| {
        let tokens = padded::<B>(&[&tokens.to_vec()], &Default::default());
        let logits = run(model, Inputs::tokens(tokens), &[], &Interventions::default()).unwrap().logits;
        let [_, time, _] = logits.dims();
        logits.narrow(1, time - 1, 1).argmax(2).into_data().iter::<i64>().next().unwrap() as u32
    };
    // With random weights few exchanges change an answer.
    let drawn = (0..200).map(|i| (0..7).map(|j| (i * i * (j + 3) + 5 * j + i) % 13).collect::<Vec<u32>>());
    let short = [vec![5], vec![6, 6, 6], vec![1, 2]];
    let samples: Vec<Sample> = drawn.chain(short).map(|inputs| sample(&inputs)).collect();
    let pairs = Pair::by_exchange(model, &samples, &Default::default()).unwrap();
    assert!(!pairs.is_empty(), "no exchange changes an answer");
    for pair in &pairs {
        let differ = (0..pair.clean.len()).filter(|&at| pair.clean[at] != pair.corrupted[at]);
        assert_eq!(differ.count(), 1, "{pair:?}");
        assert_eq!(pair.answers, [&pair.clean, &pair.corrupted].map(|tokens| answer(tokens)), "{pair:?}");
        assert_ne!(pair.answers[0], pair.answers[1]);
    }
}

#[test]
fn unchanged_answers_yield_no_patching_pair() {
    let model = model();
    let model = explainable(&model).unwrap();
    let same = PairCandidate { clean: vec![3, 1, 4], corrupted: vec![3, 1, 4], positions: 0..3 };
    assert!(Pair::from_candidates(model, vec![same], &Default::default()).unwrap().is_empty());
}
