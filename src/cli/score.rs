//! `score`: how likely a text is to a model, token by token.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::backend::BackendArgs;
use super::input::{self, Run};
use crate::backend::{self, Job};
use crate::error::Result;
use crate::generation;
use crate::ops;
use crate::terminal::{print_json, say, warn};
use crate::training::RunFolder;
use crate::weights::native;

/// Score a text with a run's best weights: the log-probability of each token, and the perplexity.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    #[command(flatten)]
    given: input::Given,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed, in nats.
#[derive(Debug, Serialize)]
struct Report {
    /// The scored text's ids.
    tokens: Vec<u32>,
    /// Of each token given those before it; a decoder's first token has none.
    log_probabilities: Vec<f64>,
    /// Their mean, negated.
    loss: f64,
    perplexity: f64,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let run = Run::open(&args.run, &args.backend)?;
    let vocabulary = run.vocabulary()?;
    let input::Read { tokens, start, source } =
        args.given.read(&vocabulary, run.config.model.architecture)?;
    let read = [start.as_slice(), &tokens].concat();
    let job = Score { folder: &run.folder, tokens: &read, source: source.as_deref() };
    let log_probabilities = backend::run(&run.device, job)?;
    let loss = -log_probabilities.iter().sum::<f64>() / log_probabilities.len() as f64;
    let report = Report { tokens, log_probabilities, loss, perplexity: loss.exp() };
    if args.json {
        print_json(&report);
        return Ok(ExitCode::SUCCESS);
    }
    // A decoder's first token follows nothing.
    let unscored = report.tokens.len() - report.log_probabilities.len();
    let scores = report.log_probabilities.iter().map(|score| format!("{score:9.4}"));
    let scores = std::iter::repeat_n("        -".to_string(), unscored).chain(scores);
    for (score, &token) in scores.zip(&report.tokens) {
        say(&format!("{score}  {}", vocabulary.token(token)));
    }
    say(&format!("loss        {:.6} nats per token", report.loss));
    say(&format!("perplexity  {:.4}", report.perplexity));
    Ok(ExitCode::SUCCESS)
}

struct Score<'a> {
    folder: &'a RunFolder,
    tokens: &'a [u32],
    source: Option<&'a [u32]>,
}

impl Job for Score<'_> {
    type Output = Vec<f64>;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Vec<f64>> {
        let Self { folder, tokens, source } = self;
        let (model, description) = native::load_model::<B::InnerBackend>(&folder.weights()?, &device)?;
        let context = description.sizes.context;
        input::check_length(&description, 0, source.map_or(0, <[u32]>::len))?;
        if tokens.len() > context + 1 {
            warn(&format!(
                "notice: {} tokens are longer than the context of {context}: they are read in windows that overlap by \
                 half",
                tokens.len()
            ));
        }
        generation::score((&model, description.sizes), tokens, source, &device)
    }
}
