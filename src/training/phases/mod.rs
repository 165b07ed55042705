//! The phases of a run: found in its recorded curves, located to the step by replaying the run exactly, and attributed
//! to heads.
//!
//! | file | holds |
//! |---|---|
//! | `recorded` | the phases in the recorded curves, each between two recorded steps |
//! | `replay` | the replay of the run up to its last phase, in a folder of its own |
//! | `meter` | the observer of the replay: it measures each step in a phase, and compares the replay with the run |
//! | `located` | the steps of each phase, from these measurements |
//! | `found`, `stored` | the result, as plain data; as read from `phases.json` |
//! | `sentences` | the result as sentences |

mod found;
mod located;
mod meter;
mod recorded;
mod replay;
mod sentences;
mod stored;

use std::collections::BTreeSet;

use burn::tensor::backend::AutodiffBackend;

use super::control::Control;
use super::fourier::{FourierAnalysis, TrainingStage};
use super::observers::weight_copies;
use super::run_folder::RunFolder;
use super::start::dataset_of;
use super::summary::Summary;
use crate::analysis::HeadHistory;
use crate::analysis::phases::{HeadAblation, LossByTarget, ablate_layers};
use crate::backend::{self, Job, compute_as_run};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result, ensure};
use crate::files::{has_entry, write_atomically};
use crate::weights::native;

pub use found::{Confirmation, MeasuredLoss, Phase, PhaseChange, PhaseCurve, Phases, Replayed};
pub use recorded::RecordedCurve;
pub use stored::{HeadPhase, StoredChange, StoredPhase, StoredPhases};

/// The search for the phases of a run.
#[derive(Debug)]
pub struct PhaseSearch<'a> {
    /// The run.
    pub folder: &'a RunFolder,
    /// The config of the run.
    pub config: &'a Config,
    /// The device, the progress display and the signal that ends the replay early.
    pub control: &'a Control,
    /// True to locate the phases by replaying the run.
    pub replays: bool,
    /// The seconds of the replay after which it pauses. `None`: the time of the run.
    pub budget: Option<f64>,
}

/// The phases of a run, and its recorded curves.
#[derive(Debug)]
pub struct FoundPhases {
    /// The phases, as `phases.json` holds them.
    pub phases: Phases,
    /// The curves in which the phases were found.
    pub curves: Vec<RecordedCurve>,
    /// The number of the signal that paused the replay.
    pub signal: Option<usize>,
}

impl PhaseSearch<'_> {
    /// Finds the phases of the run, locates them and attributes them to heads, and writes `phases.json`.
    ///
    /// # Errors
    /// If the run has no recorded curves, its data has changed, it cannot be replayed, the budget is too small for the
    /// first phase, or a file cannot be read or written.
    pub fn find(&self) -> Result<FoundPhases> {
        let (folder, run) = (self.folder, self.folder.path().display());
        ensure(!folder.is_imported(), Error::Input, || {
            format!(
                "the run `{run}` was imported without its training, so it has no curves; import all of its checkpoints \
                 with import CHECKPOINT.. and find the phases of that run"
            )
        })?;
        ensure(!self.replays || !folder.has_foreign_weights(), Error::Input, || {
            format!("another program trained `{run}`, so it cannot be replayed; use --no-replay")
        })?;
        let scored = match has_entry(&folder.head_scores()) {
            true => HeadHistory::open(&folder.head_scores(), usize::MAX)?.all,
            false => Vec::new(),
        };
        ensure(!scored.is_empty(), Error::Input, || {
            format!(
                "the run `{run}` did not record the scores of its heads, which date phases; train it again with --set \
                 analysis.every=50"
            )
        })?;
        let summary = Summary::read(folder)?;
        let curves = recorded::curves(&super::read_metrics(&folder.metrics())?, &scored);
        let mut phases = Phases {
            steps: summary.work.steps,
            curves: curves.len(),
            recorded_every: recorded::spacing(&scored),
            phases: recorded::phases(&curves, self.config.data.length),
            stages: self.stages()?,
            replay: None,
            sentences: Vec::new(),
        };
        let mut signal = None;
        if !phases.phases.is_empty() {
            let dataset = dataset_of(self.config, folder)?;
            if self.replays {
                let ended = replay::replay(self, &summary, &mut phases, &dataset)?;
                signal = ended.signal;
            }
            self.confirm(&mut phases, &dataset)?;
        }
        sentences::describe(&mut phases);
        let json = serde_json::to_vec_pretty(&phases).expect("phases hold plain values");
        write_atomically(&folder.phases(), &json)?;
        Ok(FoundPhases { phases, curves, signal })
    }

    /// Returns the stages of a run on modular addition that kept its weights.
    fn stages(&self) -> Result<Vec<TrainingStage>> {
        let PhaseSearch { folder, config, control, .. } = self;
        if !FourierAnalysis::suits(config) || weight_copies(folder)?.is_empty() {
            return Ok(Vec::new());
        }
        let found = match FourierAnalysis::read(folder)? {
            Some(found) => found,
            None => FourierAnalysis::of_run(folder, config, &control.device)?,
        };
        Ok(found.stages)
    }

    /// Ablates the heads of each layer in which a phase changed a head, at the best weights of the run.
    fn confirm(&self, phases: &mut Phases, dataset: &Dataset) -> Result<()> {
        let layers: BTreeSet<usize> =
            phases.phases.iter().filter_map(Phase::head).map(|[layer, _]| layer).collect();
        if layers.is_empty() {
            return Ok(());
        }
        let layers: Vec<usize> = layers.into_iter().collect();
        let job = Ablating { search: self, dataset, layers: &layers };
        let (full, heads) = backend::run(&self.control.device, job)?;
        for phase in &mut phases.phases {
            let Some([layer, _]) = phase.head() else { continue };
            let heads = heads.iter().filter(|head| head.layer == layer).copied().collect();
            phase.end = Some(Confirmation { full, heads });
        }
        Ok(())
    }
}

/// The job that ablates the heads of some layers.
struct Ablating<'a> {
    search: &'a PhaseSearch<'a>,
    dataset: &'a Dataset,
    layers: &'a [usize],
}

impl Job for Ablating<'_> {
    type Output = (LossByTarget, Vec<HeadAblation>);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let PhaseSearch { folder, config, control, .. } = self.search;
        let on_device = device.clone();
        compute_as_run::<B, _>(&config.training, &control.device, &device, || {
            let (model, _) = native::load_model::<B::InnerBackend>(&folder.best_weights()?, &on_device)?;
            let set = (&self.dataset.valid, config.analysis.sequences, config.training.batch_size);
            ablate_layers(&model, set, self.layers, &on_device)
        })
    }
}

#[cfg(test)]
mod tests;
