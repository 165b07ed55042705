//! The bridge between a backend's tensors and the kernels, which know slices only.
//!
//! A tensor that lies in the host's memory, row by row, in single precision is read where it lies.
//! What a kernel makes becomes a tensor without a copy, and the memory of a tensor that nobody needs
//! any more goes back to the kernels' pool, so that steps in steady state ask the system for none.

mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorData, TensorMetadata, backend};

use super::kernels::{Kernels, kernels};
use crate::kernels::pool;

/// A plain backend, and what of its tensors the kernels can read: by default nothing, so that every operation
/// is composed.
pub trait HostAccess: backend::Backend {
    /// Whether the kernels can read any of its tensors.
    const IS_READ: bool = false;

    /// The numbers of a tensor that lies in the host's memory, row by row, in single precision.
    fn floats(_tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        None
    }

    /// The same tensor, laid out so that [`Self::floats`] can read it if its precision allows.
    fn row_major(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor
    }

    /// The numbers of a tensor that [`Self::floats`] can read and that nobody shares, without a copy.
    ///
    /// # Errors
    /// Any other tensor, as it came.
    fn into_floats(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        Err(tensor)
    }

    /// The numbers of a tensor of tokens in the host's memory, row by row.
    fn integers(_tensor: &IntTensor<Self>) -> Option<Vec<i64>> {
        None
    }

    /// The values of a tensor in the host's memory, row by row: anything but zero is true.
    fn bools(_tensor: &BoolTensor<Self>) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(feature = "wgpu")]
impl HostAccess for burn_wgpu::Wgpu {}

#[cfg(feature = "cuda")]
impl HostAccess for burn_cuda::Cuda {}

/// A float tensor that the kernels can read.
#[derive(Debug, Clone)]
pub struct Floats<B: HostAccess>(FloatTensor<B>);

impl<B: HostAccess> Floats<B> {
    /// The tensor, rearranged if it must be; none where the kernels do not serve it or are not wanted.
    pub fn new(tensor: &FloatTensor<B>) -> Option<Self> {
        let is_wanted = kernels() == Kernels::Fused && tensor.shape().num_elements() > 0;
        is_wanted.then(|| Self::read(tensor.clone()))?
    }

    /// A tensor that the kernels made, or its gradient.
    ///
    /// # Panics
    /// If it has another precision than that, which no backend gives it.
    pub fn contiguous(tensor: FloatTensor<B>) -> Self {
        Self::read(tensor).expect("a gradient has the precision of its tensor")
    }

    /// The tensor, rearranged if it must be; none where the kernels cannot read it.
    pub fn read(tensor: FloatTensor<B>) -> Option<Self> {
        let tensor = if B::floats(&tensor).is_some() { tensor } else { B::row_major(tensor) };
        B::floats(&tensor).is_some().then(|| Self(tensor))
    }

    /// The numbers, row by row.
    pub fn slice(&self) -> &[f32] {
        B::floats(&self.0).expect("a tensor that was readable stays so")
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// The size of the last axis.
    pub fn width(&self) -> usize {
        let shape = self.0.shape();
        shape[shape.num_dims() - 1]
    }

    /// The tensor itself.
    pub fn tensor(&self) -> FloatTensor<B> {
        self.0.clone()
    }

    /// A tensor of these numbers, where this one lies.
    pub fn place(&self, values: pool::Buffer, shape: impl Into<Shape>) -> FloatTensor<B> {
        tensor::<B>(values.into_vec(), shape, &B::float_device(&self.0))
    }

    /// The numbers, without a copy where nobody else shares them.
    pub fn into_vec(self) -> Vec<f32> {
        B::into_floats(self.0).unwrap_or_else(|shared| Self(shared).slice().to_vec())
    }

    /// Returns the memory to the pool, unless another tensor shares it.
    pub fn recycle(self) {
        if let Ok(values) = B::into_floats(self.0) {
            pool::give(values);
        }
    }

    /// Returns the memory to the pool as soon as no other tensor shares it.
    pub fn recycle_once_free(self) {
        let mut tensor = Some(self.0);
        pool::give_once_free(move || {
            B::into_floats(tensor.take()?).map_err(|shared| tensor = Some(shared)).ok()
        });
    }
}

/// A tensor of these numbers, without a copy.
pub(super) fn tensor<B: HostAccess>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    device: &B::Device,
) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape.into()), device)
}
