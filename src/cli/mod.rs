//! The command line interface: one thin module per command, which parses the arguments and calls the library.

mod activations;
mod backend;
mod backends;
mod compare;
mod completions;
mod config;
mod data;
mod evaluate;
pub mod explain;
mod export;
mod fourier;
mod generate;
mod import;
mod input;
mod inspect;
mod interventions;
mod key_options;
mod limits;
mod man;
mod patch;
mod phases;
mod pictures;
mod plot;
mod prompt;
mod question;
mod report;
mod runs;
mod scale;
mod score;
mod signals;
mod sites;
mod steer;
mod terms;
mod train;
mod tune;

use std::any::Any;
use std::error::Error as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use causal_attention_kernels::requested_instruction_set;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use serde_json::json;

use crate::error::{Error, Result, is_out_of_threads, panic_message};
use crate::terminal::{
    be_quiet, check_written, exit_at_once, hold_standard_output, print_json, print_text, say, show_log,
    unmute, warn_error,
};
use crate::workers::{Workers, mute_all_but_first};

/// Trains causal-attention decoders on sequence prediction and shows what they learned.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Suppresses progress and notices; results, warnings and errors are still printed.
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Args),
    Tune(tune::Args),
    Scale(scale::Args),
    Evaluate(evaluate::Args),
    Plot(plot::Args),
    Report(report::Args),
    Runs(runs::Args),
    Compare(compare::Args),
    Inspect(inspect::Args),
    Activations(activations::Args),
    Data(data::Args),
    Config(config::Args),
    Generate(generate::Args),
    Score(score::Args),
    Explain(explain::Args),
    Phases(phases::Args),
    Export(export::Args),
    Import(import::Args),
    Backends(backends::Args),
    Completions(completions::Args),
    Man(man::Args),
    Terms(terms::Args),
}

/// Runs the program. An error takes one line on standard error, as JSON if requested. Exit codes: 0, success; 1, the
/// run failed; 2, invalid input; 129, 130 and 143, interrupted with everything saved; 141, standard output was closed.
pub fn main() -> ExitCode {
    hold_standard_output();
    show_log();
    let is_another_worker = mute_all_but_first();
    let mut program = command();
    let (typed, key_options) = match key_options::rewrite(&program, std::env::args_os()) {
        Ok(rewritten) => rewritten,
        Err(error) => return end(&error.to_string(), error.exit_code()),
    };
    let matches = program.try_get_matches_from_mut(typed);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(help) if help.kind() == NO_COMMAND => {
            if !is_another_worker {
                let _ = help.print();
            }
            return ExitCode::from(2);
        }
        Err(help) if !help.use_stderr() => {
            print_text(&help.render().to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => return end(&in_one_line(&error), 2),
    };
    if cli.quiet {
        be_quiet();
    }
    // A caught panic prints nothing; the location of an uncaught one is reported below.
    std::panic::set_hook(Box::new(|panic| {
        if let (Some(location), Ok(mut at)) = (panic.location(), PANICKED_AT.lock()) {
            *at = format!(" at {}:{}", location.file(), location.line());
        }
    }));
    // Of the processes that mpirun started, only the first runs a command that does not share its work.
    let shares_work = matches!(cli.command, Command::Train(_) | Command::Tune(_) | Command::Scale(_));
    if is_another_worker && !shares_work {
        return ExitCode::SUCCESS;
    }
    let work = || {
        limits::prepare()?;
        requested_instruction_set().map_err(|error| Error::Input(error.to_string()))?;
        match run(cli.command)? {
            ExitCode::SUCCESS => check_written().map(|()| ExitCode::SUCCESS),
            code => Ok(code),
        }
    };
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(error_of(panic)));
    done.map_err(|error| key_options.with_option(error))
        .unwrap_or_else(|error| end(&error.to_string(), error.exit_code()))
}

/// Returns the error that a panic carries, or the panic as an internal error.
fn error_of(panic: Box<dyn Any + Send>) -> Error {
    let panic = match panic.downcast::<Error>() {
        Ok(error) => return *error,
        Err(panic) => panic,
    };
    let at = PANICKED_AT.lock().map(|at| at.clone()).unwrap_or_default();
    match panic_message(panic.as_ref()) {
        message if is_out_of_threads(message) => Error::Threads,
        message => {
            Error::Failed(format!("internal error{at}: {message}; please report this line and the command"))
        }
    }
}

