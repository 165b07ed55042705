//! Self-attention without parameters: every token is its own query, key and value.
//!
//! ```text
//! scores = x x^T,  weights = softmax(scores),  context = weights x
//! ```
//!
//! A token's score with itself is its squared norm, so tokens mostly attend to themselves and to tokens of similar
//! direction. This pattern cannot be learned; [`super::trainable`] adds learned projections.

use burn::tensor::{Tensor, activation::softmax, backend::Backend};

use super::score::{self, AttentionOutput};
use crate::{Error, Result, error::ensure};

/// Lets every token attend to every token.
///
/// # Shapes
/// `x` `[.., time, d]`; scores and weights are `[.., time, time]`, the context `[.., time, d]`.
///
/// # Errors
/// [`Error::Shape`] if `x` has only one axis.
pub fn attend<B: Backend, const D: usize>(x: Tensor<B, D>) -> Result<AttentionOutput<B, D>> {
    let scores = score::scores(x.clone(), x.clone())?;
    // The scores are not scaled: scaling corrects the variance of random projections, and there are none here.
    let weights = softmax(scores.clone(), D - 1);
    let context = score::context(weights.clone(), x)?;
    Ok(AttentionOutput { scores, weights, context })
}

/// Returns one row of [`attend`]: the scores of one query with every token, their softmax, and the mean of all tokens
/// with these weights.
///
/// # Shapes
/// `x` `[time, d]`; scores and weights are `[time]`, the context `[d]`.
///
/// # Errors
/// [`Error::Shape`] if `query` is not a position of the sequence.
pub fn attend_from<B: Backend>(x: Tensor<B, 2>, query: usize) -> Result<AttentionOutput<B, 1>> {
    let [time, d] = x.dims();
    ensure(query < time, Error::Shape, || {
        format!("query {query} is not a position of a sequence of {time} tokens ([{time}, {d}])")
    })?;
    let token = x.clone().narrow(0, query, 1); // [1, d]
    let scores = score::scores(token, x.clone())?; // [1, time]
    let weights = softmax(scores.clone(), 1);
    let context = score::context(weights.clone(), x)?; // [1, d]
    Ok(AttentionOutput {
        scores: scores.squeeze_dim(0),
        weights: weights.squeeze_dim(0),
        context: context.squeeze_dim(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, Tolerance};
    use burn_ndarray::NdArray;

    #[test]
    fn single_query_matches_its_row_of_all() {
        let x = Tensor::<NdArray, 2>::random([5, 3], Distribution::Default, &Default::default());
        let all = attend(x.clone()).unwrap();
        for query in 0..5 {
            let one = attend_from(x.clone(), query).unwrap();
            for (row, all) in
                [(one.scores, &all.scores), (one.weights, &all.weights), (one.context, &all.context)]
            {
                let expected = all.clone().narrow(0, query, 1).squeeze_dim::<1>(0).into_data();
                row.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
        }
        assert!(attend_from(x, 5).unwrap_err().to_string().contains("[5, 3]"));
    }
}
