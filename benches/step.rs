//! Measures the milliseconds of a training step, for common shapes of small decoders.
//!
//! `cargo bench --bench step -- small --threads 2`; without a shape: `one_layer`, `small` and `medium`. Prints one line
//! of JSON per shape. `--reference` uses Burn's operations instead of the kernels, `--bf16` rounds the operands of
//! products, `--muon` uses Muon. `--set KEY=VALUE` sets a key of `[model]` in all shapes. `--engine` compares a complete
//! run (loader, learner, metrics, progress) with the bare step.

use std::time::{Duration, Instant};

use burn::{tensor::backend::Backend, train::TrainStep};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use causal_attention::backend::{Device, compute};
use causal_attention::config::{BackendName, Config, OptimizerKind, TrainingConfig};
use causal_attention::data::{Batch, Role};
use causal_attention::evaluation::DeviceBatch;
use causal_attention::kernels::allocator;
use causal_attention::model::{Architecture, ModelConfig, Sizes};
use causal_attention::ops::{Activation, Kernels, NormKind, Precision};
use causal_attention::position::PositionScheme;
use causal_attention::role::ParamRoles;
use causal_attention::terminal::{ProgressKind, print_json_line};
use causal_attention::training::{Control, Mode, Optimizer, RunPath, StepBatches, Trainee, launch};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: allocator::LineAlignedAllocator = allocator::LineAlignedAllocator;

type B = Autodiff<NdArray>;

#[derive(Clone)]
struct Shape {
    name: &'static str,
    model: ModelConfig,
    vocab: usize,
    rows: usize,
    time: usize,
    /// The steps of a round.
    steps: usize,
}

fn shapes() -> [Shape; 6] {
    let model = ModelConfig::default();
    let one_layer =
        ModelConfig { architecture: Architecture::OneLayer, d_model: 64, heads: 8, ..model.clone() };
    let small = ModelConfig { d_model: 128, heads: 4, layers: 4, ..model.clone() };
    let medium = ModelConfig { d_model: 384, heads: 6, layers: 6, ..model };
    let windowed = ModelConfig { window: Some(256), ..medium.clone() };
    let llama = ModelConfig {
        heads: 8,
        key_value_heads: 4,
        position: PositionScheme::Rotary,
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        d_inner: 1024,
        bias: false,
        ..medium.clone()
    };
    [
        Shape { name: "one_layer", model: one_layer, vocab: 10, rows: 32, time: 10, steps: 200 },
        Shape { name: "small", model: small, vocab: 65, rows: 12, time: 64, steps: 20 },
        Shape { name: "medium", model: medium.clone(), vocab: 65, rows: 8, time: 256, steps: 3 },
        Shape { name: "llama", model: llama, vocab: 65, rows: 8, time: 256, steps: 3 },
        Shape { name: "long", model: medium, vocab: 65, rows: 1, time: 4096, steps: 1 },
        Shape { name: "windowed", model: windowed, vocab: 65, rows: 1, time: 4096, steps: 1 },
    ]
}

/// Returns the operations of a step (Kaplan et al., 2020, arXiv 2001.08361, section 2.1): six per token and parameter
/// of a product, plus the operations of attention.
fn operations(shape: &Shape) -> f64 {
    let Shape { model, vocab, rows, time, .. } = shape;
    let sizes = Sizes { vocab: *vocab, context: *time, source_context: None };
    let embeddings =
        vocab * model.d_model + if model.position.ends_with_context() { time * model.d_model } else { 0 };
    let keys = model.window.unwrap_or(*time).min(*time);
    let attended = model.blocks() * model.heads * model.head_width() * keys;
    let per_token =
        6.0 * (model.parameters::<burn_flex::Flex>(sizes) - embeddings) as f64 + 12.0 * attended as f64;
    per_token * (rows * time) as f64
}

/// Sets keys of a model, such as `attention_gate="head"`.
fn with_settings(model: &ModelConfig, settings: &[String]) -> ModelConfig {
    let mut table = toml::Table::try_from(model).expect("a config is a table");
    for setting in settings {
        table.extend(
            setting.parse::<toml::Table>().unwrap_or_else(|error| panic!("--set {setting}: {error}")),
        );
    }
    table.try_into().unwrap_or_else(|error| panic!("--set: {error}"))
}

