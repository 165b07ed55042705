//! What a fused operation is, and how one runs.

use std::{array, fmt::Debug, ops::Deref};

use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::autodiff;
use super::host::{Floats, Host, cast, on_hosts};
use super::kernels::{Kernels, kernels};
use super::{float, primitive};
use crate::kernels::pool::{self, Buffer};

/// An operation of the kernels on `N` inputs, some of which may be absent, that knows its gradient.
///
/// It holds its settings alone: who runs it keeps its inputs and what it saves until the gradient is due.
pub(super) trait Operation<const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// The inputs by name, or a `T` for each; the first of them is never absent.
    type Inputs<T>: Inputs<T, N>;

    /// What the gradient needs beside the inputs.
    type Saved: Debug + Send + Sync + 'static;

    /// Which of the inputs the gradient reads.
    const READS: Self::Inputs<bool>;

    /// Whether computing the result again costs less than the memory of keeping it for the gradients of the
    /// operations that read it.
    const IS_CHEAP: bool = false;

    /// The result, and what the gradient will need; where none is wanted, the latter may be incomplete.
    fn forward(&self, inputs: &Self::Inputs<Input>) -> (Floats, Self::Saved);

    /// The gradients of the inputs for that of the result; one that is not wanted may be missing.
    fn backward(
        &self,
        inputs: &Self::Inputs<Input>,
        saved: Self::Saved,
        gradient: &Floats,
    ) -> Self::Inputs<Option<Floats>>;
}

/// A struct with a name for each of `N` values; see [`inputs`].
pub(super) trait Inputs<T, const N: usize>: From<[T; N]> + Into<[T; N]> {
    /// The values in the order of their names.
    fn refs(&self) -> [&T; N];
}

/// Declares the names of so many inputs of an operation.
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

        impl<T> $crate::ops::operation::Inputs<T, $count> for $name<T> {
            fn refs(&self) -> [&T; $count] {
                [$(&self.$field),+]
            }
        }
    };
}
pub(super) use inputs;

inputs! {
    /// The input of an operation that has but one.
    One<1> { input }
}

/// An input of an operation, as the kernels read it, for a gradient if it reads it. One that is never absent is used as
/// what it holds.
#[derive(Debug)]
pub(super) struct Input {
    floats: Option<Floats>,
    /// Whether it has a gradient.
    pub is_wanted: bool,
}

impl Deref for Input {
    type Target = Floats;

    fn deref(&self) -> &Floats {
        self.floats.as_ref().expect("this input is never absent")
    }
}

impl Input {
    /// What it holds, if it is there.
    pub fn new(floats: Option<Floats>) -> Self {
        Self { floats, is_wanted: false }
    }

    /// The tensors as inputs; none where the kernels cannot read one.
    pub fn read<H: Host, const N: usize>(tensors: &[Option<FloatTensor<H>>; N]) -> Option<[Self; N]> {
        let mut inputs = [const { Self { floats: None, is_wanted: false } }; N];
        for (input, tensor) in inputs.iter_mut().zip(tensors) {
            if let Some(tensor) = tensor {
                input.floats = Some(Floats::new::<H>(tensor)?);
            }
        }
        Some(inputs)
    }

    /// What an input holds that may be absent.
    pub fn get(&self) -> Option<&Floats> {
        self.floats.as_ref()
    }

    /// The numbers of an input that may be absent.
    pub fn numbers(&self) -> Option<&[f32]> {
        self.get().map(Floats::slice)
    }

    /// Takes out what it holds.
    pub fn take(&mut self) -> Option<Floats> {
        self.floats.take()
    }

    /// Puts it back.
    pub fn put(&mut self, floats: Option<Floats>) {
        self.floats = floats;
    }
}

/// The gradients of the inputs that are there, each as `write` fills it in.
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
        Some(inputs[at].place(values, inputs[at].shape()))
    });
    gradients.into()
}

/// Runs the operation that `of` makes of its inputs; none where the kernels do not serve them.
pub(super) fn fused<B: Backend, O: Operation<N>, const N: usize, const D: usize>(
    tensors: O::Inputs<Option<FloatTensor<B>>>,
    of: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<Tensor<B, D>> {
    (kernels() == Kernels::Fused).then(|| run::<B, O, N>(tensors.into(), of))?.map(float)
}

/// Runs an operation of one input whether or not the kernels are wanted; where they cannot read it, it stays as it is.
pub(super) fn unfused<B: Backend, O: Operation<1>, const D: usize>(
    tensor: &Tensor<B, D>,
    operation: O,
) -> Tensor<B, D> {
    let inputs = [Some(primitive(tensor.clone()))];
    let output = Kernels::Fused.run(|| run::<B, O, 1>(inputs, |_| Some(operation)));
    output.map_or_else(|| tensor.clone(), float)
}

fn run<B: Backend, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<B>>; N],
    of: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<FloatTensor<B>> {
    on_hosts!(B, H => plain::<H, O, N>(cast(tensors), of).map(cast), autodiff::run::<H, O, N>(cast(tensors), of).map(cast));
    None
}

/// Without a gradient.
fn plain<H: Host, O: Operation<N>, const N: usize>(
    tensors: [Option<FloatTensor<H>>; N],
    of: impl FnOnce(&O::Inputs<Input>) -> Option<O>,
) -> Option<FloatTensor<H>> {
    let inputs = Input::read::<H, N>(&tensors)?.into();
    let operation = of(&inputs)?;
    Some(H::unwrap(operation.forward(&inputs).0))
}

/// A tensor of any rank as an input of [`fused`].
pub(super) fn input<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Option<FloatTensor<B>> {
    Some(primitive(tensor.clone()))
}
