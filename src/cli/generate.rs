//! `generate`: writes on from a prompt.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::backend::BackendArgs;
use super::input::{self, Run};
use crate::backend::{self, Device, DeviceWatch, Job};
use crate::data::{Notation, Vocabulary};
use crate::error::Result;
use crate::generation::{self, Continuation, Ended, Event, Options, Prompt, Sampling};
use crate::model::{Architecture, Model};
use crate::ops;
use crate::terminal::{print_json, print_text, say, warn};
use crate::training::RunFolder;
use crate::weights::native::{self, Description};

/// Write on from a prompt, or answer it, with a run's best weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run folder.
    run: PathBuf,
    /// What to continue; for an encoder-decoder, what to answer. Without a tokenizer: ids or symbols,
    /// as "3 1 4 1 5". [default: the token that a text starts with, where there is one]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["prompt_file", "tokens"])]
    prompt: Option<String>,
    /// Reads the prompt from a file; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    prompt_file: Option<PathBuf>,
    /// The prompt as ids, whatever the vocabulary, as "3 1 4".
    #[arg(long, value_name = "IDS")]
    tokens: Option<String>,
    /// Takes the likeliest token at each step.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    greedy: bool,
    /// Divides the logits: below 1 the likely becomes likelier, 0 is greedy.
    #[arg(long, value_name = "T", default_value_t = 1.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Draws from the K likeliest tokens only; 0: from all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Draws from the likeliest tokens whose probabilities together reach P.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f64,
    /// Draws from tokens at least P times as likely as the likeliest.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f64,
    /// Makes tokens that stand there already less likely; 1: leaves them.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Most new tokens. [default: 100; for an encoder-decoder its context]
    #[arg(long, value_name = "N")]
    max_new: Option<usize>,
    /// Continuations, each drawn by itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    samples: usize,
    /// Ends a continuation where this text comes; may be repeated.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Ends a continuation where this id comes; may be repeated.
    #[arg(long, value_name = "ID")]
    stop_token: Vec<u32>,
    /// Goes on behind the token that ends a text.
    #[arg(long)]
    ignore_end: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Reads everything anew at each step, to the same result: for comparison.
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    backend: BackendArgs,
    /// Prints JSON: the new ids, their probabilities, and the likeliest at each step.
    #[arg(long)]
    json: bool,
    /// How many of the likeliest tokens JSON shows at each step. [default: 5]
    #[arg(long, value_name = "N", requires = "json")]
    alternatives: Option<usize>,
}

/// What JSON says of one continuation.
#[derive(Debug, Serialize)]
struct Report<'a> {
    prompt: &'a [u32],
    tokens: &'a [u32],
    text: &'a str,
    /// The model's own, before any filter.
    probabilities: &'a [f64],
    alternatives: Vec<Vec<Alternative>>,
    ended: Ended,
}

#[derive(Debug, Serialize)]
struct Alternative {
    id: u32,
    text: String,
    probability: f64,
}

/// What JSON says, for one sample as for many.
#[derive(Debug, Serialize)]
struct Reports<'a> {
    samples: Vec<Report<'a>>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let run = Run::open(&args.run, &args.backend)?;
    let vocabulary = run.vocabulary()?;
    let given = match (&args.prompt, &args.prompt_file, &args.tokens) {
        (_, _, Some(ids)) => input::ids(ids, &vocabulary)?,
        (_, Some(path), _) => input::encode(&vocabulary, &input::read(path)?)?,
        (Some(text), ..) => input::encode(&vocabulary, text)?,
        (None, None, None) => Vec::new(),
    };
    let job = Generate { args: &args, folder: &run.folder, vocabulary: &vocabulary, given, on: &run.device };
    let written = backend::run(&run.device, job)?;
    if args.json {
        print_written(&written, &vocabulary);
    }
    Ok(ExitCode::SUCCESS)
}

struct Generate<'a> {
    args: &'a Args,
    folder: &'a RunFolder,
    vocabulary: &'a Vocabulary,
    given: Vec<u32>,
    on: &'a Device,
}

/// What was given, and what was written.
struct Written {
    given: Vec<u32>,
    continuations: Vec<Continuation>,
}

