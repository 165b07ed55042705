//! `train`: trains a model and writes a run folder with its pictures.

use std::{path::PathBuf, process::ExitCode};

use causal_attention_report::Style;
use serde_json::json;

use super::{
    backend::BackendArgs,
    evaluate::GENERATED_DATA_NOTICE,
    explain, fourier,
    input::{ConfigArgs, run_path},
    paths_as_json,
    plot::run_data,
    signals,
};
use crate::analysis::circuit::Explanation;
use crate::backend::{Device, of_worker};
use crate::config::Config;
use crate::data::Source;
use crate::error::{Error, Result};
use crate::files::{is_pipe, write_atomically};
use crate::numbers::{Bytes, clock, counted, floor_gap, thousands};
use crate::terminal::{ProgressKind, Waiting, continue_without_output, print_json, say, warn};
use crate::training::{
    Control, Ended, Mode, Outcome, Plan, RunFolder, RunPath, Summary, launch, shared_config, write_events,
};
use crate::weights::families::describe_fit;
use crate::workers::Workers;

/// Train a model and write a run folder with weights, curves and pictures.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    experiment: ConfigArgs,
    /// The folder to write, which must not exist. [default: runs/NAME, with a number if it exists]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Resumes a run from its newest checkpoint, with the same result as an uninterrupted run.
    #[arg(long, value_name = "RUN", value_parser = run_path(), conflicts_with = "preset")]
    resume: Option<PathBuf>,
    /// Starts from a run's best weights, with its model and vocabulary; without CONFIG, also with the rest of its
    /// config.
    #[arg(long, value_name = "RUN", value_parser = run_path(), conflicts_with_all = ["resume", "preset"])]
    from: Option<PathBuf>,
    /// Pauses after this step; --resume continues the run. The schedule still spans the whole run.
    #[arg(long, value_name = "STEP", conflicts_with = "dry_run", value_parser = step)]
    until: Option<usize>,
    /// Prints parameters, memory, time and schedule without training.
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    backend: BackendArgs,
    /// The progress display. [default: bar on a terminal, else plain]
    #[arg(long, value_name = "KIND")]
    progress: Option<ProgressKind>,
    /// Prints the summary as JSON, with the paths of the run and its pictures; shows progress only with --progress.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

impl Args {
    /// Same as [`ConfigArgs::with_origin`], for the config of a run that is resumed or started from.
    pub fn with_origin<T>(&self, result: Result<T>) -> Result<T> {
        let Some(run) = self.resume.as_ref().or(self.from.as_ref()) else {
            return self.experiment.with_origin(result);
        };
        // With two configs, a key's value may come from either.
        let (None, Ok(folder)) = (&self.experiment.config, RunFolder::open(run)) else { return result };
        self.experiment.of(folder.config()).with_origin(result)
    }
}

/// Parses a step, counted from 1.
fn step(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|&step| step > 0).ok_or("must be a positive integer")
}

/// Returns the config, the mode and the device of the run.
fn prepare(args: &Args, workers: &Workers) -> Result<(Config, Mode, Device)> {
    let (mut config, mode) = match &args.resume {
        None => {
            let config = new_config(args)?;
            let target = RunPath::new(args.run.clone(), config.name())?;
            (config, Mode::New(target))
        }
        Some(run) => {
            let folder = RunFolder::open(run)?;
            let made_with = Config::load_own(&folder.config())?;
            let config = match &args.experiment.config {
                Some(_) => args.experiment.load_new(|_| Ok(()))?,
                None => args.experiment.of(folder.config()).load()?,
            };
            config.check_resumes(&made_with, folder.path())?;
            let done = Summary::read(&folder).map_or(0, |summary| summary.work.steps);
            if let Some(until) = args.until.filter(|&until| until <= done) {
                return Err(Error::Input(format!(
                    "--until {until}: the run `{}` has already done {}; use a later step, or omit it",
                    run.display(),
                    counted(done, "step")
                )));
            }
            (config, Mode::Resume(folder))
        }
    };
    let device = args.backend.choose_for_run(&mut config.training, &args.experiment.set)?;
    // A device requested by name is used by every worker.
    let is_automatic = config.training.device.is_none();
    let device = if is_automatic { of_worker(device, workers.local_rank()) } else { device };
    Ok((config, mode, device))
}

