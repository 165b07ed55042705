//! Trains the default decoder with and without a clamped previous-token head, and compares the steps at which the loss
//! falls.
//!
//!     cargo run --release --example clamped_pattern
//!
//! An induction head reads what a previous-token head writes (Olsson et al., 2022, arXiv 2209.11895). If this is what it
//! waits for, it forms earlier with a head of layer 0 whose pattern is clamped to the previous token from step 0 (Singh et
//! al., 2024, arXiv 2404.07129). As a control, the same head is clamped to its current token. Prints a table of five seeds:
//! the step of the first validation whose loss is in the lower half between that of step 100 and the floor. Takes a few
//! minutes on two cores.

use causal_attention::backend;
use causal_attention::config::{Config, DEFAULT_TEXT};
use causal_attention::terminal::{say, warn};
use causal_attention::training::{Control, Mode, RunPath, Split, launch, read_metrics};
use causal_attention::{Error, Result};

/// The step after which the halfway point of the fall is measured: the loss has reached its plateau.
const PLATEAU: usize = 100;

/// The settings that are compared, each with its interventions.
const SETTINGS: [(&str, &str); 3] = [
    ("plain", "[]"),
    ("previous token", r#"[{ at = "0.0", kind = "clamp_pattern", pattern = "previous_token" }]"#),
    ("current token", r#"[{ at = "0.0", kind = "clamp_pattern", pattern = "current_token" }]"#),
];

fn main() {
    if let Err(error) = compare() {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn compare() -> Result<()> {
    say(&format!("| seed | {} |", SETTINGS.map(|(name, _)| name).join(" | ")));
    say("|---|---|---|---|");
    for seed in 0..5 {
        let steps = SETTINGS.map(|(_, interventions)| half_of_fall(seed, interventions));
        let cells = steps.into_iter().collect::<Result<Vec<_>>>()?;
        let cells = cells.iter().map(|step| step.map_or("not reached".to_string(), |step| step.to_string()));
        say(&format!("| {seed} | {} |", cells.collect::<Vec<_>>().join(" | ")));
    }
    Ok(())
}

/// Returns the step of the first validation in the lower half of the fall, if there is one.
fn half_of_fall(seed: u64, interventions: &str) -> Result<Option<usize>> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    let sets = [
        format!("run.seed={seed}"),
        format!("training.intervene={interventions}"),
        "training.validate_every=10".to_string(),
        "training.checkpoint_every=1000".to_string(),
        "data.valid_samples=128".to_string(),
        "analysis.every=0".to_string(),
    ];
    let config = Config::parse(DEFAULT_TEXT, "clamped_pattern.rs".as_ref(), &sets)?;
    let control = Control { until: Some(800), ..Control::unwatched(backend::choose(None, None)?) };
    let run = folder.path().join("run");
    let floor = {
        let outcome = launch(&config, Mode::New(RunPath::Folder(run.clone())), &control)?;
        outcome.summary.losses.floor.ok_or_else(|| Error::Failed("the task has a floor".into()))?
    };
    let rows = read_metrics(&run.join("metrics.csv"))?;
    let validations = rows.iter().filter(|row| row.split == Split::Valid && row.step >= PLATEAU);
    let losses = validations.map(|row| (row.step, row.loss)).collect::<Vec<_>>();
    let half = (losses[0].1 + floor) / 2.0;
    Ok(losses.into_iter().find(|(_, loss)| *loss < half).map(|(step, _)| step))
}
