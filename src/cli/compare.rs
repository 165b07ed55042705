//! `compare`: runs side by side.

mod circuits;

use std::{collections::BTreeSet, path::PathBuf};

use causal_attention_report::comparison::XAxisQuantity;

use super::input::run_path;
use super::pictures::{PictureArgs, along};
use crate::comparison::{CircuitComparison, ComparedRun, ComparedSetting, Comparison, MAX_NAME, Measure};
use crate::error::{Result, excerpt};
use crate::files::{check_output, write_atomically, write_output};
use crate::numbers::{counted, fixed, thousands};
use crate::reporting::{comparison_page, comparison_pictures, save_all};
use crate::terminal::{print_json, say, table, warn};

/// Compare runs: the keys in which they differ, their losses, and whether the differences exceed the noise between
/// seeds; or their circuits: the components and connections that all runs have learned.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Two to fifty runs, or folders and studies that contain them.
    #[arg(required = true, value_name = "RUN", value_parser = run_path())]
    runs: Vec<PathBuf>,
    /// Groups runs by this key, such as model.heads. [default: all keys in which the runs differ, except run.seed]
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
    /// Compares the circuits that `train` or `explain` found: matches heads by their function, and reports each component
    /// and connection with the runs that have it, its mean effect, and the step of its phase if phases.json has it.
    #[arg(long, conflicts_with_all = ["by", "out"])]
    circuits: bool,
    /// Also puts each head of the reference's circuit in the place of the matched head of every other run, with the residual
    /// streams aligned by the embeddings unless the runs started from the same weights, and reports what it recovers.
    #[arg(long, requires = "circuits")]
    transplant: bool,
    /// Writes pictures and a page to this folder; an existing folder is replaced only if compare created it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The x-axis of the losses in the picture; the page offers all three.
    #[arg(long, value_parser = along(), default_value = "steps", requires = "out")]
    along: XAxisQuantity,
    #[command(flatten)]
    pictures: PictureArgs,
    /// Prints JSON: the keys, the settings with their means and tests, and all runs with their head scores; with --circuits,
    /// the components and connections.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    args.out.iter().try_for_each(|out| check_output(out, "compare"))?;
    let style = args.pictures.style_in(args.out.as_ref())?;
    let (comparison, damaged) = Comparison::read(&args.runs, args.by.as_deref())?;
    for error in damaged {
        warn(&format!("warning: skipped: {error}"));
    }
    if args.circuits {
        let mut found = CircuitComparison::read(&comparison)?;
        if args.transplant {
            found.add_transplants(&comparison)?;
        }
        match args.json {
            true => print_json(&found),
            false => circuits::print(&found),
        }
        return Ok(());
    }
    match args.json {
        true => print_json(&comparison),
        false => print(&comparison),
    }
    let Some(out) = args.out else { return Ok(()) };
    let pictures = args.pictures.titled(comparison_pictures(&comparison, args.along, style.logical_width()));
    let written = write_output(&out, "compare", |folder| {
        save_all(&pictures, folder, &style)?;
        write_atomically(&folder.join("report.html"), comparison_page(&comparison).as_bytes())
    })?;
    if !args.json {
        written.iter().for_each(|path| say(&path.display().to_string()));
    }
    Ok(())
}

/// The maximum number of characters of a value in the table of keys.
const MAX_VALUE_LENGTH: usize = 24;

/// The maximum number of keys in the first line.
const MAX_KEYS_IN_LINE: usize = 6;

/// The maximum number of settings with a column in the table of keys.
const MAX_SETTINGS: usize = 4;

/// Prints a table of the keys in which settings differ, for keys that do not fit into a setting's line.
fn print_keys(settings: &[ComparedSetting]) {
    let shown = &settings[..settings.len().min(MAX_SETTINGS)];
    let keys = settings.iter().flat_map(|setting| setting.values.keys()).collect::<BTreeSet<_>>();
    let value = |setting: &ComparedSetting, key: &String| {
        setting.values.get(key).map_or_else(String::new, |value| excerpt(value, MAX_VALUE_LENGTH))
    };
    let row = |key: &String| {
        let values = shown.iter().map(|setting| value(setting, key));
        std::iter::once(key.clone()).chain(values).collect::<Vec<_>>()
    };
    let names = (1..=shown.len()).map(|number| format!("setting {number}")).collect::<Vec<_>>();
    let names = std::iter::once("key").chain(names.iter().map(String::as_str)).collect::<Vec<_>>();
    table(&"l".repeat(names.len()), &names, &keys.into_iter().map(row).collect::<Vec<_>>());
    if shown.len() < settings.len() {
        say(&format!("{} more; see --json", counted(settings.len() - shown.len(), "setting")));
    }
    say("");
}

fn print(comparison: &Comparison) {
    let Comparison { keys, settings, runs, sentences, measure } = comparison;
    let differ = match &keys[..] {
        [] => "nothing but the seed".to_string(),
        [.., _] if keys.len() > MAX_KEYS_IN_LINE => counted(keys.len(), "key"),
        keys => keys.join(", "),
    };
    let setting_count = counted(settings.len(), "setting");
    say(&format!("{}, {setting_count}: they differ in {differ}", counted(runs.len(), "run")));
    say("");
    let nats = |loss: Option<f64>| loss.map_or_else(String::new, |loss| fixed(loss, 4));
    let row = |(number, setting): (usize, &ComparedSetting)| {
        let interval = setting.measured(*measure).and_then(|mean| mean.interval);
        [
            number.to_string(),
            excerpt(&setting.name(), MAX_NAME),
            setting.runs.to_string(),
            nats(setting.loss.map(|mean| mean.mean)),
            nats(setting.above_floor.map(|mean| mean.mean)),
            interval.map(|ends| ends.map(|end| fixed(end, 4)).join(" to ")).unwrap_or_default(),
        ]
    };
    let interval = match measure {
        Measure::Loss => "95 % interval of the loss",
        Measure::AboveFloor => "95 % interval above the floor",
    };
    let names = ["", "setting", "runs", "loss", "above floor", interval];
    table("rlrrrr", &names, &(1..).zip(settings).map(row).collect::<Vec<_>>());
    say("");
    if settings.iter().any(|setting| setting.name().chars().count() > MAX_NAME) {
        print_keys(settings);
    }
    let row = |run: &ComparedRun| {
        [
            run.name.clone(),
            (run.setting + 1).to_string(),
            run.experiment.seed.to_string(),
            nats(run.losses.best_valid_loss),
            nats(run.losses.above_floor),
            run.cost.parameters.map_or_else(String::new, |count| thousands(count as f64)),
            thousands(run.cost.steps as f64),
            run.cost.tokens_per_second.map_or_else(String::new, thousands),
            run.ended.replace('_', " "),
        ]
    };
    let names = ["run", "setting", "seed", "loss", "above floor", "parameters", "steps", "tokens/s", "ended"];
    table("lrrrrrrrl", &names, &runs.iter().map(row).collect::<Vec<_>>());
    if !sentences.is_empty() {
        say("");
    }
    sentences.iter().for_each(|sentence| say(sentence));
}