/// Runs the command as one of the workers that share it.
pub fn run(args: &Args, workers: &Workers) -> Result<ExitCode> {
    let (config, mode, device) = workers.agree(prepare(args, workers))?;
    if let Mode::New(target) = &mode
        && let Some(duplicate) = target.completed_duplicate(&config)
    {
        warn(&format!(
            "notice: `{}` is a finished run of the same config and seed; use --set run.seed={} for another seed",
            duplicate.path().display(),
            config.run.seed.wrapping_add(1)
        ));
    }
    if let Some(pipe) = config.data.path.iter().find(|path| is_pipe(path)).filter(|_| workers.is_first()) {
        let path = pipe.display();
        warn(&format!(
            "notice: the data is read from the pipe `{path}`; to resume or evaluate the run, pass the same data with \
             --data FILE"
        ));
    }
    if args.dry_run {
        let config = workers.agree(shared_config(&config, workers))?;
        let plan = Plan::new(&config, &device)?;
        print_plan(&config, &device, &plan);
        say(&format!("  export      {}", describe_fit(&config.model)));
        plan.warnings.iter().for_each(|warning| warn(&format!("warning: {warning}")));
        return Ok(ExitCode::SUCCESS);
    }
    let progress = ProgressKind::chosen(args.progress, args.json)?;
    let control = Control {
        progress,
        signal: signals::watch(signals::SAVING)?,
        device: device.clone(),
        until: args.until,
        workers: workers.clone(),
    };
    continue_without_output();
    let outcome = launch(&config, mode, &control).inspect_err(|error| {
        // The pictures of a diverged run show where it diverged.
        if let Error::Diverged { kept, .. } = error
            && let Some(folder) = kept.parent()
            && workers.is_first()
        {
            draw_or_warn(&RunFolder::at(folder), &config, &device, None);
        }
    })?;
    let exit_code =
        outcome.signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signals::exit_code(signal)));
    if workers.is_first() {
        let (circuit, plots) = explain_and_draw(&outcome, &config, &control);
        print(&outcome, &circuit, &plots, args.json);
        if !args.json {
            say(&format!("  export    {}", describe_fit(&config.model)));
        }
    }
    Ok(exit_code)
}

/// Explains and draws a run. After a signal, draws it only if that is cheap. A paused run is drawn when it completes.
fn explain_and_draw(outcome: &Outcome, config: &Config, control: &Control) -> (Vec<String>, Vec<PathBuf>) {
    let (folder, device) = (&outcome.folder, &control.device);
    match (outcome.summary.ended, outcome.signal) {
        (Ended::Paused, None) => Default::default(),
        (_, None) => draw_or_warn(folder, config, device, Some((outcome, control))),
        (ended, Some(_)) => {
            // A circuit from an earlier part of the run was found on other weights.
            let _ = std::fs::remove_file(folder.circuit());
            let run = folder.path().display();
            let tokens = config.analysis.samples * config.data.length;
            if outcome.summary.work.parameters.saturating_mul(tokens) <= MAX_WORK_AFTER_SIGNAL
                && ended != Ended::Completed
            {
                return draw_or_warn(folder, config, device, None);
            }
            let remedy = match ended {
                Ended::Completed => format!("`train --resume {run}` analyses and draws it"),
                _ => format!("`report {run}` writes its page"),
            };
            warn(&format!("notice: the run is saved, but not drawn; {remedy}"));
            Default::default()
        }
    }
}

/// The maximum of parameters times tokens for which pictures are drawn after a signal, in a fraction of a second.
const MAX_WORK_AFTER_SIGNAL: usize = 1_000_000_000;

/// The minimum time budget for finding the circuit, in seconds; the budget of a long run is its training time.
const MIN_CIRCUIT_SECONDS: f64 = 60.0;

