//! `plot`: redraws a run's pictures from its folder.

use std::path::PathBuf;

use causal_attention_report::{PictureFormat, Style};

use super::input::{self, OpenedRun, RunArgs};
use super::{pictures::picture_format, print_paths};
use crate::backend::Device;
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::reporting::RunData;
use crate::training::RunFolder;

/// Redraw a run's pictures from its folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file format.
    #[arg(long, value_parser = picture_format(), default_value = "png")]
    format: PictureFormat,
    /// The resolution of a PNG, which is 900 x FACTOR pixels wide. [default: 2]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=4))]
    scale: Option<u32>,
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
    if args.format == PictureFormat::Svg && args.scale.is_some() {
        return Err(Error::Input("--scale has no effect with --format svg; omit it".into()));
    }
    let default = Style::default();
    let style = Style { format: args.format, scale: args.scale.unwrap_or(default.scale) };
    let run = run_data(&folder, &device)?;
    let pictures = match &args.out {
        None => run.draw(&folder.plots(), &style)?,
        Some(out) => write_output(out, "plot", |hidden| run.draw(hidden, &style))?,
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
