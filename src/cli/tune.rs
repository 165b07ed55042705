//! `tune`: searches hyper-parameters, and leaves a study folder with its trials, table and pictures.

mod find_rate;
mod told;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use super::backend::BackendArgs;
use super::signals;
use crate::backend::{self, Device, Job, Memory};
use crate::config::{Config, TrainingConfig};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::ops;
use crate::pictures::draw_study;
use crate::report::Style;
use crate::terminal::{ProgressKind, keep_working_unread, print_json_line, say};
use crate::training::{Start, Target, check_precision, dataset};
use crate::tuning::{
    Baseline, Candidate, Errand, Happened, Outline, Space, Study, StudyFolder, StudyProgress, TrialEnd,
    Workers, check_baseline, check_resumes, ranked,
};
use find_rate::{FindRate, find_rate};
use told::{tell, tell_baseline, tell_outline};

/// Search hyper-parameters: writes a study folder with a run a trial, a table, pictures and best.toml.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The experiment, with its search in [tune]. [default: config.toml of the current folder, or else
    /// the built-in one]
    config: Option<PathBuf>,
    /// Overrides a key of the config, as --set tune.trials=20; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder to write, which must not exist. [default: runs/NAME-study, a name taken gets a number]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Goes on with a study where it was, to the same result as if it had never stopped.
    #[arg(long, value_name = "STUDY")]
    resume: Option<PathBuf>,
    /// Trials at once, each a process; results do not depend on it. [default: 1]
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Sweeps over learning rates instead, and suggests one.
    #[arg(long, conflicts_with_all = ["resume", "jobs", "dry_run"])]
    find_rate: bool,
    /// Prints what the study would try, and trains nothing.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    backend: BackendArgs,
    /// How progress is shown: bar, plain or none. [default: bar on a terminal, else plain]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    progress: Option<ProgressKind>,
    /// Prints the result as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let resumed = args.resume.as_ref().map(StudyFolder::open).transpose()?;
    let search = |config: &Config| Space::new(config).map(drop);
    let mut config = match (&resumed, &args.config) {
        (Some(folder), None) => Config::load_checked(Some(&folder.config()), &args.set, search)?,
        (_, path) => Config::load_checked(path.as_deref(), &args.set, search)?,
    };
    // Trials are made with what is asked for here, and so is what goes on with them.
    let device = args.backend.choose_for_run(&mut config.training, &args.set)?;
    if let Some(folder) = &resumed {
        check_resumes(&config, &Config::load(Some(&folder.config()), &[])?, folder)?;
    }
    let experiment = config.clone();
    let dataset = dataset(&experiment)?;
    if args.find_rate {
        return find_rate(&args, &config, &device, FindRate { experiment, dataset, on: &device });
    }
    let outline = Outline::new(&config, &dataset)?;
    if args.dry_run {
        tell_outline(&config.name(), &outline);
        return Ok(ExitCode::SUCCESS);
    }
    let kind = args.progress.unwrap_or(match args.json {
        true => ProgressKind::None,
        false => ProgressKind::automatic(),
    });
    // A check that is still to come a signal may end at once: there is nothing yet that it could cost.
    let checks = config.tune.as_ref().is_none_or(|tune| tune.baseline)
        && resumed.as_ref().is_none_or(|folder| !folder.baseline().exists());
    let watched = (!checks).then(signals::watch).transpose()?;
    let is_new = resumed.is_none();
    keep_working_unread();
    let mut study = match resumed {
        Some(folder) => {
            Errand::check_folder(folder.path())?;
            Study::resume(outline, folder)?
        }
        None => {
            let name = format!("{}-study", config.name());
            let target = args.run.clone().map_or(Target::Named(name), Target::Folder);
            target.check()?;
            Errand::check_folder(args.run.as_deref().unwrap_or(Path::new(".")))?;
            // Refused before it leaves a trace.
            backend::run(&device, CheckPrecision { training: &config.training, on: &device })?;
            Study::create(&config, outline, &target)?
        }
    };
    if checks {
        let (candidates, rates) = study.baseline()?;
        let check = CheckBaseline { candidates, dataset, rates, on: &device };
        let found = match backend::run(&device, check) {
            Ok(found) => found,
            Err(error) if is_new => {
                study.discard()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if let Some(found) = found {
            study.keep_baseline(&found)?;
            if !args.json {
                tell_baseline(&found);
            }
        }
    }
    let signal = watched.map_or_else(signals::watch, Ok)?;
    let mut progress = StudyProgress::new(kind, &study);
    let workers = Workers::new(device, args.jobs.into())?;
    let happened = study.conduct(&workers, &signal, &mut progress);
    progress.finish();
    let happened = happened.map_err(|error| {
        // What is there is drawn if the disk lets it: the error is what counts.
        let _ = draw_study(&study, &Style::default());
        with_remedy(error, &study)
    })?;
    let pictures = draw_study(&study, &Style::default()).map_err(|error| with_remedy(error, &study))?;
    let trials = study.trials();
    if args.json {
        print_json_line(&ranked(&trials));
    } else {
        tell(&study, &trials, &pictures);
    }
    if happened == Happened::Interrupted && !args.json {
        say(&format!("interrupted: `tune --resume {}` goes on from here", study.folder().path().display()));
    }
    if let (Some(why), true) =
        (study.first_failure(), trials.iter().all(|trial| trial.ended == TrialEnd::Failed))
    {
        return Err(Error::Failed(format!("every trial failed: {why}")));
    }
    Ok(match happened {
        Happened::Done => ExitCode::SUCCESS,
        Happened::Interrupted => ExitCode::from(signals::exit_code(signal.load(Ordering::Relaxed))),
    })
}

struct CheckPrecision<'a> {
    training: &'a TrainingConfig,
    on: &'a Device,
}

impl Job for CheckPrecision<'_> {
    type Output = ();

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<()> {
        check_precision::<B>(self.training, self.on, &device)
    }
}

struct CheckBaseline<'a> {
    candidates: Vec<Candidate>,
    dataset: Dataset,
    rates: Vec<f64>,
    on: &'a Device,
}

impl Job for CheckBaseline<'_> {
    type Output = Option<Baseline>;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Option<Baseline>> {
        let Self { mut candidates, dataset, rates, on } = self;
        let Some(first) = candidates.first() else { return Ok(None) };
        // All of them start from the same.
        let start = Start::of(&first.experiment)?;
        // What this machine cannot train is recorded as failed when its trial comes, and takes no study along.
        candidates.retain(|Candidate { experiment, .. }| {
            let fits = || {
                let sizes = start.sizes(experiment, &dataset)?;
                Memory::of(experiment, &dataset, on).check(experiment, sizes, on)
            };
            check_precision::<B>(&experiment.training, on, &device).is_ok() && fits().is_ok()
        });
        drop(start);
        check_baseline::<B>(&candidates, &dataset, &rates, &device)
    }
}

/// Says how to go on after an error, which costs no trial that is done.
fn with_remedy(error: Error, study: &Study) -> Error {
    let go_on = format!("; `tune --resume {}` goes on from here", study.folder().path().display());
    match error {
        Error::Input(message) => Error::Input(message + &go_on),
        Error::Failed(message) => Error::Failed(message + &go_on),
        error @ Error::Io { .. } => Error::Input(error.to_string() + &go_on),
        error => error,
    }
}
