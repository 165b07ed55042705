//! `report`: the page to explore a run, made again from its folder.

use std::path::PathBuf;
use std::process::ExitCode;

use super::backend::BackendArgs;
use super::plot::run_data;
use crate::config::Config;
use crate::error::Result;
use crate::report::Page;
use crate::terminal::{print_json_line, say};
use crate::training::RunFolder;

/// Write a run's page to explore again, from its folder alone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints what the page shows as JSON, and writes no page.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &[])?;
    let device = args.backend.choose(&config.training, &[])?;
    let run = run_data(&folder, &device)?;
    let page = Page::of_run(&run);
    if args.json {
        print_json_line(&page);
    } else {
        page.write(&folder.report())?;
        say(&folder.report().display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
