//! The parts of the residual stream: what the components and the biases add to it.
//!
//! A pre-norm block adds the outputs of its components as they are. With `norm` = "sandwich" or "output", a block adds the
//! norm of the sum of the outputs of a sub-layer. With the divisor `s` of this norm frozen, that is a sum as well:
//!
//! ```text
//! norm(sum_components output) = sum_components gain · output / s + shift
//! ```
//!
//! A layer norm also subtracts the mean of each output.

use std::collections::HashMap;

use burn::nn::Linear;
use burn::tensor::{Tensor, backend::Backend};

use super::pass::{Activations, Site};
use crate::model::{Decoder, NormPlacement, block::Block};
use crate::ops::{Norm, NormKind};

/// The parts of the residual stream of a pass. Its attention heads share a bias, and the norms of outputs have shifts.
pub(super) struct StreamParts<'a, B: Backend> {
    model: &'a Decoder<B>,
    pass: &'a Activations<B>,
    /// The divisor of the norm of each sub-layer's output, `[batch, time, 1]`, by the first component of the sub-layer.
    divisors: HashMap<Site, Tensor<B, 3>>,
}

impl<'a, B: Backend> StreamParts<'a, B> {
    pub fn new(model: &'a Decoder<B>, pass: &'a Activations<B>) -> Self {
        let mut divisors = HashMap::new();
        for (layer, block) in model.blocks.iter().enumerate() {
            for sublayer in sublayers(layer, block) {
                if let Some(norm) = output_norm(block, sublayer) {
                    let heads = pass.all_heads(sublayer).sum_dim(1).squeeze_dim::<3>(1);
                    let output = match bias(block, sublayer) {
                        Some(bias) => heads + bias.unsqueeze(),
                        None => heads,
                    };
                    let output = centred(norm.kind, output, 2);
                    let divisor = ((output.clone() * output).mean_dim(2) + norm.epsilon).sqrt();
                    divisors.insert(sublayer, divisor);
                }
            }
        }
        Self { model, pass, divisors }
    }

    /// Returns what the embedding or a component adds, `[batch, time, d_model]`.
    ///
    /// # Panics
    /// Panics if the model lacks the component.
    pub fn of(&self, site: Site) -> Tensor<B, 3> {
        self.normed(self.pass.at(site), site)
    }

    /// Returns what the biases of the first `layers` blocks add: each in a shape that broadcasts to `[batch, time, d_model]`.
    pub fn biases(&self, layers: usize) -> impl Iterator<Item = Tensor<B, 3>> {
        let blocks = self.model.blocks[..layers].iter().enumerate();
        blocks.flat_map(move |(layer, block)| {
            sublayers(layer, block).into_iter().flat_map(move |it| self.biases_at(block, it))
        })
    }

    /// Returns what a feed-forward layer and the shift of its norm add, `[batch, time, d_model]`.
    pub fn feed_forward(&self, layer: usize) -> Tensor<B, 3> {
        let (block, site) = (&self.model.blocks[layer], Site::FeedForward(layer));
        self.biases_at(block, site).fold(self.of(site), |sum, bias| sum + bias)
    }

    fn biases_at(&self, block: &Block<B>, sublayer: Site) -> impl Iterator<Item = Tensor<B, 3>> {
        let bias = bias(block, sublayer).map(|bias| self.normed(bias.unsqueeze(), sublayer));
        let shift = output_norm(block, sublayer).and_then(|norm| norm.beta.as_ref());
        bias.into_iter().chain(shift.map(|shift| shift.val().unsqueeze()))
    }

    /// Applies the norm of a sub-layer's output to a part of it, without the shift.
    pub fn normed(&self, part: Tensor<B, 3>, site: Site) -> Tensor<B, 3> {
        let (layer, sublayer) = match site {
            Site::Head(layer, _) => (layer, Site::Head(layer, 0)),
            Site::Cross(layer, _) => (layer, Site::Cross(layer, 0)),
            Site::FeedForward(layer) => (layer, site),
            _ => return part,
        };
        match (output_norm(&self.model.blocks[layer], site), self.divisors.get(&sublayer)) {
            (Some(norm), Some(divisor)) => {
                centred(norm.kind, part, 2) * norm.gain().unsqueeze() / divisor.clone()
            }
            _ => part,
        }
    }
}

/// Returns the first component of each sub-layer of a block.
fn sublayers<B: Backend>(layer: usize, block: &Block<B>) -> Vec<Site> {
    let cross = block.cross_attention.as_ref().map(|_| Site::Cross(layer, 0));
    [Site::Head(layer, 0)].into_iter().chain(cross).chain([Site::FeedForward(layer)]).collect()
}

/// Returns the bias that the heads of a sub-layer share. The bias of a feed-forward layer is a part of its output.
fn bias<B: Backend>(block: &Block<B>, sublayer: Site) -> Option<Tensor<B, 1>> {
    let output: &Linear<B> = match sublayer {
        Site::Head(..) => &block.attention.output,
        Site::Cross(..) => &block.cross_attention.as_ref()?.output,
        _ => return None,
    };
    output.bias.as_ref().map(burn::module::Param::val)
}

/// Returns the norm of the output of the sub-layer of a component; `None` if the block adds outputs as they are.
pub(super) fn output_norm<B: Backend>(block: &Block<B>, component: Site) -> Option<&Norm<B>> {
    let outputs = block.output_norms.as_ref();
    let (only, in_sandwich) = match component {
        Site::FeedForward(_) => (Some(&block.feed_forward_norm), outputs.map(|norms| &norms.feed_forward)),
        Site::Cross(..) => {
            (block.cross_attention_norm.as_ref(), outputs.and_then(|norms| norms.cross_attention.as_ref()))
        }
        _ => (Some(&block.attention_norm), outputs.map(|norms| &norms.attention)),
    };
    match block.placement {
        NormPlacement::Pre | NormPlacement::Post => None,
        NormPlacement::Output => only,
        NormPlacement::Sandwich => in_sandwich,
    }
}

/// Applies the mean subtraction of a layer norm to `x`; returns `x` for other norms.
pub(super) fn centred<B: Backend, const D: usize>(
    kind: NormKind,
    x: Tensor<B, D>,
    dim: usize,
) -> Tensor<B, D> {
    if kind == NormKind::Layer { x.clone() - x.mean_dim(dim) } else { x }
}
