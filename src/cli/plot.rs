//! `plot`: redraws a run's pictures from its folder.

use std::path::PathBuf;

use causal_attention_report::{PictureFormat, Style};

use super::input::{self, OpenedRun, RunArgs};
use super::{
    pictures::{ContentArgs, picture_format},
    print_paths,
};
use crate::backend::Device;
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::reporting::{RunData, save_all};
use crate::training::RunFolder;

/// Redraw a run's pictures from its folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file format.
    #[arg(long, value_parser = picture_format(), default_value = "png")]
    format: PictureFormat,
    /// The resolution of a PNG, which is 900 x FACTOR pixels wide. [default: 2]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=4))]
    resolution: Option<u32>,
    /// The width of a PDF in points, such as LaTeX's \columnwidth; text has at least 6 points. [default: 486]
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u32).range(i64::from(Style::MIN_WIDTH)..=2_000))]
    width: Option<u32>,
    #[command(flatten)]
    content: ContentArgs,
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
    let for_others = [
        ("--resolution", args.resolution.is_some(), PictureFormat::Png),
        ("--width", args.width.is_some(), PictureFormat::Pdf),
    ];
    for (option, is_given, format) in for_others {
        if is_given && args.format != format {
            let problem =
                format!("{option} has no effect with --format {}; omit it", args.format.extension());
            return Err(Error::Input(problem));
        }
    }
    let default = Style::default();
    let (scale, width) = (args.resolution.unwrap_or(default.scale), args.width.unwrap_or(default.width));
    let style = Style { format: args.format, scale, width };
    let mut run = run_data(&folder, &device)?;
    run.page.heads.colors = args.content.color_scale.unwrap_or_default();
    let pictures = args.content.titled(run.pictures(style.logical_width()));
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
