//! The kernels with all options, compared with the reference implementation.

mod bf16;
mod case;

use proptest::prelude::*;

use case::{ALL, CAUSAL, Case, Options, Output, Visibility};

use super::reference::{Tensors, compute};
use super::*;
use crate::testing::{assert_same_on_any_number_of_threads, widened};

/// Generates arbitrary options.
fn options() -> impl Strategy<Value = Options> {
    let visibility = prop_oneof![
        Just(Visibility::All),
        (0_usize..4).prop_map(|first_query| Visibility::Causal { first_query }),
        (0_usize..4, 0_usize..70).prop_map(|(first_query, keys)| Visibility::Window { first_query, keys }),
        Just(Visibility::Any),
    ];
    let others = prop::array::uniform5(any::<bool>());
    let scores = prop::array::uniform3(any::<bool>());
    (visibility, others, scores).prop_map(
        |(visibility, [hides_keys, hides_pairs, bias, rotary, dropout], [scale, softcap, sinks])| Options {
            visibility,
            hides_keys,
            hides_pairs,
            bias,
            rotary,
            dropout,
            scale,
            softcap,
            sinks,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn causal_attention_matches_the_reference(
        batch in 1_usize..4, time in 1_usize..131, key_value_heads in 1_usize..4, group in 1_usize..4,
        half in 1_usize..13, options in options(),
    ) {
        let heads = key_value_heads * group;
        let shape = Attention { key_value_heads, ..Attention::new(batch, time, time, heads, 2 * half) };
        Case::new(shape, Options { visibility: Visibility::CAUSAL, ..options }).check();
    }

    #[test]
    fn general_attention_matches_the_reference(
        batch in 1_usize..4, query_time in 1_usize..90, key_time in 1_usize..90, heads in 1_usize..4,
        half in 1_usize..13, options in options(),
    ) {
        Case::new(Attention::new(batch, query_time, key_time, heads, 2 * half), options).check();
    }

    #[test]
    fn short_sequences_match_the_reference(
        batch in 1_usize..4, times in (1_usize..18, 1_usize..18), group in 1_usize..3,
        d_head in prop::sample::select(vec![8_usize, 16, 32, 64]), options in options(),
    ) {
        let plain = Attention::new(batch, times.0, times.1, 2 * group, d_head);
        Case::new(Attention { key_value_heads: 2, ..plain }, options).check();
    }
}

#[test]
fn inputs_up_to_1e30_give_finite_results() {
    let shape = Attention::new(2, 67, 67, 2, 24);
    for precision in [Precision::F32, Precision::Bf16] {
        for large in 0..3 {
            let mut case = Case::new(Attention { precision, ..shape }, CAUSAL);
            let tensor = [&mut case.query, &mut case.key, &mut case.value].into_iter().nth(large);
            tensor.into_iter().flatten().for_each(|x| *x *= 1e30);
            let Output { context, query, key, value, .. } = case.run();
            let mut all = [context, query, key, value].into_iter().flatten();
            assert!(all.all(f32::is_finite), "{precision:?}, {large}");
        }
    }
}

#[test]
fn cached_queries_see_the_keys_before_them() {
    for (query_time, key_time) in [(1, 70), (5, 12), (67, 131)] {
        let visibility = Visibility::Causal { first_query: key_time - query_time };
        let options = Options { visibility, bias: true, rotary: true, ..Options::default() };
        Case::new(Attention::new(2, query_time, key_time, 3, 10), options).check();
    }
}

#[test]
fn reference_gradients_match_finite_differences() {
    let shape = Attention { key_value_heads: 1, ..Attention::new(2, 3, 5, 2, 4) };
    let case = Case::new(shape, Options { visibility: Visibility::Causal { first_query: 2 }, ..ALL });
    let (attention, tensors, g) = (case.attention(), case.tensors(), widened(&case.context_gradient));
    let loss = |tensors: &Tensors| -> f64 {
        compute(&attention, tensors, &g).context.iter().zip(&g).map(|(c, g)| c * g).sum()
    };
    let gradients = compute(&attention, &tensors, &g).gradients;
    for (tensor, gradient) in gradients.all().into_iter().enumerate() {
        assert!(gradient.iter().any(|g| *g != 0.0));
        for (index, expected) in gradient.iter().enumerate() {
            let at = |shift: f64| {
                let mut tensors = tensors.clone();
                tensors.all_mut()[tensor][index] += shift;
                loss(&tensors)
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!((difference - expected).abs() < 1e-8, "{difference}, not {expected}");
        }
    }
}

#[test]
fn packed_and_separate_inputs_give_the_same_bits() {
    for (time, d_head) in [(11, 8), (71, 6)] {
        let shape = Attention { key_value_heads: 2, ..Attention::new(3, time, time, 4, d_head) };
        let case = Case::new(shape, Options { bias: true, dropout: true, ..CAUSAL });
        let expected = case.run();
        let attention = case.attention();
        let pack = |query: &[f32], key: &[f32], value: &[f32]| -> Vec<f32> {
            let rows = query.chunks(4 * d_head).zip(key.chunks(2 * d_head)).zip(value.chunks(2 * d_head));
            rows.flat_map(|((q, k), v)| [q, k, v].concat()).collect()
        };
        let packed = pack(&case.query, &case.key, &case.value);
        let inputs = attention.parts(&packed, None);
        let mut context = vec![f32::NAN; expected.context.len()];
        let mut log_sum_exp = vec![f32::NAN; expected.log_sum_exp.len()];
        forward(&attention, inputs, &mut context, &mut log_sum_exp);
        assert_eq!(context, expected.context);
        let mut gradient = vec![f32::NAN; packed.len()];
        let mut bias = vec![f32::NAN; case.bias.len()];
        let saved = case.saved(&context, &log_sum_exp);
        backward(&attention, inputs, saved, attention.parts_mut(&mut gradient, None), Some(&mut bias));
        assert_eq!(gradient, pack(&expected.query, &expected.key, &expected.value));
        assert_eq!(bias, expected.bias);
    }
}

#[test]
fn fully_masked_queries_and_keys_give_zeros() {
    for (query_time, key_time, d_head) in [(3, 7, 8), (5, 70, 12)] {
        let mut case = Case::new(
            Attention::new(2, query_time, key_time, 3, d_head),
            Options { hides_pairs: true, ..Options::default() },
        );
        case.hidden_pairs.fill(0);
        case.hidden_pairs[key_time..2 * key_time].fill(1);
        case.hidden_pairs[query_time * key_time..].fill(1);
        let output = case.run();
        let row = 3 * d_head;
        let zero = |values: &[f32]| values.iter().all(|value| *value == 0.0);
        for values in [&output.context, &output.query] {
            // The second query of the first sequence, and all of the second sequence.
            assert!(zero(&values[row..2 * row]) && zero(&values[query_time * row..]));
            assert!(!zero(&values[..row]));
        }
        for values in [&output.key, &output.value] {
            assert!(zero(&values[key_time * row..]) && !zero(&values[..key_time * row]));
        }
        assert!(output.context.iter().chain(&output.query).chain(&output.key).all(|value| value.is_finite()));
    }
}

#[test]
fn future_tokens_do_not_change_past_contexts() {
    for (time, d_head) in [(13, 8), (131, 5)] {
        let mut case =
            Case::new(Attention::new(2, time, time, 3, d_head), Options { dropout: true, ..CAUSAL });
        let before = case.run();
        let (cut, row) = (time - 3, 3 * d_head);
        for values in [&mut case.query, &mut case.key, &mut case.value] {
            values[cut * row..time * row].iter_mut().for_each(|value| *value = 1e3 - *value);
        }
        let after = case.run();
        assert_eq!(before.context[..cut * row], after.context[..cut * row]);
        assert_ne!(before.context[cut * row..], after.context[cut * row..]);
    }
}

#[test]
fn nan_scores_are_not_hidden() {
    for (time, d_head) in [(5, 8), (70, 6)] {
        let mut case = Case::new(Attention::new(1, time, time, 1, d_head), CAUSAL);
        case.query[2 * d_head] = f32::NAN;
        assert!(case.run().context[2 * d_head].is_nan());
    }
}

#[test]
fn results_are_bitwise_equal_across_thread_counts() {
    for (time, d_head) in [(13, 16), (13, 24), (131, 24)] {
        let shape = Attention { key_value_heads: 3, ..Attention::new(7, time, time, 6, d_head) };
        for precision in [Precision::F32, Precision::Bf16] {
            let case = Case::new(Attention { precision, ..shape }, ALL);
            assert_same_on_any_number_of_threads(|| {
                let Output { context, log_sum_exp, query, key, value, bias, sinks } = case.run();
                vec![context, log_sum_exp, query, key, value, bias, sinks]
            });
        }
    }
}

#[test]
fn empty_inputs_are_not_an_error() {
    Case::new(Attention::new(2, 0, 3, 1, 4), Options::default()).check();
    Case::new(Attention::new(0, 3, 5, 1, 4), Options::default()).check();
    let output = Case::new(Attention::new(2, 3, 0, 1, 4), Options::default()).run();
    assert!(output.context.iter().chain(&output.query).all(|value| *value == 0.0));
}
