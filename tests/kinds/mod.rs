//! Model configs that cover all pairs of option values.

use std::collections::BTreeSet;

use causal_attention::attention::{AttentionGate, Sinks};
use causal_attention::model::{LayerSpan, ModelConfig, NormPlacement, QkNormScope};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::{PositionScheme, RopeScaling};

/// Random sinusoidal positions are tested separately, because they train more slowly.
const POSITIONS: &[PositionScheme] = {
    use PositionScheme::*;
    &[None, Learned, Sinusoidal, Rotary, Alibi, Relative]
};

/// The gate of Gemma is tested with the variants.
const ACTIVATIONS: &[Activation] = {
    use Activation::*;
    &[Gelu, GeluTanh, Relu, Relu2, Silu, Swiglu, Geglu]
};

/// Returns decoder configs with the sizes of `base` that cover every pair of activation and position scheme, and every
/// pair of values of any two keys. `base` has an even number of heads.
pub fn configs_covering_all_pairs(base: &ModelConfig) -> Vec<ModelConfig> {
    let spans = [LayerSpan::Local, LayerSpan::Global];
    let span = spans[..base.layers.min(2)].to_vec();
    let kind = |i: usize| {
        // Selects the first or the second value of a key; the test below checks that all pairs occur.
        let second = |key: usize| {
            let stride = [5, 7, 9, 11, 19, 21, 23, 25, 29, 31, 33][key];
            (i * i * stride / 64 + i * stride / 16) % 2 == 1
        };
        let norm_kind = if second(0) { NormKind::Rms } else { NormKind::Layer };
        ModelConfig {
            activation: ACTIVATIONS[i % ACTIVATIONS.len()],
            // Each round of the activations begins one position later, so that every activation meets every position.
            position: POSITIONS[(i % ACTIVATIONS.len() + i / ACTIVATIONS.len()) % POSITIONS.len()],
            norm_kind,
            qk_norm: second(1),
            d_head: if second(2) { base.d_model / base.heads + 2 } else { 0 },
            key_value_heads: if second(3) { base.heads / 2 } else { 0 },
            bias: second(4),
            query_key_value_bias: [None, Some(true), Some(false)][i / 7 % 3],
            attention_output_bias: [None, Some(true), Some(false)][(i / 7 + i) % 3],
            window: second(10).then_some(base.heads + 2),
            layer_pattern: if second(10) { span.clone() } else { Vec::new() },
            norm: if second(5) { NormPlacement::Post } else { NormPlacement::Pre },
            rope_theta: if second(6) { 500.0 } else { 10_000.0 },
            rope_scaling: [RopeScaling::None, RopeScaling::Linear, RopeScaling::Llama3][i / 6 % 3],
            rope_factor: 2.0,
            rope_original_context: 16,
            embedding_scale: if second(6) { (base.d_model as f64).sqrt() } else { 1.0 },
            softcap: if second(7) { 20.0 } else { 0.0 },
            tie_embeddings: second(8),
            d_inner: if second(9) { 2 * base.d_model + 3 } else { 0 },
            ..base.clone()
        }
    };
    (0..ACTIVATIONS.len() * POSITIONS.len()).map(kind).collect()
}

/// Returns decoder configs with the sizes of `base` that cover every pair of values of the keys of attention variants and
/// of their blocks. All have rotary positions.
pub fn variants_covering_all_pairs(base: &ModelConfig) -> Vec<ModelConfig> {
    // Any two of these columns of a two-level design of 16 rows have all four pairs of values: the parities of different
    // sets of bits of the row (Box and Hunter, Technometrics 3, 1961).
    const BITS: [usize; 12] = [3, 10, 13, 5, 6, 7, 8, 14, 2, 1, 12, 11];
    let variant = |i: usize| {
        let has = |key: usize| (i & BITS[key]).count_ones() % 2 == 1;
        ModelConfig {
            position: PositionScheme::Rotary,
            attention_scale: has(0).then_some(0.4),
            attention_softcap: has(1).then_some(3.0),
            sinks: if has(2) { [Sinks::OffByOne, Sinks::Learned][i / 4 % 2] } else { Sinks::None },
            attention_gate: match has(3) {
                true => [AttentionGate::Head, AttentionGate::Elementwise][i / 3 % 2],
                false => AttentionGate::None,
            },
            qk_norm: has(4),
            qk_norm_scope: if has(4) { QkNormScope::AllHeads } else { QkNormScope::Head },
            norm: match [has(5), has(6)] {
                [false, _] => NormPlacement::Pre,
                [true, false] => NormPlacement::Sandwich,
                [true, true] => NormPlacement::Output,
            },
            parallel: has(7),
            norm_kind: if has(8) { NormKind::Rms } else { NormKind::Layer },
            norm_unit_offset: has(8),
            activation: if has(8) { Activation::GegluTanh } else { base.activation },
            rotary_fraction: has(9).then_some(0.5),
            rotary_skip_every: has(9).then_some(2),
            window: has(10).then_some(base.heads + 2),
            rope_theta_local: has(10).then_some(100.0),
            layer_pattern: if has(10) { vec![LayerSpan::Local] } else { Vec::new() },
            differential: has(11),
            // Rotary positions rotate a part of each half of a head.
            d_head: if has(11) { 8 } else { base.d_head },
            key_value_heads: if i % 3 == 1 { base.heads / 2 } else { 0 },
            ..base.clone()
        }
    };
    (0..16).map(variant).collect()
}

