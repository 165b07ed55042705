//! The device health check: small decoders on a device, compared with the same decoders on reference operations (Burn's
//! own) on the CPU.

mod measurement;

use burn::tensor::backend::AutodiffBackend;
use burn::{nn::DropoutConfig, prelude::*};
use burn_autodiff::Autodiff;

use super::{Device, Job, run};
use crate::error::Result;
use crate::ops::{self, Kernels};
use crate::weights::native;
use measurement::{Measurement, configs, decoder};

#[cfg(feature = "ndarray")]
type Reference = Autodiff<burn_ndarray::NdArray>;
#[cfg(not(feature = "ndarray"))]
type Reference = Autodiff<burn_flex::Flex>;

/// The largest difference that passes, relative to the largest value. A GPU's matrix units may round factors to 11 bits
/// (TF32), 5e-4 each; a wrong operation differs by much more.
const MAX_DIFFERENCE: f64 = 5e-3;
/// The dropout probability of the check.
const DROPOUT_RATE: f64 = 0.25;
/// The number of elements of the dropout check.
const DROPOUT_ELEMENTS: usize = 1 << 16;
/// The largest deviation of the dropped share that passes: six standard deviations.
const MAX_DROPOUT_DIFFERENCE: f64 = 0.0102;
/// Matrix products `[rows, inner, columns]` whose sizes are mostly not multiples of a large power of two: kernels cut
/// them into tiles, and errors occur in the remainders at the edges.
const PRODUCT_SIZES: [[usize; 3]; 5] =
    [[520, 520, 8], [1024, 32, 1024], [1024, 104, 208], [600, 8, 600], [257, 48, 1]];

/// The result of a device health check.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The comparison of each quantity.
    pub parts: Vec<CheckedPart>,
    /// The share of elements zeroed by dropout, which varies by chance.
    pub dropout: CheckedPart,
}

/// One quantity, compared with the reference.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CheckedPart {
    /// The name of the quantity.
    pub what: String,
    /// The largest difference relative to the largest value; for dropout, the difference of the dropped share.
    pub difference: f64,
    /// The largest difference that passes.
    pub limit: f64,
}

impl CheckedPart {
    /// Returns true if the difference is within the limit; NaN is not.
    pub fn passes(&self) -> bool {
        self.difference <= self.limit
    }
}

impl Check {
    /// Returns true if every part passes.
    pub fn passes(&self) -> bool {
        self.parts.iter().chain([&self.dropout]).all(CheckedPart::passes)
    }

    /// Returns the part with the largest difference, not counting dropout.
    pub fn worst(&self) -> &CheckedPart {
        // `total_cmp` ranks NaN above every number.
        let worst = self.parts.iter().max_by(|a, b| a.difference.abs().total_cmp(&b.difference.abs()));
        worst.expect("a check has parts")
    }
}

/// Checks logits, loss, every gradient, two optimizer steps, matrix products and dropout on `device`.
///
/// # Errors
/// Returns an error if the device does not start, or fails.
pub fn check(device: &Device) -> Result<Check> {
    struct Compare;
    impl Job for Compare {
        type Output = Check;

        fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Check> {
            compare::<B>(&device, |_| ())
        }
    }

    run(device, Compare)
}

/// Checks the backend `B`, with its results modified by `alter`.
fn compare<B: AutodiffBackend>(device: &B::Device, alter: impl Fn(&mut Measurement)) -> Result<Check> {
    let reference_device = Default::default();
    let mut parts = Vec::new();
    for (config, of) in configs().iter().zip(["", " of the gated decoder"]) {
        let (start, expected) = Kernels::Reference.run(|| -> Result<_> {
            Reference::seed(&reference_device, 7);
            let start = native::collect(&decoder::<Reference>(config, &reference_device)?)?;
            let expected = Measurement::new::<Reference>(config, &start, None, &reference_device)?;
            Ok((start, expected))
        })?;
        let mut found = Measurement::new::<B>(config, &start, Some(&expected.gradients), device)?;
        alter(&mut found);
        let found = found.compare(&expected).into_iter();
        parts.extend(found.map(|part| CheckedPart { what: part.what + of, ..part }));
    }
    for size in PRODUCT_SIZES {
        let [rows, inner, columns] = size;
        let what = format!("product of {rows} x {inner} and {inner} x {columns}");
        let expected = product::<Reference>(size, &reference_device);
        parts.push(CheckedPart::of(&what, &product::<B>(size, device), &expected, 0.0));
    }
    let layer = DropoutConfig::new(DROPOUT_RATE).init();
    let dropout = dropout::<B>(|input| ops::dropout(&layer, input), device);
    Ok(Check { parts, dropout })
}

