//! Compares successive halving with a full grid search, in result and in cost.
//!
//!     cargo run --release --example tune_sort
//!
//! Searches width, learning rate and heads of a decoder that learns to sort. The grid trains every combination to its
//! end; successive halving starts 40 trials. Fails if the best loss of successive halving is more than 0.02 nats above
//! the grid's. Also fails if successive halving takes a quarter of the grid's steps or more. Takes a few minutes on two
//! cores.

use std::path::Path;

use causal_attention::config::Config;
use causal_attention::terminal::{say, warn};
use causal_attention::training::{RunPath, StopSignal, dataset};
use causal_attention::tuning::{Outline, Study, Trial, TrialCommand, ranked, setting_shown};
use causal_attention::{Error, Result};

const STUDY: &str = r#"
[data]
task = "sort"
vocab = 16
length = 32
train_samples = 8192
valid_samples = 256

[model]
layers = 2

[training]
steps = 300
validate_every = 50

[analysis]
every = 0
sequences = 16

[tune]
trials = 40

[tune.search]
"model.d_model" = [32, 48, 64, 96, 128]
"training.learning_rate" = [3e-4, 1e-3, 3e-3, 1e-2]
"model.heads" = [2, 4]
"#;

/// The maximum loss of successive halving above the best loss of the grid, in nats.
const MAX_LOSS_DIFFERENCE: f64 = 0.02;

fn main() {
    // The studies start this program again to train their trials.
    if std::env::args().nth(1).as_deref() == Some("train") {
        causal_attention::cli::main();
        return;
    }
    if let Err(error) = compare() {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn compare() -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    let grid = search("grid", folder.path())?;
    let halving = search("halving", folder.path())?;
    let steps = |trials: &[Trial]| trials.iter().map(|trial| trial.cost.steps).sum::<usize>();
    let best =
        |trials: &[Trial]| ranked(trials).first().and_then(|best| best.score.loss).unwrap_or(f64::INFINITY);
    let (above, share) = (best(&halving) - best(&grid), steps(&halving) as f64 / steps(&grid) as f64);
    say(&format!(
        "best loss of halving: {above:+.4} nats relative to the grid, with {:.1} % of its steps",
        share * 100.0
    ));
    match above <= MAX_LOSS_DIFFERENCE && share < 0.25 {
        true => Ok(()),
        false => Err(Error::Failed(format!(
            "halving is not within {MAX_LOSS_DIFFERENCE} nats of the grid in a quarter of its steps"
        ))),
    }
}

fn search(method: &str, folder: &Path) -> Result<Vec<Trial>> {
    let config = Config::parse(STUDY, Path::new("tune_sort.rs"), &[format!("tune.method={method}")])?;
    let outline = Outline::new(&config, &dataset(&config)?)?;
    let target = RunPath::Folder(folder.join(method));
    let (mut study, runner) = Study::create(&config, outline, &target, (TrialCommand::current()?, 1))?;
    study.conduct(runner, &StopSignal::default(), |_, _| {})?;
    let trials = study.trials().cloned().collect::<Vec<_>>();
    let ranked = ranked(&trials);
    let steps = trials.iter().map(|trial| trial.cost.steps).sum::<usize>();
    say(&format!("{method}: {} trials, {steps} steps", trials.len()));
    for trial in ranked.iter().take(5) {
        say(&format!("  {:.4}  {}", trial.score.loss.unwrap_or(f64::NAN), setting_shown(&trial.setting)));
    }
    Ok(trials)
}
