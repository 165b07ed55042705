//! What reads or predicts tokens: embedding, cross-entropy, scores.

use proptest::prelude::*;

use super::*;

fn embedding_agrees<B: AutodiffBackend>([batch, time, width, vocab]: [usize; 4], positions: bool, seed: u64) {
    check("embedding", || {
        let table = leaf::<B, 2>(seed, [vocab, width]).require_grad();
        let positions = positions.then(|| leaf::<B, 2>(seed + 1, [time, width]).require_grad());
        let tokens = ids::<B>(seed + 2, [batch, time], vocab);
        let output = float::<B, 3>(B::token_embedding(
            tokens.clone().into_primitive(),
            table.clone().into_float(),
            positions.clone().map(IntoFloat::into_float),
        ));
        let inner = float::<B::InnerBackend, 3>(B::InnerBackend::token_embedding(
            tokens.inner().into_primitive(),
            table.clone().inner().into_float(),
            positions.clone().map(|positions| positions.inner().into_float()),
        ));
        match &positions {
            Some(positions) => outcome!(output, inner, [table, positions]),
            None => outcome!(output, inner, [table]),
        }
    });
}

fn cross_entropy_agrees<B: AutodiffBackend>(
    [batch, time, vocab]: [usize; 3],
    hides: bool,
    smoothing: f64,
    seed: u64,
) {
    check("cross-entropy", || {
        let logits = leaf::<B, 3>(seed, [batch, time, vocab]).require_grad();
        let targets = ids::<B>(seed + 1, [batch, time], vocab);
        let hidden = hides.then(|| hidden::<B, 2>(seed + 2, [batch, time]));
        // What stands at a hidden place is no matter.
        let targets = match &hidden {
            Some(hidden) => targets.mask_fill(hidden.clone(), -1),
            None => targets,
        };
        let output = cross_entropy(logits.clone(), targets.clone(), hidden.clone(), smoothing);
        let inner =
            cross_entropy(logits.clone().inner(), targets.inner(), hidden.map(Tensor::inner), smoothing);
        outcome!(output, inner, [logits])
    });
}

fn scores_agree<B: AutodiffBackend>([batch, time, vocab]: [usize; 3], hides: bool, seed: u64) {
    let logits = || leaf::<B, 3>(seed, [batch, time, vocab]);
    let targets = ids::<B>(seed + 1, [batch, time], vocab);
    let hidden = hides.then(|| hidden::<B, 2>(seed + 2, [batch, time]));
    let targets = match &hidden {
        Some(hidden) => targets.mask_fill(hidden.clone(), -1),
        None => targets,
    };
    let run = |kernels: Kernels| kernels.run(|| token_scores(logits(), targets.clone(), hidden.clone()));
    let (fused, composed) = (run(Kernels::Fused), run(Kernels::Composed));
    for (a, b) in numbers(fused.losses).into_iter().zip(numbers(composed.losses)) {
        assert!((a - b).abs() <= 1e-5 * b.max(1.0), "{a}, not {b}");
    }
    let likeliest = |scores: Tensor<B, 2, Int>| scores.into_data().convert::<i64>();
    assert_eq!(likeliest(fused.likeliest), likeliest(composed.likeliest));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn embeddings_agree(
        sizes in [1usize..4, 1usize..131, 1usize..70, 1usize..30], positions: bool, seed in 0u64..1_000,
    ) {
        embedding_agrees::<Ndarray>(sizes, positions, seed);
        embedding_agrees::<Flexible>(sizes, positions, seed);
    }

    #[test]
    fn cross_entropies_agree(
        sizes in [1usize..4, 1usize..131, 2usize..70],
        hides: bool,
        smooth: bool,
        seed in 0u64..1_000,
    ) {
        let smoothing = if smooth { 0.1 } else { 0.0 };
        cross_entropy_agrees::<Ndarray>(sizes, hides, smoothing, seed);
        cross_entropy_agrees::<Flexible>(sizes, hides, smoothing, seed);
    }

    #[test]
    fn scores_of_tokens_agree(sizes in [1usize..4, 1usize..131, 1usize..70], hides: bool, seed in 0u64..1_000) {
        scores_agree::<Ndarray>(sizes, hides, seed);
        scores_agree::<Flexible>(sizes, hides, seed);
    }
}
