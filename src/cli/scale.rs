//! `scale`: predicts the time of a training step with more workers.

use std::{path::PathBuf, process::ExitCode};

use causal_attention_report::{PictureFormat, Style};
use serde_json::json;

use super::{backend::BackendArgs, input::ConfigArgs, pictures::picture_format, shown};
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::numbers::{counted, fixed, thousands};
use crate::reporting::{save_all, scaling_picture};
use crate::scaling::{LinkSpeed, NOISE, Scaled, ScaledStep, cuts, highest_efficiency, predict, settled};
use crate::terminal::{print_json, say, table};
use crate::training::{StepParts, dataset, time_parts};
use crate::workers::{Identity, Workers};

/// Predict the time of a step with more workers, from its parts, which are timed here; mpirun -n 2 or more times the
/// link as well.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub experiment: ConfigArgs,
    /// For how many workers: the powers of two from one number to the other.
    #[arg(long, value_name = "FROM..TO", default_value = "2..1024", value_parser = powers)]
    workers: Powers,
    /// What any two workers send each other at once, in Gbit/s. [default: measured]
    #[arg(long, value_name = "GBIT", value_parser = above_0)]
    bandwidth: Option<f64>,
    /// What a message without content takes, in microseconds. [default: measured]
    #[arg(long, value_name = "MICROSECONDS", value_parser = from_0)]
    latency: Option<f64>,
    /// Draws the efficiency into this folder; one that exists is replaced only if scale made it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The file format of the picture.
    #[arg(long, value_parser = picture_format(), default_value = "png", requires = "out")]
    format: PictureFormat,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON: the parts in seconds, the link, and what is predicted.
    #[arg(long)]
    json: bool,
}

/// Numbers of workers, each twice the previous one.
#[derive(Debug, Clone)]
struct Powers(Vec<usize>);

fn powers(text: &str) -> Result<Powers, &'static str> {
    const MOST: usize = 1 << 20;
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let Some((from, to)) = ends.filter(|&(from, to)| 0 < from && from <= to && to <= MOST) else {
        return Err("it takes two numbers from 1 to 1048576, the smaller one first, as 2..1024");
    };
    let powers = (0..=MOST.ilog2()).map(|power| 1 << power);
    let powers: Vec<usize> = powers.filter(|power| (from..=to).contains(power)).collect();
    if powers.is_empty() { Err("no power of two lies there; take 2..1024, say") } else { Ok(Powers(powers)) }
}

fn above_0(text: &str) -> Result<f64, &'static str> {
    from_0(text).ok().filter(|&number| number > 0.0).ok_or("it takes a number above 0")
}

fn from_0(text: &str) -> Result<f64, &'static str> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or("it takes a number from 0 on")
}

/// Runs the command as one of the workers that share it.
pub fn run(args: &Args, workers: &Workers) -> Result<ExitCode> {
    let prepare = || {
        let count = workers.count();
        if count == 1 && (args.bandwidth.is_none() || args.latency.is_none()) {
            return Err(Error::Input(
                "how fast the link between workers is can be measured by mpirun -n 2 causal-attention scale, or given by \
                 --bandwidth GBIT and --latency MICROSECONDS"
                    .into(),
            ));
        }
        if !count.is_power_of_two() {
            return Err(Error::Input(format!("{count} workers cannot share a step: start 2, 4, 8 or so on")));
        }
        if workers.is_first() {
            args.out.iter().try_for_each(|out| check_output(out, "scale"))?;
        }
        let mut config = args.experiment.load()?;
        let device = args.backend.choose_for_run(&mut config.training, &args.experiment.set)?;
        config.training.check()?;
        let dataset = dataset(&config)?;
        Ok((config, dataset, device))
    };
    let (config, dataset, device) = workers.agree(prepare())?;
    workers.agree(Identity::new(&config, dataset.fingerprint(), &device))?.check(workers)?;
    let (training, Powers(asked)) = (&config.training, &args.workers);
    let cuts = cuts(training.shards, training.batch_size, asked.last().copied().unwrap_or(1));
    let predicted =
        |parts: &StepParts| predict(parts, training.shards, link(args, parts), asked.iter().copied());
    // All workers have the same parts, so all repeat the timing equally often.
    let parts = settled(|| time_parts(&config, &dataset, &device, &cuts, workers), predicted)?;
    if !workers.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let (link, scaled) = (link(args, &parts), predicted(&parts));
    let words = in_words(link);
    let draw = |out: &PathBuf| {
        let style = Style { format: args.format, ..Style::default() };
        let picture = scaling_picture(&config.name(), &scaled, &format!("{device}; {words}"));
        write_output(out, "scale", |folder| save_all(&[picture], folder, &style))
    };
    let pictures = args.out.as_ref().map(draw).transpose()?.unwrap_or_default();
    if args.json {
        print_json(&json!({
            "timed_by": workers.count(), "parts": parts, "link": link, "predicted": scaled, "pictures": shown(&pictures),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let timed_by = counted(workers.count(), "worker");
    say(&format!("{}: parts of a step, timed on {device} by {timed_by}", config.name()));
    print_parts(&parts, training.batch_size * training.accumulate);
    say(&format!("  link      {words}"));
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
    format!("{} Gbit/s each way, {} microseconds a message", fixed(gbit, 2), fixed(micro, 1))
}

fn milliseconds(seconds: f64) -> String {
    fixed(seconds * 1e3, 2)
}

fn print_parts(parts: &StepParts, sequences: usize) {
    for (cut, groups) in &parts.shards {
        let rows = counted(sequences / cut, "sequence");
        for (at_once, &seconds) in groups {
            let several = if *at_once == 1 { String::new() } else { format!(", {at_once} at once") };
            say(&format!(
                "  shard     {} ms: gradients of {rows}, one of {cut}{several}",
                milliseconds(seconds)
            ));
        }
    }
    say(&format!("  addition  {} ms: gradients of two shards", milliseconds(parts.addition)));
    let numbers = thousands((parts.bytes / size_of::<f32>()) as f64);
    say(&format!(
        "  copies    {} ms: gradients to and from a row of {numbers} numbers",
        milliseconds(parts.copies)
    ));
    say(&format!("  row       {} ms: addition of two such rows", milliseconds(parts.row_addition)));
    say(&format!("  update    {} ms", milliseconds(parts.update)));
}

fn print_scaled(scaled: &[Scaled]) {
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
        ["workers", "exchange (ms)", "batch shared (ms)", "efficiency", "batch each (ms)", "efficiency"];
    table("rrrrrr", &names, &rows.collect::<Vec<_>>());
    let highest = highest_efficiency(scaled);
    if highest > NOISE {
        say(
            "above 100 %: shards run faster here than the batch as a whole, as where only they fit the cache",
        );
    } else if highest > 1.0005 {
        say(&format!("efficiencies up to {:.0} % are within the noise of the times", NOISE * 100.0));
    }
}
