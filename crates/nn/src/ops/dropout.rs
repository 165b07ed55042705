//! Dropout (Srivastava et al., 2014): in training each element is set to zero with probability `p`, and the others are
//! scaled by `1 / (1 - p)`, which preserves the expectation.

use std::cell::Cell;

use burn::nn::Dropout;
use burn::tensor::{Distribution, Int, Tensor, backend::Backend};

use super::fused::{self, fused};
use super::host::Floats;
use super::operation::{Input, One, Operation};
use crate::kernels::{dropout as kernel, pool};

/// Applies dropout on differentiable backends only; inference runs on the inner backend, without dropout.
///
/// # Shapes
/// Any shape, in and out.
pub fn dropout<B: Backend, const D: usize>(layer: &Dropout, input: Tensor<B, D>) -> Tensor<B, D> {
    run(input, layer.prob)
}

thread_local! {
    /// The state of the generator of [`next_seed`], for masks that the backward pass draws again.
    static SEED: Cell<u64> = const { Cell::new(0) };
    /// True if every mask is seeded by `SEED`, and none by the backend's generator.
    static USES_THREAD_SEED: Cell<bool> = const { Cell::new(false) };
}

/// Seeds all random numbers that this thread draws on a device, including masks that the backward pass draws again.
pub fn seed<B: Backend>(device: &B::Device, seed: u64) {
    SEED.set(seed);
    USES_THREAD_SEED.set(false);
    B::seed(device, seed);
}

/// Seeds the random numbers of this thread independently of other threads, although CPU backends share one generator.
/// Valid only if [`is_on_host`](super::is_on_host).
pub fn seed_this_thread(seed: u64) {
    SEED.set(seed);
    USES_THREAD_SEED.set(true);
}

/// Returns a seed for a mask that the backward pass draws again, which the backend's generator cannot do. Seeds never
/// repeat, as the numbers of a splitmix64 generator never do (Steele et al., 2014).
pub(crate) fn next_seed() -> u64 {
    let seed = SEED.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    SEED.set(seed);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(super) fn run<B: Backend, const D: usize>(input: Tensor<B, D>, probability: f64) -> Tensor<B, D> {
    if probability == 0.0 || !B::ad_enabled(&input.device()) {
        return input;
    }
    let inputs = One { input: fused::input(&input) };
    let output = fused(inputs, |_| Some(Fused(draw::<B>(probability, &input.device())?)));
    output.unwrap_or_else(|| reference(input, probability))
}

pub(super) fn reference<B: Backend, const D: usize>(input: Tensor<B, D>, probability: f64) -> Tensor<B, D> {
    Dropout { prob: probability }.forward(input)
}

/// Draws a mask with a seed from the backend's generator or, after [`seed_this_thread`], from the generator of this
/// thread. Returns `None` if nothing is dropped.
pub(super) fn draw<B: Backend>(probability: f64, device: &B::Device) -> Option<kernel::Dropout> {
    (probability > 0.0 && B::ad_enabled(device)).then(|| {
        if USES_THREAD_SEED.get() {
            return kernel::Dropout { probability: probability as f32, seed: next_seed() };
        }
        let parts = Tensor::<B, 1, Int>::random([4], Distribution::Uniform(0.0, 65_536.0), device);
        let seed = parts.into_data().iter::<i64>().fold(0, |seed, part| seed << 16 | part as u64);
        kernel::Dropout { probability: probability as f32, seed }
    })
}

#[derive(Debug, Clone)]
struct Fused(kernel::Dropout);

impl Fused {
    fn apply(&self, values: &Floats) -> Floats {
        let mut output = pool::take(values.slice().len());
        kernel::apply(self.0, values.width(), values.slice(), &mut output);
        values.with_values(output, values.shape())
    }
}

impl Operation<1> for Fused {
    type Inputs<T> = One<T>;
    type Saved = ();

    const BACKWARD_INPUTS: One<bool> = One { input: false };

    fn forward(&self, One { input }: &One<Input>) -> (Floats, ()) {
        (self.apply(input), ())
    }

    fn backward(&self, _inputs: &One<Input>, (): (), gradient: &Floats) -> One<Option<Floats>> {
        One { input: Some(self.apply(gradient)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::*;

    #[test]
    fn gradient_uses_the_forward_dropout_mask() {
        fn agrees<B: AutodiffBackend>() {
            let device = Default::default();
            let input = Tensor::<B, 2>::ones([211, 103], &device).require_grad();
            let output = run(input.clone(), 0.25);
            let gradient = input.grad(&output.clone().sum().backward()).unwrap();
            let output = numbers(output);
            assert_eq!(output, numbers(gradient));
            let dropped = output.iter().filter(|&&value| value == 0.0).count() as f64 / output.len() as f64;
            // Six standard deviations.
            assert!((dropped - 0.25).abs() < 6.0 * (0.25 * 0.75 / output.len() as f64).sqrt(), "{dropped}");
            assert!(output.iter().all(|&value| value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-6));
        }
        agrees::<AutodiffNdArray>();
        agrees::<AutodiffFlex>();
    }
}
