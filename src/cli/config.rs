//! `config`: all config keys, and the presets.

use super::input::preset_names;
use crate::config::{Config, SCHEMA, defaults};
use crate::error::Result;
use crate::terminal::{print_json, print_text};

/// Print all config keys with their meanings and defaults, a preset, or the JSON schema for editors.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("shown").required(true)))]
pub struct Args {
    /// Prints every key with its meaning and default, as a config for train.
    #[arg(long, group = "shown")]
    defaults: bool,
    /// Prints the JSON schema, with which an editor completes, explains and checks a config.
    #[arg(long, group = "shown")]
    schema: bool,
    /// Prints a preset, as used by train --preset.
    #[arg(long, group = "shown", value_name = "NAME", value_parser = preset_names())]
    preset: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Returns an error for an unknown preset.
pub fn run(args: &Args) -> Result<()> {
    match &args.preset {
        Some(name) => print_text(Config::preset_text(name)?),
        None if args.schema => print_json(&*SCHEMA),
        None => print_text(&defaults()),
    }
    Ok(())
}