#[test]
fn every_pair_of_key_values_occurs() {
    let base = ModelConfig { heads: 4, ..ModelConfig::default() };
    let kinds = configs_covering_all_pairs(&base);
    let values = |config: &ModelConfig| {
        [
            format!("{:?}", config.activation),
            format!("{:?}", config.position),
            format!("{:?}", config.norm_kind),
            format!("{:?}", config.qk_norm),
            format!("d_head {}", config.d_head),
            format!("key_value_heads {}", config.key_value_heads),
            format!("bias {}", config.bias),
            format!("{:?}", config.query_key_value_bias),
            format!("{:?}", config.attention_output_bias),
            format!("{:?}", config.norm),
            format!("embedding_scale {}", config.embedding_scale),
            format!("softcap {}", config.softcap),
            format!("tied {}", config.tie_embeddings),
            format!("d_inner {}", config.d_inner),
            format!("window {:?}", config.window),
        ]
    };
    let values: Vec<_> = kinds.iter().map(values).collect();
    let untested = PositionScheme::ALL.into_iter().filter(|scheme| !POSITIONS.contains(scheme));
    assert_eq!(untested.collect::<Vec<_>>(), [PositionScheme::RandomSinusoidal]);
    let untested = Activation::ALL.into_iter().filter(|activation| !ACTIVATIONS.contains(activation));
    assert_eq!(untested.collect::<Vec<_>>(), [Activation::GegluTanh]);
    for (one, other) in (0..15).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let distinct = |key: usize| values.iter().map(|config| &config[key]).collect::<BTreeSet<_>>();
        let pairs = values.iter().map(|config| (&config[one], &config[other])).collect::<BTreeSet<_>>();
        let expected = distinct(one).len() * distinct(other).len();
        assert_eq!(pairs.len(), expected, "keys {one} and {other}: {pairs:?}");
    }
    let rotary = kinds.iter().filter(|kind| kind.position == PositionScheme::Rotary);
    let scalings = rotary.map(|kind| format!("{:?}", kind.rope_scaling)).collect::<BTreeSet<_>>();
    assert_eq!(scalings.len(), 3);
}

#[test]
fn every_pair_of_variants_occurs() {
    let base = ModelConfig { heads: 4, ..ModelConfig::default() };
    let values = |config: &ModelConfig| {
        [
            format!("scale {:?}", config.attention_scale),
            format!("softcap {:?}", config.attention_softcap),
            format!("{:?}", config.sinks),
            format!("{:?}", config.attention_gate),
            format!("{:?}", config.qk_norm),
            format!("{:?}", config.norm),
            format!("parallel {}", config.parallel),
            format!("{:?}", config.norm_kind),
            format!("fraction {:?}", config.rotary_fraction),
            format!("window {:?}", config.window),
            format!("differential {}", config.differential),
            format!("key_value_heads {}", config.key_value_heads),
        ]
    };
    let values: Vec<_> = variants_covering_all_pairs(&base).iter().map(values).collect();
    for (one, other) in (0..12).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let distinct = |key: usize| values.iter().map(|config| &config[key]).collect::<BTreeSet<_>>();
        let pairs = values.iter().map(|config| (&config[one], &config[other])).collect::<BTreeSet<_>>();
        let expected = distinct(one).len() * distinct(other).len();
        assert_eq!(pairs.len(), expected, "keys {one} and {other}: {pairs:?}");
    }
}
