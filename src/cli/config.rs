//! `config`: every key that there is.

use crate::config::{SCHEMA, defaults};
use crate::terminal::{print_json, print_text};

/// Show every key of a config with its meaning and its default, or the schema of a config for editors.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("shown").required(true)))]
pub struct Args {
    /// Prints every key with its meaning and its default, as a config that can be trained.
    #[arg(long, group = "shown")]
    defaults: bool,
    /// Prints the JSON schema by which an editor completes, explains and checks a config.
    #[arg(long, group = "shown")]
    schema: bool,
}

/// Runs the command.
pub fn run(args: Args) {
    match args.schema {
        true => print_json(&*SCHEMA),
        false => print_text(&defaults()),
    }
}
