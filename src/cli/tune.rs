//! `tune`: searches hyper-parameters, and leaves a study folder with its trials, table and pictures.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use super::backend::BackendArgs;
use super::signals;
use crate::backend::{self, Job, smaller_batch};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::ops;
use crate::pictures::{draw_study, of_sweep};
use crate::report::{Picture, Style};
use crate::training::{
    Device, Experiment, Memory, ProgressKind, RunFolder, Target, TrainingConfig, check_precision, clock, say,
    thousands, write_atomically,
};
use crate::tuning::{
    Baseline, Candidate, Happened, Outline, RateSweep, Study, StudyFolder, StudyProgress, Trial, TrialEnd,
    Workers, check_baseline, check_resumes, ranked, setting_shown, shown, sweep,
};

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
    #[arg(long)]
    json: bool,
}

/// Trials that the closing table shows.
const SHOWN: usize = 20;

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let resumed = args.resume.as_ref().map(StudyFolder::open).transpose()?;
    let mut config = match (&resumed, &args.config) {
        (Some(folder), None) => Config::load(Some(&folder.config()), &args.set)?,
        (_, path) => Config::load(path.as_deref(), &args.set)?,
    };
    // Trials are made with what is asked for here, and so is what goes on with them.
    let device = args.backend.choose_for_run(&mut config.training, &args.set)?;
    if let Some(folder) = &resumed {
        check_resumes(&config, &Config::load(Some(&folder.config()), &[])?, folder)?;
    }
    let experiment = config.experiment();
    let dataset = experiment.dataset()?;
    if args.find_rate {
        return find_rate(&args, &config, &device, FindRate { experiment, dataset, on: &device });
    }
    let outline = Outline::new(&config, dataset.train.len())?;
    if args.dry_run {
        tell_outline(&config.name(), &outline);
        return Ok(ExitCode::SUCCESS);
    }
    let kind = args.progress.unwrap_or(match args.json {
        true => ProgressKind::None,
        false => ProgressKind::automatic(),
    });
    StudyProgress::check(kind)?;
    // A check that is still to come a signal may end at once: there is nothing yet that it could cost.
    let checks = config.tune.as_ref().is_none_or(|tune| tune.baseline)
        && resumed.as_ref().is_none_or(|folder| !folder.baseline().exists());
    let watched = (!checks).then(signals::watch).transpose()?;
    let is_new = resumed.is_none();
    let mut study = match resumed {
        Some(folder) => Study::resume(outline, folder)?,
        None => {
            let name = format!("{}-study", config.name());
            let target = args.run.clone().map_or(Target::Named(name), Target::Folder);
            target.check()?;
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
        say(&serde_json::to_string(&ranked(&trials)).expect("trials hold plain values"));
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
        // What this machine cannot train is recorded as failed when its trial comes, and takes no study along.
        candidates.retain(|Candidate { experiment, .. }| {
            let memory = || Memory::of(experiment, &dataset, on);
            check_precision::<B>(&experiment.training, on, &device).is_ok()
                && memory().check(experiment, experiment.sizes(&dataset), on).is_ok()
        });
        check_baseline::<B>(&candidates, &dataset, &rates, &device)
    }
}

struct FindRate<'a> {
    experiment: Experiment,
    dataset: Dataset,
    on: &'a Device,
}

impl Job for FindRate<'_> {
    type Output = RateSweep;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<RateSweep> {
        let Self { experiment, dataset, on } = &self;
        check_precision::<B>(&experiment.training, on, &device)?;
        Memory::of(experiment, dataset, on).check(experiment, experiment.sizes(dataset), on)?;
        sweep::<B>(&self.experiment, &self.dataset, &device)
    }
}

