//! An atlas of attention: what each variant of attention changes.
//!
//!     cargo run --release --example variants -- --out variants --text tinyshakespeare.txt
//!
//! Trains a decoder with each variant on five tasks and on a text, with equal steps, nearly equal numbers of parameters and
//! three seeds. Writes `variants.csv`, with a row per run, and `variants.png` into the folder, and prints the tables of
//! `docs/variants.md`. Skips runs that are already in the CSV, so parts of the example can be run separately:
//!
//!     cargo run --release --example variants -- --out variants --tasks sort --variants window,softcap --seeds 1
//!
//! All runs together take about an hour and a half on one core.

mod experiments;

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module as _;
use burn::tensor::backend::{AutodiffBackend, Backend};
use causal_attention::analysis::{Analysis, Score};
use causal_attention::backend::{self, Job};
use causal_attention::comparison::{GroupMean, WelchTest};
use causal_attention::config::Config;
use causal_attention::data;
use causal_attention::evaluation::{AtLength, Protocol};
use causal_attention::model::{Model, Sizes};
use causal_attention::numbers::signed;
use causal_attention::reporting::save_all;
use causal_attention::terminal::{say, warn};
use causal_attention::{Error, Result};
use causal_attention_report::color::{BLUE, MUTED};
use causal_attention_report::{
    Axis, HEADING, Interval, LineChart, MARGIN, Mark, Picture, Rect, Scale, Series, Style, Text, WIDTH,
};
use clap::Parser;
use experiments::{EXPERIMENTS, Trained, config, read, trained, write};
use serde::{Deserialize, Serialize};

/// The variant that all others are compared with.
const PLAIN: &str = "plain";

/// The variants with their settings. All have rotary positions.
const VARIANTS: [(&str, &[&str]); 15] = [
    (PLAIN, &[]),
    ("window", &["model.window=8", "model.layer_pattern=[\"local\",\"global\"]"]),
    ("sinks, off by one", &["model.sinks=off_by_one"]),
    ("sinks, learned", &["model.sinks=learned"]),
    ("softcap", &["model.attention_softcap=20"]),
    ("unscaled", &["model.attention_scale=1"]),
    ("gate per head", &["model.attention_gate=head"]),
    ("gate per element", &["model.attention_gate=elementwise"]),
    ("differential", &["model.differential=true"]),
    ("partial rotary", &["model.rotary_fraction=0.25"]),
    ("rotary in every second layer", &["model.rotary_skip_every=2"]),
    ("post-norm", &["model.norm=post"]),
    ("sandwich norm", &["model.norm=sandwich"]),
    ("norm of outputs", &["model.norm=output"]),
    ("parallel", &["model.parallel=true"]),
];

/// The settings of the head scores, which are measured on the best weights.
const ANALYSIS: [&str; 2] = ["analysis.sequences=64", "training.validate_every=500"];

/// The name of the text, and its settings.
const TEXT: &str = "text";
const TEXT_SETTINGS: [&str; 5] = [
    "data.length=64",
    "data.valid_fraction=0.05",
    "training.steps=1500",
    "training.batch_size=16",
    "model.dropout=0",
];
/// The lengths of the text, as a multiple of the training length at each index, as for the tasks.
const TEXT_LENGTHS: [usize; 3] = [64, 128, 256];
/// The index of the lengths that are four times as long as in training.
const FOUR_TIMES: usize = 2;

#[derive(Parser)]
struct Args {
    /// The folder for the table and the picture.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A text, such as tinyshakespeare. [default: none, only tasks]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// The tasks. [default: all]
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<String>,
    /// The first words of the variants. [default: all]
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
    /// The seeds.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
}

/// A row of the CSV: one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    task: String,
    variant: String,
    seed: u64,
    parameters: usize,
    /// The loss at the training length: above the floor, or the whole loss for a text.
    loss: f64,
    /// The same at four times the length.
    longer: f64,
    /// The highest induction score of a head.
    induction: f64,
    /// The highest weight of a head on the first token.
    first_token: f64,
}

/// A quantity of a run.
type Quantity = fn(&Row) -> f64;

/// A task or a text, with its settings and its lengths.
struct Data {
    name: String,
    overrides: Vec<String>,
    lengths: Vec<usize>,
}

fn main() {
    if let Err(error) = atlas(&Args::parse()) {
        warn(&format!("error: {error}"));
        std::process::exit(error.exit_code().into());
    }
}

fn atlas(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.out).map_err(|error| Error::io("create", &args.out, error))?;
    let table = args.out.join("variants.csv");
    let mut rows: Vec<Row> = read(&table)?;
    let is_chosen =
        |chosen: &[String], name: &str| chosen.is_empty() || chosen.iter().any(|it| name.starts_with(it));
    for &seed in &args.seeds {
        for data in all_data(args.text.as_deref()).iter().filter(|data| is_chosen(&args.tasks, &data.name)) {
            for (variant, settings) in VARIANTS.iter().filter(|(name, _)| is_chosen(&args.variants, name)) {
                let is_row = |row: &Row| row.task == data.name && row.variant == *variant && row.seed == seed;
                if !rows.iter().any(is_row) {
                    rows.push(measure(data, (variant, settings), seed)?);
                    write(&table, &rows)?;
                }
            }
        }
    }
    print(&rows);
    save_all(&[picture(&rows)], &args.out, &Style { scale: 1, ..Style::default() })?;
    Ok(())
}

