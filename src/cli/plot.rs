//! `plot`: a run's pictures, made again from its folder.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::backend::BackendArgs;
use crate::config::Config;
use crate::error::Result;
use crate::pictures::Story;
use crate::report::{ColorMap, Format, Style};
use crate::terminal::say;
use crate::training::RunFolder;

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
    /// The colours of attention weights.
    #[arg(long, value_enum, default_value = "viridis")]
    colors: Colors,
    #[command(flatten)]
    backend: BackendArgs,
}

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PictureFormat {
    /// Pixels.
    Png,
    /// Vectors.
    Svg,
}

impl From<PictureFormat> for Format {
    fn from(format: PictureFormat) -> Self {
        match format {
            PictureFormat::Png => Format::Png,
            PictureFormat::Svg => Format::Svg,
        }
    }
}

/// The colours of attention weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colors {
    /// Even to the eye, from violet to yellow; survives greyscale and colour blindness.
    Viridis,
    /// The same, from black to pale yellow.
    Magma,
    /// Blue to red: shows small differences, but not which is larger.
    Rainbow,
}

impl From<Colors> for ColorMap {
    fn from(colors: Colors) -> Self {
        match colors {
            Colors::Viridis => ColorMap::Viridis,
            Colors::Magma => ColorMap::Magma,
            Colors::Rainbow => ColorMap::Rainbow,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &[])?;
    let device = args.backend.choose(&config.training, &[])?;
    let style = Style { format: args.format.into(), scale: args.scale, color_map: args.colors.into() };
    for picture in Story::read(&folder, &device)?.draw(&style)? {
        say(&picture.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
