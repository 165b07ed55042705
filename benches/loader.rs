//! Measures the overhead of the default run: preparing its batches and writing its checkpoints. Prints one line of JSON
//! for each, in percent of the time of the steps.
//!
//! `cargo bench --bench loader -- --threads 2`

use std::time::Instant;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use causal_attention::backend::Device;
use causal_attention::config::{BackendName, Config, DEFAULT_TEXT};
use causal_attention::data::{DataConfig, Loader, Sequences, Source, load};
use causal_attention::evaluation::DeviceBatch;
use causal_attention::kernels::allocator::LineAlignedAllocator;
use causal_attention::terminal::print_json_line;
use causal_attention::training::{Control, Mode, RunPath, Summary, launch};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: LineAlignedAllocator = LineAlignedAllocator;

type B = Autodiff<NdArray>;

/// The steps of the run, with two validations and a checkpoint at each.
const STEPS: usize = 1000;
/// The number of prepared batches.
const BATCHES: usize = 2000;

/// Returns the default experiment with some keys changed.
fn experiment(mut sets: Vec<String>) -> Config {
    let mut words = std::env::args().skip_while(|word| word != "--threads").skip(1);
    sets.extend(words.next().map(|threads| format!("training.threads={threads}")));
    Config::parse(DEFAULT_TEXT, "config.toml".as_ref(), &sets).expect("the default experiment")
}

/// Returns windows of `length` tokens of a text.
fn windows(length: usize) -> Sequences {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "To be, or not to be, that is the question.\n".repeat(25_000))
        .expect("the text can be written");
    let config =
        DataConfig { source: Some(Source::Text), path: file.path().into(), length, ..DataConfig::default() };
    load(&config, 0).expect("the text can be read").train
}

/// Returns the median number of microseconds to prepare a batch and copy it to the device.
fn prepare(sequences: Sequences, batch_size: usize) -> f64 {
    let loader = Loader::new(sequences, batch_size, 0);
    let device = Default::default();
    let mut times = (0..BATCHES)
        .map(|index| {
            let start = Instant::now();
            let batch = loader.batch(index / loader.batches(), index % loader.batches());
            std::hint::black_box(DeviceBatch::<B>::new(&batch, &device));
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect::<Vec<_>>();
    times.sort_by(f64::total_cmp);
    times[BATCHES / 2]
}

/// Trains the default model for [`STEPS`] steps.
fn run() -> Summary {
    let experiment = experiment(vec![format!("training.steps={STEPS}")]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let control = Control::unwatched(Device::processor(BackendName::Ndarray));
    let target = RunPath::Folder(folder.path().join("run"));
    launch(&experiment, Mode::New(target), &control).expect("the run completes").summary
}

fn main() {
    let default = experiment(Vec::new());
    let summary = run();
    let step = summary.work.seconds / STEPS as f64 * 1e6;
    let task = causal_attention::training::dataset(&default).expect("the default data").train;
    let length = default.data.length;
    for (name, sequences) in [("task", task), ("text", windows(length))] {
        let microseconds = prepare(sequences, default.training.batch_size);
        let line = serde_json::json!({
            "batch_of": name,
            "us": microseconds.round(),
            "step_us": step.round(),
            "percent_of_a_step": (microseconds / step * 1e4).round() / 1e2,
        });
        print_json_line(&line);
    }
    let line = serde_json::json!({
        "checkpoint_every_steps": default.training.validate_every,
        "ms_of_all": (summary.work.checkpoint_seconds * 1e3).round(),
        "percent_of_the_steps": (summary.work.checkpoint_seconds / summary.work.seconds * 1e4).round() / 1e2,
    });
    print_json_line(&line);
}
