//! `data`: a description of the training data, before any training.

use super::input::ConfigArgs;
use crate::data::{DataDescription, vocabulary_warnings};
use crate::error::{Error, Result};
use crate::terminal::{print_json, say};
use crate::training::dataset;

/// Show samples, vocabulary, sizes and the entropy floor of a config's data, before any training.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub experiment: ConfigArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let config = args.experiment.load_new(|_| Ok(()))?;
    let dataset = dataset(&config)?;
    let mut description = DataDescription::of(&config.data, &dataset);
    let unused = config.without_effect(Some(&dataset));
    if config.run.start().is_none() {
        description.warnings.extend(vocabulary_warnings(&config.data, &dataset));
    }
    description.warnings.extend(unused.iter().map(Error::to_string));
    match args.json {
        true => print_json(&description),
        false => description.to_string().lines().for_each(say),
    }
    Ok(())
}
