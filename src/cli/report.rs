//! `report`: regenerates the page of a run from its folder.

use std::path::PathBuf;

use super::input::{OpenedRun, RunArgs};
use super::plot::run_data;
use crate::error::Result;
use crate::files::{check_new, write_atomically, write_new};
use crate::terminal::{print_json_line, say};

/// Regenerate a run's interactive page from its folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// The file to write, which must not exist. [default: report.html in the run folder]
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// Prints the data of the page as JSON and writes no page.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let OpenedRun { folder, device, .. } = args.run.open(&[])?;
    args.out.iter().try_for_each(|out| check_new(out))?;
    let page = run_data(&folder, &device)?.page;
    if args.json {
        print_json_line(&page.full_data());
    } else {
        let write = if args.out.is_some() { write_new } else { write_atomically };
        let out = args.out.unwrap_or_else(|| folder.report());
        write(&out, page.html().as_bytes())?;
        say(&out.display().to_string());
    }
    Ok(())
}