impl Job for Generate<'_> {
    type Output = Written;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Written> {
        let Self { args, folder, vocabulary, given, on } = self;
        let (model, description): (Model<B::InnerBackend>, Description) =
            native::load_model(&folder.weights()?, &device)?;
        let sizes = description.sizes;
        let answers = description.model.architecture == Architecture::EncoderDecoder;
        let start = vocabulary.end().as_slice().to_vec();
        let prompt = match answers {
            true => Prompt { tokens: start, source: Some(given.clone()) },
            false if given.is_empty() => Prompt { tokens: start, source: None },
            false => Prompt { tokens: given.clone(), source: None },
        };
        let mut options = Options {
            sampling: Sampling {
                greedy: args.greedy,
                temperature: args.temperature,
                top_k: args.top_k,
                top_p: args.top_p,
                min_p: args.min_p,
                repetition_penalty: args.repetition_penalty,
            },
            max_new: args.max_new.unwrap_or(if answers { sizes.context } else { 100 }),
            samples: args.samples.min(samples_at_once(&description)),
            first_sample: 0,
            seed: args.seed,
            stop_tokens: [&args.stop_token[..], vocabulary.end().filter(|_| !args.ignore_end).as_slice()]
                .concat(),
            stop_strings: args.stop.clone(),
            probabilities: args.json,
            alternatives: if args.json { args.alternatives.unwrap_or(5) } else { 0 },
            cache: !args.no_cache,
        };
        // Where something is continued, it is shown with its continuation.
        let mut shown = match answers || given.is_empty() {
            true => String::new(),
            false => vocabulary.decode(&given),
        };
        if vocabulary.notation() == Notation::Words && !shown.is_empty() {
            shown.push(' ');
        }
        let streams = !args.json && args.samples == 1;
        let mut slide = None;
        let mut first = true;
        // Nothing is shown that a device computed after it failed.
        let watch = DeviceWatch::begin(on, &device);
        let mut hear = |event: Event| {
            watch.check()?;
            match event {
                Event::Text { text, .. } => {
                    if streams {
                        if std::mem::take(&mut first) {
                            print_text(&shown);
                        }
                        print_text(text);
                    }
                }
                Event::Slide { context, kept } => slide = Some((context, kept)),
            }
            Ok(())
        };
        let mut continuations = Vec::new();
        loop {
            let model = (&model, sizes);
            let group = generation::write(model, vocabulary, &prompt, &options, &device, &mut hear)?;
            for (continuation, number) in group.iter().zip(options.first_sample + 1..) {
                if !streams && !args.json {
                    say(&format!("--- sample {number}"));
                    print_text(&format!("{shown}{}\n", continuation.text));
                }
            }
            options.first_sample += options.samples;
            if args.json {
                continuations.extend(group);
            }
            match args.samples - options.first_sample {
                0 => break,
                left => options.samples = options.samples.min(left),
            }
        }
        if streams {
            // Where nothing was written on, what was given stands alone.
            print_text(if first { shown.trim_end() } else { "" });
            print_text("\n");
        }
        if let Some((context, kept)) = slide {
            warn(&format!(
                "notice: the context of {context} tokens was full: whenever it is, the last {kept} are read \
                 again and the others forgotten"
            ));
        }
        Ok(Written { given, continuations })
    }
}

/// Samples that are written side by side: as many as keep their keys, values and logits
/// in a gigabyte, and few enough that the first are soon there.
fn samples_at_once(Description { model, sizes }: &Description) -> usize {
    const NUMBERS: usize = 1 << 28;
    let time = sizes.context + sizes.source_context.unwrap_or(0);
    let of_a_sample = 2 * model.blocks() * model.d_model * time + 4 * sizes.vocab;
    (NUMBERS / of_a_sample.max(1)).clamp(1, 1024)
}

fn print_written(written: &Written, vocabulary: &Vocabulary) {
    let report = |continuation: &'_ Continuation| -> Vec<Vec<Alternative>> {
        let named = |alternative: &generation::Alternative| Alternative {
            id: alternative.id,
            text: vocabulary.decode(&[alternative.id]),
            probability: alternative.probability,
        };
        continuation.alternatives.iter().map(|step| step.iter().map(named).collect()).collect()
    };
    let samples: Vec<Report> = written
        .continuations
        .iter()
        .map(|continuation| Report {
            prompt: &written.given,
            tokens: &continuation.tokens,
            text: &continuation.text,
            probabilities: &continuation.probabilities,
            alternatives: report(continuation),
            ended: continuation.ended,
        })
        .collect();
    print_json(&Reports { samples });
}
