//! The sizes of a head's QK and OV circuits, from its weights.

use burn::tensor::backend::Backend;
use serde::Serialize;

use crate::analysis::circuit::{HeadMatrices, explainable};
use crate::model::Model;

/// The sizes of the circuits of a head. The effective rank is the exponential of the entropy of the normalised singular
/// values (Roy and Vetterli, 2007): 1 for a single direction, at most the width of the head.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CircuitSizes {
    /// The Frobenius norm of the QK circuit.
    pub qk_norm: f64,
    /// The effective rank of the QK circuit.
    pub qk_rank: f64,
    /// The Frobenius norm of the OV circuit.
    pub ov_norm: f64,
    /// The effective rank of the OV circuit.
    pub ov_rank: f64,
}

impl CircuitSizes {
    /// Measures the circuits of a self-attention head. Returns `None` if the model lacks the head or cannot be explained.
    pub fn of<B: Backend>(model: &Model<B>, [layer, head]: [usize; 2]) -> Option<Self> {
        let matrices = HeadMatrices::all(explainable(model).ok()?);
        let [qk, ov] = matrices.get(layer)?.get(head)?.singular_values();
        let ([qk_norm, qk_rank], [ov_norm, ov_rank]) = (size(&qk), size(&ov));
        Some(Self { qk_norm, qk_rank, ov_norm, ov_rank })
    }
}

/// Returns the Frobenius norm and the effective rank of a matrix with these singular values.
pub(super) fn size(values: &[f64]) -> [f64; 2] {
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let sum: f64 = values.iter().sum();
    let shares = values.iter().map(|value| value / sum).filter(|share| *share > 0.0);
    [norm, (-shares.map(|share| share * share.ln()).sum::<f64>()).exp()]
}
