//! Adam and AdamW.

use burn::tensor::{Tensor, backend::Backend};

use super::{Flat, Kernel, Moments, Numbers, Update, UpdateRule, update_mean};
use crate::kernels::optimizer as kernel;

/// Adam (Kingma and Ba, 2015, algorithm 1), `w - rate m / (sqrt(v) + epsilon)` with bias-corrected moments; with weight
/// decay, AdamW (Loshchilov and Hutter, 2019).
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    /// The decay rate of the first moment.
    pub beta1: f64,
    /// The decay rate of the second moment.
    pub beta2: f64,
    /// The number added to the denominator.
    pub epsilon: f64,
}

impl UpdateRule for Adam {
    const MOMENTS: usize = 2;

    const KERNEL: Option<Kernel<Self>> = Some(run);

    fn update<B: Backend>(&self, update: &Update, parameter: Flat<B>) -> (Tensor<B, 1>, Moments<B>) {
        let Flat { weights, gradient, first, second, weight_decay } = parameter;
        let Self { beta1, beta2, epsilon } = *self;
        let weights = weights * (1.0 - update.learning_rate * weight_decay);
        let square = gradient.clone() * gradient.clone();
        let (first, second) = (update_mean(first, beta1, gradient), update_mean(second, beta2, square));
        let [correction1, correction2] = [beta1, beta2].map(|beta| 1.0 - beta.powi(update.step as i32));
        let denominator = second.clone().sqrt() / correction2.sqrt() + epsilon;
        let change = first.clone() / denominator * (update.learning_rate / correction1);
        (weights - change, Moments { first, second: Some(second) })
    }
}

fn run(update: &Update, norm: f64, mut parameters: Vec<(&Adam, Numbers<'_>)>) {
    let Update { learning_rate, step, max_norm } = *update;
    for group in parameters.chunk_by_mut(|one, other| one.0 == other.0) {
        let Adam { beta1: beta_1, beta2: beta_2, epsilon } = *group[0].0;
        let settings = kernel::AdamW {
            learning_rate,
            beta_1,
            beta_2,
            epsilon: epsilon as f32,
            step: step as u32,
            max_norm,
        };
        let numbers = group.iter_mut().map(|(_, numbers)| kernel::Parameter {
            values: numbers.weights,
            gradient: numbers.gradient,
            first_moment: numbers.first,
            second_moment: numbers.second.as_deref_mut().expect("Adam keeps two moments"),
            weight_decay: numbers.weight_decay as f32,
        });
        kernel::step(&settings, norm, &mut numbers.collect::<Vec<_>>());
    }
}
