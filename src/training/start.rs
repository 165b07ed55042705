//! What a run starts from: fresh weights, or the best ones of another run, which is fine-tuning.

use super::experiment::Experiment;
use super::run_folder::RunFolder;
use super::step::Trainee;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::model::Sizes;
use crate::ops;
use crate::position::PositionScheme;
use crate::weights::native::{self, Tensors};

/// What a run starts from.
#[derive(Debug)]
pub struct Start(Option<Weights>);

/// The best weights of another run; the new one has its vocabulary.
#[derive(Debug)]
struct Weights {
    folder: RunFolder,
    tensors: Tensors,
    sizes: Sizes,
}

impl Start {
    /// What `experiment` starts from: the best weights of the run that it names, or fresh ones.
    ///
    /// # Errors
    /// If there is no such run, or its weights cannot be read.
    pub fn of(experiment: &Experiment) -> Result<Self> {
        let Some(from) = &experiment.from else { return Ok(Self(None)) };
        let folder = RunFolder::open(from)?;
        let (tensors, description) = native::read(&folder.weights()?)?;
        Ok(Self(Some(Weights { folder, tensors, sizes: description.sizes })))
    }

    /// The sizes of the model for this data: those that the data asks for, or where it has weights already
    /// its own, in a context as long as either where positions do not end.
    ///
    /// # Errors
    /// [`Error::Key`] where the data has longer sequences than the weights have positions.
    pub fn sizes(&self, experiment: &Experiment, dataset: &Dataset) -> Result<Sizes> {
        let asked = experiment.sizes(dataset);
        let Some(Weights { folder, sizes, .. }) = &self.0 else { return Ok(asked) };
        let is_longer = asked.context > sizes.context || asked.source_context > sizes.source_context;
        if experiment.model.position == PositionScheme::Learned && is_longer {
            let problem = format!(
                "makes sequences of {}, longer than the {} positions that the weights of `{}` have: lower it",
                asked.context.max(asked.source_context.unwrap_or(0)),
                sizes.context.min(sizes.source_context.unwrap_or(usize::MAX)),
                folder.path().display()
            );
            return Err(Error::key("data.length", experiment.data.length, problem));
        }
        Ok(Sizes {
            vocab: sizes.vocab,
            context: asked.context.max(sizes.context),
            source_context: asked.source_context.max(sizes.source_context),
        })
    }

    /// The model of `experiment` as its first step finds it.
    ///
    /// # Errors
    /// If it cannot be made, or the weights are not those of such a model.
    pub fn trainee<B: ops::Backend>(
        self,
        experiment: &Experiment,
        sizes: Sizes,
        device: &B::Device,
    ) -> Result<Trainee<B>> {
        let mut trainee = experiment.model::<B>(sizes, device)?;
        if let Some(Weights { folder, tensors, .. }) = self.0 {
            trainee.model = native::apply(trainee.model, tensors, &folder.model())?;
        }
        Ok(trainee)
    }
}
