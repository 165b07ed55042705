//! `man`: the manual page of the program, or of one of its commands.

use clap_mangen::Man;

use super::command;
use crate::error::{Error, Result};
use crate::terminal::print_text;

/// Print the manual page of the program or of a command, as roff.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command. [default: the program, with a list of its commands]
    #[arg(value_name = "COMMAND")]
    name: Option<String>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let mut program = command().disable_help_subcommand(true);
    // Propagates the program's name to its commands.
    program.build();
    let documented = match &args.name {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            let names =
                || program.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| {
                Error::Input(format!("unknown command `{name}`; the commands are {}", names()))
            })?
        }
    };
    let mut page = Vec::new();
    Man::new(documented).render(&mut page).expect("writing to a vector does not fail");
    print_text(&String::from_utf8_lossy(&page));
    Ok(())
}
