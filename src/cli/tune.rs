//! `tune`: hyper-parameter search, which writes a study folder with trials, table and pictures.

mod find_rate;
mod print;
mod progress;

use std::path::PathBuf;
use std::process::ExitCode;

use causal_attention_report::{Style, study::TrialEnd};

use super::{
    backend::BackendArgs,
    input::{ConfigArgs, run_path},
    signals,
};
use crate::backend::Device;
use crate::config::{Config, sets};
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::numbers::part_of;
use crate::reporting::draw_study;
use crate::terminal::{ProgressKind, continue_without_output, print_json_line, say, warn};
use crate::training::{RunFolder, RunPath, StopSignal, check_precision, dataset, warnings};
use crate::tuning::{
    Candidate, Outline, Space, Study, Trial, TrialCommand, check_resumes, overfit, overfit_check, ranked,
    serve, study_folder,
};
use crate::workers::{Identity, Workers};
use find_rate::find_rate;
use print::{print_outline, print_overfit_check, print_study, skipped};
use progress::StudyProgress;

/// Search hyper-parameters and write a study folder with a run per trial, a table, pictures and best.toml.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    experiment: ConfigArgs,
    /// The folder to write, which must not exist. [default: runs/NAME-study, with a number if it exists]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Resumes a study where it stopped, with the same result as an uninterrupted study.
    #[arg(long, value_name = "STUDY", value_parser = run_path(), conflicts_with = "preset")]
    resume: Option<PathBuf>,
    /// The number of trials to train in parallel, each in its own process; results do not depend on it. [default: 1, or
    /// the number of workers that mpirun started]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Runs a learning-rate range test instead, and suggests a rate.
    #[arg(long, conflicts_with_all = ["resume", "jobs", "dry_run"])]
    find_rate: bool,
    /// Prints the plan of the study without training.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    backend: BackendArgs,
    /// The progress display: bar, plain or none. [default: bar on a terminal, else plain]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    progress: Option<ProgressKind>,
    /// Prints the result as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

impl Args {
    /// Same as [`ConfigArgs::with_origin`], unless a study is resumed.
    pub fn with_origin<T>(&self, result: Result<T>) -> Result<T> {
        if self.resume.is_none() { self.experiment.with_origin(result) } else { result }
    }
}

/// A search that is ready to start.
struct Prepared {
    /// The folder of a resumed study.
    resumed: Option<RunFolder>,
    config: Config,
    device: Device,
    /// The folder of a new study.
    target: RunPath,
    dataset: Dataset,
}

impl Prepared {
    /// Returns true if the study starts with the overfit check, which tests that the model can memorise a few
    /// sequences.
    fn has_overfit_check(&self) -> bool {
        self.config.tune.as_ref().is_none_or(|tune| tune.overfit_check)
            && self.resumed.as_ref().is_none_or(|folder| !overfit_check(folder).exists())
    }

    /// Prints the warnings about the config, and the warnings and notices about the plan of its study.
    fn print_warnings(&self, outline: &Outline, candidates: &[Candidate]) {
        let unused = outline.keys_without_effect(candidates, &self.dataset);
        let mut config_warnings = warnings(&self.config, &self.dataset, outline.steps(), &self.device);
        let effective = outline.effective_in_trials(candidates, &self.dataset);
        config_warnings.retain(|warning| !effective.contains(warning));
        let warnings = unused.iter().chain(&outline.warnings).chain(&config_warnings);
        warnings.for_each(|warning| warn(&format!("warning: {warning}")));
        outline.notices.iter().for_each(|notice| warn(&format!("notice: {notice}")));
    }

    /// Prints the outline of the study, and its warnings.
    fn print_dry_run(&self, outline: &Outline, candidates: &[Candidate]) {
        print_outline(&self.config.name(), outline);
        self.print_warnings(outline, candidates);
        let too_large: Vec<&Error> = candidates.iter().filter_map(|it| it.too_large.as_ref()).collect();
        if let [first, ..] = too_large[..] {
            let count = part_of(too_large.len(), candidates.len(), "trial");
            warn(&format!("warning: {count} cannot be trained on this machine; the first: {first}"));
        }
    }
}

