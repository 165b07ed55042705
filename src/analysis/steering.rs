//! Steering: a vector is added to the residual stream or to a component's output, at all positions (activation addition:
//! Turner et al., 2023, arXiv 2308.10248).
//!
//! The vector is added to the bias of the output projection before the site, so it acts in every forward pass, also with
//! a KV cache.

use std::collections::BTreeSet;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};

use super::activations::record;
use crate::error::{Error, Result};
use crate::hooks::{HookPoint, HookSite, Patch, Stack};
use crate::model::{Decoder, Inputs, Model};

/// Returns a model in which `vector`, of width `d_model`, is added to the activation at a site of the decoder.
///
/// # Errors
/// [`Error::Input`] if no output projection ends at the site, or if the vector has another width.
pub fn steered<B: Backend>(mut model: Model<B>, site: HookSite, vector: &[f32]) -> Result<Model<B>> {
    let output = match &mut model {
        Model::Decoder(decoder) if site.stack == Stack::Decoder => output_before(decoder, site),
        _ => None,
    };
    let Some(output) = output else {
        return Err(Error::Input(format!(
            "`{site}` cannot be steered; add the vector to resid_mid.*, resid_post.* or resid_pre.* from layer 1 of a pre-norm \
             decoder, or to mlp.*.out"
        )));
    };
    let [_, d_model] = output.weight.dims();
    if vector.len() != d_model {
        let problem =
            format!("the vector has {} numbers, but `{site}` has a width of {d_model}", vector.len());
        return Err(Error::Input(problem));
    }
    let vector = Tensor::<B, 1>::from_floats(vector, &output.weight.device());
    output.bias = Some(match output.bias.take() {
        Some(bias) => bias.map(|bias| bias + vector),
        None => Param::from_tensor(vector),
    });
    Ok(model)
}

/// Returns the mean over prompts of the activation at a site at their last token, which has read the whole prompt
/// (contrastive activation addition: Rimsky et al., 2024, arXiv 2312.06681).
///
/// # Errors
/// [`Error::Input`] if the activation is not `[time, d_model]`, and [`Error::Shape`] if the model cannot read a prompt.
pub fn last_activation_mean<B: Backend>(
    model: &Model<B>,
    prompts: &[Vec<u32>],
    site: HookSite,
    device: &B::Device,
) -> Result<Vec<f64>> {
    let mut mean = Vec::new();
    for prompt in prompts {
        let ids: Vec<i64> = prompt.iter().map(|&id| i64::from(id)).collect();
        let tokens: Tensor<B, 2, Int> = Tensor::from_data(TensorData::new(ids, [1, prompt.len()]), device);
        let sites = BTreeSet::from([site]);
        let recorded = record((model, &Patch::default()), Inputs::tokens(tokens), &sites, false, DType::F32)?;
        let [time, d_model] = recorded[0].data.shape.to_vec()[..] else {
            return Err(Error::Input(format!(
                "`{site}` cannot be steered, because it has a row for each head"
            )));
        };
        mean.resize(d_model, 0.0);
        let last = recorded[0].data.iter::<f64>().skip((time - 1) * d_model);
        mean.iter_mut().zip(last).for_each(|(mean, value)| *mean += value / prompts.len() as f64);
    }
    Ok(mean)
}

/// Returns the projection whose output is the last to be added to the activation at a site.
fn output_before<B: Backend>(model: &mut Decoder<B>, site: HookSite) -> Option<&mut Linear<B>> {
    let is_sum = model.blocks.iter().all(|block| block.placement.adds_outputs());
    let (layer, is_after_feed_forward) = match site.point {
        HookPoint::FeedForwardOutput => (site.layer, true),
        HookPoint::ResidualPost if is_sum => (site.layer, true),
        HookPoint::ResidualPre if is_sum => (site.layer.checked_sub(1)?, true),
        HookPoint::Final if is_sum => (model.blocks.len().checked_sub(1)?, true),
        HookPoint::ResidualMid if is_sum => (site.layer, false),
        _ => return None,
    };
    let block = model.blocks.get_mut(layer)?;
    Some(match (is_after_feed_forward, &mut block.cross_attention) {
        (true, _) => &mut block.feed_forward.down,
        (false, Some(cross)) => &mut cross.output,
        (false, None) => &mut block.attention.output,
    })
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::analysis::activations::RecordableSite;
    use crate::model::{ModelConfig, Sizes};

    type B = NdArray;

    #[test]
    fn vectors_are_added_at_their_site() {
        let device = Default::default();
        let plain = ModelConfig { d_model: 6, heads: 2, layers: 2, ..ModelConfig::default() };
        let without_bias = ModelConfig { bias: false, ..plain.clone() };
        let vector: Vec<f32> = (0..6).map(|at| at as f32 - 2.0).collect();
        for config in [plain.clone(), without_bias] {
            let sizes = Sizes { vocab: 11, context: 7, source_context: None };
            let model = config.init::<B>(sizes, &device).unwrap();
            let inputs = || Inputs::tokens(Tensor::from_ints([[3, 1, 4]], &device));
            let mut steered_sites = 0;
            for RecordableSite { site, .. } in RecordableSite::all(&model, &device).unwrap() {
                let Ok(changed) = steered(model.clone(), site, &vector) else { continue };
                steered_sites += 1;
                let at = |model: &Model<B>| {
                    let recorded = record(
                        (model, &Patch::default()),
                        inputs(),
                        &BTreeSet::from([site]),
                        false,
                        DType::F32,
                    )
                    .unwrap();
                    recorded[0].data.to_vec::<f32>().unwrap()
                };
                for (index, (new, old)) in at(&changed).into_iter().zip(at(&model)).enumerate() {
                    assert!((new - old - vector[index % 6]).abs() < 1e-5, "{site}");
                }
            }
            // Before and after both blocks, between their layers, after their feed-forward layers, and at the end.
            assert_eq!(steered_sites, 1 + 2 + 2 + 2 + 1);
        }
        let post = ModelConfig { norm: crate::model::NormPlacement::Post, ..plain };
        let model = post.init::<B>(Sizes { vocab: 11, context: 7, source_context: None }, &device).unwrap();
        let at = |point| HookSite { stack: Stack::Decoder, layer: 1, point };
        assert!(steered(model.clone(), at(HookPoint::FeedForwardOutput), &vector).is_ok());
        let problem = steered(model.clone(), at(HookPoint::ResidualPost), &vector).unwrap_err().to_string();
        assert!(problem.starts_with("`resid_post.1` cannot be steered; add the vector to"), "{problem}");
        let problem = steered(model, at(HookPoint::FeedForwardOutput), &vector[1..]).unwrap_err().to_string();
        assert_eq!(problem, "the vector has 5 numbers, but `mlp.1.out` has a width of 6");
    }
}
