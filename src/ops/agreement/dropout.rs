//! Dropout, by its statistics and by equal masks forward and backward.

use super::*;

#[test]
fn a_gradient_passes_through_the_mask_of_its_dropout() {
    fn agrees<B: AutodiffBackend>() {
        let device = Default::default();
        let input = Tensor::<B, 2>::ones([211, 103], &device).require_grad();
        let output = float::<B, 2>(B::dropout(input.clone().into_float(), 0.25));
        let gradient = input.grad(&output.clone().sum().backward()).unwrap();
        let output = numbers(output);
        assert_eq!(output, numbers(gradient));
        let dropped = output.iter().filter(|&&value| value == 0.0).count() as f64 / output.len() as f64;
        // Six standard deviations.
        assert!((dropped - 0.25).abs() < 6.0 * (0.25 * 0.75 / output.len() as f64).sqrt(), "{dropped}");
        assert!(output.iter().all(|&value| value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-6));

        // The layer's output is its bias where it is kept, so the bias's gradient counts what is kept.
        let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
        let output = float::<B, 2>(B::linear_residual(
            Tensor::<B, 2>::zeros([211, 5], &device).into_float(),
            Tensor::<B, 2>::zeros([5, 103], &device).into_float(),
            Some(bias.clone().into_float()),
            Tensor::<B, 2>::zeros([211, 103], &device).into_float(),
            0.25,
        ));
        let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
        for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
            assert!((sum - gradient).abs() < 1e-3 && sum > 100.0, "{sum} {gradient}");
        }

        // The same of a feed-forward layer.
        let bias = Tensor::<B, 1>::ones([103], &device).require_grad();
        let zeros = |shape| Tensor::<B, 2>::zeros(shape, &device).into_float();
        let up = Layer { weight: zeros([103, 7]), bias: None };
        let down = Layer { weight: zeros([7, 103]), bias: Some(bias.clone().into_float()) };
        let (input, residual) = (zeros([211, 103]), zeros([211, 103]));
        let output = float::<B, 2>(B::feed_forward(input, up, Gelu::Erf, down, residual, 0.25));
        let gradient = numbers(bias.grad(&output.clone().sum().backward()).unwrap());
        for (sum, gradient) in numbers(output.sum_dim(0)).into_iter().zip(gradient) {
            assert!((sum - gradient).abs() < 1e-3 && (100.0..280.0).contains(&sum), "{sum} {gradient}");
        }

        // With values of one a context is the sum of the weights that are kept, and so is the sum of the
        // values' gradients.
        let ones = || Tensor::<B, 3>::ones([3, 67, 10], &device);
        let value = ones().require_grad();
        let options = AttentionOptions {
            heads: 5,
            key_value_heads: 5,
            mask: Mask::causal(),
            position: ScorePosition::None,
            dropout: 0.25,
        };
        let output = attention(ones(), ones(), value.clone(), options);
        let gradient = value.grad(&output.clone().sum().backward()).unwrap();
        let (kept, gradients) = (output.sum_dim(1), gradient.sum_dim(1));
        for (kept, gradient) in numbers(kept).into_iter().zip(numbers(gradients)) {
            assert!((kept - gradient).abs() < 1e-3 && (40.0..95.0).contains(&kept), "{kept} {gradient}");
        }
    }
    agrees::<Ndarray>();
    agrees::<Flexible>();
}
