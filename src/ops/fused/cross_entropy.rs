//! Cross-entropy, summed or target by target.

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor, TensorData, TensorMetadata};

use super::Operation;
use crate::kernels::loss::{CrossEntropy as Kind, backward, forward, score};
use crate::kernels::pool;
use crate::ops::Backend;
use crate::ops::host::{Floats, tensor};

/// No token: what stands at a place that does not count.
const HIDDEN: i64 = i64::MIN;

/// The summed loss of the targets that count.
#[derive(Debug, Clone)]
pub struct CrossEntropy<B: Backend> {
    logits: Floats<B>,
    targets: Vec<i64>,
    kind: Kind,
    log_sum_exp: Option<Floats<B>>,
}

/// The loss; the input of its gradient is the logits.
pub fn cross_entropy<B: Backend>(
    logits: &FloatTensor<B>,
    targets: &IntTensor<B>,
    hidden: Option<&BoolTensor<B>>,
    smoothing: f64,
) -> Option<CrossEntropy<B>> {
    let (logits, targets) = (Floats::new(logits)?, counted::<B>(targets, hidden)?);
    let kind = Kind { ignored: Some(HIDDEN), smoothing: smoothing as f32 };
    Some(CrossEntropy { logits, targets, kind, log_sum_exp: None })
}

/// The loss of each target, zero where it is hidden, and the likeliest token at its place.
pub fn token_scores<B: Backend>(
    logits: &FloatTensor<B>,
    targets: &IntTensor<B>,
    hidden: Option<&BoolTensor<B>>,
) -> Option<(FloatTensor<B>, IntTensor<B>)> {
    let shape = targets.shape();
    let (logits, targets) = (Floats::<B>::new(logits)?, counted::<B>(targets, hidden)?);
    let kind = Kind { ignored: Some(HIDDEN), smoothing: 0.0 };
    let (mut losses, mut likeliest) = (pool::take(targets.len()), vec![0; targets.len()]);
    score(&kind, logits.slice(), &targets, &mut losses, &mut likeliest);
    let device = B::float_device(&logits.tensor());
    let likeliest = Tensor::<B, 2, Int>::from_data(TensorData::new(likeliest, shape.clone()), &device);
    Some((logits.place(losses, shape), likeliest.into_primitive()))
}

/// The targets, with those that do not count marked as such.
fn counted<B: Backend>(targets: &IntTensor<B>, hidden: Option<&BoolTensor<B>>) -> Option<Vec<i64>> {
    let mut targets = B::integers(targets)?.widened();
    if let Some(hidden) = hidden {
        for (target, hidden) in targets.iter_mut().zip(B::bools(hidden)?) {
            if hidden != 0 {
                *target = HIDDEN;
            }
        }
    }
    Some(targets)
}

impl<B: Backend> Operation<B> for CrossEntropy<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let rows = self.targets.len();
        let [mut losses, mut log_sum_exp] = [rows, rows].map(pool::take);
        let loss = forward(&self.kind, self.logits.slice(), &self.targets, &mut losses, &mut log_sum_exp);
        if keep {
            self.log_sum_exp = Some(self.logits.keep(log_sum_exp, [rows]));
        }
        tensor::<B>(vec![loss.sum as f32], [1], &B::float_device(&self.logits.tensor()))
    }

    fn backward(self, gradient: FloatTensor<B>, _wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let scale = Floats::<B>::contiguous(gradient).slice()[0];
        let log_sum_exp = self.log_sum_exp.as_ref().expect("forward has run");
        let mut for_logits = pool::take(self.logits.slice().len());
        let (logits, log_sum_exp) = (self.logits.slice(), log_sum_exp.slice());
        backward(&self.kind, logits, &self.targets, log_sum_exp, scale, &mut for_logits);
        let gradient = self.logits.place(for_logits, self.logits.shape());
        self.logits.recycle();
        self.log_sum_exp.into_iter().for_each(Floats::recycle);
        vec![Some(gradient)]
    }
}
