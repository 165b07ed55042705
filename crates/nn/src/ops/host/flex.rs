//! Tensors of Burn's flex backend.

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn_flex::Flex;

use super::HostAccess;

impl HostAccess for Flex {
    const IS_READ: bool = true;

    fn floats(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        tensor.as_slice()
    }

    fn row_major(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor.to_contiguous()
    }

    fn into_floats(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        if !tensor.is_unique() || tensor.as_slice::<f32>().is_none() {
            return Err(tensor);
        }
        Ok(tensor.into_data().into_vec().expect("a slice of this precision was there"))
    }

    fn integers(tensor: &IntTensor<Self>) -> Option<Vec<i64>> {
        let narrow =
            tensor.as_slice::<i32>().map(|values| values.iter().map(|&value| value.into()).collect());
        narrow.or_else(|| tensor.as_slice::<i64>().map(<[i64]>::to_vec))
    }

    fn bools(tensor: &BoolTensor<Self>) -> Option<Vec<u8>> {
        Some(tensor.to_contiguous().bytes().to_vec())
    }
}
