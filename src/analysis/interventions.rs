//! Interventions on the components of a model: ablation and scaling of heads and feed-forward layers.
//!
//! A component affects the rest of the model only through its rows of an output projection. If these rows are scaled, so
//! is its output, in every forward pass and for models of any size. Mean ablation also adds the mean output to the bias
//! of the projection.

use std::collections::HashMap;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{DType, Tensor, TensorData, backend::Backend};

use super::Sample;
use super::activations::{Activation, record};
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::hooks::{Patch, ResidualWriter};
use crate::model::Model;

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
    // The sum of each row over the positions, head after head, by the name of the site.
    let mut sums: HashMap<String, Vec<f64>> = HashMap::new();
    let (mut positions, mut width) = (0, 0);
    for sample in samples {
        let inputs = DeviceBatch::new(&Sample::batch_of(std::slice::from_ref(sample)), device).inputs;
        let time = sample.inputs.len();
        positions += time;
        for Activation { name, data } in
            record((model, &Patch::default()), inputs, &sites, false, DType::F32)?
        {
            let values: Vec<f32> = data.iter().collect();
            width = data.shape.last().copied().unwrap_or(0);
            let sum = sums.entry(name).or_default();
            sum.resize(values.len() / time, 0.0);
            for (row, values) in values.chunks(width).enumerate() {
                let head = row / time * width;
                sum[head..head + width]
                    .iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
    }
    let mean = |component: &ResidualWriter| {
        let (site, index) = component.site();
        let sum = sums.get(&site.to_string()).map_or(&[][..], |sum| &sum[index * width..(index + 1) * width]);
        sum.iter().map(|sum| (sum / positions as f64) as f32).collect()
    };
    Ok(components.iter().map(mean).collect())
}

impl Activation {
    /// Replaces the output of a mean-ablated head, which is zero because the model adds the mean after all heads.
    pub fn put_mean(&mut self, component: ResidualWriter, mean: &[f32]) {
        let (site, head) = component.site();
        if matches!(component, ResidualWriter::FeedForward(_)) || self.name != site.to_string() {
            return;
        }
        let (dtype, shape) = (self.data.dtype, self.data.shape.clone());
        let mut values: Vec<f32> = self.data.iter().collect();
        let rows = shape[1];
        let of_head = values.chunks_mut(mean.len()).skip(head * rows).take(rows);
        of_head.for_each(|row| row.copy_from_slice(mean));
        self.data = TensorData::new(values, shape).convert_dtype(dtype);
    }
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
    let Some((output, heads, head)) = output_of(&mut model, component) else { return model };
    let [rows, d_model] = output.weight.dims();
    let (width, mut bias) = (rows / heads, output.bias.take());
    if let ResidualWriter::FeedForward(_) = component {
        bias = bias.map(|bias| bias.map(|bias| bias * factor));
    }
    output.bias = match (bias, mean) {
        (bias, None) => bias,
        (bias, Some(mean)) => {
            let mean = Tensor::from_floats(mean, &output.weight.device());
            Some(bias.map_or_else(
                || Param::from_tensor(mean.clone()),
                |bias| bias.map(|bias| bias + mean.clone()),
            ))
        }
    };
    output.weight = output.weight.clone().map(|weight| {
        let ranges = [head * width..(head + 1) * width, 0..d_model];
        let old = weight.clone().slice(ranges.clone());
        let new = if factor == 0.0 { old.zeros_like() } else { old * factor };
        weight.slice_assign(ranges, new)
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Inputs, ModelConfig, Sizes};
    use burn_ndarray::NdArray;

    #[test]
    fn the_bias_of_a_single_head_is_kept() {
        let config = ModelConfig { d_model: 6, heads: 1, layers: 1, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 11, context: 7, source_context: None };
        let mut model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
        let shift =
            |linear: &mut Linear<NdArray>| linear.bias = linear.bias.take().map(|it| it.map(|it| it + 0.5));
        let bias = |model: &Model<NdArray>, component| {
            let bias = output_of(&mut model.clone(), component).unwrap().0.bias.clone().unwrap();
            bias.val().into_data().to_vec::<f32>().unwrap()
        };
        let [head, feed_forward] = [ResidualWriter::Head(0, 0), ResidualWriter::FeedForward(0)];
        for component in [head, feed_forward] {
            shift(output_of(&mut model, component).unwrap().0);
        }
        let ablated = |component| scaled(model.clone(), component, 0.0, None);
        assert_eq!(bias(&ablated(head), head), bias(&model, head), "the output of a head excludes the bias");
        assert_eq!(bias(&ablated(feed_forward), feed_forward), [0.0; 6]);
        let inputs = Inputs::tokens(Tensor::from_ints([[3, 1, 4]], &Default::default()));
        assert!(ablated(head).forward(inputs).is_ok());
    }
}
