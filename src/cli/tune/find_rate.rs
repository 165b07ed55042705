//! `tune --find-rate`: a learning-rate range test.

use std::process::ExitCode;

use causal_attention_report::Style;

use super::Args;
use crate::backend::Device;
use crate::config::Config;
use crate::data::Dataset;
use crate::error::Result;
use crate::files::write_atomically;
use crate::reporting::{rate_finder, save_all};
use crate::terminal::{print_json_line, say};
use crate::training::{RunFolder, RunPath};
use crate::tuning::sweep;

/// Sweeps over learning rates, and writes the curve to a folder.
pub(super) fn find_rate(
    args: &Args,
    config: &Config,
    device: &Device,
    dataset: &Dataset,
    target: &RunPath,
) -> Result<ExitCode> {
    let sweep = sweep(config, dataset, device)?;
    let style = Style::default();
    let picture = rate_finder(&config.name(), &sweep, style.logical_width());
    let json = serde_json::to_string(&sweep).expect("a sweep holds plain values");
    let (folder, _lock) = RunFolder::create(target, |folder| {
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.path().join("rate.json"), json.as_bytes())?;
        save_all(picture.as_slice(), &folder.plots(), &style).map(drop)
    })?;
    if args.json {
        print_json_line(&sweep);
    } else {
        say(&format!("{}: {}", config.name(), sweep.verdict.describe()));
        if let Some(options) = sweep.options(&config.training) {
            say(&format!("  options   {options}"));
        }
        say(&format!("  picture   {}", folder.plots().join("rate_finder.png").display()));
    }
    Ok(ExitCode::SUCCESS)
}
