//! Trains a small decoder on every sequence task, compares its loss with the entropy floor, and finds its circuit.
//!
//!     cargo run --release --example all_tasks
//!
//! Prints a table with the steps, the minutes and the loss above the floor of each task. A second table lists the
//! circuit found: its heads as layer.head with their kinds, the most important first, and the connections between them.
//! Fails if a loss ends 0.05 nats or more above the floor. Takes a few minutes on two cores.

use std::path::Path;

use causal_attention::analysis::circuit::{Component, Edge, HeadInput};
use causal_attention::backend;
use causal_attention::cli::explain;
use causal_attention::config::Config;
use causal_attention::data::Task;
use causal_attention::terminal::{say, warn};
use causal_attention::training::{Control, Mode, Outcome, RunFolder, RunPath, launch};
use causal_attention::{Error, Result};

const EXPERIMENT: &str = r"
[data]
length = 32
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
";

/// The loss above the floor, in nats, below which a task counts as solved.
const MAX_GAP: f64 = 0.05;

/// Returns the number of steps, the number of training sequences, and the position scheme for a task.
fn recipe(task: Task) -> (usize, usize, &'static str) {
    match task {
        // There is nothing to learn, and a short run memorises less.
        Task::Random => (200, 8_192, "learned"),
        // The task needs an induction head, which forms soonest with distance biases.
        Task::Repeat => (3_000, 32_768, "alibi"),
        Task::Recall => (4_000, 65_536, "alibi"),
        // Every digit of a sum depends on two digits and their carry.
        Task::Addition => (6_000, 131_072, "learned"),
        _ => (1_500, 16_384, "learned"),
    }
}

fn main() {
    if let Err(error) = all() {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn all() -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("create", std::env::temp_dir(), error))?;
    say("| task | steps | minutes | floor | loss | above the floor | accuracy on determined targets |");
    say("|---|---|---|---|---|---|---|");
    let (mut unsolved, mut circuits) = (Vec::new(), Vec::new());
    // Modular addition has too few samples to learn by this recipe; docs/grokking.md describes its own.
    for task in Task::ALL.into_iter().filter(|&task| task != Task::ModularAddition) {
        let (steps, samples, position) = recipe(task);
        let task = task.to_string();
        let overrides = [
            format!("data.task={task}"),
            format!("training.steps={steps}"),
            format!("data.train_samples={samples}"),
            format!("model.position={position}"),
        ];
        // `addition` has its own vocabulary, and only `repeat` has a period.
        let sized = (task != "addition").then(|| "data.vocab=16".to_string());
        let periodic = (task == "repeat").then(|| "data.period=[4, 8]".to_string());
        let overrides: Vec<String> = overrides.into_iter().chain(sized).chain(periodic).collect();
        let config = Config::parse(EXPERIMENT, Path::new("all_tasks.rs"), &overrides)?;
        let Outcome { summary, folder, .. } = train(&config, RunPath::Folder(folder.path().join(&task)))?;
        let (Some(loss), Some(floor)) = (summary.losses.best_valid_loss, summary.losses.floor) else {
            return Err(Error::Failed(format!("`{task}` was not validated")));
        };
        let accuracy = summary.losses.determined_accuracy;
        let accuracy = accuracy.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", share * 100.0));
        say(&format!(
            "| `{task}` | {steps} | {:.1} | {floor:.4} | {loss:.4} | {:.4} | {accuracy} |",
            summary.work.seconds / 60.0,
            loss - floor
        ));
        circuits.push(circuit(&task, &config, &folder));
        if loss - floor >= MAX_GAP {
            unsolved.push(task);
        }
    }
    say("");
    say("| task | circuit | share of the gain | components |");
    say("|---|---|---|---|");
    circuits.iter().for_each(|row| say(row));
    match unsolved.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!(
            "the loss is not within {MAX_GAP} nats of the floor: {}",
            unsolved.join(", ")
        ))),
    }
}

/// Returns the circuit of a run as a table row, with `-` in its cells if the task has nothing to learn.
fn circuit(task: &str, config: &Config, run: &RunFolder) -> String {
    let found = backend::choose(None, None)
        .and_then(|device| explain::of_run(run, config, &device, Default::default()));
    let with_circuit = found.ok().filter(|found| found.gain.no_circuit.is_none());
    let Some(found) = with_circuit else { return format!("| `{task}` | - | - | - |") };
    let component = |component: &Component| match component.head {
        Some(head) => {
            let kinds: Vec<&str> = component.kinds.iter().map(|kind| kind.name()).collect();
            format!("{}.{head} {}", component.layer, kinds.join(" and ")).trim_end().to_string()
        }
        None => format!("feed-forward {}", component.layer),
    };
    let end = |(layer, head): (usize, Option<usize>)| match head {
        Some(head) => format!("{layer}.{head}"),
        None => format!("feed-forward {layer}"),
    };
    let connection = |Edge { from, to, input, .. }: &Edge| {
        let by = match input {
            Some(HeadInput::Query) => " via queries",
            Some(HeadInput::Key) => " via keys",
            Some(HeadInput::Value) => " via values",
            None => "",
        };
        format!("{} → {}{by}", end(*from), end(*to))
    };
    let entries: Vec<String> =
        found.components.iter().map(component).chain(found.edges.iter().map(connection)).collect();
    let (share, components) = (found.gain.shares.faithfulness * 100.0, found.components.len());
    format!(
        "| `{task}` | {} | {share:.0} % | {components} of {} |",
        entries.join(", "),
        found.model_components()
    )
}

fn train(config: &Config, target: RunPath) -> Result<Outcome> {
    let device = backend::choose(None, None)?;
    let control = Control::unwatched(device);
    launch(config, Mode::New(target), &control)
}