/// Returns the config of a new run.
fn new_config(args: &Args) -> Result<Config> {
    let Some(run) = &args.from else { return args.experiment.load_new(|_| Ok(())) };
    if args.experiment.set.iter().any(|set| set.starts_with("run.from=")) {
        let problem = "--from and --set run.from both set the run to start from; keep one";
        return Err(Error::Input(problem.to_string()));
    }
    let folder = RunFolder::open(run)?;
    let config = Config::load_from(args.experiment.config.as_deref(), folder.path(), &args.experiment.set)?;
    let own = Config::load_own(&folder.config())?.data;
    if folder.is_imported() && config.data == own && own.source() == Source::Sequences {
        warn(GENERATED_DATA_NOTICE);
    }
    Ok(config)
}

/// Explains the best weights and stores the result in the run folder. Returns `None` if the model cannot be explained,
/// or if the search would take longer than the training. A failure is only a warning.
fn explained(outcome: &Outcome, config: &Config, control: &Control) -> Option<Explanation> {
    if !config.analysis.circuit || !explain::is_explainable(config) {
        return None;
    }
    let (folder, run) = (&outcome.folder, outcome.folder.path().display());
    let seconds = seconds_to_explain(&outcome.summary, config);
    if seconds > outcome.summary.work.seconds.max(MIN_CIRCUIT_SECONDS) {
        warn(&format!(
            "notice: skipped the search for the circuit, which takes about {}, longer than the training; run `explain \
             {run}` to find it",
            clock(seconds)
        ));
        return None;
    }
    let what = "finding the circuit; the run is saved, and Ctrl-C skips this";
    let _waiting = Waiting::new(control.progress, what);
    let found = explain::of_run(folder, config, &control.device, Default::default()).and_then(|found| {
        explain::save(folder, &found)?;
        Ok(found)
    });
    let print_warning = |error: &Error| {
        warn(&format!("warning: the run is saved, but not explained: {error}; try `explain {run}`"));
    };
    found.inspect_err(print_warning).ok()
}

/// Returns a lower bound of the time to find the circuit, in seconds, from the speed of training. Each component is
/// ablated four times on two sequences, and a training step takes three times as many operations per token as a forward
/// pass.
fn seconds_to_explain(summary: &Summary, config: &Config) -> f64 {
    let components = config.model.blocks() * (config.model.heads + 1);
    let tokens = 4 * components * 2 * config.data.length;
    if summary.work.tokens_per_second > 0.0 {
        tokens as f64 / (3.0 * summary.work.tokens_per_second)
    } else {
        0.0
    }
}

/// Draws a run's pictures and writes its page. With `explaining`, the run is explained after all other pictures are
/// drawn, so that these exist even if the explanation fails. Returns the first sentences of the explanation, and the
/// pictures. A failure is only a warning: the run is saved.
fn draw_or_warn(
    folder: &RunFolder,
    config: &Config,
    device: &Device,
    explaining: Option<(&Outcome, &Control)>,
) -> (Vec<String>, Vec<PathBuf>) {
    // A circuit from an earlier part of the run was found on other weights.
    let _ = std::fs::remove_file(folder.circuit());
    let mut sentences = Vec::new();
    let drawn = run_data(folder, device).and_then(|mut run| {
        let mut plots = run.draw(&folder.plots(), &Style::default())?;
        if let Some(found) = explaining.and_then(|(outcome, control)| explained(outcome, config, control)) {
            sentences.extend(found.sentences.iter().take(2).cloned());
            plots.extend(run.add_circuit(found, &folder.plots(), &Style::default())?);
        }
        if explaining.is_some() {
            let (found, written) = fourier::analyse(folder, config, device)?;
            sentences.extend(found.into_iter().take(1));
            plots.extend(written.into_iter().skip(1));
        }
        // Written before the page, whose presence marks the run as done: --resume repairs a run that was killed in
        // between.
        if config.training.tensorboard {
            write_events(folder, folder.events())?;
        }
        write_atomically(&folder.report(), run.page.html().as_bytes())?;
        Ok(plots)
    });
    let plots = drawn.unwrap_or_else(|error| {
        let run = folder.path().display();
        warn(&format!(
            "warning: the run is saved, but some pictures are missing: {error}; draw them with `plot {run}`"
        ));
        Vec::new()
    });
    (sentences, plots)
}

