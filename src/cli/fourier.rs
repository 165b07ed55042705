//! The Fourier analysis at the end of `train` and in `explain`.

use std::path::PathBuf;

use causal_attention_report::Style;

use crate::backend::Device;
use crate::config::Config;
use crate::error::Result;
use crate::reporting::{fourier_picture, save_all};
use crate::training::{FourierAnalysis, RunFolder};

/// Analyses a run on modular addition, writes `fourier.json` and its picture, and returns the sentences and the paths. Other
/// runs have no analysis.
///
/// # Errors
/// If the data has changed, or a file cannot be read or written.
pub fn analyse(folder: &RunFolder, config: &Config, device: &Device) -> Result<(Vec<String>, Vec<PathBuf>)> {
    if !FourierAnalysis::suits(config) || folder.is_imported() {
        return Ok(Default::default());
    }
    let found = FourierAnalysis::of_run(folder, config, device)?;
    folder.remove_fourier_picture()?;
    let style = Style::default();
    let picture = fourier_picture(&folder.name(), &found, style.logical_width());
    let mut paths = save_all(&[picture], &folder.plots(), &style)?;
    paths.insert(0, folder.fourier());
    Ok((found.sentences, paths))
}