/// Returns tokens that no model learns immediately, the same in every run.
fn batch(shape: &Shape) -> Batch {
    let tokens = |offset: usize| {
        let count = shape.rows * shape.time;
        (0..count).map(|index| ((index * index * 7 + offset) % shape.vocab) as u32).collect::<Vec<_>>()
    };
    Batch {
        rows: shape.rows,
        time: shape.time,
        inputs: tokens(0),
        targets: tokens(3),
        roles: vec![Role::Undetermined; shape.rows * shape.time],
        ..Batch::default()
    }
}

/// The bare training step: forward, backward, optimizer, and reading the loss.
struct Bare {
    trainee: Option<Trainee<B>>,
    optimizer: Optimizer<B>,
    batch: Batch,
    /// The time of the fastest step.
    fastest: Duration,
}

impl Bare {
    fn new(shape: &Shape, optimizer: OptimizerKind) -> Self {
        let device = Default::default();
        B::seed(&device, 0);
        let sizes = Sizes { vocab: shape.vocab, context: shape.time, source_context: None };
        let model = shape.model.init::<B>(sizes, &device).expect("valid sizes");
        let config = TrainingConfig { optimizer, max_gradient_norm: 0.0, ..TrainingConfig::default() };
        let optimizer = Optimizer::new(&config, model.roles());
        Self {
            trainee: Some(Trainee::new(model, &config)),
            optimizer,
            batch: batch(shape),
            fastest: Duration::MAX,
        }
    }

    fn steps(&mut self, steps: usize) -> Duration {
        let start = Instant::now();
        for step in 0..steps {
            let step_start = Instant::now();
            let batches = vec![DeviceBatch::new(&self.batch, &Default::default())];
            let trainee = self.trainee.take().expect("the previous step returns the trainee");
            let output = trainee.step(StepBatches::unsharded(step, batches, false));
            let trainee = burn::optim::Optimizer::step(&mut self.optimizer, 1e-3, trainee, output.grads);
            assert!(output.item.loss.into_scalar().is_finite());
            self.trainee = Some(trainee);
            self.fastest = self.fastest.min(step_start.elapsed());
        }
        start.elapsed()
    }
}

/// Trains a model of this shape in a complete run, and returns the duration of the run.
fn engine(shape: &Shape, steps: usize, options: &Options) -> Duration {
    let Shape { model, vocab, rows, time, .. } = shape;
    let architecture = match model.architecture {
        Architecture::OneLayer => "one_layer",
        _ => "decoder",
    };
    let mut sets = vec![
        format!("data.vocab={vocab}"),
        format!("data.length={time}"),
        format!("model.architecture={architecture}"),
        format!("model.d_model={}", model.d_model),
        format!("model.heads={}", model.heads),
        format!("model.layers={}", model.layers),
        format!("model.position={}", serde_json::to_value(model.position).expect("a name")),
        format!("model.key_value_heads={}", model.key_value_heads),
        format!("model.norm_kind={}", serde_json::to_value(model.norm_kind).expect("a name")),
        format!("model.activation={}", serde_json::to_value(model.activation).expect("a name")),
        format!("model.d_inner={}", model.d_inner),
        format!("model.bias={}", model.bias),
        format!("training.batch_size={rows}"),
        format!("training.steps={steps}"),
        format!("training.validate_every={}", 10 * steps),
        "training.max_gradient_norm=0".to_string(),
        // Head scores during a run are optional work.
        "analysis.every=0".to_string(),
    ];
    let kernels = serde_json::to_value(options.kernels).expect("a name");
    sets.push(format!("training.kernels={kernels}"));
    sets.push(format!("training.precision={}", options.precision));
    sets.push(format!("training.optimizer={}", serde_json::to_value(options.optimizer).expect("a name")));
    sets.extend(options.threads.map(|threads| format!("training.threads={threads}")));
    let config = Config::parse(causal_attention::config::DEFAULT_TEXT, "config.toml".as_ref(), &sets);
    let experiment = config.expect("a valid config");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = RunPath::Folder(folder.path().join("run"));
    let device = Device::processor(BackendName::Ndarray);
    let control = Control { progress: ProgressKind::Bar, ..Control::unwatched(device) };
    let start = Instant::now();
    launch(&experiment, Mode::New(target), &control).expect("the run completes");
    start.elapsed()
}