/// Returns the tasks, and the text if there is one.
fn all_data(text: Option<&Path>) -> Vec<Data> {
    let tasks = EXPERIMENTS.iter().map(|experiment| Data {
        name: experiment.task.to_string(),
        overrides: experiment.overrides(),
        lengths: experiment.lengths[..=FOUR_TIMES].to_vec(),
    });
    let text = text.map(|path| Data {
        name: TEXT.to_string(),
        overrides: TEXT_SETTINGS
            .map(String::from)
            .into_iter()
            .chain([format!("data.path={}", path.display())])
            .collect(),
        lengths: TEXT_LENGTHS.to_vec(),
    });
    tasks.chain(text).collect()
}

/// Trains one model, and scores its heads.
fn measure(data: &Data, (variant, settings): (&str, &[&str]), seed: u64) -> Result<Row> {
    let plain =
        [&data.overrides[..], &["model.position=rotary".to_string(), format!("run.seed={seed}")]].concat();
    let own: Vec<String> =
        settings.iter().map(ToString::to_string).chain(ANALYSIS.map(String::from)).collect();
    let overrides = [&plain[..], &own].concat();
    let width = equal_width(&config(&plain)?, &overrides)?;
    let config = config(&[&overrides[..], &[format!("model.d_inner={width}")]].concat())?;
    // Holds the folder of the run until its scores are read.
    let run = trained(&config, &data.lengths)?;
    let Trained { outcome, at, .. } = &run;
    let loss = |index: usize| {
        let is_at = |at: &&AtLength| at.length == data.lengths[index] && at.protocol == Protocol::Windows;
        at.iter().find(is_at).map_or(f64::NAN, |at| at.gap.unwrap_or(at.loss))
    };
    let analysis = outcome.folder.analysis();
    let missing = || Error::file(&analysis, "a finished run has head scores");
    let heads = Analysis::read(&analysis)?.ok_or_else(missing)?.heads;
    let highest =
        |score: Score| heads.iter().flatten().filter_map(|head| head[score]).fold(f64::NAN, f64::max);
    let row = Row {
        task: data.name.clone(),
        variant: variant.to_string(),
        seed,
        parameters: outcome.summary.work.parameters,
        loss: loss(0),
        longer: loss(FOUR_TIMES),
        induction: highest(Score::Induction),
        first_token: highest(Score::First),
    };
    warn(&format!(
        "{} {variant} seed {seed}: {:.0} s, {:.4} nats",
        data.name, outcome.summary.work.seconds, row.loss
    ));
    Ok(row)
}

/// Returns the width of the feed-forward layers at which a variant has as many parameters as the plain model.
fn equal_width(plain: &Config, overrides: &[String]) -> Result<usize> {
    let variant = config(overrides)?;
    let wider = config(&[overrides, &[format!("model.d_inner={}", 4 * variant.model.d_model + 1)]].concat())?;
    let device = backend::choose(None, None)?;
    let count = |config: &Config| backend::run(&device, CountParameters(config)).map(|count| count as f64);
    let [target, own, more] = [count(plain)?, count(&variant)?, count(&wider)?];
    Ok((4.0 * variant.model.d_model as f64 + (target - own) / (more - own)).round() as usize)
}

/// Counts the parameters of a model.
struct CountParameters<'a>(&'a Config);

impl Job for CountParameters<'_> {
    type Output = usize;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<usize> {
        let dataset = data::load(&data::DataConfig { train_samples: 1, ..self.0.data.clone() }, 0)?;
        let sizes =
            Sizes { vocab: dataset.vocabulary.size(), context: dataset.train.time(), source_context: None };
        Ok(parameters::<B::InnerBackend>(&self.0.model.init(sizes, &device)?))
    }
}

fn parameters<B: Backend>(model: &Model<B>) -> usize {
    match model {
        Model::Decoder(model) => model.num_params(),
        Model::OneLayer(model) => model.num_params(),
    }
}

/// Returns a quantity of all runs of a variant on a task; `None` if there are none.
fn mean_of(rows: &[Row], task: &str, variant: &str, of: Quantity) -> Option<GroupMean> {
    let runs = rows.iter().filter(|row| row.task == task && row.variant == variant);
    GroupMean::of(&runs.map(of).collect::<Vec<_>>())
}

/// Returns the tasks with results.
fn tasks(rows: &[Row]) -> Vec<String> {
    let all = all_data(Some(Path::new(TEXT))).into_iter().map(|data| data.name);
    all.filter(|task| rows.iter().any(|row| row.task == *task)).collect()
}

