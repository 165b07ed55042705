//! Dropout.

use burn::tensor::ops::FloatTensor;

use super::Operation;
use crate::kernels::{dropout as kernel, pool};
use crate::ops::Backend;
use crate::ops::host::Floats;

/// Dropout of every element.
#[derive(Debug, Clone)]
pub struct Dropout<B: Backend> {
    input: Option<Floats<B>>,
    mask: Option<kernel::Dropout>,
}

/// Dropout of nothing yet; the input of its gradient is the input.
pub fn dropout<B: Backend>(input: &FloatTensor<B>) -> Option<Dropout<B>> {
    Some(Dropout { input: Some(Floats::new(input)?), mask: None })
}

impl<B: Backend> Dropout<B> {
    /// By a mask.
    pub fn dropped(self, mask: Option<kernel::Dropout>) -> Self {
        Self { mask, ..self }
    }

    fn apply(mask: Option<kernel::Dropout>, values: &Floats<B>) -> FloatTensor<B> {
        let Some(mask) = mask else { return values.tensor() };
        let mut output = pool::take(values.slice().len());
        kernel::apply(mask, values.width(), values.slice(), &mut output);
        values.place(output, values.shape())
    }
}

impl<B: Backend> Operation<B> for Dropout<B> {
    fn forward(&mut self, _keep: bool) -> FloatTensor<B> {
        Self::apply(self.mask, &self.input.take().expect("forward runs once"))
    }

    fn backward(self, gradient: FloatTensor<B>, _wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let for_input = Self::apply(self.mask, &gradient);
        gradient.recycle();
        vec![Some(for_input)]
    }
}
