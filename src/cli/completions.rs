//! `completions`: shell scripts that complete commands, options and their values.

use clap::builder::PossibleValuesParser;
use clap_complete::{Shell, generate};

use super::command;
use crate::config::{BackendName, DeviceKind};
use crate::terminal::print_text;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
pub fn run(args: Args) {
    print_text(&script(args.shell));
}

/// Returns the script for a shell.
fn script(shell: Shell) -> String {
    let mut command = command().mut_subcommands(with_values);
    let name = command.get_name().to_string();
    let mut script = Vec::new();
    generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // clap_complete names a command with a hyphen in two ways, so a state set under one name is not found under the
        // other (clap 6421).
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script,
    }
}

/// Adds the possible values of options that have their own parser.
fn with_values(mut command: clap::Command) -> clap::Command {
    let backends = BackendName::ALL.map(|name| name.to_string()).to_vec();
    let devices = DeviceKind::ALL.map(|kind| kind.name().to_string()).to_vec();
    for (option, values) in [("backend", backends), ("device", devices)] {
        if command.get_arguments().any(|arg| arg.get_id() == option) {
            command = command.mut_arg(option, |arg| arg.value_parser(PossibleValuesParser::new(values)));
        }
    }
    command
}
