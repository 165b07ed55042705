//! Layer normalisation (Ba, Kiros and Hinton, 2016, arXiv 1607.06450):
//! `y = (x - mean(x)) / sqrt(var(x) + epsilon) gamma + beta`, over the last axis.

use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, backend};

use super::{Again, Backend, Floats, HostAccess, IntoFloat, Operation, float};
use crate::kernels::norm as kernel;
use crate::kernels::pool;

/// Layer normalisation with Burn's parameter names and records.
///
/// Burn's own module keeps its epsilon to itself, which an operation that is to be fused needs.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm<B: backend::Backend> {
    /// The scale, `[d_model]`, ones at first.
    pub gamma: Param<Tensor<B, 1>>,
    /// The shift, `[d_model]`, zeros at first; absent in models without biases.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// What is added to the variance before the root.
    pub epsilon: f64,
}

impl<B: backend::Backend> LayerNorm<B> {
    /// A norm over an axis of `d_model` elements, which changes only mean and variance at first.
    pub fn new(d_model: usize, epsilon: f64, bias: bool, device: &B::Device) -> Self {
        Self {
            gamma: Initializer::Ones.init([d_model], device),
            beta: bias.then(|| Initializer::Zeros.init([d_model], device)),
            epsilon,
        }
    }
}

impl<B: Backend> LayerNorm<B> {
    /// Normalises over the last axis.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out, for any leading axes.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        layer_norm(self, input)
    }
}

impl<B: backend::Backend> ModuleDisplay for LayerNorm<B> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content.add("d_model", &d_model).add("epsilon", &self.epsilon).optional()
    }
}

/// Normalises over the last axis, then scales and shifts; see [`LayerNorm`].
///
/// # Shapes
/// `[batch, time, d_model]`, in and out, for any leading axes.
pub fn layer_norm<B: Backend, const D: usize>(norm: &LayerNorm<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let beta = norm.beta.as_ref().map(|beta| beta.val().into_float());
    float(run::<B>(input.into_float(), norm.gamma.val().into_float(), beta, norm.epsilon))
}

fn run<B: Backend>(
    input: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: Option<FloatTensor<B>>,
    epsilon: f64,
) -> FloatTensor<B> {
    match Fused::new(B::host(&input), B::host(&gamma), beta.as_ref().map(B::host), epsilon) {
        Some(operation) => B::run(operation, &[Some(input), Some(gamma), beta]),
        None => B::layer_norm(input, gamma, beta, epsilon),
    }
}

#[derive(Debug, Clone)]
struct Fused<B: HostAccess> {
    input: Floats<B>,
    gamma: Floats<B>,
    beta: Option<Floats<B>>,
    epsilon: f64,
    /// Mean and inverse deviation of each row.
    statistics: Option<[Floats<B>; 2]>,
}

impl<B: HostAccess> Fused<B> {
    fn new(
        input: &FloatTensor<B>,
        gamma: &FloatTensor<B>,
        beta: Option<&FloatTensor<B>>,
        epsilon: f64,
    ) -> Option<Self> {
        let (input, gamma, beta) = (Floats::new(input)?, Floats::new(gamma)?, Floats::optional(beta)?);
        Some(Self { input, gamma, beta, epsilon, statistics: None })
    }

    fn kernel(&self) -> kernel::LayerNorm<'_> {
        let beta = self.beta.as_ref().map(Floats::slice);
        kernel::LayerNorm { gamma: self.gamma.slice(), beta, epsilon: self.epsilon as f32 }
    }
}

