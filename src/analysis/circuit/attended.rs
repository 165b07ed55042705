//! The tokens that a head attends to at the target of a prompt.

use burn::tensor::backend::Backend;

use super::bench::Bench;
use super::explanation::AttendedToken;
use super::pass::Site;
use super::question::Quantity;
use crate::analysis::Sample;
use crate::analysis::head::uniform_weights;
use crate::analysis::view::floats;

/// The minimum weight of a token that is named, unless its weight is the largest, and the maximum number of these tokens.
const MIN_WEIGHT: f32 = 0.1;
const MAX_TOKENS: usize = 3;

impl<B: Backend> Bench<'_, B> {
    /// Returns the tokens that a self-attention head attends to at the last position of a single prompt, by descending
    /// weight. Empty for other components and questions.
    pub fn attended(&self, site: Site, samples: &[Sample]) -> Vec<AttendedToken> {
        let ([rows, time], Site::Head(layer, head)) = (self.batch.targets.dims(), site) else {
            return Vec::new();
        };
        if rows > 1 || self.quantity == Quantity::Loss {
            return Vec::new();
        }
        let pattern = self.full.at(Site::Pattern(layer, head)).narrow(1, time - 1, 1);
        let mut weights: Vec<(usize, f32)> = floats(pattern).into_iter().enumerate().collect();
        weights.sort_by(|a, b| b.1.total_cmp(&a.1));
        let largest =
            weights.iter().enumerate().filter(|(rank, (_, weight))| *rank == 0 || *weight >= MIN_WEIGHT);
        let uniform = uniform_weights(&samples[0], self.model.config.window_of(layer));
        let token = |&(position, weight): &(usize, f32)| AttendedToken {
            position,
            weight: weight.into(),
            chance: uniform[(time - 1) * time + position].into(),
        };
        largest.take(MAX_TOKENS).map(|(_, it)| token(it)).collect()
    }
}
