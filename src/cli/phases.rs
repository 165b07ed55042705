//! `phases`: what happened during the training of a run, and at which steps.

use std::process::ExitCode;

use causal_attention_report::Style;

use super::input::{OpenedRun, RunArgs, warn_changed_config};
use super::scale::positive;
use super::signals;
use crate::error::Result;
use crate::files::write_atomically;
use crate::reporting::{RunData, phases_picture, save_all};
use crate::terminal::{ProgressKind, print_json, say, warn};
use crate::training::{Control, PhaseSearch};
use crate::workers::Workers;

/// The acknowledgement of a signal.
const NOTICE: &str = "\nnotice: interrupted; pausing the replay; a second signal exits immediately\n";

/// Find the phases of a run's training: intervals of steps in which its loss or a score of a head changes far more steeply
/// than right before and right after. Replays the run exactly to locate each phase to the step, and mean-ablates the heads
/// that changed. Needs `analysis.every`. Writes phases.json and plots/phases.png to the run folder, and adds the phases to
/// the page as chapters of the training replay.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Reports the recorded steps before and after each phase, without replaying the run.
    #[arg(long)]
    no_replay: bool,
    /// Pauses the replay after about this time; the same command continues it. [default: the time of the run, at least a
    /// minute]
    #[arg(long, value_name = "SECONDS", value_parser = positive, conflicts_with = "no_replay")]
    budget: Option<f64>,
    #[command(flatten)]
    run: RunArgs,
    /// Prints phases.json, and draws neither picture nor page.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let OpenedRun { folder, config, device, given } = args.run.open(&[])?;
    if folder.has_changed_config() {
        warn_changed_config(folder.path());
    }
    let control = Control {
        progress: ProgressKind::next_to_result(args.json),
        signal: signals::watch(NOTICE)?,
        device,
        until: None,
        workers: Workers::single(),
    };
    let search = PhaseSearch {
        folder: &folder,
        config: &config,
        control: &control,
        replays: !args.no_replay,
        budget: args.budget,
    };
    let found = given.with_origin(search.find())?;
    let code = found.signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signals::exit_code(signal)));
    if found.phases.replay.as_ref().is_some_and(|replay| !replay.is_complete) {
        warn(&format!("notice: the replay is paused; `phases {}` continues it", folder.path().display()));
    }
    if args.json {
        print_json(&found.phases);
        return Ok(code);
    }
    found.phases.sentences.iter().for_each(|sentence| say(sentence));
    folder.remove_phases_picture()?;
    let style = Style::default();
    let picture = phases_picture(&folder.name(), &found, style.logical_width());
    let pictures = save_all(picture.as_slice(), &folder.plots(), &style)?;
    write_atomically(&folder.report(), RunData::read(&folder, &control.device)?.page.html().as_bytes())?;
    let page = [folder.report()];
    [folder.phases()].iter().chain(&pictures).chain(&page).for_each(|path| say(&path.display().to_string()));
    Ok(code)
}
