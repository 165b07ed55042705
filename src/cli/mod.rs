//! The program's front: what was typed becomes what is meant, one thin file a command.

mod backend;
mod backends;
mod config;
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

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use crate::error::{Result, panic_message};
use crate::terminal::{check_written, escape, json_line, print_text, warn};

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
    Config(config::Args),
    Generate(generate::Args),
    Score(score::Args),
    Export(export::Args),
    Import(import::Args),
    Backends(backends::Args),
}

/// Runs the program: errors take one line on standard error, as JSON where that is asked for. Exit code 0:
/// done; 1: the run failed; 2: the input cannot be used; 129, 130 and 143: interrupted, everything saved;
/// 141: nobody reads the output any more.
pub fn main() -> ExitCode {
    // A value below zero is a value: what it is for says whether it can be used.
    let command = Cli::command().mut_subcommands(|command| command.allow_negative_numbers(true));
    let cli = match command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
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
            let message = in_one_line(&error.to_string());
            return end(message.strip_prefix("error: ").unwrap_or(&message), 2);
        }
    };
    // A panic that is caught says nothing; the place of one that comes through is told below.
    std::panic::set_hook(Box::new(|panic| {
        if let (Some(location), Ok(mut place)) = (panic.location(), PANICKED_AT.lock()) {
            *place = format!(" at {}:{}", location.file(), location.line());
        }
    }));
    match catch_unwind(AssertUnwindSafe(|| run(cli))) {
        Ok(Ok(ExitCode::SUCCESS)) => match check_written() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(&error.to_string(), error.exit_code()),
        },
        Ok(Ok(code)) => code,
        Ok(Err(error)) => end(&error.to_string(), error.exit_code()),
        Err(panic) => {
            let place = PANICKED_AT.lock().map(|place| place.clone()).unwrap_or_default();
            let message = panic_message(panic.as_ref());
            end(&format!("internal error{place}: {message}: please report this line and the command"), 1)
        }
    }
}

/// Where the last panic was.
static PANICKED_AT: Mutex<String> = Mutex::new(String::new());

/// Ends with an error; a program that asked for JSON is told so in JSON.
fn end(message: &str, code: u8) -> ExitCode {
    match std::env::args_os().any(|argument| argument == "--json") {
        true => {
            // What has to be written as an escape takes more bytes than it has.
            let lines = (1..).map(|part| json_line(&json!({ "error": shortened(message, LONGEST / part) })));
            lines.into_iter().find(|line| line.len() <= 500).into_iter().for_each(|line| warn(&line));
        }
        false => warn(&format!("error: {}", shortened(&escape(message), LONGEST))),
    }
    ExitCode::from(code)
}

/// The longest message, in bytes: with what stands around it, a line has 500 at most.
const LONGEST: usize = 480;

/// A message in at most `longest` bytes. What it quotes may be of any length: it loses its middle, for it begins
/// with the place and ends with the remedy.
fn shortened(message: &str, longest: usize) -> Cow<'_, str> {
    if message.len() <= longest {
        return Cow::Borrowed(message);
    }
    let rest = longest.saturating_sub("…".len());
    let begin = message.floor_char_boundary(rest - rest / 3);
    let end = message.ceil_char_boundary(message.len() - rest / 3);
    Cow::Owned(format!("{}…{}", &message[..begin], &message[end..]))
}

/// No command at all is answered with the help.
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// What clap says of a wrong command line, as one line: without the usage, which `--help` shows.
fn in_one_line(message: &str) -> String {
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let lines = message.lines().take_while(told).map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(", ").replace(":, ", ": ");
    format!("{line}; see --help")
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
        Command::Config(args) => config::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Score(args) => score::run(args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Backends(args) => backends::run(args),
    }
}
