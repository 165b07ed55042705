//! `plot`: a run's pictures, made again from its folder.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::backend::BackendArgs;
use crate::analysis::{FreeRunning, MOST_WEIGHTS, View};
use crate::backend::{self, Device, Job};
use crate::config::Config;
use crate::error::Result;
use crate::ops;
use crate::report::{Format, RunData, Style, Wanted};
use crate::terminal::say;
use crate::training::{DeviceBatch, RunFolder};
use crate::weights::native;

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

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &[])?;
    let device = args.backend.choose(&config.training, &[])?;
    let style = Style { format: args.format.into(), scale: args.scale };
    for picture in run_data(&folder, &device)?.draw(&style)? {
        say(&picture.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads what pictures and page show of a run: what its folder holds, and what its best weights do on `device`.
pub(super) fn run_data(folder: &RunFolder, device: &Device) -> Result<RunData> {
    RunData::read(folder, |wanted| backend::run(device, Look(wanted)))
}

/// Loads the best weights and looks at them reading the first samples, as many as memory allows.
struct Look<'a>(Wanted<'a>);

impl Job for Look<'_> {
    type Output = (Vec<View>, FreeRunning);

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Wanted { folder, vocabulary, samples, shown } = self.0;
        let (model, description) = native::load_model::<B::InnerBackend>(&folder.weights()?, &device)?;
        let mut views = Vec::with_capacity(samples.len());
        let mut weights = 0;
        for sample in samples {
            let view = View::new(&model, DeviceBatch::new(&sample.batch(), &device).inputs)?;
            weights += view.attention.iter().flatten().map(Vec::len).sum::<usize>();
            views.push(view);
            if weights > MOST_WEIGHTS {
                break;
            }
        }
        let shown = &samples[shown.min(views.len() - 1)];
        let free = FreeRunning::new((&model, description.sizes), vocabulary, shown, &device)?;
        Ok((views, free))
    }
}
