//! A run on whichever backend its device has.

use super::{Control, Outcome, RunFolder, Target, dataset, resume, train};
use crate::backend::{self, Job, Memory, smaller_batch};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ops;

/// The folder of a run.
#[derive(Debug)]
pub enum Place {
    /// A new one, trained from the beginning.
    New(Target),
    /// One that is there already: its run is resumed.
    Old(RunFolder),
}

/// Trains on the device that `control` names.
///
/// # Errors
/// Those of [`train`] and [`resume`], and if the backend cannot start.
pub fn launch(config: &Config, place: Place, control: &Control) -> Result<Outcome> {
    struct Train<'a>(&'a Config, Place, &'a Control);

    impl Job for Train<'_> {
        type Output = Outcome;

        fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Outcome> {
            let Train(config, place, control) = self;
            match place {
                Place::New(target) => train::<B>(config, &target, &device, control),
                Place::Old(folder) => resume::<B>(config, folder, &device, control),
            }
        }
    }

    backend::run(&control.device, Train(config, place, control)).map_err(|error| match error {
        Error::DeviceMemory { .. } => smaller_batch(error, &config.training, rows(config, control)),
        Error::DeviceFailed { .. } => {
            Error::Failed(format!("{error}. A run that has begun goes on with train --resume RUN"))
        }
        error => error,
    })
}

/// Rows of the largest batch. Files are read once more for it.
fn rows(config: &Config, control: &Control) -> usize {
    let foreseen = Memory::foreseen(config, &control.device).map(|(memory, _)| memory.rows);
    let read = || dataset(config).ok().map(|data| Memory::of(config, &data, &control.device).rows);
    foreseen.or_else(read).unwrap_or(config.training.batch_size)
}
