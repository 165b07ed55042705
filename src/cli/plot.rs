//! `plot`: redraws a run's pictures from its folder.

use std::{path::PathBuf, slice::from_ref};

use burn::tensor::backend::AutodiffBackend;
use causal_attention_report::{PictureFormat, Style};

use super::input::{self, OpenedRun, RunArgs};
use super::{pictures::picture_format, print_paths};
use crate::analysis::{FreeRunning, MOST_WEIGHTS, Sample, View};
use crate::backend::{self, Device, Job};
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::evaluation::DeviceBatch;
use crate::files::{check_output, write_output};
use crate::reporting::RunData;
use crate::training::RunFolder;

/// Draw a run's pictures again, from its folder alone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file format.
    #[arg(long, value_parser = picture_format(), default_value = "png")]
    format: PictureFormat,
    /// Resolution of a PNG, which is 900 x FACTOR pixels wide. [default: 2]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=4))]
    scale: Option<u32>,
    /// Where the pictures go; a folder that exists is replaced only if plot made it. [default: plots/ in the
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
        return Err(Error::Input("--scale: an SVG has no pixels: leave it out".into()));
    }
    let usual = Style::default();
    let style = Style { format: args.format, scale: args.scale.unwrap_or(usual.scale) };
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
    RunData::read(folder, |samples, shown, vocabulary| {
        backend::run(device, Look(folder, samples, shown, vocabulary))
    })
}

/// The job that computes the views of the first samples, as many as memory allows, and the continuation of one of them.
struct Look<'a>(&'a RunFolder, &'a [Sample], usize, &'a Vocabulary);

impl Job for Look<'_> {
    type Output = (Vec<View>, FreeRunning);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self(folder, samples, shown, vocabulary) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let mut views = Vec::with_capacity(samples.len());
        let mut weights = 0;
        for sample in samples {
            let view =
                View::new(&model, DeviceBatch::new(&Sample::batch_of(from_ref(sample)), &device).inputs)?;
            weights += view.maps.attention.iter().flatten().map(Vec::len).sum::<usize>();
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
