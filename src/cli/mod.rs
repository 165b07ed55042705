//! The program's front: what was typed becomes what is meant, one thin file a command.

mod backend;
mod backends;
mod data;
mod evaluate;
mod export;
mod generate;
mod import;
mod input;
mod inspect;
mod plot;
mod report;
mod score;
mod signals;
mod train;
mod tune;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::error::{Result, panic_message};
use crate::terminal::{check_written, print_text, warn};

/// Trains causal-attention decoders on sequence prediction and shows what they learned.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Args),
    Tune(tune::Args),
    Evaluate(evaluate::Args),
    Plot(plot::Args),
    Report(report::Args),
    Inspect(inspect::Args),
    Data(data::Args),
    Generate(generate::Args),
    Score(score::Args),
    Export(export::Args),
    Import(import::Args),
    Backends(backends::Args),
}

/// Runs the program: errors take one line on standard error. Exit code 0: done; 1: the run failed;
/// 2: the input cannot be used; 130 and 143: interrupted, everything saved.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) if told.kind() == NO_COMMAND => {
            let _ = told.print();
            return ExitCode::from(2);
        }
        Err(told) if !told.use_stderr() => {
            print_text(&told.render().to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            warn(&in_one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(|| run(cli).and_then(|code| check_written().map(|()| code))));
    match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            warn(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            warn(&format!("error: a fault of the program itself, please report it: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// No command at all is answered with the help.
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// What clap says of a wrong command line, as one line: without the usage, which `--help` shows.
fn in_one_line(message: &str) -> String {
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let lines = message.lines().take_while(told).map(str::trim).filter(|line| !line.is_empty());
    format!("{}; see --help", lines.collect::<Vec<_>>().join(", ").replace(":, ", ": "))
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Train(args) => train::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Plot(args) => plot::run(args),
        Command::Report(args) => report::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Data(args) => data::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Score(args) => score::run(args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Backends(args) => backends::run(args),
    }
}