/// Prints the plan of a run.
fn print_plan(config: &Config, device: &Device, plan: &Plan) {
    let Plan { steps, schedule, .. } = plan;
    say(&format!("{}: dry run, nothing is trained", config.name()));
    say(&format!("  parameters  {}", thousands(plan.parameters as f64)));
    say(&format!(
        "  steps       {}, {} per epoch, of up to {}: at most {} in total",
        thousands(*steps as f64),
        thousands(plan.steps_per_epoch as f64),
        counted(plan.tokens_per_step, "token"),
        counted(plan.tokens_per_step * steps, "token")
    ));
    say(&format!(
        "  memory      about {} for weights, gradients, moments and a checkpoint, {} for activations",
        Bytes(plan.memory.parameters),
        Bytes(plan.memory.activations)
    ));
    let source = match plan.timed_steps {
        0 => format!("the matrix-product speed of {device}, a rough estimate"),
        steps => format!("{} on {device}", counted(steps as usize, "step")),
    };
    say(&format!(
        "  time        about {} without validations, estimated from {source} ({:.2} GFLOP per step)",
        clock(plan.seconds),
        plan.operations_per_step / 1e9
    ));
    let minutes = config.training.max_minutes;
    if minutes > 0.0 {
        let outcome = match plan.seconds > 60.0 * minutes {
            true => {
                let steps = (60.0 * minutes / plan.seconds * *steps as f64) as usize;
                format!("after about {}, before the schedule ends", counted(steps, "step"))
            }
            false => "unless the run completes before, as estimated".to_string(),
        };
        say(&format!("  limit       stops after `training.max_minutes` = {minutes}, {outcome}"));
    }
    say("  step        learning rate");
    let listed = [0, schedule.warmup / 2, schedule.warmup, steps / 4, steps / 2, steps * 3 / 4, steps - 1];
    for step in listed.into_iter().filter(|step| step < steps).collect::<std::collections::BTreeSet<_>>() {
        say(&format!("  {:<10}  {:.3e}", thousands(step as f64), schedule.at(step)));
    }
}

/// Prints the result of a run.
fn print(outcome: &Outcome, circuit: &[String], plots: &[PathBuf], json: bool) {
    let summary = &outcome.summary;
    if json {
        let mut report = json!(summary);
        report["run"] = json!(outcome.folder.path().display().to_string());
        report["pictures"] = paths_as_json(plots);
        report["circuit"] = json!(circuit);
        return print_json(&report);
    }
    say(&format!(
        "{}: {} ({}, {} in {}, {} tokens/s on {})",
        outcome.folder.name(),
        summary.ended.describe(),
        counted(summary.work.steps, "step"),
        counted(summary.work.tokens as usize, "token"),
        clock(summary.work.seconds),
        thousands(summary.work.tokens_per_second),
        summary.machine.backend,
    ));
    if let (Some(loss), Some(step)) = (summary.losses.best_valid_loss, summary.losses.best_step) {
        say(&format!("  loss      {loss:.4} nats per token on validation, lowest at step {step}"));
        if let Some(floor) = summary.losses.floor {
            say(&format!("  floor     {floor:.4} nats per token: the loss is {}", floor_gap(loss, floor, 4)));
        }
    }
    if let Some(accuracy) = summary.losses.accuracy {
        let determined = summary.losses.determined_accuracy;
        let determined = determined
            .map_or_else(String::new, |share| format!(", {:.1} % on determined targets", share * 100.0));
        say(&format!("  accuracy  {:.1} %{determined}", accuracy * 100.0));
    }
    circuit.iter().for_each(|sentence| say(&format!("  circuit   {sentence}")));
    say(&format!("  run       {}", outcome.folder.path().display()));
    print_pictures(&outcome.folder, plots);
}

/// Prints the paths of the pictures and the page of a run or a study, if any were drawn.
pub(super) fn print_pictures(folder: &RunFolder, plots: &[PathBuf]) {
    if plots.is_empty() {
        return;
    }
    let names = plots.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    let names = names.collect::<Vec<_>>().join(", ");
    say(&format!("  pictures  {} ({names})", folder.plots().display()));
    say(&format!("  page      {} (open it in a browser)", folder.report().display()));
}
