//! The bridge between Burn's tensors and the kernels, which take slices. Only this file knows which backends have
//! kernels.
//!
//! A row-major tensor in host memory and single precision is read in place. The output of a kernel becomes a tensor
//! without a copy. Memory that is no longer used goes back to the pool of the kernels, so that steps in steady state
//! allocate nothing.
//!
//! Models require only Burn's `Backend`. The type of a backend's tensors determines whether kernels can read them and
//! whether they are differentiated. The comparison of types is resolved at compile time.

use std::any::{Any, TypeId};

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Int, Shape, Tensor, TensorData, TensorMetadata, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::{Flex, FlexTensor};
#[cfg(feature = "ndarray")]
use burn_ndarray::{NdArray, NdArrayTensor};

use super::kernels::{Kernels, kernels};
use crate::kernels::pool;

/// A backend whose tensors the kernels can read.
pub(super) trait Host: Backend {
    /// Wraps a tensor of the backend for the kernels.
    fn wrap(tensor: FloatTensor<Self>) -> Floats;

    /// Returns the tensor of the backend.
    fn unwrap(floats: Floats) -> FloatTensor<Self>;
}

#[cfg(feature = "ndarray")]
impl Host for NdArray {
    fn wrap(tensor: NdArrayTensor) -> Floats {
        Floats::NdArray(tensor)
    }

    fn unwrap(floats: Floats) -> NdArrayTensor {
        #[allow(irrefutable_let_patterns, reason = "ndarray may be the only backend")]
        let Floats::NdArray(tensor) = floats else { unreachable!("a tensor stays with its backend") };
        tensor
    }
}

impl Host for Flex {
    fn wrap(tensor: FlexTensor) -> Floats {
        Floats::Flex(tensor)
    }

    fn unwrap(floats: Floats) -> FlexTensor {
        #[allow(irrefutable_let_patterns, reason = "flex may be the only backend")]
        let Floats::Flex(tensor) = floats else { unreachable!("a tensor stays with its backend") };
        tensor
    }
}

/// Returns `$plain` from the calling function if `$B` has the tensors of a host backend. Returns `$tracked` if it has
/// the tensors of `Autodiff` over a host backend.
macro_rules! on_hosts {
    ($B:ty, $H:ident => $plain:expr, $tracked:expr) => {
        #[cfg(feature = "ndarray")]
        {
            type $H = burn_ndarray::NdArray;
            $crate::ops::host::on_hosts!(@one $B, $H => $plain, $tracked);
        }
        {
            type $H = burn_flex::Flex;
            $crate::ops::host::on_hosts!(@one $B, $H => $plain, $tracked);
        }
    };
    (@one $B:ty, $H:ident => $plain:expr, $tracked:expr) => {
        if $crate::ops::host::has_tensors_of::<$B, $H>() {
            return $plain;
        }
        if $crate::ops::host::has_tensors_of::<$B, burn_autodiff::Autodiff<$H>>() {
            return $tracked;
        }
    };
}
pub(super) use on_hosts;

/// Returns true if the float tensors of `B` and `H` have the same type and precision.
pub(super) fn has_tensors_of<B: Backend, H: Backend>() -> bool {
    TypeId::of::<(FloatTensor<B>, B::FloatElem)>() == TypeId::of::<(FloatTensor<H>, H::FloatElem)>()
}

/// Returns true if the kernels can read the tensors of a backend, or the tensors inside its autodiff graph.
pub(super) fn is_readable<B: Backend>() -> bool {
    on_hosts!(B, H => true, true);
    false
}

/// Returns true if the kernels compute this thread's operations, which then share no state with other threads.
pub fn is_on_host<B: Backend>() -> bool {
    is_readable::<B>() && kernels() == Kernels::Fused
}

/// Returns an id outside `0..size`, if there is one. Returns `None` on devices with memory of their own, where reading the
/// ids would delay each step.
pub(crate) fn id_outside<B: Backend>(ids: &Tensor<B, 2, Int>, size: usize) -> Option<i64> {
    let ids = is_readable::<B>().then(|| ids.to_data())?;
    ids.iter::<i64>().find(|id| !(0..size as i64).contains(id))
}

