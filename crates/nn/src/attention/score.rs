//! Scaled dot-product attention (Vaswani et al., 2017, arXiv 1706.03762), as pure functions:
//!
//! ```text
//! scores  = Q K^T                      how well each query and key match
//! weights = softmax(scores / sqrt(d))  each row sums to one
//! context = weights V                  a weighted mean of the values
//! ```
//!
//! Dividing by the square root of the width `d` keeps the variance of the scores near one: a dot product of `d` numbers
//! of variance one has variance `d`. The softmax of large scores is nearly one-hot, with a vanishing gradient.

use burn::tensor::{Tensor, activation::softmax, backend::Backend};

use crate::{Error, Result, error::ensure};

/// The output of attention with its intermediate results.
#[derive(Debug, Clone)]
pub struct AttentionOutput<B: Backend, const D: usize> {
    /// The dot product of each query with each key, `[.., query_time, key_time]`, unscaled.
    pub scores: Tensor<B, D>,
    /// The attention weights, `[.., query_time, key_time]`; rows sum to one.
    pub weights: Tensor<B, D>,
    /// The weighted mean of the values for each query, `[.., query_time, d_value]`.
    pub context: Tensor<B, D>,
}

/// Returns the dot product of each query with each key.
///
/// # Shapes
/// `query` `[.., query_time, d]`, `key` `[.., key_time, d]`; the result is
/// `[.., query_time, key_time]`.
///
/// # Errors
/// [`Error::Shape`] if query and key differ in the width `d` or in the axes before time.
pub fn scores<B: Backend, const D: usize>(query: Tensor<B, D>, key: Tensor<B, D>) -> Result<Tensor<B, D>> {
    let (query_dims, key_dims) = (query.dims(), key.dims());
    let fit = D >= 2 && query_dims[D - 1] == key_dims[D - 1] && query_dims[..D - 2] == key_dims[..D - 2];
    ensure(fit, Error::Shape, || {
        format!(
            "queries {query_dims:?} and keys {key_dims:?} must be [.., query_time, d] and [.., key_time, d]"
        )
    })?;
    Ok(query.matmul(key.transpose()))
}

/// Returns the attention weights: the softmax over the keys of the scores divided by the square root of the keys' width
/// `d`.
///
/// # Shapes
/// `[.., query_time, key_time]`, in and out.
pub fn weights<B: Backend, const D: usize>(scores: Tensor<B, D>, d: usize) -> Tensor<B, D> {
    softmax(scores * (d as f64).sqrt().recip(), D - 1)
}

/// Returns the mean of the values for each query, weighted by the attention weights.
///
/// # Shapes
/// `weights` `[.., query_time, key_time]`, `value` `[.., key_time, d_value]`; the result is
/// `[.., query_time, d_value]`.
///
/// # Errors
/// [`Error::Shape`] if the numbers of keys and values differ, or the axes before time do.
pub fn context<B: Backend, const D: usize>(
    weights: Tensor<B, D>,
    value: Tensor<B, D>,
) -> Result<Tensor<B, D>> {
    let (weights_dims, value_dims) = (weights.dims(), value.dims());
    let fit =
        D >= 2 && weights_dims[D - 1] == value_dims[D - 2] && weights_dims[..D - 2] == value_dims[..D - 2];
    ensure(fit, Error::Shape, || {
        format!(
            "weights {weights_dims:?} and values {value_dims:?} must be [.., query_time, key_time] and \
             [.., key_time, d_value]"
        )
    })?;
    Ok(weights.matmul(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;
    use burn_ndarray::NdArray;

    #[test]
    fn attention_matches_hand_computed_values() {
        let device = Default::default();
        let query = Tensor::<NdArray, 2>::from_floats([[0.0, 2.0]], &device);
        let key = Tensor::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &device);
        let value = Tensor::from_floats([[1.0], [10.0], [100.0]], &device);
        let scores = scores(query, key).unwrap();
        scores.clone().into_data().assert_eq(&[[0.0, 2.0, 2.0]].into(), false);
        // e^0 : e^(2 / sqrt 2) : e^(2 / sqrt 2) = 1 : 4.1133 : 4.1133.
        let weights = weights(scores, 2);
        let expected = [[0.108386, 0.445807, 0.445807]].into();
        weights.clone().into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        let expected = [[0.108386 + 4.45807 + 44.5807]].into();
        context(weights, value)
            .unwrap()
            .into_data()
            .assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-3));
    }

    #[test]
    fn shape_mismatch_errors_report_both_shapes() {
        let zeros = |dims: [usize; 3]| Tensor::<NdArray, 3>::zeros(dims, &Default::default());
        let refused = |result: Result<Tensor<NdArray, 3>>, shapes: [&str; 2]| {
            let error = result.unwrap_err().to_string();
            assert!(shapes.iter().all(|shape| error.contains(shape)), "{error}");
        };
        refused(scores(zeros([2, 3, 5]), zeros([2, 3, 7])), ["[2, 3, 5]", "[2, 3, 7]"]);
        refused(scores(zeros([2, 3, 5]), zeros([1, 3, 5])), ["[2, 3, 5]", "[1, 3, 5]"]);
        refused(context(zeros([2, 3, 5]), zeros([2, 7, 5])), ["[2, 3, 5]", "[2, 7, 5]"]);
        refused(context(zeros([2, 3, 5]), zeros([3, 5, 7])), ["[2, 3, 5]", "[3, 5, 7]"]);
        let flat = Tensor::<NdArray, 1>::zeros([5], &Default::default());
        assert!(scores(flat.clone(), flat).is_err());
    }
}
