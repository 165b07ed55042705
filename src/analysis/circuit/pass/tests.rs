//! Compares the pass with the model itself, and tests the effects of interventions.

use super::*;
use crate::analysis::ablation::without_head;
use crate::model::{Inputs, ModelConfig, Sizes, Source};
use crate::ops::{Activation, NormKind};
use crate::position::PositionScheme;
use burn::tensor::{Int, Tolerance};
use burn_ndarray::NdArray;

type B = NdArray;

/// Returns a decoder per position scheme, and a Llama-like one with shared keys and values.
fn models() -> Vec<Model<B>> {
    let sizes = Sizes { vocab: 13, context: 7, source_context: None };
    let plain = ModelConfig { d_model: 20, heads: 5, ..ModelConfig::default() };
    let mut configs: Vec<_> =
        PositionScheme::ALL.map(|position| ModelConfig { position, ..plain.clone() }).to_vec();
    configs.push(ModelConfig {
        key_value_heads: 1,
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        qk_norm: true,
        bias: false,
        tie_embeddings: true,
        softcap: 7.0,
        position: PositionScheme::Rotary,
        ..plain
    });
    configs.iter().map(|config| config.init(sizes, &Default::default()).unwrap()).collect()
}

fn tokens() -> [Tensor<B, 2, Int>; 2] {
    [[[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]], [[2, 7, 1, 8, 2, 8, 1], [8, 2, 8, 4, 5, 9, 0]]]
        .map(|tokens| Tensor::from_ints(tokens, &Default::default()))
}

fn pass(model: &Model<B>, tokens: &Tensor<B, 2, Int>, interventions: Interventions<B>) -> Activations<B> {
    run(explainable(model).unwrap(), Inputs::tokens(tokens.clone()), &[], &interventions).unwrap()
}

fn sites(model: &Model<B>) -> Vec<Site> {
    let layers = explainable(model).unwrap().blocks.len();
    let heads = |layer| (0..5).map(move |head| (layer, head));
    let of_head = |(layer, head)| {
        let sites: [fn(usize, usize) -> Site; 5] =
            [Site::Query, Site::Key, Site::Value, Site::Pattern, Site::Head];
        sites.map(|site| site(layer, head))
    };
    let of_layer = |layer| {
        [Site::Stream(layer)]
            .into_iter()
            .chain(heads(layer).flat_map(of_head))
            .chain([Site::FeedForward(layer)])
    };
    [Site::Embedding].into_iter().chain((0..layers).flat_map(of_layer)).chain([Site::Logits]).collect()
}

fn assert_near(left: Tensor<B, 3>, right: Tensor<B, 3>) {
    left.into_data().assert_approx_eq::<f32>(&right.into_data(), Tolerance::absolute(1e-5));
}

#[test]
fn pass_logits_match_the_model() {
    let [tokens, _] = tokens();
    for model in models() {
        let expected = model.forward(Inputs::tokens(tokens.clone())).unwrap();
        assert_near(pass(&model, &tokens, Interventions::default()).logits, expected);
    }
}

#[test]
fn encoder_decoder_pass_matches_forward_and_head_sums() {
    let device = Default::default();
    let sizes = Sizes { vocab: 13, context: 7, source_context: Some(5) };
    let config = ModelConfig {
        architecture: crate::model::Architecture::EncoderDecoder,
        d_model: 20,
        heads: 5,
        ..ModelConfig::default()
    };
    let model: Model<B> = config.init(sizes, &device).unwrap();
    let [tokens, other] = tokens();
    let source = Source { tokens: other.narrow(1, 0, 5), lengths: vec![4, 5] };
    let inputs = Inputs { source: Some(source.clone()), ..Inputs::tokens(tokens.clone()) };
    let expected = model.forward(inputs).unwrap();
    let decoder = explainable(&model).unwrap();
    let memories = decoder.project_memory(Some(source), &mut crate::hooks::NoHooks).unwrap();
    let pass = |it: Interventions<B>| run(decoder, Inputs::tokens(tokens.clone()), &memories, &it).unwrap();
    let original = pass(Interventions::default());
    assert_near(original.logits.clone(), expected);
    let hidden = original.at(Site::CrossPattern(0, 2)).slice([0..1, 0..7, 4..5]).abs().max().into_scalar();
    assert_eq!(hidden, 0.0, "padding gets no attention");
    // With all heads zero-ablated, only the bias of the output projection remains.
    let zero = Tensor::zeros([1, 1, 20], &device);
    let none =
        (0..5).fold(Interventions::default(), |it, head| it.replace(Site::Cross(1, head), zero.clone()));
    let without = pass(none);
    let heads = original.all_heads(Site::Cross(1, 0)).sum_dim(1).squeeze_dim::<3>(1);
    let between = |pass: &Activations<B>| pass.at(Site::Logits) - pass.at(Site::FeedForward(1));
    assert_near(between(&without) + heads, between(&original));
}

