//! Learned positions: a vector per position, added to the token embedding (Gehring et al., 2017, arXiv 1705.03122;
//! GPT-2). Sequences cannot exceed the trained length.

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};

use super::documents::DocumentPositions;
use super::{PositionModule, PositionSettings};
use crate::display::display_line;
use crate::role::ParamRole;
use crate::{Error, Result, error::ensure};

/// A learned vector for each position.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Learned<B: Backend> {
    /// The vectors, `[context, d_model]`, initialised from N(0, 0.02) like the token embeddings.
    pub weight: Param<Tensor<B, 2>>,
}

display_line!(Learned, self => {
    context: self.weight.lazy_shape().dims::<2>()[0],
    d_model: self.weight.lazy_shape().dims::<2>()[1],
});

impl<B: Backend> Learned<B> {
    /// Creates vectors for `context` positions.
    pub fn new(context: usize, d_model: usize, device: &B::Device) -> Self {
        Self { weight: Initializer::Normal { mean: 0.0, std: 0.02 }.init([context, d_model], device) }
    }
}

impl<B: Backend> PositionModule<B> for Learned<B> {
    fn init(settings: &PositionSettings<'_, B>) -> Self {
        Self::new(settings.context, settings.widths.d_model, settings.device)
    }

    fn visit_parameters(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { weight } = self;
        visit(weight.id, ParamRole::Embedding);
    }

    fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        self.check(start + time)?;
        Ok(Some(self.weight.val().narrow(0, start, time)))
    }

    fn document_embedding(&self, documents: &DocumentPositions) -> Result<Option<Tensor<B, 2>>> {
        self.check(documents.longest())?;
        Ok(Some(documents.select(self.weight.val())))
    }

    fn check(&self, time: usize) -> Result<()> {
        let [context, _] = self.weight.shape().dims();
        ensure(time <= context, Error::Shape, || {
            format!(
                "a sequence of {time} tokens is longer than the context of {context}, where learned positions end; \
                 shorten it, or train with another `position`"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn embeddings_start_at_offset_and_end_with_context() {
        let learned = Learned::<NdArray>::new(5, 3, &Default::default());
        let rows = learned.weight.val().narrow(0, 2, 3).into_data();
        assert_eq!(learned.embedding(2, 3).unwrap().unwrap().into_data(), rows);
        let error = learned.embedding(2, 4).unwrap_err().to_string();
        assert!(error.starts_with("a sequence of 6 tokens is longer than the context of 5"), "{error}");
    }
}
