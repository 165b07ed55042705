//! Stochastic gradient descent.

use burn::tensor::{Tensor, backend::Backend};

use super::{Flat, Moments, Update, UpdateRule};

/// Stochastic gradient descent with momentum as in PyTorch: `m = momentum m + g`, `w - rate m`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    /// The decay rate of the momentum.
    pub momentum: f64,
}

impl UpdateRule for Sgd {
    const MOMENTS: usize = 1;

    fn update<B: Backend>(&self, update: &Update, parameter: Flat<B>) -> (Tensor<B, 1>, Moments<B>) {
        let Flat { weights, gradient, first, .. } = parameter;
        let first = match first {
            Some(first) => first * self.momentum + gradient,
            None => gradient,
        };
        (weights - first.clone() * update.learning_rate, Moments { first, second: None })
    }
}