fn prepare(args: &Args) -> Result<Prepared> {
    let resumed = args.resume.as_deref().map(study_folder).transpose()?;
    let own = resumed.as_ref().filter(|_| args.experiment.config.is_none()).map(RunFolder::config);
    let is_searchable = |config: &Config| {
        let space = Space::new(config)?;
        let set = &args.experiment.set;
        match space.keys().find(|key| !args.find_rate && sets(set, key)) {
            Some(key) => {
                let problem = "is set, but [tune.search] also has this key; remove one of them";
                Err(Error::key(
                    key,
                    config.values().get(key).map_or_else(String::new, ToString::to_string),
                    problem,
                ))
            }
            None => Ok(()),
        }
    };
    let mut config = match own {
        Some(own) => args.experiment.of(own).load_checked(is_searchable)?,
        None => args.experiment.load_new(is_searchable)?,
    };
    // The config records the requested backend and device, so that resuming uses them too.
    let device = args.backend.choose_for_run(&mut config.training, &args.experiment.set)?;
    if let Some(folder) = &resumed {
        check_resumes(folder, &config)?;
    }
    let name = format!("{}-{}", config.name(), if args.find_rate { "rate" } else { "study" });
    let target = args.run.clone().map_or(RunPath::Named(name), RunPath::Folder);
    if resumed.is_none() {
        target.check()?;
    }
    let dataset = dataset(&config)?;
    Ok(Prepared { resumed, config, device, target, dataset })
}

/// Runs the command as one of the workers that share it.
pub fn run(args: &Args, workers: &Workers) -> Result<ExitCode> {
    let prepared = workers.agree(prepare(args))?;
    let Prepared { config, device, dataset, .. } = &prepared;
    if workers.count() > 1 {
        workers.agree(Identity::new(config, dataset.fingerprint(), device))?.check(workers)?;
    }
    let signal = signals::watch(signals::SAVING)?;
    if !workers.is_first() {
        signal.defer();
        return serve(workers, &TrialCommand::current()?, &signal).map(|()| ExitCode::SUCCESS);
    }
    let mut is_shared = false;
    let result = search(args, prepared, workers, &signal, &mut is_shared);
    if !is_shared {
        // Ends the other workers, which have no work.
        workers.broadcast(None::<PathBuf>)?;
    }
    result
}

/// Runs the search and prints its result. Sets `is_shared` once the other workers take part.
fn search(
    args: &Args,
    prepared: Prepared,
    workers: &Workers,
    signal: &StopSignal,
    is_shared: &mut bool,
) -> Result<ExitCode> {
    let jobs = jobs(args, workers)?;
    let Prepared { config, device, dataset, target, .. } = &prepared;
    if args.find_rate {
        return find_rate(args, config, device, dataset, target);
    }
    let outline = Outline::new(config, dataset)?;
    let is_new = prepared.resumed.is_none();
    let checks = prepared.has_overfit_check();
    let needs_candidates = is_new || checks;
    let candidates = if needs_candidates { outline.candidates(dataset, device)? } else { Vec::new() };
    if args.dry_run {
        prepared.print_dry_run(&outline, &candidates);
        return Ok(ExitCode::SUCCESS);
    }
    if is_new && candidates.iter().all(|candidate| candidate.too_large.is_some()) {
        let too_large = candidates.into_iter().find_map(|candidate| candidate.too_large);
        return too_large.map_or(Ok(ExitCode::SUCCESS), Err);
    }
    if is_new {
        prepared.print_warnings(&outline, &candidates);
        skipped(&outline).iter().for_each(|skipped| warn(&format!("notice: the study skips {skipped}")));
    }
    let kind = ProgressKind::chosen(args.progress, args.json)?;
    continue_without_output();
    let trained_by = (TrialCommand::current()?, jobs);
    let (mut study, mut runner) = match prepared.resumed.clone() {
        Some(folder) => Study::resume(outline, folder, trained_by)?,
        None => {
            // Refused before anything is written.
            check_precision(&config.training, device)?;
            Study::create(config, outline, target, trained_by)?
        }
    };
    if checks {
        let found = match overfit(&candidates, dataset, device) {
            Err(error) if is_new => return study.discard().and(Err(error)),
            found => found?,
        };
        if let Some(found) = &found {
            study.write_overfit_check(found)?;
        }
        found.iter().filter(|_| !args.json).for_each(print_overfit_check);
    }
    // Until now a signal ended the program immediately, because there was nothing to lose.
    signal.defer();
    *is_shared = true;
    runner.share(workers, &study.folder)?;
    let progress = StudyProgress::new(kind, &study);
    let outcome = study.conduct(runner, signal, |study, run| progress.ended(study, run));
    progress.bar.finish_and_clear();
    report(&study, outcome, args.json, signal)
}