/// Prints a table per quantity. Losses are compared with the plain model by Welch's test: a difference follows with its 95 %
/// interval, and an asterisk if the interval excludes zero.
fn print(rows: &[Row]) {
    let tasks = tasks(rows);
    let quantities: [(&str, Quantity, usize, bool); 4] = [
        ("Loss at the training length", |row| row.loss, 3, true),
        ("Loss at four times the length", |row| row.longer, 2, true),
        ("Highest induction score of a head", |row| row.induction, 2, false),
        ("Highest weight of a head on the first token", |row| row.first_token, 2, false),
    ];
    for (name, of, digits, is_compared) in quantities {
        let head = format!("| variant | {} |", tasks.join(" | "));
        for line in [&format!("{name}:"), "", &head, &format!("|---{}|", "|---".repeat(tasks.len()))] {
            say(line);
        }
        for (variant, _) in VARIANTS {
            let cell = |task: &String| {
                let Some(mean) = mean_of(rows, task, variant, of) else { return "-".to_string() };
                let plain = mean_of(rows, task, PLAIN, of).filter(|_| is_compared && variant != PLAIN);
                let test = plain.and_then(|plain| WelchTest::new(&plain, &mean));
                let compared = test.map_or(String::new(), |test| compared(&test, digits));
                format!("{:.digits$}{compared}", mean.mean)
            };
            say(&format!("| {variant} | {} |", tasks.iter().map(cell).collect::<Vec<_>>().join(" | ")));
        }
        say("");
    }
}

/// Formats a difference with its 95 % interval, such as ` (−0.085 ± 0.041)*`.
fn compared(test: &WelchTest, digits: usize) -> String {
    let [low, high] = test.interval;
    let mark = if low > 0.0 || high < 0.0 { "*" } else { "" };
    format!(" ({} ± {:.digits$}){mark}", signed(test.difference, digits), (high - low) / 2.0)
}

/// Draws, for each task, the difference of each variant's loss from the plain model with its 95 % interval (Welch).
fn picture(rows: &[Row]) -> Picture {
    const COLUMNS: usize = 3;
    const NAMES: f64 = 190.0;
    let variants: Vec<&str> = VARIANTS.iter().map(|(name, _)| *name).filter(|name| *name != PLAIN).collect();
    let tasks = tasks(rows);
    let (height, gap, above, below) = (17.0 * variants.len() as f64, 16.0, 26.0, 48.0);
    let width = (WIDTH - 2.0 * MARGIN - NAMES - gap * (COLUMNS - 1) as f64) / COLUMNS as f64;
    let row = above + height + below;
    let rows_of_panels = tasks.len().div_ceil(COLUMNS).max(1);
    let note =
        "difference of the loss from plain rotary attention, with its 95 % interval (Welch); right is worse";
    let mut picture = Picture::new(
        "variants",
        (WIDTH, HEADING + row * rows_of_panels as f64),
        "Variants of attention: loss by task",
        note,
    );
    for (index, task) in tasks.iter().enumerate() {
        let (column, line) = (index % COLUMNS, index / COLUMNS);
        let left = MARGIN + NAMES + column as f64 * (width + gap);
        let area = Rect { left, top: HEADING + line as f64 * row + above, width, height };
        picture.text(task, (area.left, area.top - 12.0), &Text::new(13.0).bold());
        let tests: Vec<(f64, WelchTest)> = variants
            .iter()
            .enumerate()
            .filter_map(|(at, variant)| {
                let [plain, own] = [PLAIN, variant].map(|name| mean_of(rows, task, name, |row| row.loss));
                Some(((variants.len() - 1 - at) as f64, WelchTest::new(&plain?, &own?)?))
            })
            .collect();
        let ends = tests.iter().flat_map(|(_, test)| test.interval).chain([0.0]);
        let x = Interval::of(ends).map_or(Interval::new(-1.0, 1.0), |range| range.padded(0.08, 0.08));
        let y = Interval::new(-0.5, variants.len() as f64 - 0.5);
        let mut series = vec![Series::new("", MUTED, Mark::Dashed(1.0), [(0.0, y.start), (0.0, y.end)])];
        for (at, test) in tests {
            series.push(Series::new("", BLUE, Mark::Line(1.5), test.interval.map(|end| (end, at))));
            series.push(Series::new("", BLUE, Mark::Dot(3.0), [(test.difference, at)]));
        }
        let labels = Some(Vec::new());
        let y = Axis { labels, is_labelled: false, ..Axis::new("", y, Scale::Linear) };
        let x = Axis::new("nats", x, Scale::Linear);
        LineChart { area, x, y, series }.draw(&mut picture);
        for (at, variant) in variants.iter().enumerate().filter(|_| column == 0) {
            let y = area.top + (at as f64 + 0.5) * height / variants.len() as f64;
            picture.text(variant, (area.left - 8.0, y), &Text::new(11.0).right());
        }
    }
    picture
}