/// Sweeps over learning rates, and leaves the curve in a folder.
fn find_rate(args: &Args, config: &Config, device: &Device, job: FindRate<'_>) -> Result<ExitCode> {
    if let Some(folder) = args.run.as_ref().filter(|folder| folder.exists()) {
        let folder = folder.display();
        return Err(Error::Input(format!(
            "the folder `{folder}` exists already: name another with --run DIR"
        )));
    }
    let target =
        args.run.clone().map_or_else(|| Target::Named(format!("{}-rate", config.name())), Target::Folder);
    target.check()?;
    let training = job.experiment.training.clone();
    let rows = Memory::of(&job.experiment, &job.dataset, device).rows;
    let sweep = backend::run(device, job).map_err(|error| smaller_batch(error, &training, rows))?;
    let curve = of_sweep(config.name(), &sweep);
    let json = serde_json::to_string(&sweep).expect("a sweep holds plain values");
    let (folder, _lock) = RunFolder::create(&target, |folder| {
        write_atomically(&folder.config(), config.to_toml().as_bytes())?;
        write_atomically(&folder.path().join("rate.json"), json.as_bytes())?;
        crate::pictures::create(&folder.plots())?;
        curve.save(&folder.plots(), &Style::default()).map(drop)
    })?;
    if args.json {
        say(&json);
    } else {
        say(&format!("{}: {}", config.name(), sweep.verdict.describe()));
        say(&format!("  weights   unchanged: SHA-256 {} before and after", &sweep.weights[..16]));
        say(&format!("  picture   {}", folder.plots().join("rate_finder.png").display()));
    }
    Ok(ExitCode::SUCCESS)
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

fn tell_baseline(found: &Baseline) {
    say(&format!(
        "baseline: {} sequences learned by heart in {} steps at a rate of {:e}: training loss {:.3} nats, where {:.3} \
         is possible",
        found.sequences, found.steps, found.learning_rate, found.reached, found.least
    ));
}

/// What a study would try.
fn tell_outline(name: &str, outline: &Outline) {
    let proposer = outline.proposer();
    let first = outline.first();
    say(&format!("{name}: what a study would try, nothing is trained"));
    say(&format!(
        "  trials   {}{}, each of {} steps at the config's own batch size",
        proposer.trials(),
        if outline.seeds() > 1 { format!(" with {} seeds", outline.seeds()) } else { String::new() },
        thousands(outline.steps() as f64)
    ));
    let rungs = outline.rungs().iter().map(|&step| thousands(step as f64)).collect::<Vec<_>>().join(", ");
    let goes_on = match outline.rungs().len() {
        1 => String::new(),
        _ => format!("; one in {} goes on", proposer.eta),
    };
    say(&format!("  rungs    {rungs} steps{goes_on}"));
    let (sequences, all) = outline.study_sequences();
    say(&format!(
        "  in all   {} training sequences at most, of {} without rungs",
        thousands(sequences as f64),
        thousands(all as f64)
    ));
    if let (1.., Some(reason)) = (proposer.left_out, &proposer.reason) {
        let combinations = if proposer.left_out == 1 { "combination" } else { "combinations" };
        say(&format!("  left out {} {combinations} that the config refuses: {reason}", proposer.left_out));
    }
    for (number, trial) in first.trials.iter().enumerate() {
        say(&format!("  {number:03}      {}", setting_shown(&trial.setting)));
    }
}

/// The closing table, best first.
fn tell(study: &Study, trials: &[Trial], pictures: &[PathBuf]) {
    let keys = study.keys();
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"))
    };
    let mut table = vec![["trial".to_string()].into_iter().collect::<Vec<_>>()];
    table[0]
        .extend(keys.iter().map(|key| key.split_once('.').map_or(key.clone(), |(_, name)| name.to_string())));
    table[0].extend(["loss", "gap", "last steps", "spikes", "parameters", "time", "ended"].map(String::from));
    let ranked = ranked(trials);
    for trial in ranked.iter().take(SHOWN) {
        let mut row = vec![format!("{:03}", trial.trial)];
        row.extend(keys.iter().map(|key| trial.setting.get(key).map(shown).unwrap_or_default()));
        let loss = match trial.loss_spread {
            Some(spread) => format!("{} ±{spread:.4}", number(trial.loss, 4)),
            None => number(trial.loss, 4),
        };
        row.extend([
            loss,
            number(trial.gap, 4),
            trial.train_spread.map_or_else(|| "-".to_string(), |spread| format!("±{spread:.4}")),
            trial.spikes.map_or_else(|| "-".to_string(), |spikes| spikes.to_string()),
            if trial.parameters > 0 { thousands(trial.parameters as f64) } else { "-".to_string() },
            if trial.seconds < 10.0 { format!("{:.1}s", trial.seconds) } else { clock(trial.seconds) },
            trial.ended.name().to_string(),
        ]);
        table.push(row);
    }
    let columns = table[0].len();
    let widths =
        (0..columns).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let widths = widths.collect::<Vec<_>>();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if ranked.len() > SHOWN {
        say(&format!("… and {} more in study.csv", ranked.len() - SHOWN));
    }
    if let (Some(why), failed @ 1..) =
        (study.first_failure(), trials.iter().filter(|trial| trial.ended == TrialEnd::Failed).count())
    {
        say(&format!(
            "{failed} could not be trained: {why}; remove trials/*.failed to try again with --resume"
        ));
    }
    let folder = study.folder();
    say(&format!("  study     {}", folder.path().display()));
    if !pictures.is_empty() {
        let names = pictures.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        say(&format!("  pictures  {} ({names})", folder.plots().display()));
        say(&format!("  page      {}: open it in a browser", folder.report().display()));
    }
    if folder.best().exists() {
        say(&format!("  best      {}: `train` takes it", folder.best().display()));
    } else if !trials.is_empty() && trials.iter().all(|trial| trial.ended == TrialEnd::Diverged) {
        say("  best      none, for every trial diverged: search lower values of training.learning_rate");
    }
}
