//! `terms`: the definitions of the terms in help, results, pictures and pages.

use crate::error::{Error, Result};
use crate::terminal::print_text;

/// The page of the documentation that defines the terms, in tables of two columns.
const TERMINOLOGY: &str = include_str!("../../docs/terminology.md");

/// Print the definitions of the terms in help, results, pictures and pages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A term, or a part of it. [default: all terms]
    #[arg(value_name = "TERM")]
    term: Option<String>,
}

/// Returns the rows of the tables of `page`: each term with its definition.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines().filter_map(|line| {
        let (term, definition) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        (term != "term").then_some((term, definition))
    })
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let wanted = args.term.unwrap_or_default().to_lowercase();
    let found = rows(TERMINOLOGY).filter(|(term, _)| term.to_lowercase().contains(&wanted));
    let found = found.map(|(term, definition)| format!("{term}: {definition}\n")).collect::<String>();
    if found.is_empty() {
        return Err(Error::Input(format!("unknown term `{wanted}`; `causal-attention terms` lists all")));
    }
    print_text(&found);
    Ok(())
}
