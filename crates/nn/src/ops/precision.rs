//! The precision of matrix products.
//!
//! Mixed precision follows Micikevicius et al. (2018, arXiv 1710.03740). Weights, sums and everything between products
//! stay in single precision; the operands and the result of each product are rounded to half precision. This halves
//! memory traffic and uses the matrix units of GPUs. On CPU backends the kernels round to bf16 and leave the results in
//! single precision.

use std::cell::Cell;

use burn::tensor::{DType, FloatDType, Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use super::fused::run_with_kernels;
use super::host::{self, Floats};
use super::kernels::choose;
use super::operation::{Input, One, Operation};
use crate::choices;
use crate::kernels::{self, pool};

choices! {
    /// The precision to which the operands of a matrix product are rounded.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Precision {
        /// Single precision: no rounding.
        #[default]
        F32,
        /// 8 significant bits with the range of single precision.
        Bf16,
        /// 11 significant bits with a small range, into which gradients are scaled.
        F16,
    }
}

thread_local! {
    static PRECISION: Cell<Precision> = const { Cell::new(Precision::F32) };
}

/// Returns the precision of the calling thread's matrix products.
pub fn precision() -> Precision {
    PRECISION.get()
}

impl Precision {
    /// Returns true if the backend supports this precision on `device`.
    pub fn is_supported<B: Backend>(self, device: &B::Device) -> bool {
        match self.half() {
            None => true,
            Some(FloatDType::BF16) if host::is_readable::<B>() => true,
            Some(half) => B::supports_dtype(device, DType::from(half)),
        }
    }

    /// Returns the corresponding precision of the kernels, or `None` if they do not support it.
    pub fn kernel_precision(self) -> Option<kernels::Precision> {
        match self {
            Self::F32 => Some(kernels::Precision::F32),
            Self::Bf16 => Some(kernels::Precision::Bf16),
            Self::F16 => None,
        }
    }

    /// Runs `work` with its matrix products on this thread in this precision. Their gradients have the same precision,
    /// no matter when and on which thread they are computed.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        choose(&PRECISION, self, work)
    }

    /// Returns the factor by which a mean loss over `targets` is multiplied before its gradient is computed, and by
    /// which the gradient is divided afterwards. The factor is a power of two, so that scaling is exact. The gradient
    /// of one target's logits is then of order one, far from the smallest number in half precision.
    pub fn loss_scale(self, targets: usize) -> f64 {
        /// The maximum factor, which keeps sums over targets far from the largest number in half precision, 65,504.
        const MAX_SCALE: usize = 4_096;
        match self {
            Self::F32 | Self::Bf16 => 1.0,
            Self::F16 => f64::from(1 << targets.clamp(1, MAX_SCALE).ilog2()),
        }
    }

    fn half(self) -> Option<FloatDType> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Some(FloatDType::BF16),
            Self::F16 => Some(FloatDType::F16),
        }
    }
}

/// Returns the matrix product computed in the thread's precision; the result has the precision of `left`.
pub(super) fn matmul<B: Backend, const D: usize>(left: Tensor<B, D>, right: Tensor<B, D>) -> Tensor<B, D> {
    let round = |tensor: &Tensor<B, D>| run_with_kernels(tensor, Round);
    match precision().half() {
        None => left.matmul(right),
        Some(FloatDType::BF16) if host::is_readable::<B>() => round(&left).matmul(round(&right)),
        Some(half) => {
            let original = FloatDType::from(left.dtype());
            left.cast(half).matmul(right.cast(half)).cast(original)
        }
    }
}

/// Rounding to bf16, whose gradient is passed on unchanged.
#[derive(Debug, Clone)]
struct Round;

impl Operation<1> for Round {
    type Inputs<T> = One<T>;
    type Saved = ();

    const BACKWARD_INPUTS: One<bool> = One { input: false };

    fn forward(&self, One { input }: &One<Input>) -> (Floats, ()) {
        let mut rounded = pool::take(input.slice().len());
        kernels::round(input.slice(), &mut rounded);
        (input.with_values(rounded, input.shape()), ())
    }

    fn backward(&self, _inputs: &One<Input>, (): (), gradient: &Floats) -> One<Option<Floats>> {
        One { input: Some(gradient.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, backend::AutodiffBackend};
    use burn_autodiff::Autodiff;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::ops::Kernels;

    /// Compares the result and gradients of a product from the kernels, Burn's operations and single precision.
    fn bf16_agrees<B: AutodiffBackend>() {
        let device = Default::default();
        B::seed(&device, 7);
        let normal = |shape| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let (input, weight, direction) = (normal([67, 131]), normal([131, 29]), normal([67, 29]));
        let outcome = |precision: Precision, kernels: Kernels| {
            let layer = burn::nn::Linear {
                weight: burn::module::Param::from_tensor(weight.clone().detach()),
                bias: None,
            };
            let input = input.clone().detach().require_grad();
            let output = precision.run(|| kernels.run(|| crate::ops::linear(&layer, input.clone())));
            let gradients = (output.clone() * direction.clone()).sum().backward();
            let weight_gradient = layer.weight.val().grad(&gradients).unwrap();
            [output.inner(), input.grad(&gradients).unwrap(), weight_gradient]
        };
        let distance = |a: &[Tensor<B::InnerBackend, 2>; 3], b: &[Tensor<B::InnerBackend, 2>; 3]| {
            [0, 1, 2].map(|i| {
                let largest = b[i].clone().abs().max().into_data().iter::<f64>().next().unwrap();
                let apart =
                    (a[i].clone() - b[i].clone()).abs().max().into_data().iter::<f64>().next().unwrap();
                apart / largest
            })
        };
        let single = outcome(Precision::F32, Kernels::Fused);
        let fused = outcome(Precision::Bf16, Kernels::Fused);
        let reference = outcome(Precision::Bf16, Kernels::Reference);
        let [forward, ..] = distance(&fused, &reference);
        assert!(
            forward < 1e-5,
            "the kernels and the reference round the same operands: relative difference {forward}"
        );
        for half in [&fused, &reference] {
            let apart = distance(half, &single);
            assert!(apart.iter().all(|apart| (1e-4..1e-2).contains(apart)), "{apart:?}");
        }
    }

    #[test]
    fn bf16_rounding_matches_burn_operations() {
        bf16_agrees::<Autodiff<NdArray>>();
        bf16_agrees::<Autodiff<Flex>>();
    }
}
