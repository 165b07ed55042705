//! What a model computes for all pairs of residues.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use super::measures::PairLogits;
use super::neurons::{NeuronFrequency, neuron_frequency};
use super::waves::Waves;
use crate::analysis::view::floats;
use crate::error::Result;
use crate::hooks::{HookPoint, HookSite, Hooks, NoHooks};
use crate::model::{Inputs, Model};

/// The number of pairs per batch.
const ROWS: usize = 2048;

/// Returns the logits of the sum for every pair modulo `modulus`. The sign has the id `modulus`, after the numbers.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read the pairs.
pub fn pair_logits<B: Backend>(model: &Model<B>, modulus: usize, device: &B::Device) -> Result<PairLogits> {
    let mut logits = Vec::new();
    for_each_batch(model, modulus, &mut NoHooks, device, |batch, _| logits.extend(last(batch)))?;
    Ok(PairLogits::new(modulus, logits))
}

/// Returns the share of each frequency in the variance of the token embedding over the numbers below `modulus`.
pub fn embedding_shares<B: Backend>(model: &Model<B>, modulus: usize) -> Vec<f64> {
    let embedding = match model {
        Model::OneLayer(model) => &model.embedding,
        Model::Decoder(model) => &model.embedding.token,
    };
    let numbers = embedding.weight.val().narrow(0, 0, modulus); // [modulus, d_model]
    let table: Vec<f64> = floats(numbers).iter().map(|&value| f64::from(value)).collect();
    Waves::new(modulus).shares(&table)
}

/// Returns the frequency of each neuron over all pairs, `[layer][neuron]`, at the position that predicts the sum; `None`
/// for a constant neuron. A one-layer decoder has no neurons.
///
/// # Errors
/// Same as [`pair_logits`].
pub fn neuron_frequencies<B: Backend>(
    model: &Model<B>,
    modulus: usize,
    device: &B::Device,
) -> Result<Vec<Vec<Option<NeuronFrequency>>>> {
    let mut hidden = Hidden(Vec::new());
    // `[layer]` of `[pair, neuron]`.
    let mut layers: Vec<(usize, Vec<f32>)> = Vec::new();
    for_each_batch(model, modulus, &mut hidden, device, |_, hidden| {
        for (layer, activation) in hidden.0.drain(..).enumerate() {
            let [_, _, width] = activation.dims();
            if layers.len() == layer {
                layers.push((width, Vec::new()));
            }
            layers[layer].1.extend(last(activation));
        }
    })?;
    let waves = Waves::new(modulus);
    let of_layer = |(width, values): &(usize, Vec<f32>)| {
        let neuron = |index| {
            let activations: Vec<f32> = values.iter().skip(index).step_by(*width).copied().collect();
            neuron_frequency(&waves, &activations)
        };
        (0..*width).map(neuron).collect()
    };
    Ok(layers.iter().map(of_layer).collect())
}

/// Runs the model on batches of all pairs, in the order `(0, 0), (0, 1), ..`, and passes their logits `[batch, 3, vocab]`
/// and the hooks to `visit`.
fn for_each_batch<B: Backend, H: Hooks<B>>(
    model: &Model<B>,
    modulus: usize,
    hooks: &mut H,
    device: &B::Device,
    mut visit: impl FnMut(Tensor<B, 3>, &mut H),
) -> Result<()> {
    let pairs: Vec<usize> = (0..modulus * modulus).collect();
    for pairs in pairs.chunks(ROWS) {
        let tokens = pairs.iter().flat_map(|pair| [pair / modulus, pair % modulus, modulus]);
        let tokens: Vec<i64> = tokens.map(|id| id as i64).collect();
        let tokens: Tensor<B, 2, Int> = Tensor::from_data(TensorData::new(tokens, [pairs.len(), 3]), device);
        let logits = model.forward_hooked(Inputs::tokens(tokens), hooks)?;
        visit(logits, hooks);
    }
    Ok(())
}

/// Returns the values at the last position of `[batch, time, width]`.
fn last<B: Backend>(values: Tensor<B, 3>) -> Vec<f32> {
    let [_, time, _] = values.dims();
    floats(values.narrow(1, time - 1, 1))
}

/// Keeps the hidden activations of the feed-forward layers.
struct Hidden<B: Backend>(Vec<Tensor<B, 3>>);

impl<B: Backend> Hooks<B> for Hidden<B> {
    fn wants(&self, site: HookSite) -> bool {
        site.point == HookPoint::FeedForwardHidden
    }

    fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.0.push(activation.clone());
        activation
    }
}
