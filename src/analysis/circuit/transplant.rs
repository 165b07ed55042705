//! Transplants of heads: a head of one decoder computes in another one.
//!
//! The head of the donor reads the residual stream of the recipient, and its output replaces the matched head's. If
//! both have the same mechanism, the loss stays near the recipient's. The residual streams of decoders that were
//! initialised differently have different bases, so they are aligned: the orthogonal matrix `R` that minimises
//! `‖E_donor R - E_recipient‖` over the embeddings of tokens and learned positions (Procrustes: Schönemann, 1966) is the
//! orthogonal factor of `E_donorᵀ E_recipient`.

use std::collections::{BTreeMap, btree_map::Entry};

use burn::tensor::{Tensor, TensorData, backend::Backend};
use serde::Serialize;

use super::pass::{Activations, Interventions, Site, run};
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::model::Decoder;
use crate::ops;
use crate::position::Position;

/// The iterations of Newton's method for an orthogonal factor, in which the smallest singular values grow by a factor of 1.5
/// each until they are near 1.
const ITERATIONS: usize = 60;
/// The weight of the identity, which determines the factor in directions that no embedding has.
const IDENTITY_WEIGHT: f64 = 1e-4;

/// The loss of a recipient with one of its heads replaced, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadTransplant {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The replaced head of the recipient.
    pub head: usize,
    /// The head of the donor.
    pub donor_head: usize,
    /// The loss of the intact recipient.
    pub loss: f64,
    /// The loss with the head mean-ablated.
    pub ablated: f64,
    /// The loss with the head of the donor in its place.
    pub transplanted: f64,
    /// The lowest loss with another head of the donor's layer in its place; `None` if there is no other.
    pub best_other: Option<f64>,
}

impl HeadTransplant {
    /// Returns the share of the rise of the loss by the ablation that the transplant recovers: 1 if the donor's head is as
    /// good as the own one, 0 if it is no better than the mean, and negative if it is worse.
    pub fn recovered(&self, transplanted: f64) -> f64 {
        (self.ablated - transplanted) / (self.ablated - self.loss)
    }
}

/// Returns the orthogonal factor of a square matrix: `U Vᵀ` of its singular value decomposition `U S Vᵀ`.
fn orthogonal_factor<B: Backend>(matrix: Tensor<B, 2>) -> Tensor<B, 2> {
    let [size, _] = matrix.dims();
    let norm = floats(matrix.clone().powi_scalar(2).sum())[0].sqrt().max(f32::MIN_POSITIVE);
    let identity = Tensor::eye(size, &matrix.device());
    let mut factor = matrix / norm + identity * IDENTITY_WEIGHT;
    for _ in 0..ITERATIONS {
        let cubed = factor.clone().matmul(factor.clone().transpose()).matmul(factor.clone());
        factor = factor * 1.5 - cubed * 0.5;
    }
    factor
}

/// Returns the matrix that aligns the basis of a donor's residual stream with a recipient's, which has the same
/// tokens and the same width.
pub fn alignment<B: Backend>(donor: &Decoder<B>, recipient: &Decoder<B>) -> Tensor<B, 2> {
    let [donor, recipient] = [donor, recipient].map(|model| {
        let tokens = model.embedding.token.weight.val();
        match &model.position {
            Some(Position::Learned(learned)) => vec![tokens, learned.weight.val()],
            _ => vec![tokens],
        }
    });
    let products = donor.into_iter().zip(recipient).map(|(donor, recipient)| {
        let rows = donor.dims()[0].min(recipient.dims()[0]);
        donor.narrow(0, 0, rows).transpose().matmul(recipient.narrow(0, 0, rows))
    });
    orthogonal_factor(products.reduce(|sum, product| sum + product).expect("decoders embed tokens"))
}

