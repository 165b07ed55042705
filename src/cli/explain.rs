//! `explain`: the circuit of a run's model.

use std::path::{Path, PathBuf};

use burn::tensor::backend::AutodiffBackend;
use causal_attention_report::Style;

use super::input::{self, OpenedRun, RunArgs};
use super::prompt;
use crate::analysis::Sample;
use crate::analysis::circuit::{
    Explanation, Origin, affordable_samples, check_memory, explain, explainable, tuned_lens_skip_reason,
    unigram,
};
use crate::backend::{self, Device, Job};
use crate::config::Config;
use crate::data::{Dataset, Role, Source, Vocabulary, tasks};
use crate::error::{Error, Result};
use crate::files::{check_output, write_atomically, write_output};
use crate::model::{Architecture, NormPlacement};
use crate::reporting::{circuit_pictures, save_all};
use crate::terminal::{print_json, say, warn};
use crate::training::{Hashes, RunFolder, dataset_of, has_different_data};

/// Find the circuit of a run's model: the heads and feed-forward layers that make its predictions, their kinds and the
/// connections between them, each confirmed by ablation. Writes circuit.json and pictures to the run folder, or to its
/// explain/ folder for your own input. Exits with code 2 if it cannot report a circuit.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("given").args(["text", "text_file", "tokens"])))]
pub struct Args {
    /// Explains the model on this text. [default: sequences of the run's validation set]
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Reads the text from a file; - is standard input.
    #[arg(long, value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// The text as token ids, e.g. "3 1 4".
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: Option<String>,
    /// The folder for the results on your own input; an existing folder is replaced only if explain created it.
    /// [default: explain/ in the run folder]
    #[arg(long, value_name = "DIR", requires = "given", conflicts_with = "json")]
    out: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    /// Prints circuit.json and writes no files.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let OpenedRun { folder, config, device, .. } = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let out = args.out.clone().unwrap_or_else(|| folder.path().join("explain"));
    let is_given = args.text.is_some() || args.text_file.is_some() || args.tokens.is_some();
    if is_given && !args.json {
        check_output(&out, "explain")?;
    }
    let found = match is_given {
        true if config.model.architecture == Architecture::EncoderDecoder => {
            let problem =
                "an encoder-decoder is explained only on its validation set; omit the text or tokens";
            return Err(Error::Input(problem.into()));
        }
        true => {
            let tokens =
                prompt::tokens(&args.text, &args.text_file, &args.tokens, &vocabulary, prompt::encode)?;
            let sample = sample(&tokens)?.split_documents(config.data.text_documents(), &vocabulary);
            backend::run(&device, Explain(&folder, &config, &Subject::Given(sample)))?
        }
        false => of_run(&folder, &config, &device)?,
    };
    if args.json {
        print_json(&found);
        return check_circuit(&found);
    }
    let pictures = circuit_pictures(&folder.name(), &found, &vocabulary);
    let draw = |folder: &Path| save_all(&pictures, folder, &Style::default());
    let written = match is_given {
        // The run's own circuit is found on its validation set, so it is not overwritten.
        true => write_output(&out, "explain", |folder| {
            write_atomically(&folder.join("circuit.json"), &json_of(&found))?;
            draw(folder)
        })?,
        false => {
            save(&folder, &found)?;
            folder.remove_circuit_pictures()?;
            draw(&folder.plots())?
        }
    };
    if found.gain.no_circuit.is_none() {
        found.sentences.iter().for_each(|sentence| say(sentence));
    }
    written.iter().for_each(|path| say(&path.display().to_string()));
    check_circuit(&found)
}

/// Returns an error if no circuit is reported. The logit lens, the attribution and the weights are still available.
fn check_circuit(found: &Explanation) -> Result<()> {
    match &found.gain.no_circuit {
        Some(reason) => Err(Error::Input(format!("no circuit is reported: {reason}"))),
        None => Ok(()),
    }
}

/// Returns true if a model of `config` can be explained.
pub(super) fn is_explainable(config: &Config) -> bool {
    config.model.architecture != Architecture::OneLayer && config.model.norm == NormPlacement::Pre
}

/// Explains a run's best weights on sequences of its validation set.
///
/// # Errors
/// Returns an error if the data cannot be read, and the errors of [`explain`].
pub fn of_run(folder: &RunFolder, config: &Config, device: &Device) -> Result<Explanation> {
    if folder.is_imported() {
        return Err(Error::Input(format!(
            "the run `{}` was imported, so it lacks validation sequences; pass a text with --text TEXT",
            folder.path().display()
        )));
    }
    let dataset = dataset_of(config, folder)?;
    if has_different_data(folder, &dataset) {
        return Err(Error::Input(format!(
            "the data has changed since the run `{}` started, and a circuit is found only on the original data; \
             restore the file, or pass a text with --text TEXT",
            folder.path().display()
        )));
    }
    backend::run(device, Explain(folder, config, &Subject::Validation(dataset)))
}

/// Writes `circuit.json`.
pub(super) fn save(folder: &RunFolder, explanation: &Explanation) -> Result<()> {
    write_atomically(&folder.circuit(), &json_of(explanation))
}

fn json_of(explanation: &Explanation) -> Vec<u8> {
    serde_json::to_vec(explanation).expect("an explanation holds plain values")
}

/// Converts the input to a sample; the target of the last token is unknown.
fn sample(tokens: &[u32]) -> Result<Sample> {
    let problem = match tokens {
        [] => "the input is empty; pass at least two tokens",
        [_] => "the input has a single token, so nothing is predicted; pass at least two",
        [inputs @ .., _] => {
            let (roles, targets) = (vec![Role::Unknown; inputs.len()], tokens[1..].to_vec());
            return Ok(Sample { inputs: inputs.to_vec(), targets, roles, source: None, documents: None });
        }
    };
    Err(Error::Input(problem.into()))
}

/// The sequences on which a model is explained.
enum Subject {
    /// The user's sequence.
    Given(Sample),
    /// Sequences of a run's validation set.
    Validation(Dataset),
}

struct Explain<'a>(&'a RunFolder, &'a Config, &'a Subject);

impl Job for Explain<'_> {
    type Output = Explanation;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Explanation> {
        let Self(folder, config, subject) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let decoder = explainable(&model)?;
        let seed = config.data.seed.unwrap_or(config.run.seed);
        let task = (config.data.source() == Source::Sequences).then(|| tasks::build(&config.data, seed));
        let task = task.transpose()?;
        let (samples, origin) = match subject {
            Subject::Given(sample) => (vec![sample.clone()], Origin::default()),
            Subject::Validation(Dataset { train, valid, .. }) => {
                let (samples, truncation_note) = affordable_samples(decoder, valid, backend::free_memory());
                let lens = tuned_lens_skip_reason(decoder, train);
                truncation_note.iter().chain(&lens).for_each(|note| warn(&format!("warning: {note}")));
                let unigram = Some(unigram(train, &samples, description.sizes.vocab));
                (samples, Origin { unigram, train: Some(train), task: task.as_deref(), truncation_note })
            }
        };
        input::check_length(&description, samples[0].inputs.len(), 0)?;
        check_memory(decoder, &samples, backend::free_memory())?;
        let mut found = explain(&model, &samples, origin, &device)?;
        found.basis.weights_sha256 = match Hashes::read(folder).and_then(|hashes| hashes.weights_sha256) {
            Some(written) => Some(written),
            None => Some(folder.unverified_weights()?.sha256()?),
        };
        Ok(found)
    }
}
