//! `scale`: predicts the time of a training step with more workers.

use std::{path::PathBuf, process::ExitCode};

use serde_json::json;

use super::{backend::BackendArgs, input::ConfigArgs, paths_as_json, pictures::PictureArgs};
use crate::backend::Device;
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::numbers::{counted, fixed, thousands};
use crate::reporting::{save_all, scaling_picture};
use crate::scaling::{
    LinkSpeed, MAX_NOISE_EFFICIENCY, Prediction, ScaledStep, highest_efficiency, predict, shard_counts,
    time_consistently,
};
use crate::terminal::{print_json, say, table};
use crate::training::{StepParts, dataset, time_parts};
use crate::workers::{Identity, Workers};

/// Predict the time of a step with more workers from timings of its parts on this machine. With mpirun -n 2 or more,
/// the link is timed as well.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub experiment: ConfigArgs,
    /// The range of worker counts; each power of two in it is predicted.
    #[arg(long, value_name = "FROM..TO", default_value = "2..1024", value_parser = powers)]
    workers: Powers,
    /// The bandwidth between two workers in each direction, in Gbit/s. [default: measured]
    #[arg(long, value_name = "GBIT", value_parser = positive)]
    bandwidth: Option<f64>,
    /// The latency of an empty message, in microseconds. [default: measured]
    #[arg(long, value_name = "MICROSECONDS", value_parser = non_negative)]
    latency: Option<f64>,
    /// Draws the efficiency to this folder; an existing folder is replaced only if scale created it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON: the parts in seconds, the link and the predictions.
    #[arg(long)]
    json: bool,
}

/// Numbers of workers, each twice the previous one.
#[derive(Debug, Clone)]
struct Powers(Vec<usize>);

fn powers(text: &str) -> Result<Powers, &'static str> {
    const MAX_WORKERS: usize = 1 << 20;
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let Some((from, to)) = ends.filter(|&(from, to)| 0 < from && from <= to && to <= MAX_WORKERS) else {
        return Err("must be two numbers in [1, 1048576] in ascending order, e.g. 2..1024");
    };
    let powers = (0..=MAX_WORKERS.ilog2()).map(|power| 1 << power);
    let powers: Vec<usize> = powers.filter(|power| (from..=to).contains(power)).collect();
    if powers.is_empty() { Err("contains no power of two; use e.g. 2..1024") } else { Ok(Powers(powers)) }
}

/// Parses a positive number.
pub(super) fn positive(text: &str) -> Result<f64, &'static str> {
    non_negative(text).ok().filter(|&number| number > 0.0).ok_or("must be a positive number")
}

fn non_negative(text: &str) -> Result<f64, &'static str> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or("must be a non-negative number")
}

/// Checks the arguments, and returns the config, its data and the device.
fn prepare(args: &Args, workers: &Workers) -> Result<(Config, Dataset, Device)> {
    args.pictures.style_in(args.out.as_ref())?;
    let count = workers.count();
    if count == 1 && (args.bandwidth.is_none() || args.latency.is_none()) {
        return Err(Error::Input(
                "the speed of the link between workers is unknown; measure it with `mpirun -n 2 causal-attention \
                 scale`, or pass --bandwidth GBIT and --latency MICROSECONDS"
                    .into(),
            ));
    }
    if !count.is_power_of_two() {
        let problem = format!("{count} workers cannot share a step; start a power of two, such as 2, 4 or 8");
        return Err(Error::Input(problem));
    }
    if workers.is_first() {
        args.out.iter().try_for_each(|out| check_output(out, "scale"))?;
    }
    let mut config = args.experiment.load_new(|_| Ok(()))?;
    let device = args.backend.choose_for_run(&mut config.training, &args.experiment.set)?;
    config.training.check()?;
    let dataset = dataset(&config)?;
    Ok((config, dataset, device))
}

