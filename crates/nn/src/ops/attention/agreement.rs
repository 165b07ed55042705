//! Tests that the forms of attention agree, packed and separate, under every mask and position.

use burn::tensor::{Bool, Tensor, backend::Backend};
use burn_flex::Flex;
use proptest::prelude::*;

use super::*;
use crate::ops::{Precision, agreement::*};

/// The parameters of one test case.
#[derive(Debug, Clone, Copy)]
struct Setting {
    batch: usize,
    query_time: usize,
    key_time: usize,
    key_value_heads: usize,
    group: usize,
    d_head: usize,
    causal: bool,
    window: Option<usize>,
    /// True to hide queries, keys, pairs, other documents and padding, in this order.
    hides: [bool; 5],
    position: PositionKind,
    /// True to set scale, softcap and sinks, in this order.
    scores: [bool; 3],
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
enum PositionKind {
    None,
    Rotation,
    Bias,
}

fn attend<B: Backend>(projections: [Tensor<B, 3>; 3], options: AttentionOptions<B>) -> Tensor<B, 3> {
    attention(Projections::Separate(projections), options)
}

/// Computes attention in blocks of at most `max_scores` scores, or in the reference form, depending on the thread's
/// kernels.
fn by_blocks<B: Backend>(
    projections: [Tensor<B, 3>; 3],
    options: AttentionOptions<B>,
    max_scores: usize,
) -> Tensor<B, 3> {
    let (mask, dropout) = (options.mask.clone(), options.dropout);
    let parts = HeadParts::new(projections, options);
    merge_heads(match kernels() {
        Kernels::Fused => blocks::attention(&parts, &mask, dropout, max_scores).expect("a known backend"),
        Kernels::Reference => reference(parts, &mask, dropout).0,
    })
}

fn mask<B: Backend>(setting: Setting) -> Mask<B> {
    let Setting { batch, query_time, key_time, seed, .. } = setting;
    let mut mask = if setting.causal { Mask::causal() } else { Mask::none() };
    let [queries, keys, pairs, documents, padding] = setting.hides;
    mask.window = setting.window.filter(|_| query_time <= key_time);
    if documents && query_time <= key_time {
        let document =
            |sequence: usize| (0..key_time).map(move |key| (key * (sequence + 3) / 40) as u32).collect();
        mask = mask.with_documents(&(0..batch).map(document).collect::<Vec<_>>());
    }
    if padding {
        let length = |sequence: usize| key_time.saturating_sub((seed as usize + sequence) % 7);
        mask = mask.with_lengths(&(0..batch).map(length).collect::<Vec<_>>());
    }
    if keys {
        mask = mask.hide_keys(hidden(seed + 7, [batch, key_time]));
    }
    if queries {
        mask = mask.hide_queries(hidden(seed + 6, [batch, query_time]));
    }
    if pairs {
        let sequences = if seed.is_multiple_of(2) { batch } else { 1 };
        mask = mask.hide_pairs(hidden(seed + 8, [sequences, query_time, key_time]));
    }
    mask
}

fn attention_agrees<B: AutodiffBackend>(setting: Setting) {
    let Setting { batch, query_time, key_time, key_value_heads, group, d_head, seed, .. } = setting;
    let heads = key_value_heads * group;
    let [has_scale, has_softcap, has_sinks] = setting.scores;
    let bias = || leaf::<B, 2>(seed + 5, [heads, query_time + key_time - 1]).require_grad();
    let sinks = || leaf::<B, 1>(seed + 11, [heads]).require_grad();
    let options = |bias: &Tensor<B, 2>, sinks: &Tensor<B, 1>| -> AttentionOptions<B> {
        let table = |seed| leaf::<B, 2>(seed, [key_time, d_head / 2]);
        let position = match setting.position {
            PositionKind::None => ScorePosition::None,
            PositionKind::Rotation => {
                ScorePosition::Rotation { cosine: table(seed + 9), sine: table(seed + 10) }
            }
            PositionKind::Bias => ScorePosition::Bias(bias.clone()),
        };
        AttentionOptions {
            scale: has_scale.then_some(0.6),
            softcap: has_softcap.then_some(1.3),
            sinks: has_sinks.then(|| sinks.clone()),
            ..AttentionOptions::new([heads, key_value_heads], mask(setting), position)
        }
    };
    // Leaves that the setting does not use get gradients of zero.
    let with_leaves = |output: Tensor<B, 3>, bias: &Tensor<B, 2>, sinks: &Tensor<B, 1>| {
        output + ((bias.clone().sum() + sinks.clone().sum()) * 0.0).unsqueeze()
    };
    let run = |attend: &dyn Fn([Tensor<B, 3>; 3], AttentionOptions<B>) -> Tensor<B, 3>| {
        let query = leaf::<B, 3>(seed, [batch, query_time, heads * d_head]).require_grad();
        let key = leaf::<B, 3>(seed + 1, [batch, key_time, key_value_heads * d_head]).require_grad();
        let value = leaf::<B, 3>(seed + 2, [batch, key_time, key_value_heads * d_head]).require_grad();
        let (bias, sinks) = (bias(), sinks());
        let output = attend([query.clone(), key.clone(), value.clone()], options(&bias, &sinks));
        let output = with_leaves(output, &bias, &sinks);
        outcome!(output.clone(), output.inner(), [query, key, value, bias, sinks])
    };
    check("attention", || run(&attend));
    let rows = 1 + seed as usize % 50;
    let max_scores = batch * heads * key_time * rows;
    check("attention by blocks", || run(&|parts, options| by_blocks(parts, options, max_scores)));
    if query_time == key_time {
        check("packed attention", || {
            let width = (heads + 2 * key_value_heads) * d_head;
            let packed = leaf::<B, 3>(seed + 3, [batch, query_time, width]).require_grad();
            let (bias, sinks) = (bias(), sinks());
            let output = attention(Projections::Packed(packed.clone()), options(&bias, &sinks));
            let output = with_leaves(output, &bias, &sinks);
            outcome!(output.clone(), output.inner(), [packed, bias, sinks])
        });
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let position =
        prop_oneof![Just(PositionKind::None), Just(PositionKind::Rotation), Just(PositionKind::Bias)];
    let times = (1usize..=130, 1usize..=130, 0usize..3, any::<bool>());
    let sizes = (1usize..4, 1usize..4, 1usize..3, 1usize..20);
    let hides = (prop::array::uniform5(prop::bool::weighted(0.2)), prop::option::weighted(0.3, 1usize..70));
    let scores = (prop::array::uniform3(prop::bool::weighted(0.3)), 0u64..1_000);
    (sizes, times, hides, position, scores).prop_map(
        |(
            (batch, key_value_heads, group, d_head),
            (a, b, kind, causal),
            (hides, window),
            position,
            (scores, seed),
        )| {
            // Mostly square; otherwise the queries are the last positions.
            let (query_time, key_time) = if kind > 0 { (a, a) } else { (a.min(b), a.max(b)) };
            let d_head = if matches!(position, PositionKind::Rotation) { 2 * d_head } else { d_head };
            Setting {
                batch,
                query_time,
                key_time,
                key_value_heads,
                group,
                d_head,
                causal,
                window,
                hides,
                position,
                scores,
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn attentions_agree(setting in settings()) {
        attention_agrees::<AutodiffNdArray>(setting);
        attention_agrees::<AutodiffFlex>(setting);
    }
}

#[test]
fn single_mask_broadcasts_over_the_batch() {
    let part = |seed| leaf::<Flex, 3>(seed, [3, 5, 4]);
    let one = |mask: Tensor<Flex, 2, Bool>| Mask::causal().hide_queries(mask);
    let result = |mask| {
        let options = AttentionOptions::new([2, 2], mask, ScorePosition::None);
        numbers(attend([part(1), part(2), part(3)], options))
    };
    let mask = hidden::<Flex, 2>(4, [1, 5]);
    let each = one(mask.clone().expand([3, 5]));
    assert_eq!(result(one(mask)), result(each));
}

#[test]
fn blockwise_attention_reuses_dropout_mask_in_backward() {
    type B = AutodiffNdArray;
    let device = Default::default();
    let shape = [2, 23, 12];
    let [query, key, value, direction, step] =
        [1, 2, 3, 4, 5].map(|seed| leaf::<B, 3>(seed, shape).cast(burn::tensor::DType::F64));
    let loss = |query: Tensor<B, 3>, key: Tensor<B, 3>| {
        crate::ops::seed::<B>(&device, 7);
        let options = AttentionOptions {
            dropout: 0.3,
            ..AttentionOptions::new([3, 3], Mask::causal(), ScorePosition::None)
        };
        (by_blocks([query, key, value.clone()], options, 2 * 3 * 23 * 5) * direction.clone()).sum()
    };
    let number = |tensor: Tensor<B, 1>| tensor.into_data().iter::<f64>().sum::<f64>();
    let along = |gradient: Tensor<_, 3>| {
        (gradient * step.clone().inner()).sum().into_data().iter::<f64>().sum::<f64>()
    };
    let epsilon = 1e-6;
    let small = step.clone() * epsilon;
    let agrees = || {
        let (query_leaf, key_leaf) = (query.clone().require_grad(), key.clone().require_grad());
        let gradients = loss(query_leaf.clone(), key_leaf.clone()).backward();
        let query_slope = along(query_leaf.grad(&gradients).unwrap());
        let key_slope = along(key_leaf.grad(&gradients).unwrap());
        let difference = |ahead, behind| (number(ahead) - number(behind)) / (2.0 * epsilon);
        let by_query = difference(
            loss(query.clone() + small.clone(), key.clone()),
            loss(query.clone() - small.clone(), key.clone()),
        );
        let by_key = difference(
            loss(query.clone(), key.clone() + small.clone()),
            loss(query.clone(), key.clone() - small.clone()),
        );
        let close = |a: f64, b: f64| (a - b).abs() < 1e-7 * b.abs().max(1.0);
        close(query_slope, by_query) && close(key_slope, by_key)
    };
    // All threads share the backend's generator, so other tests may draw from it in between.
    assert!((0..30).any(|_| agrees()));
}

#[test]
fn blockwise_half_precision_error_is_within_rounding() {
    let run = |precision: Precision| {
        precision.run(|| {
            let [query, key, value] =
                [1, 2, 3].map(|seed| leaf::<AutodiffFlex, 3>(seed, [2, 23, 12]).require_grad());
            let options = AttentionOptions::new([3, 3], Mask::causal(), ScorePosition::None);
            let parts = [query.clone(), key.clone(), value.clone()];
            let output = by_blocks(parts.clone(), options, 2 * 3 * 23 * 5);
            let gradients = (output.clone() * leaf(9, output.dims())).sum().backward();
            let gradients = parts.map(|part| numbers(part.grad(&gradients).unwrap()));
            [&[numbers(output)], &gradients[..]].concat()
        })
    };
    let single = run(Precision::F32);
    // bf16 rounds factors and results to 8 bits, and f16 to 11 bits.
    for (precision, tolerance) in [(Precision::Bf16, 4.0 / 256.0), (Precision::F16, 4.0 / 2048.0)] {
        for (half, single) in run(precision).iter().zip(&single) {
            let largest = single.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let error = half.iter().zip(single).fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
            assert!(error > 0.0 && error <= tolerance * largest, "{precision:?}: {error} of {largest}");
        }
    }
}

#[test]
fn gradients_pass_through_kept_weights_only() {
    fn agrees<B: AutodiffBackend>() {
        let device = Default::default();
        // With values of one, a context is the sum of the kept weights, and so is the sum of the values' gradients.
        let ones = || Tensor::<B, 3>::ones([3, 67, 10], &device);
        let value = ones().require_grad();
        let options = AttentionOptions {
            dropout: 0.25,
            ..AttentionOptions::new([5, 5], Mask::causal(), ScorePosition::None)
        };
        let output = attend([ones(), ones(), value.clone()], options);
        let gradient = value.grad(&output.clone().sum().backward()).unwrap();
        let (kept, gradients) = (output.sum_dim(1), gradient.sum_dim(1));
        for (kept, gradient) in numbers(kept).into_iter().zip(numbers(gradients)) {
            assert!((kept - gradient).abs() < 1e-3 && (40.0..95.0).contains(&kept), "{kept} {gradient}");
        }
    }
    agrees::<AutodiffNdArray>();
    agrees::<AutodiffFlex>();
}
