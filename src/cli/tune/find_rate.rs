//! `tune --find-rate`: a sweep over learning rates.

use std::process::ExitCode;

use super::Args;
use crate::backend::{self, Device, Job, Memory};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::ops;
use crate::report::{Style, rate_finder, save_all};
use crate::terminal::{print_json_line, say};
use crate::training::{RunFolder, Start, Target, check_precision};
use crate::tuning::{RateSweep, sweep};

/// The sweep, on any backend.
struct FindRate<'a>(&'a Config, &'a Dataset, &'a Device);

impl Job for FindRate<'_> {
    type Output = RateSweep;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<RateSweep> {
        let Self(config, dataset, on) = self;
        check_precision::<B>(&config.training, on, &device)?;
        let sizes = Start::of(config)?.sizes(config, dataset)?;
        Memory::of(config, dataset, on).check(config, sizes, on)?;
        sweep::<B>(config, dataset, &device)
    }
}

/// Sweeps over learning rates, and leaves the curve in a folder.
pub(super) fn find_rate(args: &Args, config: &Config, device: &Device, dataset: Dataset) -> Result<ExitCode> {
    if let Some(folder) = args.run.as_ref().filter(|folder| folder.exists()) {
        let folder = folder.display();
        return Err(Error::Input(format!(
            "the folder `{folder}` exists already: name another with --run DIR"
        )));
    }
    let target =
        args.run.clone().map_or_else(|| Target::Named(format!("{}-rate", config.name())), Target::Folder);
    target.check()?;
    let sweep = backend::run(device, FindRate(config, &dataset, device))?;
    let picture = rate_finder(&config.name(), &sweep);
    let json = serde_json::to_string(&sweep).expect("a sweep holds plain values");
    let (folder, _lock) = RunFolder::create(&target, |folder| {
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.path().join("rate.json"), json.as_bytes())?;
        save_all(picture.as_slice(), &folder.plots(), &Style::default()).map(drop)
    })?;
    if args.json {
        print_json_line(&sweep);
    } else {
        say(&format!("{}: {}", config.name(), sweep.verdict.describe()));
        say(&format!("  picture   {}", folder.plots().join("rate_finder.png").display()));
    }
    Ok(ExitCode::SUCCESS)
}
