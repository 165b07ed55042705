//! `export`: a run's best weights as files for another program.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::terminal::say;
use crate::training::{RunFolder, write_atomically};
use crate::weights::export::{Format, export};
use crate::weights::native;

/// Export a run's best weights as safetensors for another program, with a config.json.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// Names and layout of the weights.
    #[arg(long, value_enum)]
    format: Format,
    /// The folder to write; files of the same names in it are replaced. [default: RUN/export/FORMAT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = RunFolder::open(&args.run)?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let (tensors, description) = native::read(&folder.weights()?)?;
    let files = export(&description, tensors, &vocabulary, args.format)?;
    let out = args.out.unwrap_or_else(|| folder.path().join("export").join(args.format.name()));
    std::fs::create_dir_all(&out).map_err(|error| Error::io("create", &out, error))?;
    for (name, bytes) in files {
        let path = out.join(name);
        write_atomically(&path, &bytes)?;
        say(&path.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
