//! All that decides what a run does, and what is made of it before the first step.

use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use burn_flex::Flex;

use super::step::Trainee;
use super::{RunFolder, TrainingConfig};
use crate::analysis::AnalysisConfig;
use crate::data::{DataConfig, Dataset, Vocabulary};
use crate::error::{Error, Result};
use crate::model::{Architecture, ModelConfig, Sizes};
use crate::ops;
use crate::weights::native::{self, Description};

/// All that decides what a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The seed of everything drawn at random.
    pub seed: u64,
    /// The run whose best weights this one starts from; none: fresh ones.
    pub from: Option<PathBuf>,
    /// What is learned from.
    pub data: DataConfig,
    /// What learns.
    pub model: ModelConfig,
    /// How.
    pub training: TrainingConfig,
    /// What is looked at, along the run and after it.
    pub analysis: AnalysisConfig,
    /// The config as it is written into the run folder.
    pub toml: String,
    /// Steps after which the run pauses, though its schedule spans more: a rung of a study. None: never.
    pub pause_at: Option<usize>,
}

impl Experiment {
    /// Reads or draws the data, in the form that the architecture takes; by the vocabulary of the run
    /// that this one starts from, if it does.
    pub fn dataset(&self) -> Result<Dataset> {
        if let Some(from) = &self.from {
            return self.dataset_of(&RunFolder::open(from)?);
        }
        match self.model.architecture {
            Architecture::OneLayer | Architecture::Decoder => self.data.load(self.seed),
            Architecture::EncoderDecoder => self.data.load_pairs(self.seed),
        }
    }

    /// The sizes that the data asks of the model.
    pub fn sizes(&self, dataset: &Dataset) -> Sizes {
        Sizes {
            vocab: dataset.vocabulary.size(),
            context: dataset.train.time().max(dataset.valid.time()),
            source_context: dataset.train.source_time().max(dataset.valid.source_time()),
        }
    }

    /// The data of the run in `folder`, by the vocabulary that goes with its weights.
    ///
    /// # Errors
    /// If the data cannot be read, or no longer fits that vocabulary.
    pub fn dataset_of(&self, folder: &RunFolder) -> Result<Dataset> {
        let vocabulary = Vocabulary::read(folder.vocabulary())?;
        let dataset = match self.model.architecture {
            Architecture::OneLayer | Architecture::Decoder => self.data.load_with(self.seed, &vocabulary)?,
            Architecture::EncoderDecoder => self.data.load_pairs(self.seed)?,
        };
        if dataset.vocabulary != vocabulary {
            return Err(Error::Input(format!(
                "the data no longer has the vocabulary of the run `{}`: restore the data that it was made with",
                folder.path().display()
            )));
        }
        Ok(dataset)
    }

    pub(super) fn description(&self, sizes: Sizes) -> Description {
        Description { model: self.model.clone(), sizes }
    }

    /// A model with fresh weights, a pure function of the seed: drawn on the host, they are the same on
    /// every backend.
    pub fn model<B: ops::Backend>(&self, sizes: Sizes, device: &B::Device) -> Result<Trainee<B>> {
        let host = Default::default();
        Flex::seed(&host, self.seed);
        let drawn = native::collect(&self.model.init::<Flex>(sizes, &host)?)?;
        let model = native::apply(self.model.init(sizes, device)?, drawn, Path::new("the drawn weights"))?;
        Ok(Trainee { model, label_smoothing: self.training.label_smoothing })
    }
}

/// What a run keeps of its vocabulary: a file, and the measure of whether the data is still the same.
pub(super) fn vocabulary_json(dataset: &Dataset) -> String {
    serde_json::to_string_pretty(&dataset.vocabulary).expect("a vocabulary holds plain values")
}
