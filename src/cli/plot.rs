//! `plot`: redraws a run's pictures from its folder.

use std::path::PathBuf;

use causal_attention_report::WeightColors;

use super::input::{self, OpenedRun, RunArgs};
use super::{
    pictures::{PictureArgs, weight_colors},
    print_paths,
};
use crate::backend::Device;
use crate::error::Result;
use crate::files::{check_output, write_output};
use crate::reporting::{RunData, save_all};
use crate::training::RunFolder;

/// Redraw a run's pictures from its folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pictures: PictureArgs,
    /// The colour scale of attention weights. [default: linear]
    #[arg(long, value_parser = weight_colors())]
    color_scale: Option<WeightColors>,
    /// The folder for the pictures; an existing folder is replaced only if plot created it. [default: plots/ in the
    /// run folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    /// Prints the paths of the pictures as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let OpenedRun { folder, device, .. } = args.run.open(&[])?;
    args.out.iter().try_for_each(|out| check_output(out, "plot"))?;
    let style = args.pictures.style()?;
    let mut run = run_data(&folder, &device)?;
    run.page.heads.colors = args.color_scale.unwrap_or_default();
    let pictures = args.pictures.titled(run.pictures(style.logical_width()));
    let pictures = match &args.out {
        None => save_all(&pictures, &folder.plots(), &style)?,
        Some(out) => write_output(out, "plot", |hidden| save_all(&pictures, hidden, &style))?,
    };
    print_paths(args.json, "pictures", &pictures);
    Ok(())
}

/// Reads the data for a run's pictures and page: the contents of its folder, and the views of its best weights on
/// `device`.
pub(super) fn run_data(folder: &RunFolder, device: &Device) -> Result<RunData> {
    if folder.has_changed_config() {
        input::warn_changed_config(folder.path());
    }
    RunData::read(folder, device)
}
