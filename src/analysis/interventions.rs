//! Interventions on the components of a model: ablation and scaling of heads and feed-forward layers.
//!
//! A component affects the rest of the model only through its rows of an output projection. If these rows are scaled, so
//! is its output, in every forward pass and for models of any size. Mean ablation also adds the mean output to the bias
//! of the projection.

use std::fmt;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{DType, Tensor, backend::Backend};

use super::Sample;
use super::activations::record;
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Stack};
use crate::model::Model;

/// A component that writes to the residual stream of a decoder, by which commands name it. Layers and heads count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResidualWriter {
    /// A head of the causal self-attention: layer and head.
    Head(usize, usize),
    /// A head of the cross-attention: layer and head.
    Cross(usize, usize),
    /// A feed-forward layer.
    FeedForward(usize),
}

impl fmt::Display for ResidualWriter {
    /// Writes the name: `1.3`, `cross.1.3` or `1.mlp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(layer, head) => write!(f, "{layer}.{head}"),
            Self::Cross(layer, head) => write!(f, "cross.{layer}.{head}"),
            Self::FeedForward(layer) => write!(f, "{layer}.mlp"),
        }
    }
}

impl ResidualWriter {
    /// Returns all components of a model, in model order.
    pub fn all<B: Backend>(model: &Model<B>) -> Vec<Self> {
        match model {
            Model::OneLayer(model) => (0..model.attention.heads).map(|head| Self::Head(0, head)).collect(),
            Model::Decoder(model) => {
                let blocks = model.blocks.iter().enumerate();
                let of_block = blocks.flat_map(|(layer, block)| {
                    let cross = block.cross_attention.as_ref().map_or(0, |attention| attention.heads);
                    let heads = (0..block.attention.heads).map(move |head| Self::Head(layer, head));
                    let cross = (0..cross).map(move |head| Self::Cross(layer, head));
                    heads.chain(cross).chain([Self::FeedForward(layer)])
                });
                of_block.collect()
            }
        }
    }

    /// Returns the site of the component's output, and its index there.
    fn site(self) -> (HookSite, usize) {
        let at = |layer, point| HookSite { stack: Stack::Decoder, layer, point };
        match self {
            Self::Head(layer, head) => (at(layer, HookPoint::SelfAttention(AttentionPoint::Output)), head),
            Self::Cross(layer, head) => (at(layer, HookPoint::CrossAttention(AttentionPoint::Output)), head),
            Self::FeedForward(layer) => (at(layer, HookPoint::FeedForwardOutput), 0),
        }
    }
}

/// Returns the mean output of each component over all positions of the `samples`, each `[d_model]`.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read a sample.
pub fn means<B: Backend>(
    model: &Model<B>,
    samples: &[Sample],
    components: &[ResidualWriter],
    device: &B::Device,
) -> Result<Vec<Vec<f32>>> {
    let sites = components.iter().map(|component| component.site().0).collect();
    let mut sums: Vec<Vec<f64>> = vec![Vec::new(); components.len()];
    let mut positions = 0;
    for sample in samples {
        let inputs = DeviceBatch::new(&Sample::batch_of(std::slice::from_ref(sample)), device).inputs;
        let time = sample.inputs.len();
        positions += time;
        let recorded = record(model, inputs, &sites, false, DType::F32)?;
        for (component, sum) in components.iter().zip(&mut sums) {
            let (site, index) = component.site();
            let name = site.to_string();
            let found = recorded.iter().find(|activation| activation.name == name);
            let values: Vec<f32> = found.map_or_else(Vec::new, |it| it.data.iter::<f32>().collect());
            let [.., width] = found.map_or(&[0][..], |it| it.data.shape.as_slice()) else { continue };
            sum.resize(*width, 0.0);
            for row in values.chunks(*width).skip(index * time).take(time) {
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
    }
    Ok(sums.into_iter().map(|sum| sum.iter().map(|sum| (sum / positions as f64) as f32).collect()).collect())
}

/// Returns a model in which the output of a component is scaled by `factor`, and `mean` is added to it; a component that
/// the model lacks changes nothing. A factor of 0 is zero ablation, or mean ablation with the component's mean output.
#[must_use]
pub fn scaled<B: Backend>(
    mut model: Model<B>,
    component: ResidualWriter,
    factor: f64,
    mean: Option<&[f32]>,
) -> Model<B> {
    if let Some((output, heads, head)) = output_of(&mut model, component) {
        let [rows, _] = output.weight.dims();
        let width = rows / heads;
        scale_rows(output, head * width..(head + 1) * width, factor, mean);
    }
    model
}

/// Returns the projection through which a component writes, and which head of how many it is there. The bias of a
/// feed-forward layer is part of its output.
fn output_of<B: Backend>(
    model: &mut Model<B>,
    component: ResidualWriter,
) -> Option<(&mut Linear<B>, usize, usize)> {
    match (model, component) {
        (Model::OneLayer(model), ResidualWriter::Head(0, head)) => {
            Some((&mut model.attention.output, model.attention.heads, head))
        }
        (Model::OneLayer(_), _) => None,
        (Model::Decoder(model), ResidualWriter::Head(layer, head)) => {
            let attention = &mut model.blocks.get_mut(layer)?.attention;
            Some((&mut attention.output, attention.heads, head))
        }
        (Model::Decoder(model), ResidualWriter::Cross(layer, head)) => {
            let attention = model.blocks.get_mut(layer)?.cross_attention.as_mut()?;
            Some((&mut attention.output, attention.heads, head))
        }
        (Model::Decoder(model), ResidualWriter::FeedForward(layer)) => {
            Some((&mut model.blocks.get_mut(layer)?.feed_forward.down, 1, 0))
        }
    }
}

/// Scales rows of a projection, and adds a vector to its bias. If the rows are all, the bias is scaled too.
fn scale_rows<B: Backend>(
    output: &mut Linear<B>,
    rows: std::ops::Range<usize>,
    factor: f64,
    mean: Option<&[f32]>,
) {
    let [all, d_model] = output.weight.dims();
    if rows == (0..all) {
        output.bias = output.bias.take().map(|bias| bias.map(|bias| bias * factor));
    }
    if let Some(mean) = mean {
        let mean = Tensor::from_floats(mean, &output.weight.device());
        output.bias = Some(match output.bias.take() {
            Some(bias) => bias.map(|bias| bias + mean),
            None => Param::from_tensor(mean),
        });
    }
    output.weight = output.weight.clone().map(|weight| {
        let ranges = [rows, 0..d_model];
        weight.clone().slice_assign(ranges.clone(), weight.slice(ranges) * factor)
    });
}
