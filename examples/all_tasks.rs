//! Every sequence task, trained on a small decoder and held against its floor.
//!
//!     cargo run --release --example all_tasks
//!
//! Prints a table with the steps and minutes that each took and the loss above the floor, and ends
//! with an error if one stays 0.05 nats or more above it. Takes a few minutes on two cores.

use std::path::Path;

use causal_attention::backend;
use causal_attention::config::Config;
use causal_attention::data::Task;
use causal_attention::terminal::{ProgressKind, say, warn};
use causal_attention::training::{Control, Mode, Outcome, RunPath, launch};
use causal_attention::{Error, Result};

const EXPERIMENT: &str = r#"
[data]
vocab = 16
length = 32
period = [4, 8]
valid_samples = 1024

[model]
d_model = 64
heads = 4
layers = 2

[training]
batch_size = 32
learning_rate = 3e-3
warmup = 0.05
max_gradient_norm = 1
validate_every = 500
"#;

/// The loss above the floor, in nats, with which a task counts as solved.
const SOLVED: f64 = 0.05;

/// The tasks with their steps, sequences to learn from, and the position scheme.
const TASKS: [(Task, usize, usize, &str); 9] = [
    // Nothing to learn, and the less by heart the better.
    (Task::Random, 200, 8_192, "learned"),
    (Task::Arithmetic, 1_500, 16_384, "learned"),
    // What followed the same token before: biases by distance let that head form soonest.
    (Task::Repeat, 3_000, 32_768, "alibi"),
    (Task::Reverse, 1_500, 16_384, "learned"),
    (Task::Sort, 1_500, 16_384, "learned"),
    (Task::Markov, 1_500, 16_384, "learned"),
    (Task::Recall, 4_000, 65_536, "alibi"),
    // Every digit must find its two, and their carry.
    (Task::Addition, 6_000, 131_072, "learned"),
    (Task::CopyGap, 1_500, 16_384, "learned"),
];

fn main() {
    if let Err(error) = all() {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn all() -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    say("| task | steps | minutes | floor | loss | above the floor | determined targets right |");
    say("|---|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for (task, steps, samples, position) in TASKS {
        let task = task.to_string();
        let overrides = [
            format!("data.task={task}"),
            format!("training.steps={steps}"),
            format!("data.train_samples={samples}"),
            format!("model.position={position}"),
        ];
        let config = Config::parse(EXPERIMENT, Path::new("all_tasks.rs"), &overrides)?;
        let summary = train(&config, RunPath::Folder(folder.path().join(&task)))?.summary;
        let (Some(loss), Some(floor)) = (summary.best_valid_loss, summary.floor) else {
            return Err(Error::Failed(format!("`{task}` was not validated")));
        };
        let known = summary.determined_accuracy;
        let known = known.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", share * 100.0));
        say(&format!(
            "| `{task}` | {steps} | {:.1} | {floor:.4} | {loss:.4} | {:.4} | {known} |",
            summary.seconds / 60.0,
            loss - floor
        ));
        if loss - floor >= SOLVED {
            missed.push(task);
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("not within {SOLVED} nats of the floor: {}", missed.join(", ")))),
    }
}

fn train(config: &Config, target: RunPath) -> Result<Outcome> {
    let device = backend::choose(None, None)?;
    let control = Control { progress: ProgressKind::None, signal: Default::default(), device, until: None };
    launch(config, Mode::New(target), &control)
}