/// Builds the clap command.
fn command() -> clap::Command {
    // Negative numbers are parsed as values; each option decides whether it accepts them.
    Cli::command().mut_subcommands(|command| command.allow_negative_numbers(true))
}

/// The location of the last panic.
static PANICKED_AT: Mutex<String> = Mutex::new(String::new());

/// Prints an error and returns its exit code; in JSON mode the error is printed as JSON.
fn end(message: &str, code: u8) -> ExitCode {
    warn_error(message);
    ExitCode::from(code)
}

/// The clap error for a missing command, for which the help text is printed.
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Formats a clap error as one line, without the usage, which `--help` prints.
fn in_one_line(error: &clap::Error) -> String {
    let is_message = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let message = error.to_string();
    let lines = message.lines().take_while(is_message).map(str::trim).filter(|line| !line.is_empty());
    // The commands take no values that begin with a hyphen, but options do.
    let line =
        lines.collect::<Vec<_>>().join(", ").replace(":, ", ": ").replace("use '-- ", "use '--OPTION=");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    format!(
        "{}; see --help",
        number_requirement(error)
            .map_or(line.to_string(), |(message, requirement)| line.replace(&message, requirement))
    )
}

/// Returns the standard library's message about a malformed number, and its replacement: the accepted values.
fn number_requirement(error: &clap::Error) -> Option<(String, &'static str)> {
    let source = error.source()?;
    let integer = source.downcast_ref::<ParseIntError>().map(|error| match error.kind() {
        IntErrorKind::PosOverflow => "the number is too large",
        _ => "must be a non-negative integer",
    });
    let requirement =
        integer.or(source.is::<ParseFloatError>().then_some("must be a number, such as 0.5"))?;
    Some((source.to_string(), requirement))
}

/// Converts paths to JSON, formatted as in [`serialize_path`](crate::files::serialize_path).
fn paths_as_json(paths: &[PathBuf]) -> serde_json::Value {
    paths.iter().map(|path| path.display().to_string()).collect()
}

/// Prints the paths of written files, one per line, or as JSON under a key.
fn print_paths(json: bool, key: &str, paths: &[PathBuf]) {
    match json {
        true => print_json(&json!({ key: paths_as_json(paths) })),
        false => paths.iter().for_each(|path| say(&path.display().to_string())),
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Evaluate(args) => evaluate::run(args)?,
        Command::Plot(args) => plot::run(args)?,
        Command::Report(args) => report::run(args)?,
        Command::Runs(args) => runs::run(args)?,
        Command::Compare(args) => compare::run(args)?,
        Command::Inspect(args) => inspect::run(args)?,
        Command::Activations(args) => activations::run(args)?,
        Command::Data(args) => args.experiment.with_origin(data::run(&args))?,
        Command::Config(args) => config::run(&args)?,
        Command::Generate(args) => generate::run(args)?,
        Command::Score(args) => score::run(args)?,
        Command::Explain(args) => return explain::run(args),
        Command::Phases(args) => return phases::run(args),
        Command::Export(args) => export::run(args)?,
        Command::Import(args) => import::run(args)?,
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args)?,
        Command::Terms(args) => terms::run(args)?,
        // These commands can end early without an error; the exit code shows it.
        Command::Train(args) => return shared(|workers| args.with_origin(train::run(&args, workers))),
        Command::Tune(args) => return shared(|workers| args.with_origin(tune::run(&args, workers))),
        Command::Scale(args) => {
            return shared(|workers| args.experiment.with_origin(scale::run(&args, workers)));
        }
        Command::Backends(args) => return backends::run(args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command whose work is shared by the processes that mpirun started.
fn shared(work: impl FnOnce(&Workers) -> Result<ExitCode>) -> Result<ExitCode> {
    let workers = Workers::start(end_worker)?;
    workers.finish(work(&workers))
}

/// Ends this process after another worker was lost.
fn end_worker(problem: Option<&str>) {
    if let Some(problem) = problem {
        unmute();
        warn_error(problem);
    }
    exit_at_once(1);
}
