//! Masks, which hide keys from queries.
//!
//! The whole crate uses one polarity: **`true` means hidden**. A hidden key gets a weight of exactly zero, and a query
//! whose keys are all hidden gets a context of zeros.
//!
//! [`Mask`] combines everything that may be hidden in one attention step: the future, padding among the keys, whole
//! queries, single pairs. The functions here build the masks of the future and of padding.

use burn::tensor::{Bool, Int, Tensor, backend::Backend};

pub use crate::ops::{KeyRange, Mask, masked_softmax};

/// Returns the causal mask, which hides every key `j > i` from query `i`.
///
/// # Shapes
/// `[time, time]` with a row per query; `true` above the diagonal.
pub fn causal_mask<B: Backend>(time: usize, device: &B::Device) -> Tensor<B, 2, Bool> {
    Tensor::tril_mask([time, time], 0, device)
}

/// Returns the padding mask of sequences with the given lengths, padded at the end to `time` positions.
///
/// # Shapes
/// `[batch, time]`; `true` at each position from the sequence's length on.
pub fn padding_mask<B: Backend>(lengths: &[usize], time: usize, device: &B::Device) -> Tensor<B, 2, Bool> {
    let lengths: Vec<i64> = lengths.iter().map(|&length| length as i64).collect();
    let batch = lengths.len();
    let lengths = Tensor::<B, 1, Int>::from_ints(lengths.as_slice(), device).reshape([batch, 1]);
    let positions = Tensor::<B, 1, Int>::arange(0..time as i64, device).reshape([1, time]);
    positions.expand([batch, time]).greater_equal(lengths.expand([batch, time]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn padding_begins_where_each_sequence_ends() {
        let padding = padding_mask::<NdArray>(&[2, 0, 3], 3, &Default::default());
        let expected = [[false, false, true], [true, true, true], [false, false, false]];
        padding.into_data().assert_eq(&expected.into(), true);
    }

    #[test]
    fn the_future_is_above_the_diagonal() {
        let future = causal_mask::<NdArray>(3, &Default::default());
        let expected = [[false, true, true], [false, false, true], [false, false, false]];
        future.into_data().assert_eq(&expected.into(), true);
    }
}
