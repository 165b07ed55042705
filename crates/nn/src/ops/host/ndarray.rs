//! Tensors of Burn's ndarray backend.

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn_ndarray::{NdArray, NdArrayTensor};

use super::HostAccess;

impl HostAccess for NdArray<f32> {
    const IS_READ: bool = true;

    fn floats(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        match tensor {
            NdArrayTensor::F32(storage) => storage.view().to_slice(),
            _ => None,
        }
    }

    fn row_major(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        match tensor {
            NdArrayTensor::F32(storage) => {
                let array = storage.view().as_standard_layout().into_owned();
                NdArrayTensor::F32(array.into_shared().into())
            }
            other => other,
        }
    }

    fn into_floats(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        let NdArrayTensor::F32(storage) = tensor else { return Err(tensor) };
        if !storage.is_unique() || !storage.view().is_standard_layout() {
            return Err(NdArrayTensor::F32(storage));
        }
        let array = match storage.into_owned().try_into_owned_nocopy() {
            Ok(array) => array,
            Err(shared) => return Err(NdArrayTensor::F32(shared.into())),
        };
        let length = array.len();
        let (values, offset) = array.into_raw_vec_and_offset();
        let start = offset.unwrap_or(0);
        // The array may be a part of its memory.
        Ok(if values.len() == length { values } else { values[start..start + length].to_vec() })
    }

    fn integers(tensor: &IntTensor<Self>) -> Option<Vec<i64>> {
        match tensor {
            NdArrayTensor::I32(storage) => Some(storage.view().iter().map(|&value| value.into()).collect()),
            NdArrayTensor::I64(storage) => Some(storage.view().iter().copied().collect()),
            _ => None,
        }
    }

    fn bools(tensor: &BoolTensor<Self>) -> Option<Vec<u8>> {
        match tensor {
            NdArrayTensor::Bool(storage) => Some(storage.view().iter().map(|&value| value.into()).collect()),
            _ => None,
        }
    }
}

/// Double precision has no kernels.
impl HostAccess for NdArray<f64> {}
