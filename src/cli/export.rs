//! `export`: a run's best weights as files for another program, or its curves for TensorBoard.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::{input, input::run_path, print_paths};
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::terminal::warn;
use crate::training::{EVENTS, RunFolder, write_events};
use crate::weights::companions::Companions;
use crate::weights::export::{ExportFormat, export};
use crate::weights::native;

/// Export a run's best weights as safetensors and config.json for other programs, or its curves for TensorBoard.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder, or its name in runs/.
    #[arg(value_parser = run_path())]
    run: PathBuf,
    /// The format: the names and layout of the weights, or `tensorboard`.
    #[arg(long, value_parser = PossibleValuesParser::new(formats()))]
    format: String,
    /// The folder to write; an existing folder is replaced only if export created it. [default: RUN/export/FORMAT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Uses the weights of the checkpoint at this step. [default: the best weights]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<usize>,
    /// Prints the paths of the written files as JSON.
    #[arg(long)]
    json: bool,
}

/// Returns the formats of weights, and `tensorboard`.
fn formats() -> impl Iterator<Item = PossibleValue> {
    let weight_formats = ExportFormat::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let help = "Curves, config and pictures as a TensorBoard event file, without weights";
    weight_formats.chain([PossibleValue::new("tensorboard").help(help)])
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let folder = RunFolder::open(&args.run)?;
    let out = args.out.unwrap_or_else(|| folder.path().join("export").join(&args.format));
    check_output(&out, "export")?;
    // `tensorboard` is the only format without weights.
    let Ok(format) = ExportFormat::from_str(&args.format, false) else {
        if args.checkpoint.is_some() {
            let problem =
                "--checkpoint has no effect with --format tensorboard, which exports the entire run; omit it";
            return Err(Error::Input(problem.into()));
        }
        let written = write_output(&out, "export", |hidden| write_events(&folder, hidden.join(EVENTS)))?;
        print_paths(args.json, "files", &written);
        return Ok(());
    };
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let (tensors, description) = native::checked(&input::weights(&folder, args.checkpoint)?)?;
    let companions = Companions::read(&folder.transformers())?;
    let export = export(&description, tensors, &vocabulary, &companions, format)?;
    let written = write_output(&out, "export", |folder| export.write(folder))?;
    if export.is_misread {
        warn(
            "notice: AutoTokenizer in transformers 5 uses Qwen2's tokenizer for every qwen2 model; load this tokenizer \
             with PreTrainedTokenizerFast",
        );
    }
    print_paths(args.json, "files", &written);
    Ok(())
}