impl CheckedPart {
    fn of(what: &str, found: &TensorData, expected: &TensorData, min_scale: f64) -> Self {
        let scale = largest(expected).max(min_scale);
        let same_shape = found.shape == expected.shape;
        let differences = found.iter::<f64>().zip(expected.iter::<f64>()).map(|(a, b)| (a - b).abs());
        // NaN if any difference is NaN.
        let largest =
            differences.fold(0.0, |max: f64, next| if next > max || next.is_nan() { next } else { max });
        let difference = if same_shape { largest / scale } else { f64::INFINITY };
        Self { what: what.to_string(), difference, limit: MAX_DIFFERENCE }
    }
}

fn largest(data: &TensorData) -> f64 {
    data.iter::<f64>().map(f64::abs).fold(0.0, f64::max)
}

/// Computes the products of two batches of matrices, of which the second is transposed in memory.
fn product<B: Backend>([rows, inner, columns]: [usize; 3], device: &B::Device) -> TensorData {
    const BATCHES: usize = 3;
    let matrices = |rows: usize, columns: usize, period: i64| {
        let values = Tensor::<B, 1, Int>::arange(0..(BATCHES * rows * columns) as i64, device);
        let values = values.remainder_scalar(period).float() / period as f64 - 0.5;
        values.reshape([BATCHES, rows, columns])
    };
    matrices(rows, inner, 1_009).matmul(matrices(columns, inner, 911).swap_dims(1, 2)).into_data()
}

/// Compares the share of elements zeroed by dropout with its probability. The difference is infinite if kept elements
/// are not scaled, the gradient is wrong, or each call drops the same elements.
fn dropout<B: AutodiffBackend>(
    drop: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>,
    device: &B::Device,
) -> CheckedPart {
    let draw = || {
        let input = Tensor::<B, 1>::ones([DROPOUT_ELEMENTS], device).require_grad();
        let output = drop(input.clone());
        let gradient = input.grad(&output.clone().sum().backward());
        let values = |data: TensorData| data.iter::<f64>().collect::<Vec<_>>();
        (values(output.into_data()), gradient.map(|gradient| values(gradient.into_data())))
    };
    let (values, gradient) = draw();
    let kept = values.iter().filter(|&&value| value != 0.0);
    let is_scaled = kept.clone().all(|value| (value - 1.0 / (1.0 - DROPOUT_RATE)).abs() < 1e-5);
    let share = 1.0 - kept.count() as f64 / DROPOUT_ELEMENTS as f64;
    let is_correct = is_scaled && gradient.as_ref() == Some(&values) && draw().0 != values;
    let difference = if is_correct { (share - DROPOUT_RATE).abs() } else { f64::INFINITY };
    CheckedPart { what: "dropout".to_string(), difference, limit: MAX_DROPOUT_DIFFERENCE }
}

