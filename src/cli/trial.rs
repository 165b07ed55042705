//! `trial`: one run of a study, which starts it; not for people.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use super::backend::BackendArgs;
use super::signals;
use crate::backend::compute;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::terminal::{ProgressKind, keep_working_unread, warn};
use crate::training::{Control, Ended, Place, RunFolder, Target, launch};
use crate::tuning::{CANNOT_BE_TRAINED, Errand};

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
    let device = args.backend.choose(&config.training, &[])?;
    // What others do to the run, its data or this machine's threads is no fault of its own: it ends the study.
    let place = match errand.folder.exists() {
        true => {
            let folder = RunFolder::open(&errand.folder)?;
            drop(folder.lock()?);
            if errand.is_done(&folder)? {
                return Ok(ExitCode::SUCCESS);
            }
            Place::Old(folder)
        }
        false => Place::New(Target::Folder(errand.folder.clone())),
    };
    errand.check_data(&config)?;
    compute(&config.training, || Ok(()))?;
    let control =
        Control { progress: ProgressKind::None, signal: signal.clone(), device, until: errand.pause_at };
    keep_working_unread();
    let outcome = match launch(&config, place, &control) {
        Err(error) if is_its_own(&error) => {
            warn(&format!("error: {error}"));
            return Ok(ExitCode::from(CANNOT_BE_TRAINED as u8));
        }
        outcome => outcome?,
    };
    Ok(match (outcome.summary.ended, signal.load(Ordering::Relaxed)) {
        (Ended::Interrupted, signal) if signal != 0 => ExitCode::from(signals::exit_code(signal)),
        _ => ExitCode::SUCCESS,
    })
}

/// Whether an error is about this trial, as a model that no memory holds, so that the study goes on without
/// it. What the disk refuses, it would refuse the next trial too.
fn is_its_own(error: &Error) -> bool {
    match error {
        Error::Key { .. }
        | Error::Shape(_)
        | Error::Input(_)
        | Error::DeviceMemory { .. }
        | Error::DeviceFailed { .. }
        | Error::Failed(_) => true,
        Error::File { .. } | Error::Io { .. } | Error::Diverged { .. } => false,
    }
}