#[test]
fn zero_patching_a_head_equals_ablation() {
    let [tokens, _] = tokens();
    for model in models() {
        let zero = Tensor::zeros([1, 1, 20], &Default::default());
        let replaced = pass(&model, &tokens, Interventions::default().replace(Site::Head(1, 3), zero));
        assert_near(
            replaced.logits,
            without_head(&model, 1, 3).forward(Inputs::tokens(tokens.clone())).unwrap(),
        );
    }
}

#[test]
fn self_patching_does_not_change_logits() {
    let [tokens, _] = tokens();
    for model in models() {
        let original = pass(&model, &tokens, Interventions::default());
        for site in sites(&model) {
            let patched = pass(&model, &tokens, Interventions::default().replace(site, original.at(site)));
            assert_eq!(patched.logits.into_data(), original.logits.to_data(), "{site:?}");
        }
    }
}

#[test]
fn patching_everything_reproduces_the_other_run() {
    let [clean, corrupted] = tokens();
    for model in models() {
        let other = pass(&model, &corrupted, Interventions::default());
        let all = |interventions: Interventions<B>, site| interventions.replace(site, other.at(site));
        let is_output = |site: &Site| matches!(site, Site::Embedding | Site::Head(..) | Site::FeedForward(_));
        let outputs = sites(&model).into_iter().filter(is_output);
        let patched = pass(&model, &clean, outputs.fold(Interventions::default(), all));
        assert_eq!(patched.logits.into_data(), other.logits.to_data());
        for site in [Site::Stream(0), Site::Stream(1), Site::Logits] {
            let patched = Interventions::default().replace(site, other.at(site));
            assert_eq!(pass(&model, &clean, patched).logits.into_data(), other.logits.to_data(), "{site}");
        }
    }
}

#[test]
fn mixed_activations_patch_only_the_given_positions() {
    let [clean, corrupted] = tokens();
    let model = &models()[0];
    let [original, other] = [&clean, &corrupted].map(|tokens| pass(model, tokens, Interventions::default()));
    let site = Site::FeedForward(0);
    let mixed = original.mixed(site, &other, 4..5);
    let patched = pass(model, &clean, Interventions::default().replace(site, mixed));
    let before = |pass: &Activations<B>| pass.logits.clone().narrow(1, 0, 4).into_data();
    let there = |pass: &Activations<B>| pass.logits.clone().narrow(1, 4, 1).into_data();
    assert_eq!(before(&patched), before(&original));
    assert_ne!(there(&patched), there(&original));
}

#[test]
fn models_without_additive_residual_stream_are_rejected() {
    use crate::model::Architecture::OneLayer;
    let rejection = |config: ModelConfig| {
        let sizes = Sizes { vocab: 13, context: 7, source_context: Some(5) };
        let model = config.init::<B>(sizes, &Default::default()).unwrap();
        explainable(&model).unwrap_err().to_string()
    };
    let of = |architecture| ModelConfig { architecture, ..ModelConfig::default() };
    assert!(rejection(of(OneLayer)).starts_with("a one-layer decoder"));
    let post = ModelConfig { norm: crate::model::NormPlacement::Post, ..ModelConfig::default() };
    assert!(rejection(post).starts_with("with `model.norm` = \"post\", the residual stream is not a sum"));
}
