//! Tests that impossible sizes, numbers and shapes are refused.

use burn::tensor::{Bool, Tensor};
use burn_ndarray::NdArray;

use super::causal::{CausalAttentionConfig, mask_weights};
use super::{
    AttentionHooks, AttentionInput, KeyValueCache, Mask, MultiHeadAttentionConfig, QkNormConfig, ScoreConfig,
    SplitHeadsConfig, StackedHeadsConfig,
};
use crate::Result;
use crate::hooks::NoHooks;
use crate::ops::ScorePosition;

type B = NdArray;

/// Asserts that an error names what is wrong.
fn refused<T>(result: Result<T>, name: &str) {
    let error =
        result.err().unwrap_or_else(|| panic!("accepted instead of an error about {name}")).to_string();
    assert!(error.contains(name), "{error}");
}

#[test]
fn impossible_settings_are_refused_by_name() {
    let device = Default::default();
    let plain = || MultiHeadAttentionConfig::new(6, 2);
    assert!(plain().init::<B>(&device).is_ok());
    for (config, name) in [
        (MultiHeadAttentionConfig::new(0, 2), "d_model"),
        (MultiHeadAttentionConfig::new(6, 0), "heads"),
        (MultiHeadAttentionConfig::new(6, 4), "heads"),
        (plain().with_d_head(Some(0)), "d_head"),
        (plain().with_key_value_heads(Some(0)), "key_value_heads"),
        (plain().with_dropout(1.0), "dropout"),
        (plain().with_dropout(-0.1), "dropout"),
        (plain().with_qk_norm(Some(QkNormConfig::new(0.0))), "epsilon"),
        (plain().with_scores(ScoreConfig::new().with_scale(Some(0.0))), "scale"),
        (plain().with_scores(ScoreConfig::new().with_softcap(Some(-1.0))), "softcap"),
    ] {
        refused(config.init::<B>(&device), name);
    }
    refused(CausalAttentionConfig::new(3, 2, 0).init::<B>(&device), "context");
    refused(CausalAttentionConfig::new(3, 2, 4).with_dropout(1.0).init::<B>(&device), "dropout");
    refused(SplitHeadsConfig::new(0, 6, 2).init::<B>(&device), "d_in");
    refused(SplitHeadsConfig::new(6, 6, 2).init::<B>(&device).unwrap().to_stacked(0), "context");
    refused(StackedHeadsConfig::new(3, 2, 0, 4).init::<B>(&device), "heads");
    refused(StackedHeadsConfig::new(3, 2, 1, 4).with_d_out(Some(0)).init::<B>(&device), "d_out");
}

#[test]
fn a_residual_of_another_shape_is_refused() {
    let device = Default::default();
    let attention = MultiHeadAttentionConfig::new(6, 2).init::<B>(&device).unwrap();
    let forward = |residual: [usize; 3]| {
        let (mask, position) = (Mask::causal(), ScorePosition::None);
        let input = AttentionInput::new(Tensor::ones([2, 3, 6], &device), &mask, &position);
        let input = AttentionInput { residual: Some(Tensor::ones(residual, &device)), ..input };
        attention.forward_hooked(input, AttentionHooks::standalone(&mut NoHooks))
    };
    assert!(forward([2, 3, 6]).is_ok());
    for residual in [[1, 3, 6], [2, 1, 6], [2, 3, 1]] {
        refused(forward(residual), "the residual is");
    }
}

#[test]
fn caches_know_their_window_and_have_empty_prefixes() {
    assert_eq!(KeyValueCache::<B>::with_window(Some(3)).window(), Some(3));
    let ones = |batch: usize| Tensor::<B, 3>::ones([batch, 2, 4], &Default::default());
    let mut cache = KeyValueCache::default();
    cache.append(ones(1), ones(1)).unwrap();
    let mut prefix = cache.prefix(0, 5);
    assert_eq!((prefix.time(), prefix.window()), (0, None));
    assert_eq!(
        prefix.append(ones(3), ones(3)).unwrap()[0].dims(),
        [3, 2, 4],
        "an empty prefix fits any batch"
    );
}

#[test]
fn masks_fit_the_last_two_axes() {
    let device = Default::default();
    let hidden = || Tensor::<B, 2, Bool>::from_data([[false, true, true], [false, false, true]], &device);
    let expected = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]];
    let masked = mask_weights(Tensor::<B, 2>::ones([2, 3], &device), hidden()).unwrap();
    masked.into_data().assert_eq(&expected.into(), false);
    let masked = mask_weights(Tensor::<B, 4>::ones([1, 2, 2, 3], &device), hidden()).unwrap();
    masked.into_data().assert_eq(&[[expected; 2]].into(), false);
    refused(mask_weights(Tensor::<B, 3>::ones([2, 3, 2], &device), hidden()), "the mask is [2, 3]");
}
