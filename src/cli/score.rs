//! `score`: how likely a text is to a model, token by token.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::backend::BackendArgs;
use super::input::{self, Run};
use crate::backend::{self, Job};
use crate::data::Vocabulary;
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
    match args.json {
        true => print_json(&report),
        false => print(&report, &vocabulary),
    }
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
        let (model, description) = native::load_model::<B::InnerBackend>(&self.folder.weights()?, &device)?;
        let sizes = description.sizes;
        let context = sizes.context;
        if self.tokens.len() > context + 1 {
            warn(&format!(
                "notice: {} tokens are longer than the context of {context}: they are read in windows that \
                 overlap by half",
                self.tokens.len()
            ));
        }
        generation::score((&model, sizes), self.tokens, self.source, &device)
    }
}

fn print(report: &Report, vocabulary: &Vocabulary) {
    let first = report.tokens.len() - report.log_probabilities.len();
    for (position, &token) in report.tokens.iter().enumerate() {
        let score = match position.checked_sub(first) {
            Some(at) => format!("{:9.4}", report.log_probabilities[at]),
            None => "        -".to_string(),
        };
        say(&format!("{score}  {}", vocabulary.token(token)));
    }
    say(&format!("loss        {:.6} nats per token", report.loss));
    say(&format!("perplexity  {:.4}", report.perplexity));
}
