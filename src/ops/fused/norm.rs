//! Layer normalisation.

use burn::tensor::ops::FloatTensor;

use super::Operation;
use crate::kernels::norm::{Gradients, LayerNorm, Statistics, backward, forward};
use crate::kernels::pool;
use crate::ops::Backend;
use crate::ops::host::Floats;

/// A norm over the last axis.
#[derive(Debug, Clone)]
pub struct Norm<B: Backend> {
    input: Floats<B>,
    gamma: Floats<B>,
    beta: Option<Floats<B>>,
    epsilon: f32,
    /// Mean and inverse deviation of each row.
    statistics: Option<[Floats<B>; 2]>,
}

/// The norm; the inputs of its gradient are input, gamma, and beta if there is one.
pub fn norm<B: Backend>(
    input: &FloatTensor<B>,
    gamma: &FloatTensor<B>,
    beta: Option<&FloatTensor<B>>,
    epsilon: f64,
) -> Option<Norm<B>> {
    let beta = match beta {
        Some(beta) => Some(Floats::new(beta)?),
        None => None,
    };
    let (input, gamma) = (Floats::new(input)?, Floats::new(gamma)?);
    Some(Norm { input, gamma, beta, epsilon: epsilon as f32, statistics: None })
}

impl<B: Backend> Norm<B> {
    fn layer(&self) -> LayerNorm<'_> {
        let beta = self.beta.as_ref().map(Floats::slice);
        LayerNorm { gamma: self.gamma.slice(), beta, epsilon: self.epsilon }
    }
}

impl<B: Backend> Operation<B> for Norm<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let input = self.input.slice();
        let rows = input.len() / self.input.width();
        let [mut output, mut mean, mut inverse_deviation] = [input.len(), rows, rows].map(pool::take);
        let statistics = Statistics { mean: &mut mean, inverse_deviation: &mut inverse_deviation };
        forward(&self.layer(), input, statistics, &mut output);
        if keep {
            let statistics = [mean, inverse_deviation].map(|values| self.input.keep(values, [rows]));
            self.statistics = Some(statistics);
        }
        self.input.place(output, self.input.shape())
    }

    fn backward(self, gradient: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let [mean, inverse_deviation] = self.statistics.as_ref().expect("forward has run");
        let width = self.gamma.slice().len();
        let mut for_input = pool::take(self.input.slice().len());
        let mut for_gamma = pool::take(width);
        let mut for_beta = (self.beta.is_some() && wanted[2]).then(|| pool::take(width));
        let gradients =
            Gradients { input: &mut for_input, gamma: &mut for_gamma, beta: for_beta.as_deref_mut() };
        let statistics = (mean.slice(), inverse_deviation.slice());
        backward(&self.layer(), self.input.slice(), statistics, gradient.slice(), gradients);
        let mut gradients = vec![
            Some(self.input.place(for_input, self.input.shape())),
            Some(self.gamma.place(for_gamma, [width])),
        ];
        if self.beta.is_some() {
            gradients.push(for_beta.map(|values| self.gamma.place(values, [width])));
        }
        gradient.recycle();
        self.input.recycle();
        self.statistics.into_iter().flatten().for_each(Floats::recycle);
        gradients
    }
}
