//! `weights/`: a copy of the weights every `analysis.weights_every` steps.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ModelAccess, Moment, Observer};
use crate::error::{Error, Result};
use crate::files::{create, write_atomically};
use crate::training::run_folder::RunFolder;
use crate::weights::native;

/// The prefix of the name of a copy, before its step.
const PREFIX: &str = "step-";
/// The suffix of the name of a copy.
const SUFFIX: &str = ".safetensors";

/// The writer of the copies.
#[derive(Debug, Default)]
pub struct WeightCopies {
    /// The step of the last copy of this process.
    last: Option<usize>,
}

impl Observer for WeightCopies {
    /// Removes the copies after the step from which the run continues. It writes them again.
    fn start(&mut self, moment: &Moment<'_>) -> Result<()> {
        let newer = weight_copies(&moment.setup.folder)?;
        newer.into_iter().filter(|(step, _)| *step > moment.state.step).try_for_each(|(_, path)| {
            fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))
        })
    }

    fn wants_model(&self, moment: &Moment<'_>) -> bool {
        let (every, step) = (moment.setup.config.analysis.weights_every, moment.state.step);
        every > 0 && (step.is_multiple_of(every) || step == moment.setup.total) && self.last != Some(step)
    }

    fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> Result<()> {
        let (step, folder) = (moment.state.step, moment.setup.folder.weight_copies());
        let bytes = native::to_bytes(&model.weights()?, Some(&moment.setup.description))?;
        create(&folder)?;
        write_atomically(&folder.join(format!("{PREFIX}{step:08}{SUFFIX}")), &bytes)?;
        self.last = Some(step);
        Ok(())
    }
}

/// Returns the steps and the paths of the copies of a run, in the order of steps.
///
/// # Errors
/// If the folder cannot be read.
pub fn weight_copies(folder: &RunFolder) -> Result<Vec<(usize, PathBuf)>> {
    let path = folder.weight_copies();
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error| Error::io("read", &path, error);
    let mut copies = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        copies.extend(step_of(&path).map(|step| (step, path)));
    }
    copies.sort_unstable();
    Ok(copies)
}

fn step_of(path: &Path) -> Option<usize> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}
