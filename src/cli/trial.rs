//! `trial`: one run of a study, which starts it; not for people.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use super::backend::BackendArgs;
use super::signals;
use crate::backend::{self, Place};
use crate::config::Config;
use crate::error::Result;
use crate::training::{Control, Ended, Experiment, ProgressKind, RunFolder, Target};
use crate::tuning::Errand;

/// Train one run of a study.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    backend: BackendArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let signal = signals::watch()?;
    let (errand, _alive) = Errand::receive(signal.clone())?;
    let config = Config::parse(&errand.config, Path::new("config.toml"), &[])?;
    let device = args.backend.choose(Some(&config.training))?;
    let place = match errand.folder.exists() {
        true => Place::Old(RunFolder::open(&errand.folder)?),
        false => Place::New(Target::Folder(errand.folder)),
    };
    let experiment = Experiment { pause_at: errand.pause_at, ..config.experiment() };
    let control = Control { progress: ProgressKind::None, signal: signal.clone(), device };
    let outcome = backend::train(&experiment, place, &control)?;
    Ok(match (outcome.summary.ended, signal.load(Ordering::Relaxed)) {
        (Ended::Interrupted, signal) if signal != 0 => ExitCode::from(signals::exit_code(signal)),
        _ => ExitCode::SUCCESS,
    })
}
