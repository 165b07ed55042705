//! `export`: a run's best weights as files for another program, or its curves for TensorBoard.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::{input, print_paths};
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{check_output, write_output};
use crate::terminal::warn;
use crate::training::{EVENTS, RunFolder, write_events};
use crate::weights::companions::Companions;
use crate::weights::export::{ExportFormat, export};
use crate::weights::native;

/// Export a run's best weights as safetensors for another program, with a config.json; or its curves for TensorBoard.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// Names and layout of the weights, or what else is exported.
    #[arg(long, value_enum)]
    format: Format,
    /// The folder to write; one that exists is replaced only if an export made it. [default: RUN/export/FORMAT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Takes the weights of the checkpoint at this step. [default: the best weights]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<usize>,
    /// Prints the paths of the files as JSON.
    #[arg(long)]
    json: bool,
}

/// What is exported.
#[derive(Debug, Clone, Copy)]
enum Format {
    Weights(ExportFormat),
    Tensorboard,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        use ExportFormat::{Gpt2, PytorchNames, Safetensors, Transformers};
        &[
            Self::Weights(Transformers),
            Self::Weights(Safetensors),
            Self::Weights(Gpt2),
            Self::Weights(PytorchNames),
            Self::Tensorboard,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Weights(format) => format.to_possible_value(),
            Self::Tensorboard => {
                let help = "No weights: curves, config and pictures as an event file that TensorBoard reads";
                Some(PossibleValue::new("tensorboard").help(help))
            }
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let folder = RunFolder::open(&args.run)?;
    let name = args.format.to_possible_value().expect("every format has a name");
    let out = args.out.unwrap_or_else(|| folder.path().join("export").join(name.get_name()));
    check_output(&out, "export")?;
    let format = match args.format {
        Format::Weights(format) => format,
        Format::Tensorboard if args.checkpoint.is_some() => {
            return Err(Error::Input("--checkpoint: the curves are of the whole run: leave it out".into()));
        }
        Format::Tensorboard => {
            let written = write_output(&out, "export", |hidden| write_events(&folder, hidden.join(EVENTS)))?;
            print_paths(args.json, "files", &written);
            return Ok(());
        }
    };
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let (tensors, description) = native::checked(&input::weights(&folder, args.checkpoint)?)?;
    let companions = Companions::read(&folder.transformers())?;
    let export = export(&description, tensors, &vocabulary, &companions, format)?;
    let written = write_output(&out, "export", |folder| export.write(folder))?;
    if export.is_misread() {
        warn(
            "notice: AutoTokenizer of transformers 5 reads the tokenizer of every qwen2 as Qwen2's own: load this one \
             by PreTrainedTokenizerFast",
        );
    }
    print_paths(args.json, "files", &written);
    Ok(())
}