/// Converts a value between two type parameters that name the same type.
///
/// # Panics
/// Panics if the types differ.
pub(super) fn cast<T: 'static, U: 'static>(value: T) -> U {
    let mut value = Some(value);
    let same = (&mut value as &mut dyn Any).downcast_mut::<Option<U>>();
    same.and_then(Option::take).expect("a value of the same type")
}

/// Returns the elements of a row-major tensor in host memory and single precision.
pub(super) fn slice<B: Backend>(tensor: &FloatTensor<B>) -> Option<&[f32]> {
    let tensor = tensor as &dyn Any;
    #[cfg(feature = "ndarray")]
    if let Some(tensor) = tensor.downcast_ref() {
        return ndarray_slice(tensor);
    }
    if let Some(tensor) = tensor.downcast_ref::<FlexTensor>() {
        return tensor.as_slice();
    }
    None
}

#[cfg(feature = "ndarray")]
fn ndarray_slice(tensor: &NdArrayTensor) -> Option<&[f32]> {
    match tensor {
        NdArrayTensor::F32(storage) => storage.view().to_slice(),
        _ => None,
    }
}

/// Returns the elements of an integer tensor in host memory, in row-major order.
pub(super) fn integers<B: Backend>(tensor: IntTensor<B>) -> Option<Vec<i64>> {
    let tensor = &tensor as &dyn Any;
    #[cfg(feature = "ndarray")]
    match tensor.downcast_ref() {
        Some(NdArrayTensor::I32(storage)) => {
            return Some(storage.view().iter().map(|&value| value.into()).collect());
        }
        Some(NdArrayTensor::I64(storage)) => return Some(storage.view().iter().copied().collect()),
        _ => {}
    }
    if let Some(tensor) = tensor.downcast_ref::<FlexTensor>() {
        let narrow =
            tensor.as_slice::<i32>().map(|values| values.iter().map(|&value| value.into()).collect());
        return narrow.or_else(|| tensor.as_slice::<i64>().map(<[i64]>::to_vec));
    }
    None
}

/// Returns the elements of a Boolean tensor in host memory, in row-major order; every value but zero is true.
pub(super) fn bools<B: Backend>(tensor: BoolTensor<B>) -> Option<Vec<u8>> {
    let tensor = &tensor as &dyn Any;
    #[cfg(feature = "ndarray")]
    if let Some(NdArrayTensor::Bool(storage)) = tensor.downcast_ref() {
        return Some(storage.view().iter().map(|&value| value.into()).collect());
    }
    if let Some(tensor) = tensor.downcast_ref::<FlexTensor>() {
        return Some(tensor.to_contiguous().bytes().to_vec());
    }
    None
}

/// A float tensor of a backend whose tensors the kernels can read.
#[derive(Debug, Clone)]
pub(super) enum Floats {
    #[cfg(feature = "ndarray")]
    NdArray(NdArrayTensor),
    Flex(FlexTensor),
}

impl Floats {
    /// Wraps a tensor, copying it to row-major order if needed. Returns `None` if the kernels do not support the tensor
    /// or are disabled.
    pub fn new<B: Backend>(tensor: &FloatTensor<B>) -> Option<Self> {
        let is_wanted = kernels() == Kernels::Fused && tensor.shape().num_elements() > 0;
        is_wanted.then(|| Self::read::<B>(tensor.clone()))?
    }

    /// Wraps a tensor, or the tensor inside its autodiff graph, copying it to row-major order if needed. Returns `None`
    /// if the kernels cannot read it.
    pub fn read<B: Backend>(tensor: FloatTensor<B>) -> Option<Self> {
        on_hosts!(
            B,
            H => H::wrap(cast(tensor)).row_major(),
            H::wrap(cast::<_, FloatTensor<Autodiff<H>>>(tensor).primitive).row_major()
        );
        None
    }

