//! `completions`: what a shell needs to complete commands and options.

use clap_complete::{Shell, generate};

use super::command;
use crate::terminal::print_text;

/// Print the script by which a shell completes commands and options.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub fn run(args: Args) {
    let mut command = command();
    let name = command.get_name().to_string();
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    print_text(&String::from_utf8_lossy(&script));
}
