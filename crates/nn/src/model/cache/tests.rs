//! Tests that reading tokens step by step gives the same logits as reading the sequence at once.

use super::*;
use crate::attention::{AttentionGate, Sinks};
use crate::model::{Architecture, Inputs, LayerSpan, ModelConfig, NormPlacement, QkNormScope, Sizes};
use crate::ops::{Activation, NormKind};
use crate::position::{PositionScheme, RopeScaling};
use burn::tensor::{TensorData, Tolerance};
use burn_flex::Flex;
use burn_ndarray::NdArray;

const SIZES: Sizes = Sizes { vocab: 11, context: 13, source_context: Some(5) };
const TOKENS: [[i64; 13]; 2] =
    [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9]];

fn configs() -> Vec<ModelConfig> {
    let mut configs = Vec::new();
    let pattern = vec![LayerSpan::Local, LayerSpan::Global];
    for architecture in [Architecture::OneLayer, Architecture::Decoder, Architecture::EncoderDecoder] {
        for position in PositionScheme::ALL {
            for key_value_heads in [6, 2, 1] {
                let norm = if key_value_heads == 2 { NormPlacement::Post } else { NormPlacement::Pre };
                let config = ModelConfig {
                    architecture,
                    position,
                    key_value_heads,
                    norm,
                    tie_embeddings: key_value_heads == 1,
                    window: (key_value_heads < 6).then_some(4),
                    layer_pattern: if key_value_heads == 1 { pattern.clone() } else { Vec::new() },
                    d_model: 36,
                    heads: 6,
                    ..ModelConfig::default()
                };
                configs.push(config);
            }
        }
    }
    configs.extend(variants(&configs[0]));
    configs
}

/// Returns configs of models with variants of attention. The last two are like `base` apart from them.
fn variants(base: &ModelConfig) -> Vec<ModelConfig> {
    let mut configs = Vec::new();
    let plain = ModelConfig {
        d_model: 36,
        heads: 6,
        layers: 3,
        position: PositionScheme::Rotary,
        rotary_fraction: Some(0.7),
        rotary_skip_every: Some(2),
        norm_kind: NormKind::Rms,
        norm_unit_offset: true,
        attention_scale: Some(0.6),
        sinks: Sinks::OffByOne,
        attention_gate: AttentionGate::Head,
        norm: NormPlacement::Output,
        ..ModelConfig::default()
    };
    configs.push(ModelConfig {
        key_value_heads: 2,
        qk_norm: true,
        qk_norm_scope: QkNormScope::AllHeads,
        attention_softcap: Some(2.0),
        sinks: Sinks::Learned,
        attention_gate: AttentionGate::Elementwise,
        norm: NormPlacement::Sandwich,
        parallel: true,
        window: Some(4),
        rope_theta_local: Some(100.0),
        layer_pattern: vec![LayerSpan::Local, LayerSpan::Local, LayerSpan::Global],
        ..plain.clone()
    });
    configs.push(ModelConfig { architecture: Architecture::EncoderDecoder, ..plain.clone() });
    configs.push(ModelConfig { norm: NormPlacement::Pre, parallel: true, ..plain });
    let differential = |config: &ModelConfig| ModelConfig { differential: true, d_head: 8, ..config.clone() };
    configs.extend(configs.iter().map(differential).collect::<Vec<_>>());
    configs.push(ModelConfig {
        architecture: Architecture::Decoder,
        position: PositionScheme::Relative,
        window: Some(3),
        key_value_heads: 2,
        ..differential(base)
    });
    configs.push(ModelConfig {
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        qk_norm: true,
        d_head: 8,
        softcap: 10.0,
        embedding_scale: 2.0,
        position: PositionScheme::Rotary,
        rope_scaling: RopeScaling::Llama3,
        rope_factor: 4.0,
        rope_original_context: 9,
        ..base.clone()
    });
    configs
}

fn source<B: Backend>(config: &ModelConfig) -> Option<Source<B>> {
    let device = Default::default();
    (config.architecture == Architecture::EncoderDecoder).then(|| Source {
        tokens: Tensor::from_ints([[5, 3, 8, 0, 0], [1, 2, 3, 4, 5]], &device),
        lengths: vec![3, 5],
    })
}