/// Runs the command as one of the workers that share it.
pub fn run(args: &Args, workers: &Workers) -> Result<ExitCode> {
    let (config, dataset, device) = workers.agree(prepare(args, workers))?;
    workers.agree(Identity::new(&config, dataset.fingerprint(), &device))?.check(workers)?;
    let (training, Powers(counts)) = (&config.training, &args.workers);
    let counts_of_shards =
        shard_counts(training.shards, training.batch_size, counts.last().copied().unwrap_or(1));
    let predicted =
        |parts: &StepParts| predict(parts, training.shards, link(args, parts), counts.iter().copied());
    // All workers have the same timings of the parts, so all of them repeat the timing equally often.
    let parts =
        time_consistently(|| time_parts(&config, &dataset, &device, &counts_of_shards, workers), predicted)?;
    if !workers.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let (link, scaled) = (link(args, &parts), predicted(&parts));
    let link_words = in_words(link);
    let draw = |out: &PathBuf| {
        let style = args.pictures.style()?;
        let note = format!("{device}; {link_words}");
        let picture = scaling_picture(&config.name(), &scaled, &note, style.logical_width());
        let pictures = args.pictures.titled(vec![picture]);
        write_output(out, "scale", |folder| save_all(&pictures, folder, &style))
    };
    let pictures = args.out.as_ref().map(draw).transpose()?.unwrap_or_default();
    if args.json {
        print_json(&json!({
            "timed_by": workers.count(),
            "parts": parts,
            "link": link,
            "predicted": scaled,
            "pictures": paths_as_json(&pictures),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let timed_by = counted(workers.count(), "worker");
    say(&format!("{}: parts of a step, timed on {device} by {timed_by}", config.name()));
    print_parts(&parts, training.batch_size * training.accumulate);
    say(&format!("  link      {link_words}"));
    say("");
    print_scaled(&scaled);
    pictures.iter().for_each(|path| say(&path.display().to_string()));
    Ok(ExitCode::SUCCESS)
}

/// Returns the link speed as given on the command line, or else as measured.
fn link(args: &Args, parts: &StepParts) -> LinkSpeed {
    let measured = LinkSpeed::measured(parts);
    let speed = |given: Option<f64>, measured: Option<f64>| given.or(measured).unwrap_or_default();
    LinkSpeed {
        bandwidth: speed(args.bandwidth.map(|gbit| gbit * 1e9 / 8.0), measured.map(|link| link.bandwidth)),
        latency: speed(args.latency.map(|micro| micro * 1e-6), measured.map(|link| link.latency)),
    }
}

fn in_words(link: LinkSpeed) -> String {
    let (gbit, micro) = (link.bandwidth * 8e-9, link.latency * 1e6);
    format!("{} Gbit/s each way, {} microseconds per message", fixed(gbit, 2), fixed(micro, 1))
}

fn milliseconds(seconds: f64) -> String {
    fixed(seconds * 1e3, 2)
}

fn print_parts(parts: &StepParts, sequences: usize) {
    for (cut, groups) in &parts.shards {
        let rows = counted(sequences / cut, "sequence");
        for (at_once, &seconds) in groups {
            let several = if *at_once == 1 { String::new() } else { format!(", {at_once} in parallel") };
            say(&format!(
                "  shard     {} ms: gradients of {rows}, 1 of {cut} shards{several}",
                milliseconds(seconds)
            ));
        }
    }
    say(&format!("  addition  {} ms: gradients of two shards", milliseconds(parts.addition)));
    let numbers = thousands((parts.bytes / size_of::<f32>()) as f64);
    say(&format!(
        "  copies    {} ms: gradients to and from one row of {numbers} numbers",
        milliseconds(parts.copies)
    ));
    say(&format!("  row       {} ms: addition of two such rows", milliseconds(parts.row_addition)));
    say(&format!("  update    {} ms", milliseconds(parts.update)));
}

fn print_scaled(scaled: &[Prediction]) {
    let cells = |step: Option<ScaledStep>| match step {
        Some(step) => [milliseconds(step.seconds), format!("{:.1} %", step.efficiency * 100.0)],
        None => ["-".into(), "-".into()],
    };
    let rows = scaled.iter().map(|scaled| {
        let [shared, shared_efficiency] = cells(scaled.shared);
        let [growing, growing_efficiency] = cells(Some(scaled.growing));
        let exchange = milliseconds(scaled.exchange);
        [scaled.workers.to_string(), exchange, shared, shared_efficiency, growing, growing_efficiency]
    });
    let names =
        ["workers", "all-reduce (ms)", "shared batch (ms)", "efficiency", "batch each (ms)", "efficiency"];
    table("rrrrrr", &names, &rows.collect::<Vec<_>>());
    let highest = highest_efficiency(scaled);
    if highest > MAX_NOISE_EFFICIENCY {
        say(
            "above 100 %: shards run faster than the full batch, for example because only shards fit into the cache",
        );
    } else if highest > 1.0005 {
        say(&format!("efficiencies up to {:.0} % are within the timing noise", MAX_NOISE_EFFICIENCY * 100.0));
    }
}