/// Draws a study, prints its trials, and returns the exit code. `outcome` is true if the study is complete.
fn report(study: &Study, outcome: Result<bool>, json: bool, signal: &StopSignal) -> Result<ExitCode> {
    // After an error the results are still drawn if the disk allows it; the first error is returned.
    let pictures = draw_study(study, &Style::default());
    let (complete, pictures) =
        outcome.and_then(|complete| Ok((complete, pictures?))).map_err(|error| with_remedy(error, study))?;
    let trials = ranked(study.trials());
    match json {
        true => print_json_line(&trials),
        false => print_study(study, &trials, &pictures),
    }
    if !complete && !json {
        say(&format!("interrupted; {}", resume_hint(study)));
    }
    match no_result(study, &trials).filter(|_| complete) {
        Some(problem) => Err(Error::Failed(problem)),
        None if complete => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(signals::exit_code(signal.received().unwrap_or_default()))),
    }
}

/// Returns the reason why no trial has a loss; `None` if a trial has one, or if there are no trials yet.
fn no_result(study: &Study, trials: &[&Trial]) -> Option<String> {
    let all = |has_ended: fn(TrialEnd) -> bool| {
        !trials.is_empty() && trials.iter().all(|trial| has_ended(trial.ended))
    };
    let why = study.first_failure().unwrap_or_default();
    if all(|ended| ended == TrialEnd::Failed) {
        Some(format!("every trial failed: {why}"))
    } else if all(|ended| ended == TrialEnd::Diverged) {
        Some(
            "every trial diverged, so best.toml is not written; search lower values of training.learning_rate"
                .into(),
        )
    } else if all(TrialEnd::is_lost) {
        Some(format!(
            "every trial diverged or failed, so best.toml is not written; search lower values of \
             training.learning_rate (the first failure: {why})"
        ))
    } else {
        None
    }
}

/// Returns the number of trials that are trained in parallel.
fn jobs(args: &Args, workers: &Workers) -> Result<usize> {
    match (args.jobs.map(usize::from), workers.count()) {
        (jobs, 1) => Ok(jobs.unwrap_or(1)),
        (Some(jobs), count) if jobs > count => Err(Error::Input(format!(
            "--jobs {jobs}: mpirun started only {count} workers, each of which trains one trial at a time; start more, \
             or omit it"
        ))),
        (jobs, count) => Ok(jobs.unwrap_or(count)),
    }
}

/// Formats the command that resumes a study.
fn resume_hint(study: &Study) -> String {
    format!("`tune --resume {}` continues the study", study.folder.path().display())
}

/// Adds the command that resumes the study to an error. Finished trials are kept.
fn with_remedy(error: Error, study: &Study) -> Error {
    let message = format!("{error}; {}", resume_hint(study));
    match error {
        Error::Input(_) | Error::Io { .. } => Error::Input(message),
        Error::Failed(_) => Error::Failed(message),
        error => error,
    }
}