fn cached_and_uncached_logits_agree_on<B: Backend>() {
    let device = Default::default();
    for config in configs() {
        let model = config.init::<B>(SIZES, &device).unwrap();
        let tokens = Tensor::from_ints(TOKENS, &device);
        let inputs = Inputs { source: source(&config), ..Inputs::tokens(tokens.clone()) };
        let expected = model.forward(inputs).unwrap(); // [2, 13, 11]
        // A prompt in one step, then single tokens, then several tokens per step.
        let mut cache = model.start(source(&config)).unwrap();
        let mut start = 0;
        for time in [5, 1, 1, 3, 1, 2] {
            let logits = model.read(tokens.clone().narrow(1, start, time), &mut cache).unwrap();
            start += time;
            assert_eq!(cache.time(), start);
            let expected = expected.clone().narrow(1, start - 1, 1).squeeze_dim::<2>(1).into_data();
            logits.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
        assert_eq!(start, 13);
    }
}

#[test]
fn cached_and_uncached_logits_agree() {
    cached_and_uncached_logits_agree_on::<NdArray>();
    cached_and_uncached_logits_agree_on::<Flex>();
}

#[test]
fn cached_and_uncached_greedy_tokens_are_identical() {
    let device = Default::default();
    for config in configs() {
        let model = config.init::<NdArray>(SIZES, &device).unwrap();
        let prompt: Tensor<NdArray, 2, Int> = Tensor::from_ints(TOKENS, &device).narrow(1, 0, 4);
        let next = |logits: Tensor<NdArray, 2>| logits.argmax(1); // [2, 1]
        let (mut uncached, mut cached) = (prompt.clone(), prompt.clone());
        let mut cache = model.start(source(&config)).unwrap();
        let mut unread = prompt;
        for _ in 0..9 {
            let inputs = Inputs { source: source(&config), ..Inputs::tokens(uncached.clone()) };
            let [_, time] = uncached.dims();
            let logits = model.forward(inputs).unwrap().narrow(1, time - 1, 1).squeeze_dim(1);
            uncached = Tensor::cat(vec![uncached, next(logits)], 1);
            unread = next(model.read(unread, &mut cache).unwrap());
            cached = Tensor::cat(vec![cached, unread.clone()], 1);
        }
        assert_eq!(cached.into_data(), uncached.into_data(), "{config:?}");
    }
}

#[test]
fn cleared_cache_restarts_and_keeps_the_source() {
    let device = Default::default();
    let config =
        ModelConfig { architecture: Architecture::EncoderDecoder, d_model: 12, ..ModelConfig::default() };
    let model = config.init::<NdArray>(SIZES, &device).unwrap();
    let tokens = || Tensor::from_ints(TOKENS, &device).narrow(1, 0, 3);
    let mut cache = model.start(source(&config)).unwrap();
    let first: TensorData = model.read(tokens(), &mut cache).unwrap().into_data();
    assert_ne!(model.read(tokens(), &mut cache).unwrap().into_data(), first);
    cache.clear();
    assert_eq!(model.read(tokens(), &mut cache).unwrap().into_data(), first);
}

#[test]
fn another_batch_size_is_an_error() {
    let device = Default::default();
    for config in configs() {
        let model = config.init::<NdArray>(SIZES, &device).unwrap();
        let mut cache = model.start(source(&config)).unwrap();
        let tokens = || Tensor::from_ints(TOKENS, &device).narrow(1, 0, 3);
        model.read(tokens(), &mut cache).unwrap();
        for rows in [1, 7] {
            let error = model.read(Tensor::zeros([rows, 1], &device), &mut cache).unwrap_err();
            assert!(matches!(error, crate::Error::Shape(_)), "{error}");
            assert_eq!(cache.time(), 3);
        }
        model.read(tokens(), &mut cache).unwrap();
    }
}

#[test]
fn a_cache_of_another_model_is_an_error() {
    let device = Default::default();
    let deep = ModelConfig { layers: 5, ..ModelConfig::default() }.init::<NdArray>(SIZES, &device).unwrap();
    for config in configs() {
        let model = config.init::<NdArray>(SIZES, &device).unwrap();
        let mut cache = model.start(source(&config)).unwrap();
        let error = deep.read(Tensor::zeros([2, 1], &device), &mut cache).unwrap_err().to_string();
        assert!(error.starts_with("`cache` has "), "{error}");
    }
}

#[test]
fn learned_positions_end_at_the_context() {
    let device = Default::default();
    let model = ModelConfig::default().init::<NdArray>(SIZES, &device).unwrap();
    let mut cache = model.start(None).unwrap();
    model.read(Tensor::from_ints(TOKENS, &device), &mut cache).unwrap();
    let error = model.read(Tensor::zeros([2, 1], &device), &mut cache).unwrap_err().to_string();
    assert!(error.contains("14") && error.contains("13"), "{error}");
}
