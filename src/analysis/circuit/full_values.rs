//! The quantity of the full model, which an ablation changes.

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::gain::{groups, interval};
use crate::analysis::Sample;

/// The quantity of the full model at each target, with the group of each target.
pub(super) struct FullValues {
    values: Vec<f64>,
    groups: Vec<usize>,
}

impl FullValues {
    pub fn new<B: Backend>(bench: &Bench<B>, samples: &[Sample]) -> Self {
        Self { values: bench.values(&bench.full), groups: groups(samples, bench.quantity) }
    }

    /// Returns the group of each target.
    pub fn groups(&self) -> &[usize] {
        &self.groups
    }

    pub fn mean(&self) -> f64 {
        mean(&self.values)
    }

    /// Returns the 95 % interval of the change from these values to the values of an ablation; `None` for a single group.
    pub fn interval(&self, ablated: &[f64]) -> Option<[f64; 2]> {
        let changes = ablated.iter().zip(&self.values).map(|(ablated, full)| ablated - full);
        interval(&changes.collect::<Vec<_>>(), &self.groups)
    }
}
