//! The bridge between a backend's tensors and the kernels, which know slices only.
//!
//! A tensor that lies in the host's memory, row by row, in single precision is read where it lies.
//! What a kernel makes becomes a tensor without a copy, and the memory of a tensor that nobody needs
//! any more goes back to the kernels' pool, so that steps in steady state ask the system for none.

mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorData, TensorMetadata};

use super::Backend;
use super::kernels::{Kernels, kernels};
use crate::kernels::pool;

/// Whole numbers in the host's memory.
#[derive(Debug, Clone, Copy)]
pub enum Integers<'a> {
    /// Of 32 bits.
    I32(&'a [i32]),
    /// Of 64 bits.
    I64(&'a [i64]),
}

impl Integers<'_> {
    /// The numbers, widened.
    pub fn widened(self) -> Vec<i64> {
        match self {
            Self::I32(numbers) => numbers.iter().map(|&number| number.into()).collect(),
            Self::I64(numbers) => numbers.to_vec(),
        }
    }
}

/// A float tensor that the kernels can read.
#[derive(Debug, Clone)]
pub(super) struct Floats<B: Backend>(FloatTensor<B>);

impl<B: Backend> Floats<B> {
    /// The tensor, rearranged if it must be; none where the kernels do not serve it or are not wanted.
    pub fn new(tensor: &FloatTensor<B>) -> Option<Self> {
        if kernels() == Kernels::Composed || tensor.shape().num_elements() == 0 {
            return None;
        }
        if B::floats(tensor).is_some() {
            return Some(Self(tensor.clone()));
        }
        let tensor = B::row_major(tensor.clone());
        B::floats(&tensor).is_some().then(|| Self(tensor))
    }

    /// A gradient of what the kernels made.
    ///
    /// # Panics
    /// If it has another precision than that, which no backend gives it.
    pub fn contiguous(gradient: FloatTensor<B>) -> Self {
        let gradient = match B::floats(&gradient) {
            Some(_) => gradient,
            None => B::row_major(gradient),
        };
        assert!(B::floats(&gradient).is_some(), "a gradient has the precision of its tensor");
        Self(gradient)
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

    /// Numbers kept for the gradient, as a tensor beside this one.
    pub fn keep(&self, values: pool::Buffer, shape: impl Into<Shape>) -> Self {
        Self(self.place(values, shape))
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
pub(super) fn tensor<B: Backend>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    device: &B::Device,
) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape.into()), device)
}
