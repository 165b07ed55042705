//! Several checkpoints of one training run: their steps, and what is measured at each of them.

use std::path::{Path, PathBuf};

use crate::backend::Device;
use crate::config::Config;
use crate::data::{Dataset, Source, load_with};
use crate::error::{Error, Result};
use crate::numbers::thousands;
use crate::terminal::say;
use crate::training::{RunFolder, Series, SeriesStep};
use crate::weights::import::Imported;
use crate::weights::native::Description;

/// The checkpoints of a training run, and the data to measure them on.
pub struct PreparedSeries {
    steps: Vec<SeriesStep>,
    dataset: Dataset,
    origin: PathBuf,
}

/// Opens the checkpoints in `folders`, in the order of their steps.
///
/// # Errors
/// Returns an error if a folder cannot be imported, if its step is unknown, or if two checkpoints have the same step or
/// differ in model or vocabulary.
pub fn read(
    folders: &[PathBuf],
    steps: &[usize],
    import: impl Fn(&[PathBuf]) -> Result<Imported>,
) -> Result<Vec<(usize, Imported)>> {
    if !steps.is_empty() && steps.len() != folders.len() {
        let problem = format!("--steps: has {} steps, but there are {} folders", steps.len(), folders.len());
        return Err(Error::Input(problem));
    }
    let mut all: Vec<(usize, &PathBuf)> = Vec::new();
    for (index, folder) in folders.iter().enumerate() {
        let step = steps.get(index).copied().map_or_else(|| step_of(folder), Ok)?;
        if let Some((_, other)) = all.iter().find(|(other, _)| *other == step) {
            let (folder, other) = (folder.display(), other.display());
            let problem =
                format!("`{other}` and `{folder}` both have step {step}; set the steps with --steps");
            return Err(Error::Input(problem));
        }
        all.push((step, folder));
    }
    all.sort_by_key(|(step, _)| *step);
    let mut series: Vec<(usize, Imported)> = Vec::new();
    for (step, folder) in all {
        let imported = import(std::slice::from_ref(folder))?;
        if let Some((_, first)) = series.first() {
            let differs = [
                (first.description != imported.description, "model"),
                (first.vocabulary != imported.vocabulary, "vocabulary"),
            ];
            if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
                let problem = format!("has another {what} than the other checkpoints; import it by itself");
                return Err(Error::file(folder, problem));
            }
        }
        say(&format!("step {}: {}", thousands(step as f64), folder.display()));
        series.push((step, imported));
    }
    Ok(series)
}

/// Returns the folder of the last step, whose weights the run holds.
pub fn last<'f>(folders: &'f [PathBuf], steps: &[usize]) -> Result<&'f Path> {
    let mut last: Option<(usize, &Path)> = None;
    for (index, folder) in folders.iter().enumerate() {
        let step = steps.get(index).copied().map_or_else(|| step_of(folder), Ok)?;
        if last.is_none_or(|(other, _)| step > other) {
            last = Some((step, folder));
        }
    }
    Ok(last.expect("a series has at least one folder").1)
}

/// Returns the last number in the name of a folder, such as 1000 in `step1000`.
fn step_of(folder: &Path) -> Result<usize> {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.rsplit(|character: char| !character.is_ascii_digit()).find(|part| !part.is_empty());
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        let problem = "has no step in its name, such as step1000; set the steps with --steps 0,1000,...";
        Error::file(folder, problem)
    })
}

/// Reads the data on which a series is measured, and records its last step in the config; `None` without a series.
///
/// # Errors
/// Returns an error if there is no data, or if it cannot be read.
pub fn prepare(
    series: Vec<(usize, Imported)>,
    config: &mut Config,
    imported: &Imported,
    origin: &Path,
) -> Result<Option<PreparedSeries>> {
    let Some((last, _)) = series.last() else { return Ok(None) };
    if config.data.source() != Source::Sequences && config.data.path.is_empty() {
        let problem = "several checkpoints are measured on data; pass it with --set data.path=text.txt";
        return Err(Error::Input(problem.into()));
    }
    config.training.steps = Some(*last);
    let dataset = load_with(&config.data, config.run.seed, &imported.vocabulary)?;
    let steps = series.into_iter().map(|(step, imported)| (step, imported.tensors)).collect();
    Ok(Some(PreparedSeries { steps, dataset, origin: origin.to_path_buf() }))
}

impl PreparedSeries {
    /// Measures the checkpoints on `device`, and writes the results into the folder of their run.
    ///
    /// # Errors
    /// Same as [`Series::measure`].
    pub fn measure(
        &self,
        config: &Config,
        description: &Description,
        folder: &RunFolder,
        device: &Device,
    ) -> Result<()> {
        let series = Series {
            config,
            description,
            dataset: &self.dataset,
            steps: &self.steps,
            origin: &self.origin,
            on_measured: &|step, evaluation| {
                let step = thousands(step as f64);
                say(&format!("step {step}: validation loss {:.4} nats per token", evaluation.loss));
            },
        };
        series.measure(folder, device)
    }
}
