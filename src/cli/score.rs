//! `score`: the log-probability of each token of a text.

use burn::tensor::backend::AutodiffBackend;
use serde::Serialize;

use super::input::{self, RunArgs};
use crate::backend::Job;
use crate::data::Vocabulary;
use crate::error::Result;
use crate::generation;
use crate::numbers::counted;
use crate::terminal::{print_json, say, warn};
use crate::training::RunFolder;

/// Score a text with a run's best weights: the log-probability of each token, and the perplexity.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: input::InputArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// The output, in nats.
#[derive(Debug, Serialize)]
struct ScoreReport {
    /// The ids of the scored text.
    tokens: Vec<u32>,
    /// The log-probability of each token given the previous ones; without a decoder's first token.
    log_probabilities: Vec<f64>,
    /// The negated mean of the log-probabilities.
    loss: f64,
    perplexity: f64,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let run = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let input::EncodedInput { tokens, start, source } =
        args.given.read(&vocabulary, run.config.model.architecture)?;
    let read = [start.as_slice(), &tokens].concat();
    let log_probabilities = run.compute(Score(&run.folder, &read, source.as_deref()))?;
    let loss = -log_probabilities.iter().sum::<f64>() / log_probabilities.len() as f64;
    let report = ScoreReport { tokens, log_probabilities, loss, perplexity: loss.exp() };
    if args.json {
        print_json(&report);
        return Ok(());
    }
    // The first token of a decoder lacks a context.
    let unscored = report.tokens.len() - report.log_probabilities.len();
    let scores = report.log_probabilities.iter().map(|score| format!("{score:9.4}"));
    let scores = std::iter::repeat_n("        -".to_string(), unscored).chain(scores);
    for (score, &token) in scores.zip(&report.tokens) {
        say(&format!("{score}  {}", vocabulary.token(token)));
    }
    say(&format!("loss        {:.6} nats per token", report.loss));
    say(&format!("perplexity  {:.4}", report.perplexity));
    Ok(())
}

/// The job that scores the ids of a text with a run's weights, given the source of an encoder-decoder.
struct Score<'a>(&'a RunFolder, &'a [u32], Option<&'a [u32]>);

impl Job for Score<'_> {
    type Output = Vec<f64>;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Vec<f64>> {
        let Self(folder, tokens, source) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let context = description.sizes.context;
        input::check_length(&description, 0, source.map_or(0, <[u32]>::len))?;
        if tokens.len() > context + 1 {
            warn(&format!(
                "notice: the text of {} is longer than the context of {}; it is read in windows that overlap by half",
                counted(tokens.len(), "token"),
                counted(context, "token")
            ));
        }
        generation::score((&model, description.sizes), tokens, source, &device)
    }
}