    /// Wraps a tensor that the kernels created, or its gradient.
    ///
    /// # Panics
    /// Panics if the tensor is not in single precision, which never happens on supported backends.
    pub fn contiguous<B: Backend>(tensor: FloatTensor<B>) -> Self {
        Self::read::<B>(tensor).expect("a gradient has the precision of its tensor")
    }

    /// Copies the tensor to row-major order if needed; returns `None` in other precisions.
    fn row_major(self) -> Option<Self> {
        let tensor = match self.try_slice() {
            Some(_) => return Some(self),
            None => match self {
                #[cfg(feature = "ndarray")]
                Self::NdArray(NdArrayTensor::F32(storage)) => {
                    let array = storage.view().as_standard_layout().into_owned();
                    Self::NdArray(NdArrayTensor::F32(array.into_shared().into()))
                }
                #[cfg(feature = "ndarray")]
                Self::NdArray(_) => return None,
                Self::Flex(tensor) => Self::Flex(tensor.to_contiguous()),
            },
        };
        tensor.try_slice().is_some().then_some(tensor)
    }

    fn try_slice(&self) -> Option<&[f32]> {
        match *self {
            #[cfg(feature = "ndarray")]
            Self::NdArray(ref tensor) => ndarray_slice(tensor),
            Self::Flex(ref tensor) => tensor.as_slice(),
        }
    }

    /// Returns the elements in row-major order.
    pub fn slice(&self) -> &[f32] {
        self.try_slice().expect("the tensor was readable before")
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        match *self {
            #[cfg(feature = "ndarray")]
            Self::NdArray(ref tensor) => tensor.shape(),
            Self::Flex(ref tensor) => tensor.shape(),
        }
    }

    /// Returns the size of the last axis.
    pub fn width(&self) -> usize {
        let shape = self.shape();
        shape[shape.num_dims() - 1]
    }

    /// Creates a tensor with these elements on the backend of this one, without a copy.
    pub fn with_values(&self, values: impl Into<Vec<f32>>, shape: impl Into<Shape>) -> Self {
        let data = TensorData::new(values.into(), shape.into());
        match *self {
            #[cfg(feature = "ndarray")]
            Self::NdArray(_) => Self::NdArray(NdArrayTensor::from_data(data)),
            Self::Flex(_) => Self::Flex(FlexTensor::from_data(data)),
        }
    }

    /// Returns the elements, without a copy if the tensor is not shared.
    pub fn into_vec(self) -> Vec<f32> {
        self.try_into_vec().unwrap_or_else(|shared| shared.slice().to_vec())
    }

    /// Returns the memory to the pool, unless another tensor shares it.
    pub fn recycle(self) {
        if let Ok(values) = self.try_into_vec() {
            pool::recycle(values);
        }
    }

    /// Returns the memory to the pool as soon as no other tensor shares it.
    pub fn recycle_once_free(self) {
        let mut tensor = Some(self);
        pool::recycle_once_free(move || {
            tensor.take()?.try_into_vec().map_err(|shared| tensor = Some(shared)).ok()
        });
    }

    /// Returns the elements without a copy, or the tensor itself if it is shared.
    fn try_into_vec(self) -> Result<Vec<f32>, Self> {
        match self {
            #[cfg(feature = "ndarray")]
            Self::NdArray(tensor) => ndarray_vec(tensor).map_err(Self::NdArray),
            Self::Flex(tensor) if tensor.is_unique() && tensor.as_slice::<f32>().is_some() => {
                Ok(tensor.into_data().into_vec().expect("the precision was checked"))
            }
            Self::Flex(tensor) => Err(Self::Flex(tensor)),
        }
    }
}

#[cfg(feature = "ndarray")]
fn ndarray_vec(tensor: NdArrayTensor) -> Result<Vec<f32>, NdArrayTensor> {
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
    // The array may be a slice of its allocation.
    Ok(if values.len() == length { values } else { values[start..start + length].to_vec() })
}

/// Creates a tensor with these elements, without a copy.
pub(super) fn tensor<B: Backend>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    device: &B::Device,
) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape.into()), device)
}