/// Puts heads of a `donor` in the place of self-attention heads of a `recipient`, one at a time. `pairs` hold the layer, the
/// head of the recipient and the head of the donor. The bases of their residual streams are aligned by `rotation`; without
/// one they are the same.
///
/// # Errors
/// [`crate::Error::Shape`] if a model cannot read the samples.
pub fn transplant<B: Backend>(
    [recipient, donor]: [&Decoder<B>; 2],
    pairs: &[[usize; 3]],
    samples: &[Sample],
    rotation: Option<Tensor<B, 2>>,
    device: &B::Device,
) -> Result<Vec<HeadTransplant>> {
    let batch = DeviceBatch::<B>::new(&Sample::batch_of(samples), device);
    let bench = TransplantBatch { batch, samples, device };
    let full = bench.pass(recipient, &Interventions::default())?;
    let rotated = |activation: Tensor<B, 3>, is_back: bool| match rotation.clone() {
        Some(rotation) if is_back => activation.matmul(rotation.transpose().unsqueeze()),
        Some(rotation) => activation.matmul(rotation.unsqueeze()),
        None => activation,
    };
    let intact = bench.loss(full.logits.clone());
    let mut of_layers: BTreeMap<usize, Activations<B>> = BTreeMap::new();
    let mut found = Vec::new();
    for &[layer, head, donor_head] in pairs {
        if let Entry::Vacant(entry) = of_layers.entry(layer) {
            let stream = rotated(full.at(Site::Stream(layer)), true);
            entry.insert(bench.pass(donor, &Interventions::default().replace(Site::Stream(layer), stream))?);
        }
        let outputs = &of_layers[&layer];
        let loss = |output: Tensor<B, 3>| {
            let replaced = Interventions::default().replace(Site::Head(layer, head), output);
            bench.pass(recipient, &replaced).map(|pass| bench.loss(pass.logits))
        };
        let replaced = |other: usize| loss(rotated(outputs.at(Site::Head(layer, other)), false));
        let others = (0..donor.blocks[layer].attention.heads).filter(|&other| other != donor_head);
        let others = others.map(replaced).collect::<Result<Vec<f64>>>()?;
        found.push(HeadTransplant {
            layer,
            head,
            donor_head,
            loss: intact,
            ablated: loss(bench.mean(full.at(Site::Head(layer, head))))?,
            transplanted: replaced(donor_head)?,
            best_other: others.into_iter().min_by(f64::total_cmp),
        });
    }
    Ok(found)
}

/// Sequences on which decoders run.
struct TransplantBatch<'a, B: Backend> {
    batch: DeviceBatch<B>,
    samples: &'a [Sample],
    device: &'a B::Device,
}

