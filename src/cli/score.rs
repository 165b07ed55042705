//! `score`: the log-probability of each token of a text.

use burn::tensor::backend::AutodiffBackend;
use serde::Serialize;

use super::input::{self, RunArgs};
use super::interventions::InterventionArgs;
use super::patch::{PatchArgs, PatchSource};
use crate::backend::Job;
use crate::data::{Vocabulary, documents_of};
use crate::error::{Error, Result};
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
    interventions: InterventionArgs,
    #[command(flatten)]
    patch: PatchArgs,
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
    /// The log-probability of each token given the previous ones; without a decoder's first token. `None` for tokens that
    /// are not predicted: the first one of a separate document, and the source of a pair.
    log_probabilities: Vec<Option<f64>>,
    /// The negated mean of the log-probabilities.
    loss: f64,
    perplexity: f64,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let run = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let input::EncodedInput { tokens, start, source, answer } = args.given.read(&vocabulary, &run.config)?;
    args.given.warn_without_source(&vocabulary, &run.config);
    let read = [start.as_slice(), &tokens].concat();
    let documents = documents_of(run.config.data.text_documents(), &read, &vocabulary);
    // The last token of a text is predicted, but not read.
    let patch = args.patch.source(&run.config, |text| {
        let sample = args.given.with_text(text).sample(&vocabulary, &run.config)?;
        let read = sample.inputs.len() - 1;
        Ok(sample.truncated(read))
    })?;
    let job = ScoreJob {
        interventions: &args.interventions,
        patch,
        folder: &run.folder,
        tokens: &read,
        documents: documents.as_deref(),
        source,
    };
    let log_probabilities = run.compute(job)?;
    let is_read_only = |target: usize| {
        target + 1 < answer
            || documents.as_ref().is_some_and(|documents| documents[target] != documents[target + 1])
    };
    let log_probabilities = log_probabilities.into_iter().enumerate();
    let log_probabilities: Vec<_> =
        log_probabilities.map(|(target, score)| (!is_read_only(target)).then_some(score)).collect();
    let counted = log_probabilities.iter().flatten();
    if counted.clone().next().is_none() {
        let problem =
            "each token after the first begins a document, so nothing is predicted; pass a longer text";
        return Err(Error::Input(problem.into()));
    }
    let loss = -counted.clone().sum::<f64>() / counted.count() as f64;
    let report = ScoreReport { tokens, log_probabilities, loss, perplexity: loss.exp() };
    if args.json {
        print_json(&report);
        return Ok(());
    }
    // The first token of a decoder lacks a context.
    let unscored = report.tokens.len() - report.log_probabilities.len();
    let scores = std::iter::repeat_n(&None, unscored).chain(&report.log_probabilities);
    let scores = scores.map(|score| score.map_or("        -".to_string(), |score| format!("{score:9.4}")));
    for (score, &token) in scores.zip(&report.tokens) {
        say(&format!("{score}  {}", vocabulary.token(token)));
    }
    say(&format!("loss        {:.6} nats per token", report.loss));
    say(&format!("perplexity  {:.4}", report.perplexity));
    Ok(())
}

/// The job that scores the ids of a text with a run's weights.
struct ScoreJob<'a> {
    interventions: &'a InterventionArgs,
    patch: PatchSource<'a>,
    folder: &'a RunFolder,
    tokens: &'a [u32],
    /// The document of each token, if there are several.
    documents: Option<&'a [u32]>,
    /// The source of an encoder-decoder.
    source: Option<Vec<u32>>,
}

impl Job for ScoreJob<'_> {
    type Output = Vec<f64>;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Vec<f64>> {
        let Self { interventions, patch, folder, tokens, documents, source } = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let model = interventions.apply(model, &description, folder, &device)?;
        let context = description.sizes.context;
        input::check_length(&description, 0, source.as_ref().map_or(0, Vec::len))?;
        if patch.is_given() && tokens.len() > context + 1 {
            let problem =
                "so it is read in windows, in which activations have another context; shorten the text";
            return Err(Error::Input(format!(
                "--patch-from: the text of {} is longer than the context of {}, {problem}",
                counted(tokens.len(), "token"),
                counted(context, "token")
            )));
        }
        if tokens.len() > context + 1 {
            warn(&format!(
                "notice: the text of {} is longer than the context of {}; it is read in windows that overlap by half",
                counted(tokens.len(), "token"),
                counted(context, "token")
            ));
        }
        let patch = patch.patch(&model, &description, tokens.len().saturating_sub(1), &device)?;
        generation::score(
            (&model, description.sizes, &patch),
            (tokens, documents),
            source.as_deref(),
            &device,
        )
    }
}
