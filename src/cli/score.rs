//! `score`: how likely a text is to a model, token by token.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::input;
use crate::backend::{self, Job};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::generation;
use crate::model::Architecture;
use crate::ops;
use crate::training::{BackendName, RunFolder, say};
use crate::weights::native;

/// Score a text with a run's best weights: the log-probability of each token, and the perplexity.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("scored").required(true).args(["text", "text_file", "tokens"])))]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// The text; for an encoder-decoder, the answer.
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Reads the text from a file; - is standard input.
    #[arg(long, value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// The text as ids, whatever the vocabulary, as "3 1 4".
    #[arg(long, value_name = "IDS")]
    tokens: Option<String>,
    /// What an encoder-decoder answers.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    source: Option<String>,
    /// The backend that computes. [default: training.backend, or else the best that is compiled in]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
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
    let folder = RunFolder::open(&args.run)?;
    let config = Config::load(Some(&folder.config()), &[])?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let tokens = match (&args.text, &args.text_file, &args.tokens) {
        (Some(text), ..) => vocabulary.encode(text)?,
        (_, Some(path), _) => vocabulary.encode(&input::read(path)?)?,
        (_, _, Some(ids)) => input::ids(ids, &vocabulary)?,
        (None, None, None) => Vec::new(),
    };
    let source = args.source.as_deref().map(|text| vocabulary.encode(text)).transpose()?;
    let answers = config.model.architecture == Architecture::EncoderDecoder;
    match (answers, &source) {
        (true, None) => {
            return Err(Error::Input("an encoder-decoder answers a source: give it by --source TEXT".into()));
        }
        (false, Some(_)) => {
            return Err(Error::Input("--source: only an encoder-decoder reads a source".into()));
        }
        (true, Some(_)) | (false, None) => {}
    }
    let backend = backend::choose(args.backend.or(config.training.backend))?;
    // An answer follows the token that it starts with.
    let start = vocabulary.end().filter(|_| answers);
    let read = [start.as_slice(), &tokens].concat();
    let job = Score { folder: &folder, tokens: &read, source: source.as_deref() };
    let log_probabilities = backend::run(backend, job)?;
    let loss = -log_probabilities.iter().sum::<f64>() / log_probabilities.len() as f64;
    let report = Report { tokens, log_probabilities, loss, perplexity: loss.exp() };
    match args.json {
        true => say(&serde_json::to_string_pretty(&report).expect("a report holds plain values")),
        false => tell(&report, &vocabulary),
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
        let (model, description) = native::load_model::<B::InnerBackend>(&self.folder.model(), &device)?;
        let sizes = description.sizes;
        let context = sizes.context;
        if self.tokens.len() > context + 1 {
            eprintln!(
                "notice: {} tokens are longer than the context of {context}: they are read in windows that \
                 overlap by half",
                self.tokens.len()
            );
        }
        generation::score((&model, sizes), self.tokens, self.source, &device)
    }
}

fn tell(report: &Report, vocabulary: &Vocabulary) {
    let first = report.tokens.len() - report.log_probabilities.len();
    for (position, &token) in report.tokens.iter().enumerate() {
        let score = match position.checked_sub(first) {
            Some(at) => format!("{:9.4}", report.log_probabilities[at]),
            None => "        -".to_string(),
        };
        say(&format!("{score}  {}", vocabulary.token(token)));
    }
    say(&format!("loss        {:.6} nats a token", report.loss));
    say(&format!("perplexity  {:.4}", report.perplexity));
}