impl<B: HostAccess> Operation<B> for Fused<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let input = self.input.slice();
        let rows = input.len() / self.input.width();
        let [mut output, mut mean, mut inverse_deviation] = [input.len(), rows, rows].map(pool::take);
        let statistics = kernel::Statistics { mean: &mut mean, inverse_deviation: &mut inverse_deviation };
        kernel::forward(&self.kernel(), input, statistics, &mut output);
        if keep {
            let statistics = [mean, inverse_deviation].map(|values| self.input.keep(values, [rows]));
            self.statistics = Some(statistics);
        }
        self.input.place(output, self.input.shape())
    }

    fn backward(self, gradient: &Floats<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let [mean, inverse_deviation] = self.statistics.as_ref().expect("forward has run");
        let width = self.gamma.slice().len();
        let mut for_input = pool::take(self.input.slice().len());
        let mut for_gamma = pool::take(width);
        let mut for_beta = (self.beta.is_some() && wanted[2]).then(|| pool::take(width));
        let gradients =
            kernel::Gradients { input: &mut for_input, gamma: &mut for_gamma, beta: for_beta.as_deref_mut() };
        let statistics = (mean.slice(), inverse_deviation.slice());
        kernel::backward(&self.kernel(), self.input.slice(), statistics, gradient.slice(), gradients);
        let gradients = vec![
            Some(self.input.place(for_input, self.input.shape())),
            Some(self.gamma.place(for_gamma, [width])),
            for_beta.map(|values| self.gamma.place(values, [width])),
        ];
        self.input.recycle();
        self.statistics.into_iter().flatten().for_each(Floats::recycle);
        gradients
    }

    /// A norm is cheap, and its result as large as its input.
    fn again(&self) -> Option<Again<B>> {
        let epsilon = self.epsilon;
        Some(Box::new(move |inputs| {
            let norm = Self::new(&inputs[0], &inputs[1], inputs.get(2), epsilon);
            norm.expect("what was served once is served again").forward(false)
        }))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn_autodiff::Autodiff;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::testing::random;
    use crate::ops::agreement::*;
    use crate::ops::linear::{Layer, activated};
    use crate::ops::{AutodiffBackend, Gelu, feed_forward};

    /// The input of a norm. Each value lies far from the next: where those of a row hardly differ, nothing is
    /// left of them but the rounding of their mean.
    fn uneven<B: AutodiffBackend>(seed: u64, [rows, width]: [usize; 2]) -> Tensor<B, 3> {
        let mut values = random(seed, rows * width);
        for row in values.chunks_mut(width) {
            row.iter_mut().step_by(2).for_each(|value| *value += 3.0);
        }
        Tensor::from_data(TensorData::new(values, [1, rows, width]), &Default::default()).require_grad()
    }

    fn norm_agrees<B: AutodiffBackend>([rows, width]: [usize; 2], bias: bool, seed: u64) {
        check("norm", || {
            let input = uneven::<B>(seed, [rows, width]);
            let gamma = leaf::<B, 1>(seed + 1, [width]).require_grad();
            let beta = bias.then(|| leaf::<B, 1>(seed + 2, [width]).require_grad());
            let output = float::<B, 3>(run::<B>(
                input.clone().into_float(),
                gamma.clone().into_float(),
                beta.clone().map(IntoFloat::into_float),
                1e-5,
            ));
            let inner = float::<B::InnerBackend, 3>(run::<B::InnerBackend>(
                input.clone().inner().into_float(),
                gamma.clone().inner().into_float(),
                beta.clone().map(|beta| beta.inner().into_float()),
                1e-5,
            ));
            match &beta {
                Some(beta) => outcome!(output, inner, [input, gamma, beta]),
                None => outcome!(output, inner, [input, gamma]),
            }
        });
    }

    /// Linear layers compute the norm before them again for their gradients: `tracked` says whether scale and
    /// shift have gradients themselves, without which it is kept.
    fn norm_before_linear_layers_agrees<B: AutodiffBackend>(
        [rows, width]: [usize; 2],
        tracked: bool,
        seed: u64,
    ) {
        check("norm before linear layers", || {
            let input = uneven::<B>(seed, [rows, width]);
            let parameter = |seed| {
                let parameter = leaf::<B, 1>(seed, [width]);
                if tracked { parameter.require_grad() } else { parameter }
            };
            let (gamma, beta) = (parameter(seed + 1), parameter(seed + 2));
            let weight = leaf::<B, 2>(seed + 3, [width, width]).require_grad();
            let normed = float::<B, 3>(run::<B>(
                input.clone().into_float(),
                gamma.clone().into_float(),
                Some(beta.clone().into_float()),
                1e-5,
            ));
            let layer = || Layer { weight: weight.clone().into_float(), bias: None };
            let normed = || normed.clone().into_float();
            let linear = |form| float::<B, 3>(activated::<B>(normed(), layer(), form));
            let feed_forward = feed_forward::run::<B>(normed(), [layer(), layer()], Gelu::Erf, normed(), 0.0);
            let feed_forward = float::<B, 3>(feed_forward);
            let output = linear(None) + linear(Some(Gelu::Tanh)) + feed_forward;
            match tracked {
                true => outcome!(output.clone(), output.inner(), [input, weight, gamma, beta]),
                false => outcome!(output.clone(), output.inner(), [input, weight]),
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn norms_agree(sizes in [1usize..131, 1usize..70], bias: bool, seed in 0u64..1_000) {
            norm_agrees::<Ndarray>(sizes, bias, seed);
            norm_agrees::<Flexible>(sizes, bias, seed);
        }

        #[test]
        fn norms_before_linear_layers_agree(
            sizes in [1usize..131, 5usize..70], tracked: bool, seed in 0u64..1_000,
        ) {
            norm_before_linear_layers_agrees::<Ndarray>(sizes, tracked, seed);
            norm_before_linear_layers_agrees::<Flexible>(sizes, tracked, seed);
        }
    }

    #[test]
    fn the_graph_keeps_no_norm_for_the_layer_behind_it() {
        fn is_free<B: HostAccess>() -> bool {
            type Differentiated<B> = Autodiff<B>;
            let parameter = |seed| leaf::<Differentiated<B>, 1>(seed, [11]).require_grad().into_float();
            let input = leaf::<Differentiated<B>, 2>(3, [7, 11]).require_grad();
            let normed = run::<Differentiated<B>>(input.into_float(), parameter(1), Some(parameter(2)), 1e-5);
            let weight = leaf::<Differentiated<B>, 2>(4, [11, 5]).require_grad().into_float();
            let layer = Layer { weight, bias: None };
            let output = activated::<Differentiated<B>>(normed.clone(), layer, None);
            let is_free = B::into_floats(normed.primitive).is_ok();
            drop(output);
            is_free
        }
        assert!(is_free::<NdArray>() && is_free::<Flex>());
    }

    #[test]
    fn transposed_and_cut_tensors_are_read_as_they_stand() {
        fn agrees<B: AutodiffBackend>() {
            check("norm of a transposed part", || {
                let input = leaf::<B, 3>(1, [7, 5, 11]).require_grad();
                let part = input.clone().swap_dims(0, 1).narrow(1, 2, 3); // [5, 3, 11]
                let gamma = leaf::<B, 1>(2, [11]).into_float();
                let norm = |part: Tensor<B, 3>| {
                    float::<B, 3>(run::<B>(part.into_float(), gamma.clone(), None, 1e-5))
                };
                let output = norm(part);
                outcome!(output.clone(), output.inner(), [input])
            });
        }
        agrees::<Ndarray>();
        agrees::<Flexible>();
    }
}
