//! A job that runs the best weights of a run on its sequences.

use std::slice::from_ref;

use burn::tensor::backend::AutodiffBackend;

use super::live::{StoredMeans, fits};
use crate::analysis::interventions::means;
use crate::analysis::{FreeRunning, MAX_HELD_WEIGHTS, Sample, View};
use crate::backend::Job;
use crate::data::Vocabulary;
use crate::error::Result;
use crate::evaluation::DeviceBatch;
use crate::hooks::ResidualWriter;
use crate::training::RunFolder;
use crate::weights::native;

/// The job that computes the views of the first samples, as many as memory allows, the continuation of one of them, and
/// the mean outputs of components over the stored sequences.
pub(super) struct SampleViews<'a> {
    /// The folder of the run.
    pub folder: &'a RunFolder,
    pub samples: &'a [Sample],
    /// The stored sequences of the run, over which the outputs of components are averaged.
    pub stored: &'a [Sample],
    /// The index of the sample that the model continues.
    pub shown: usize,
    pub vocabulary: &'a Vocabulary,
}

impl Job for SampleViews<'_> {
    type Output = (Vec<View>, FreeRunning, StoredMeans);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self { folder, samples, stored, shown, vocabulary } = self;
        let (model, description) = native::load_model::<B::InnerBackend>(&folder.best_weights()?, &device)?;
        let mut views = Vec::with_capacity(samples.len());
        let mut weights = 0;
        for sample in samples {
            let view =
                View::new(&model, DeviceBatch::new(&Sample::batch_of(from_ref(sample)), &device).inputs)?;
            weights += view.maps.attention.iter().flatten().map(Vec::len).sum::<usize>();
            views.push(view);
            if weights > MAX_HELD_WEIGHTS {
                break;
            }
        }
        let shown = &samples[shown.min(views.len() - 1)];
        let free = FreeRunning::new((&model, description.sizes), vocabulary, shown, &device)?;
        let means = match fits(&description) {
            true => {
                let components = ResidualWriter::all(&model);
                let outputs = means(&model, stored, &components, &device)?;
                StoredMeans {
                    sequences: stored.len(),
                    outputs: components.into_iter().zip(outputs).collect(),
                }
            }
            // The page does not include the model.
            false => StoredMeans::default(),
        };
        Ok((views, free, means))
    }
}
