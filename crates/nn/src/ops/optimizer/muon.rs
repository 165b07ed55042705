//! The Muon optimizer.

use burn::tensor::{Tensor, backend::Backend};

use super::{Flat, Kernel, Moments, Numbers, Update, UpdateRule, update_mean};
use crate::kernels::muon as kernel;
use crate::ops::precision::{matmul, precision};

/// Muon (Jordan et al., 2024) for concatenated matrices `[rows, sum of columns]`, each of which is updated separately:
/// see [`kernels::muon`](crate::kernels::muon).
#[derive(Debug, Clone, PartialEq)]
pub struct Muon {
    /// The decay rate of the momentum.
    pub momentum: f64,
    /// The number of columns of each matrix.
    pub columns: Vec<usize>,
}

impl UpdateRule for Muon {
    const MOMENTS: usize = 1;

    const KERNEL: Option<Kernel<Self>> = Some(run);

    fn update<B: Backend>(&self, update: &Update, parameter: Flat<B>) -> (Tensor<B, 1>, Moments<B>) {
        let Flat { weights, gradient, first, weight_decay, .. } = parameter;
        let Self { momentum, ref columns } = *self;
        let new = gradient.clone() * (1.0 - momentum);
        let first = update_mean(first, momentum, gradient);
        let change = orthogonal(first.clone() * momentum + new, columns);
        let weights = weights * (1.0 - update.learning_rate * weight_decay);
        (weights - change * update.learning_rate, Moments { first, second: None })
    }
}

fn run(update: &Update, norm: f64, mut parameters: Vec<(&Muon, Numbers<'_>)>) {
    let Update { learning_rate, max_norm, .. } = *update;
    // The kernels do not support f16.
    let precision = precision().kernel_precision().unwrap_or_default();
    for group in parameters.chunk_by_mut(|one, other| one.0.momentum == other.0.momentum) {
        let settings = kernel::Muon { learning_rate, momentum: group[0].0.momentum, max_norm, precision };
        let numbers = group.iter_mut().map(|(rule, numbers)| kernel::Matrices {
            values: numbers.weights,
            gradient: numbers.gradient,
            momentum: numbers.first,
            widths: &rule.columns,
            weight_decay: numbers.weight_decay,
        });
        kernel::step(&settings, norm, &mut numbers.collect::<Vec<_>>());
    }
}

/// Returns Muon's update of concatenated matrices from their momentum, at a learning rate of one.
fn orthogonal<B: Backend>(momentum: Tensor<B, 1>, widths: &[usize]) -> Tensor<B, 1> {
    let columns = widths.iter().sum::<usize>();
    let rows = momentum.dims()[0] / columns;
    let orthogonalise = |x: Tensor<B, 2>| {
        let [rows, columns] = x.dims();
        let norm = (x.clone() * x.clone()).sum().sqrt() + kernel::EPSILON;
        let x = x / norm.unsqueeze();
        let mut x = if rows <= columns { x } else { x.transpose() };
        let [a, b, c] = kernel::COEFFICIENTS;
        for _ in 0..kernel::ITERATIONS {
            let gram = matmul(x.clone(), x.clone().transpose());
            let polynomial = gram.clone() * b + matmul(gram.clone(), gram) * c;
            x = x.clone() * a + matmul(polynomial, x);
        }
        let x = if rows <= columns { x } else { x.transpose() };
        x * kernel::scale(rows, columns)
    };
    let parts = momentum.reshape([rows, columns]).split_with_sizes(widths.to_vec(), 1);
    Tensor::cat(parts.into_iter().map(orthogonalise).collect(), 1).reshape([rows * columns])
}
