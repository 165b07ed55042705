//! `plot`: a run's pictures, made again from its folder.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::backend;
use crate::config::Config;
use crate::error::Result;
use crate::pictures;
use crate::report::{Format, Style};
use crate::training::{BackendName, RunFolder, say};

/// Draw a run's pictures again, from its folder alone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// The file format.
    #[arg(long, value_enum, default_value = "png")]
    format: PictureFormat,
    /// Pixels of a PNG for each of its 900 logical ones across.
    #[arg(long, value_name = "FACTOR", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    scale: u32,
    /// The backend that computes. [default: training.backend, or else the best that is compiled in]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PictureFormat {
    Png,
    Svg,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &[])?;
    let backend = backend::choose(args.backend.or(config.training.backend))?;
    let format = match args.format {
        PictureFormat::Png => Format::Png,
        PictureFormat::Svg => Format::Svg,
    };
    let style = Style { format, scale: args.scale, ..Style::default() };
    for picture in pictures::draw(&folder, backend, &style)? {
        say(&picture.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