struct Options {
    shapes: Vec<Shape>,
    threads: Option<usize>,
    kernels: Kernels,
    precision: Precision,
    optimizer: OptimizerKind,
    engine: bool,
    rounds: usize,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            shapes: Vec::new(),
            threads: None,
            kernels: Kernels::Fused,
            precision: Precision::F32,
            optimizer: OptimizerKind::Adamw,
            engine: false,
            rounds: 5,
        };
        let (mut words, mut settings) = (std::env::args().skip(1), Vec::new());
        while let Some(word) = words.next() {
            let mut number = || {
                words.next().and_then(|word| word.parse().ok()).expect("--threads and --rounds need a number")
            };
            match word.as_str() {
                "--bench" => {} // added by cargo
                "--set" => settings.push(words.next().expect("--set needs a key and a value")),
                "--threads" => options.threads = Some(number()),
                "--rounds" => options.rounds = number(),
                "--reference" => options.kernels = Kernels::Reference,
                "--bf16" => options.precision = Precision::Bf16,
                "--muon" => options.optimizer = OptimizerKind::Muon,
                "--engine" => options.engine = true,
                name => {
                    let shape = shapes().into_iter().find(|shape| shape.name == name);
                    options.shapes.push(shape.unwrap_or_else(|| panic!("unknown shape or option `{name}`")));
                }
            }
        }
        if options.shapes.is_empty() {
            options.shapes = shapes()[..3].to_vec();
        }
        for shape in &mut options.shapes {
            shape.model = with_settings(&shape.model, &settings);
        }
        options
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the peak memory of this process in megabytes.
fn peak_megabytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// Returns the processor time of this process in ticks of a hundredth of a second.
fn processor_ticks() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = status.rsplit(')').next()?.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Returns the number of minor page faults of this process.
fn page_faults() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    status.rsplit(')').next()?.split_whitespace().nth(7)?.parse().ok()
}

fn measure(options: &Options) {
    for shape in &options.shapes {
        let steps = shape.steps;
        let mut bare = Bare::new(shape, options.optimizer);
        // A run does the same once its weights are initialised.
        allocator::keep_freed_memory();
        bare.steps(steps.div_ceil(5).max(3));
        let (mut faults, mut ticks) = (0, 0);
        let milliseconds_each = |time: Duration, steps: usize| time.as_secs_f64() * 1e3 / steps as f64;
        let (mut milliseconds, mut extra) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let before = page_faults();
            let ticks_before = processor_ticks();
            let bare_milliseconds = milliseconds_each(bare.steps(steps), steps);
            faults += page_faults().zip(before).map_or(0, |(after, before)| after - before);
            ticks += processor_ticks().zip(ticks_before).map_or(0, |(after, before)| after - before);
            milliseconds.push(bare_milliseconds);
            if options.engine {
                // The difference cancels the cost of the start and end of a run.
                let (short, long) = (engine(shape, steps, options), engine(shape, 6 * steps, options));
                extra.push(milliseconds_each(long.saturating_sub(short), 5 * steps) - bare_milliseconds);
            }
        }
        let milliseconds = median(milliseconds);
        let mut line = serde_json::json!({
            "shape": shape.name,
            "kernels": options.kernels,
            "precision": options.precision,
            "optimizer": options.optimizer,
            "threads": rayon::current_num_threads(),
            "ms_per_step": (milliseconds * 1e3).round() / 1e3,
            "processor_ms": 10.0 * ticks as f64 / (options.rounds * steps) as f64,
            // The fastest step shows the speed of the machine without other load.
            "least_ms": bare.fastest.as_micros() as f64 / 1e3,
            "gflop_per_second": (operations(shape) / milliseconds * 1e-6).round(),
            "tokens_per_second": ((shape.rows * shape.time) as f64 / milliseconds * 1e3).round(),
            "peak_mb": peak_megabytes(),
            "page_faults_per_step": faults / (options.rounds * steps) as u64,
        });
        if options.engine {
            let extra = median(extra);
            line["engine_extra_us_per_step"] = (extra * 1e3).round().into();
            line["engine_extra_percent"] = (extra / milliseconds * 100.0).round().into();
        }
        print_json_line(&line);
    }
}

fn main() {
    let options = Options::read();
    let Options { threads, kernels, precision, .. } = options;
    let config = TrainingConfig { threads, kernels, precision, ..TrainingConfig::default() };
    // On a separate thread, as in a run.
    let measured = compute(&config, || {
        measure(&options);
        Ok(())
    });
    measured.expect("threads can be started");
}
