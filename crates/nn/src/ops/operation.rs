//! The trait of fused operations.

use std::{array, fmt::Debug, ops::Deref};

use burn::tensor::ops::FloatTensor;

use super::host::{Floats, Host};
use crate::kernels::pool::{self, Buffer};

/// An operation of the kernels on `N` inputs, some of which may be absent, with its gradient.
///
/// The operation holds only its settings; its caller keeps the inputs and the saved values for the backward pass.
pub(super) trait Operation<const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// A struct with one `T` per named input; the first input is never absent.
    type Inputs<T>: OperationInputs<T, N>;

    /// The values that the backward pass needs in addition to the inputs.
    type Saved: Debug + Send + Sync + 'static;

    /// The inputs that the backward pass reads.
    const BACKWARD_INPUTS: Self::Inputs<bool>;

    /// True if recomputing the result costs less than the memory of keeping it for the gradients of the operations that
    /// read it.
    const IS_CHEAP: bool = false;

    /// Returns the result and the values for the backward pass, which may be incomplete if no gradient is needed.
    fn forward(&self, inputs: &Self::Inputs<Input>) -> (Floats, Self::Saved);

    /// Returns the gradients of the inputs given the gradient of the result; unneeded ones may be missing.
    fn backward(
        &self,
        inputs: &Self::Inputs<Input>,
        saved: Self::Saved,
        gradient: &Floats,
    ) -> Self::Inputs<Option<Floats>>;
}

/// A struct with `N` named fields of one type; see [`inputs`].
pub(super) trait OperationInputs<T, const N: usize>: From<[T; N]> + Into<[T; N]> {
    /// Returns the values in the order of the fields.
    fn refs(&self) -> [&T; N];
}

/// Declares a struct of the named inputs of an operation.
macro_rules! inputs {
    ($(#[$doc:meta])* $name:ident<$count:literal> { $($field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $name<T> {
            $(pub(super) $field: T),+
        }

        impl<T> From<[T; $count]> for $name<T> {
            fn from([$($field),+]: [T; $count]) -> Self {
                Self { $($field),+ }
            }
        }

        impl<T> From<$name<T>> for [T; $count] {
            fn from($name { $($field),+ }: $name<T>) -> Self {
                [$($field),+]
            }
        }

        impl<T> $crate::ops::operation::OperationInputs<T, $count> for $name<T> {
            fn refs(&self) -> [&T; $count] {
                [$(&self.$field),+]
            }
        }
    };
}
pub(super) use inputs;

inputs! {
    /// The input of an operation with one input.
    One<1> { input }
}

/// An input of an operation in the form that the kernels read; kept for the backward pass only if needed there. An
/// input that is never absent dereferences to its tensor.
#[derive(Debug)]
pub(super) struct Input {
    floats: Option<Floats>,
    /// True if the gradient of the input is needed.
    pub needs_gradient: bool,
}

impl Deref for Input {
    type Target = Floats;

    fn deref(&self) -> &Floats {
        self.floats.as_ref().expect("this input is never absent")
    }
}

impl Input {
    /// Creates an input with an optional tensor.
    pub fn new(floats: Option<Floats>) -> Self {
        Self { floats, needs_gradient: false }
    }

    /// Wraps tensors as inputs; returns `None` if the kernels cannot read one of them.
    pub fn read<H: Host, const N: usize>(tensors: &[Option<FloatTensor<H>>; N]) -> Option<[Self; N]> {
        let mut inputs = [const { Self { floats: None, needs_gradient: false } }; N];
        for (input, tensor) in inputs.iter_mut().zip(tensors) {
            if let Some(tensor) = tensor {
                input.floats = Some(Floats::new::<H>(tensor)?);
            }
        }
        Some(inputs)
    }

    /// Returns the tensor, if present.
    pub fn get(&self) -> Option<&Floats> {
        self.floats.as_ref()
    }

    /// Returns the elements of the tensor, if present.
    pub fn numbers(&self) -> Option<&[f32]> {
        self.get().map(Floats::slice)
    }

    /// Takes the tensor out.
    pub fn take(&mut self) -> Option<Floats> {
        self.floats.take()
    }

    /// Replaces the tensor.
    pub fn put(&mut self, floats: Option<Floats>) {
        self.floats = floats;
    }
}

/// Creates the gradients of the present inputs, whose elements `write` fills in.
pub(super) fn gradients<O: Operation<N>, const N: usize>(
    inputs: &O::Inputs<Input>,
    write: impl FnOnce(O::Inputs<Option<&mut [f32]>>),
) -> O::Inputs<Option<Floats>> {
    let inputs = inputs.refs();
    let mut buffers = inputs.map(|input| input.numbers().map(|values| pool::take(values.len())));
    write(buffers.each_mut().map(|buffer: &mut Option<Buffer>| buffer.as_deref_mut()).into());
    let mut buffers = buffers.into_iter();
    let gradients = array::from_fn(|at| {
        let values = buffers.next()??;
        Some(inputs[at].with_values(values, inputs[at].shape()))
    });
    gradients.into()
}