#[cfg(all(test, feature = "ndarray"))]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn fused_kernels_pass_the_check() {
        let check = compare::<Autodiff<NdArray>>(&Default::default(), |_| ()).unwrap();
        assert!(check.passes(), "{check:?}");
        // Far below the limit, which is meant for GPUs.
        for part in &check.parts {
            assert!(part.difference < 1e-4, "{part:?}");
        }
        assert!(check.parts.iter().any(|part| part.what.starts_with("gradient of")));
    }

    #[test]
    fn a_broken_operation_is_caught() {
        // Maps every token to the first one, which then receives the gradients of all tokens.
        let check = compare::<Autodiff<NdArray>>(&Default::default(), |found| {
            let (name, gradient) = &mut found.gradients[0];
            assert_eq!(name, "embedding.token.weight");
            let [vocab, d_model] = gradient.shape[..] else { panic!("a table has two axes") };
            let mut values = gradient.iter::<f32>().collect::<Vec<_>>();
            for i in d_model..vocab * d_model {
                values[i % d_model] += std::mem::take(&mut values[i]);
            }
            *gradient = TensorData::new(values, [vocab, d_model]);
        });
        let check = check.unwrap();
        assert!(!check.passes() && check.dropout.passes());
        assert_eq!(check.worst().what, "gradient of embedding.token.weight");
    }

    #[test]
    fn one_wrong_value_is_traced_to_its_tensor() {
        type Plain = Autodiff<NdArray>;
        let device = Default::default();
        let [config, _] = configs();
        let start = native::collect(&decoder::<Plain>(&config, &device).unwrap()).unwrap();
        let right = Measurement::new::<Plain>(&config, &start, None, &device).unwrap();
        assert!(right.compare(&right).iter().all(|part| part.difference == 0.0));
        let wrong_in = |alter: &dyn Fn(&mut Measurement) -> &mut TensorData| {
            let mut found = right.clone();
            let data = alter(&mut found);
            let largest = largest(data) as f32;
            let mut values = data.iter::<f32>().collect::<Vec<_>>();
            *values.last_mut().unwrap() += 0.02 * largest;
            *data = TensorData::new(values, data.shape.clone());
            let parts = found.compare(&right);
            let wrong = parts.into_iter().filter(|part| !part.passes()).map(|part| part.what);
            wrong.collect::<Vec<_>>()
        };
        assert_eq!(wrong_in(&|found| &mut found.logits), ["logits"]);
        assert_eq!(wrong_in(&|found| &mut found.loss), ["loss"]);
        for (index, (name, _)) in start.iter().enumerate() {
            let step = wrong_in(&|found| &mut found.updates[index].1);
            assert_eq!(step, [format!("optimizer step of {name}")]);
        }
        let of_table = wrong_in(&|found| &mut found.gradients[0].1);
        assert_eq!(of_table, [format!("gradient of {}", right.gradients[0].0)]);
    }

    #[test]
    fn broken_dropout_is_caught() {
        type Plain = Autodiff<NdArray>;
        let device = Default::default();
        let layer = DropoutConfig::new(DROPOUT_RATE).init();
        let half = DropoutConfig::new(0.5).init();
        let passes =
            |drop: &dyn Fn(Tensor<Plain, 1>) -> Tensor<Plain, 1>| dropout::<Plain>(drop, &device).passes();
        assert!(passes(&|input| ops::dropout(&layer, input)));
        assert!(!passes(&|input| input), "nothing is dropped");
        assert!(!passes(&|input| ops::dropout(&half, input)), "too much is dropped");
        assert!(!passes(&|input| ops::dropout(&layer, input) * 0.75), "kept elements are not scaled");
        assert!(!passes(&|input| ops::dropout(&layer, input.detach())), "no gradient");
        let mask = ops::dropout(&layer, Tensor::ones([DROPOUT_ELEMENTS], &device)).detach();
        assert!(!passes(&|input| input * mask.clone()), "the same elements are dropped every time");
    }

    #[test]
    fn nan_and_missing_values_fail() {
        let data = |values: &[f32]| TensorData::new(values.to_vec(), [values.len()]);
        let expected = data(&[2.0, -4.0]);
        assert_eq!(CheckedPart::of("it", &data(&[2.0, -3.0]), &expected, 0.0).difference, 0.25);
        for wrong in [data(&[f32::NAN, -4.0]), data(&[])] {
            assert!(!CheckedPart::of("it", &wrong, &expected, 0.0).passes());
        }
    }
}
