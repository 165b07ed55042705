//! `export`: a run's best weights as files for another program.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{input, print_paths};
use crate::data::Vocabulary;
use crate::error::Result;
use crate::files::{check_output, write_output};
use crate::terminal::warn;
use crate::training::RunFolder;
use crate::weights::companions::Companions;
use crate::weights::export::{ExportFormat, export};
use crate::weights::native;

/// Export a run's best weights as safetensors for another program, with a config.json.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// Names and layout of the weights.
    #[arg(long, value_enum)]
    format: ExportFormat,
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

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let folder = RunFolder::open(&args.run)?;
    let name = args.format.to_possible_value().expect("every format has a name");
    let out = args.out.unwrap_or_else(|| folder.path().join("export").join(name.get_name()));
    check_output(&out, "export")?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let (tensors, description) = native::checked(&input::weights(&folder, args.checkpoint)?)?;
    let companions = Companions::read(&folder.transformers())?;
    let export = export(&description, tensors, &vocabulary, &companions, args.format)?;
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
