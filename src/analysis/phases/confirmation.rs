//! What a head is worth at the end of a run: the loss when its output is replaced by its mean.

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::analysis::ablation;
use crate::analysis::interventions::{means, scaled};
use crate::analysis::sample::Sample;
use crate::data::Sequences;
use crate::error::Result;
use crate::evaluation::{Evaluation, evaluate};
use crate::hooks::ResidualWriter;
use crate::model::Model;

/// Mean losses by kind of target, in nats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossByTarget {
    /// The mean over all targets.
    pub all: f64,
    /// The mean over the targets that the optimal predictor knows; `None` if there are none.
    pub determined: Option<f64>,
    /// The mean over the other targets; `None` unless there are targets of both kinds.
    pub undetermined: Option<f64>,
}

impl From<&Evaluation> for LossByTarget {
    fn from(evaluation: &Evaluation) -> Self {
        let [all, known] = [evaluation.tokens, evaluation.determined_tokens].map(|count| count as f64);
        let undetermined = evaluation
            .determined_loss
            .filter(|_| known < all)
            .map(|determined| (evaluation.loss * all - determined * known) / (all - known));
        Self { all: evaluation.loss, determined: evaluation.determined_loss, undetermined }
    }
}

/// The losses with one head mean-ablated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadAblation {
    /// The layer, from 0.
    pub layer: usize,
    /// The head in the layer, from 0.
    pub head: usize,
    /// The losses.
    pub loss: LossByTarget,
}

/// Mean-ablates each causal self-attention head of some `layers` alone. Returns the losses of the full model, and those
/// with each head ablated, on the first `sequences` of a `set` in batches of `rows`. The mean is over all positions of
/// these sequences.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read the sequences.
pub fn ablate_layers<B: Backend>(
    model: &Model<B>,
    (set, sequences, rows): (&Sequences, usize, usize),
    layers: &[usize],
    device: &B::Device,
) -> Result<(LossByTarget, Vec<HeadAblation>)> {
    let heads = ablation::heads(model);
    let of_layer = |&layer: &usize| {
        (0..heads.get(layer).copied().unwrap_or(0)).map(move |head| ResidualWriter::Head(layer, head))
    };
    let components: Vec<ResidualWriter> = layers.iter().flat_map(of_layer).collect();
    let means = means(model, &Sample::first(set, sequences), &components, device)?;
    let loss = |model: &Model<B>| {
        let batches = set.batches(rows).take(sequences.div_ceil(rows));
        LossByTarget::from(&evaluate(model, batches, device))
    };
    let ablated = components.iter().zip(&means).filter_map(|(&component, mean)| match component {
        ResidualWriter::Head(layer, head) => {
            let loss = loss(&scaled(model.clone(), component, 0.0, Some(mean)));
            Some(HeadAblation { layer, head, loss })
        }
        _ => None,
    });
    let ablated = ablated.collect();
    Ok((loss(model), ablated))
}
