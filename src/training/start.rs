//! A run that starts from another's best weights: fine-tuning.

use std::path::{Path, PathBuf};

use super::experiment::Experiment;
use super::run_folder::RunFolder;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::model::Sizes;
use crate::position::PositionScheme;
use crate::weights::native::{self, Tensors};

/// The weights that a run starts from.
#[derive(Debug)]
pub struct Start {
    /// The run that they are of; the new one has its vocabulary.
    pub folder: RunFolder,
    /// The weights.
    pub tensors: Tensors,
    sizes: Sizes,
}

impl Start {
    /// Reads the best weights of the run at `path`.
    ///
    /// # Errors
    /// If there is no run, or its weights cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let folder = RunFolder::open(path)?;
        let (tensors, description) = native::read(&folder.weights()?)?;
        Ok(Self { folder, tensors, sizes: description.sizes })
    }

    /// The file of the weights.
    pub fn path(&self) -> PathBuf {
        self.folder.model()
    }

    /// The sizes of a model with these weights for this data: its own, in a context as long as
    /// either where positions do not end.
    ///
    /// # Errors
    /// [`Error::Key`] where the data has longer sequences than the weights have positions.
    pub fn sizes(&self, experiment: &Experiment, dataset: &Dataset) -> Result<Sizes> {
        let asked = experiment.sizes(dataset);
        let is_longer =
            asked.context > self.sizes.context || asked.source_context > self.sizes.source_context;
        if experiment.model.position == PositionScheme::Learned && is_longer {
            let problem = format!(
                "makes sequences of {}, longer than the {} positions that the weights of `{}` have: lower it",
                asked.context.max(asked.source_context.unwrap_or(0)),
                self.sizes.context.min(self.sizes.source_context.unwrap_or(usize::MAX)),
                self.folder.path().display()
            );
            return Err(Error::key("data.length", experiment.data.length, problem));
        }
        Ok(Sizes {
            vocab: self.sizes.vocab,
            context: asked.context.max(self.sizes.context),
            source_context: asked.source_context.max(self.sizes.source_context),
        })
    }
}