impl<B: Backend> TransplantBatch<'_, B> {
    fn pass(&self, model: &Decoder<B>, interventions: &Interventions<B>) -> Result<Activations<B>> {
        let memories = model.project_memory(self.batch.inputs.source.clone(), &mut NoHooks)?;
        run(model, self.batch.inputs.clone(), &memories, interventions)
    }

    fn loss(&self, logits: Tensor<B, 3>) -> f64 {
        let scores = ops::token_scores(logits, self.batch.targets.clone(), self.batch.hidden.clone());
        let losses = floats(scores.losses);
        losses.into_iter().map(f64::from).sum::<f64>() / self.batch.tokens as f64
    }

    /// Returns the mean of an activation at each position, over the sequences that have it.
    fn mean(&self, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let [rows, time, _] = activation.dims();
        let is_input =
            |sample: &Sample| (0..time).map(|at| f32::from(at < sample.inputs.len())).collect::<Vec<_>>();
        let mask: Vec<f32> = self.samples.iter().flat_map(is_input).collect();
        let mask = Tensor::<B, 3>::from_data(TensorData::new(mask, [rows, time, 1]), self.device);
        (activation * mask.clone()).sum_dim(0) / mask.sum_dim(0).clamp_min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::kernels::random::random;
    use crate::model::{Model, ModelConfig, Sizes};
    use crate::ops::NormKind;

    type B = NdArray;

    const VOCAB: usize = 13;
    const D_MODEL: usize = 10;

    fn noise(seed: u64, [rows, columns]: [usize; 2], deviation: f64) -> Tensor<B, 2> {
        let values = TensorData::new(random(seed, rows * columns), [rows, columns]);
        Tensor::from_data(values, &Default::default()) * (deviation * 3f64.sqrt())
    }

    /// Returns a decoder with random weights, whose basis of the residual stream is changed by an orthogonal matrix.
    fn decoder(basis: &Tensor<B, 2>) -> Decoder<B> {
        let config = ModelConfig {
            d_model: D_MODEL,
            heads: 5,
            norm_kind: NormKind::Rms,
            bias: false,
            ..ModelConfig::default()
        };
        let sizes = Sizes { vocab: VOCAB, context: 7, source_context: None };
        let Model::Decoder(mut model) = config.init::<B>(sizes, &Default::default()).unwrap() else {
            panic!("the config specifies a decoder")
        };
        let mut seed = 0;
        let mut set = |weight: &mut Param<Tensor<B, 2>>, is_reader: bool| {
            seed += 1;
            let new = noise(seed, weight.dims(), 0.6);
            let new =
                if is_reader { basis.clone().transpose().matmul(new) } else { new.matmul(basis.clone()) };
            *weight = Param::from_tensor(new);
        };
        set(&mut model.embedding.token.weight, false);
        let Some(Position::Learned(learned)) = &mut model.position else { panic!("positions are learned") };
        set(&mut learned.weight, false);
        set(&mut model.head.as_mut().unwrap().weight, true);
        for block in &mut model.blocks {
            set(&mut block.attention.qkv.weight, true);
            set(&mut block.attention.output.weight, false);
            set(&mut block.feed_forward.up.weight, true);
            set(&mut block.feed_forward.down.weight, false);
        }
        model
    }

    fn samples() -> Vec<Sample> {
        let tokens = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], [11, 6, 1, 8, 0, 3, 3]];
        tokens.iter().map(|tokens| Sample::of_inputs(tokens.to_vec())).collect()
    }

    #[test]
    fn orthogonal_factors_are_orthogonal_and_near_their_matrix() {
        let basis = orthogonal_factor(noise(99, [D_MODEL, D_MODEL], 1.0));
        let identity = basis.clone().matmul(basis.clone().transpose());
        let error = (identity - Tensor::eye(D_MODEL, &Default::default())).abs().max().into_scalar();
        assert!(error < 1e-4, "{error}");
        let spread = noise(98, [VOCAB, D_MODEL], 1.0);
        let found =
            orthogonal_factor(spread.clone().transpose().matmul(spread.clone().matmul(basis.clone())));
        let error = (found - basis).abs().max().into_scalar();
        assert!(error < 0.02, "{error}");
    }

    #[test]
    fn heads_of_a_rotated_decoder_are_as_good_as_the_own_ones() {
        let identity = Tensor::eye(D_MODEL, &Default::default());
        let basis = orthogonal_factor(noise(99, [D_MODEL, D_MODEL], 1.0));
        let (donor, recipient) = (decoder(&identity), decoder(&basis));
        let pairs = [[0, 3, 3], [1, 2, 2]];
        let models = [&recipient, &donor];
        let device = Default::default();
        let rotation = alignment(&donor, &recipient);
        let aligned = transplant(models, &pairs, &samples(), Some(rotation), &device).unwrap();
        let unaligned = transplant(models, &pairs, &samples(), None, &device).unwrap();
        for (aligned, unaligned) in aligned.iter().zip(&unaligned) {
            let effect = (aligned.ablated - aligned.loss).abs();
            assert!(effect > 0.02, "{aligned:?}");
            assert!((aligned.transplanted - aligned.loss).abs() < 0.05 * effect, "{aligned:?}");
            assert!((unaligned.transplanted - aligned.loss).abs() > 0.1 * effect, "{unaligned:?}");
            assert_eq!((unaligned.loss, unaligned.ablated), (aligned.loss, aligned.ablated));
        }
        // Without alignment, a decoder is its own donor, and another head is not.
        let own = transplant([&donor, &donor], &[[1, 2, 2], [1, 2, 0]], &samples(), None, &device).unwrap();
        assert!((own[0].transplanted - own[0].loss).abs() < 1e-5, "{own:?}");
        assert!((own[1].transplanted - own[1].loss).abs() > 1e-3, "{own:?}");
        assert!((own[0].recovered(own[0].transplanted) - 1.0).abs() < 1e-3, "{own:?}");
    }
}
