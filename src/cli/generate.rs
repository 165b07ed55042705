//! `generate`: continues a prompt.

use std::{collections::BTreeMap, path::PathBuf};

use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::Serialize;

use super::input::{self, OpenedRun, RunArgs};
use super::interventions::InterventionArgs;
use super::patch::{PatchArgs, PatchSource, check_cached};
use super::prompt;
use crate::analysis::Sample;
use crate::backend::{self, DeviceWatch, Job};
use crate::data::{Documents, Notation, Vocabulary};
use crate::error::{Error, Result};
use crate::generation::{self, Continuation, Options, Prompt, TextEnds};
use crate::hooks::Patch;
use crate::model::{Architecture, Model, Sizes};
use crate::numbers::{Bytes, counted, thousands};
use crate::terminal::{print_json, print_text, say, warn};
use crate::weights::companions::Companions;
use crate::weights::native::Description;

/// Generate a continuation of a prompt, or an answer to a source, with a run's best weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The text to continue; for an encoder-decoder, the source to answer. Without a tokenizer: ids or symbols,
    /// e.g. "3 1 4 1 5". [default: the begin-of-text token, else a line break]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["prompt_file", "tokens"])]
    prompt: Option<String>,
    /// Reads the prompt from a file, without its final line break; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    prompt_file: Option<PathBuf>,
    /// The prompt as token ids, e.g. "3 1 4".
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: Option<String>,
    /// The maximum number of new tokens. [default: 100; for an encoder-decoder, its context]
    #[arg(long, value_name = "N")]
    max_new: Option<usize>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    interventions: InterventionArgs,
    #[command(flatten)]
    patch: PatchArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Prints JSON: the new ids, their probabilities (before temperature, top-p and other sampling options), and the
    /// most likely tokens at each step.
    #[arg(long)]
    json: bool,
    /// The number of most likely tokens at each step in the JSON. [default: 5]
    #[arg(long, value_name = "N", requires = "json")]
    alternatives: Option<usize>,
}

/// The JSON output for one sample.
#[derive(Debug, Serialize)]
struct GenerateReport<'a> {
    /// The ids that the model read: of a prompt with its added tokens, or of a source.
    prompt: &'a [u32],
    #[serde(flatten)]
    continuation: Continuation,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    check_greedy(&args.options)?;
    let run = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let from_file = args.prompt_file.as_deref().map(prompt::read_prompt).transpose()?;
    let is_encoder_decoder = run.config.model.architecture == Architecture::EncoderDecoder;
    let encode = if is_encoder_decoder { prompt::encode_part } else { prompt::encode };
    let text = from_file.or_else(|| args.prompt.clone());
    let given = prompt::tokens(&text, &None, &args.tokens, &vocabulary, encode)?;
    let companions = Companions::read(&run.folder.transformers())?;
    let given = match given.is_empty() && prompt::begin_tokens(&companions, &vocabulary).is_empty() {
        true => prompt::first_token(&vocabulary, args.options.seed),
        false => given,
    };
    let prompt = Prompt {
        tokens: match &given[..] {
            _ if is_encoder_decoder => Vec::from_iter(vocabulary.end()),
            [] => prompt::begin_tokens(&companions, &vocabulary),
            // Ids are read as they are.
            given if args.tokens.is_some() => given.to_vec(),
            given => vocabulary.as_question(given),
        },
        source: is_encoder_decoder.then(|| given.clone()),
        ..Prompt::default()
    };
    check_documents(&run, &prompt, &vocabulary, args.options.ignore_end)?;
    let read = prompt.source.clone().unwrap_or_else(|| prompt.tokens.clone());
    let source = args.patch.source(&run.config, |text| {
        let inputs = vocabulary.as_question(&prompt::encode(&vocabulary, text)?);
        Ok(Sample::of_inputs(inputs).split_documents(run.config.data.text_documents(), &vocabulary))
    })?;
    let job = Generate {
        args: &args,
        run: &run,
        vocabulary: &vocabulary,
        companions,
        given: &given,
        prompt,
        source,
    };
    let continuations = run.compute(job)?;
    if args.json {
        let report = |continuation| GenerateReport { prompt: &read, continuation };
        let samples: Vec<_> = continuations.into_iter().map(report).collect();
        print_json(&BTreeMap::from([("samples", samples)]));
    }
    Ok(())
}

/// Rejects a prompt that ends a separate document, because no model learns to predict the first token of the next one.
/// Warns if the text goes past the end of a document.
fn check_documents(run: &OpenedRun, prompt: &Prompt, vocabulary: &Vocabulary, continues: bool) -> Result<()> {
    let end = vocabulary.end().filter(|_| run.config.data.text_documents() == Documents::Separate);
    let Some(end) = end else { return Ok(()) };
    let token = vocabulary.token(end);
    if prompt.tokens.last() == Some(&end) {
        return Err(Error::Input(format!(
            "the prompt ends with `{token}`, which ends a document, and this model was trained on separate documents, so \
             it does not predict the first token of the next one; remove `{token}`, or add the beginning of the next \
             document"
        )));
    }
    if continues {
        warn(&format!(
            "notice: the first token after each `{token}` is arbitrary, because this model was trained on separate \
             documents and does not predict the first token of a document"
        ));
    }
    Ok(())
}

/// Returns an error for options that have no effect with greedy decoding.
fn check_greedy(options: &Options) -> Result<()> {
    let sampling = &options.sampling;
    let given = [
        ("top-k", sampling.top_k > 0),
        ("top-p", sampling.top_p < 1.0),
        ("min-p", sampling.min_p > 0.0),
        ("seed", options.seed > 0),
        ("samples", options.samples > 1),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if sampling.greedy || sampling.temperature == 0.0 => {
            let problem = "has no effect with greedy decoding, which picks the most likely token; omit it";
            Err(Error::Input(format!("--{option} {problem}")))
        }
        _ => Ok(()),
    }
}

/// The job that generates continuations of a prompt with a run's weights.
struct Generate<'a> {
    args: &'a Args,
    run: &'a OpenedRun,
    vocabulary: &'a Vocabulary,
    companions: Companions,
    given: &'a [u32],
    prompt: Prompt,
    /// The text whose activations patch those of the prompt.
    source: PatchSource<'a>,
}

impl Job for Generate<'_> {
    /// The samples, unless they are printed immediately.
    type Output = Vec<Continuation>;

    fn run<B: AutodiffBackend>(mut self, device: B::Device) -> Result<Vec<Continuation>> {
        let args = self.args;
        let (model, description) = input::model::<B::InnerBackend>(&self.run.folder, &device)?;
        let model = args.interventions.apply(model, &description, &self.run.folder, &device)?;
        let is_encoder_decoder = description.model.architecture == Architecture::EncoderDecoder;
        let documents = self.run.config.data.text_documents();
        let read = prompt::last_document(&self.prompt.tokens, documents, self.vocabulary).len();
        let slides = check_prompt(&description, &self.prompt, read, args.options.samples)?;
        let max_new =
            args.max_new.unwrap_or(if is_encoder_decoder { description.sizes.context } else { 100 });
        self.prompt.patch = self.patch(&model, (&description, max_new), &device)?;
        let mut options = Options {
            max_new,
            texts: TextEnds { tokens: self.companions.ends(), documents },
            slides,
            alternatives: args.json.then(|| args.alternatives.unwrap_or(5)),
            ..args.options.clone()
        };
        if !self.streams() {
            options.samples = options.samples.min(samples_at_once(&description, &options)?);
        }
        self.write((&model, description.sizes), &self.prompt, options, &device)
    }
}

impl Generate<'_> {
    /// Returns the activations that replace those of the prompt.
    fn patch<B: Backend>(
        &self,
        model: &Model<B>,
        (description, max_new): (&Description, usize),
        device: &B::Device,
    ) -> Result<Patch> {
        let time = self.prompt.tokens.len();
        let (context, longest) = (description.sizes.context, time + max_new.saturating_sub(1));
        if self.source.is_given() && longest > context {
            let remedy = match (context + 1).checked_sub(time) {
                Some(new @ 1..) => format!("pass --max-new {new}"),
                _ => "shorten the prompt".to_string(),
            };
            return Err(Error::Input(format!(
                "--patch-from: the text of up to {} is longer than the context of {}, whose end is then read with another \
                 context than the replaced activations have; {remedy}",
                counted(longest, "token"),
                counted(context, "token")
            )));
        }
        let patch = self.source.patch(model, description, time, device)?;
        if self.args.options.cache {
            check_cached(&patch, description)?;
        }
        Ok(patch)
    }

    /// Returns true if the text is streamed.
    fn streams(&self) -> bool {
        !self.args.json && self.args.options.samples == 1
    }

    /// Generates all samples, `options.samples` at a time. Prints them as text or returns them for JSON.
    fn write<B: Backend>(
        &self,
        (model, sizes): (&Model<B>, Sizes),
        prompt: &Prompt,
        mut options: Options,
        device: &B::Device,
    ) -> Result<Vec<Continuation>> {
        let (all, shown) = (self.args.options.samples, self.prompt_text(prompt));
        let (mut first, mut longest) = (true, 0);
        // Output that a device computed after a failure is never printed.
        let watch = DeviceWatch::begin(&self.run.device, device);
        let mut on_text = |_, text: &str| {
            watch.check()?;
            if self.streams() {
                print_text(if std::mem::take(&mut first) { &shown } else { "" });
                print_text(text);
            }
            Ok(())
        };
        let mut continuations = Vec::new();
        while options.first_sample < all.max(1) {
            let group = generation::generate(
                (model, sizes),
                self.vocabulary,
                prompt,
                &options,
                device,
                &mut on_text,
            )?;
            longest = group.iter().map(|written| written.tokens.len()).fold(longest, usize::max);
            if self.args.json {
                continuations.extend(group);
            } else if !self.streams() {
                for (continuation, number) in group.iter().zip(options.first_sample + 1..) {
                    say(&format!("--- sample {number}"));
                    print_text(&format!("{shown}{}\n", continuation.shown));
                }
            }
            options.first_sample += options.samples;
            options.samples = options.samples.min(all - options.first_sample);
        }
        if self.streams() {
            // If no text was generated, only the prompt is printed.
            print_text(if first { shown.trim_end() } else { "" });
            print_text("\n");
        }
        let [window, kept] = generation::window(sizes, prompt, options.slides);
        // The last token is generated, but not read. For a longer prompt that is read completely, another notice was
        // printed before.
        if window == sizes.context && prompt.tokens.len() + longest > window + 1 {
            warn(&format!(
                "notice: the context of {} was full; whenever it is full, only the last {} are kept and read again",
                counted(window, "token"),
                thousands(kept as f64)
            ));
        }
        Ok(continuations)
    }

    /// Returns the prompt's text as printed before its continuation; empty for a source or a question, which the
    /// continuation answers.
    fn prompt_text(&self, prompt: &Prompt) -> String {
        let is_question = !self.given.is_empty() && prompt.tokens != self.given;
        if prompt.source.is_some() || is_question {
            return String::new();
        }
        let seen: Vec<_> = self.given.iter().copied().filter(|&id| !self.vocabulary.is_special(id)).collect();
        let shown = self.vocabulary.decode(&seen);
        let is_word = self.vocabulary.notation() == Notation::Words && !shown.is_empty();
        if is_word { shown + " " } else { shown }
    }
}

/// Returns true if the context slides over a longer prompt, which learned positions require. Models with other position
/// schemes read the complete prompt.
///
/// # Errors
/// Returns an error if a prompt that is read completely does not fit into memory, or if a source is too long.
fn check_prompt(description: &Description, prompt: &Prompt, time: usize, samples: usize) -> Result<bool> {
    let context = description.sizes.context;
    input::check_length(description, 0, prompt.source.as_ref().map_or(0, Vec::len))?;
    if time <= context {
        return Ok(false);
    }
    let longer = format!(
        "notice: the prompt of {} is longer than the context of {}",
        counted(time, "token"),
        counted(context, "token")
    );
    let slides = input::has_bounded_positions(description);
    if slides {
        warn(&format!("{longer}; only the last {} are read", thousands(context as f64)));
    } else {
        check_memory(description, time, samples)?;
        let [window, kept] = generation::window(description.sizes, prompt, slides);
        warn(&format!(
            "{longer}; the first new token depends on all of it, later ones on the last {} to {} tokens",
            thousands(kept as f64),
            thousands(window as f64)
        ));
    }
    Ok(slides)
}

/// The maximum length of a prompt that is read completely, the same as the maximum of `data.length`.
const MAX_PROMPT_LENGTH: usize = 1 << 20;

/// Checks that a prompt of `time` tokens fits into memory.
fn check_memory(Description { model, .. }: &Description, time: usize, samples: usize) -> Result<()> {
    let tokens = counted(time, "token");
    if time > MAX_PROMPT_LENGTH {
        let max = thousands(MAX_PROMPT_LENGTH as f64);
        let problem = format!("the prompt of {tokens} is longer than the maximum of {max}; shorten it");
        return Err(Error::Input(problem));
    }
    // The KV cache of all blocks, and some tensors of one block, the widest of which belong to the feed-forward layer.
    let (cached, in_use) = (2 * model.blocks(), 16);
    let needed = 4.0 * (samples.min(1024) * time * model.d_model * (cached + in_use)) as f64;
    let free = backend::free_memory();
    if needed <= free {
        return Ok(());
    }
    let [needed, free] = [needed, free].map(Bytes);
    Err(Error::Input(format!(
        "the prompt of {tokens} needs about {needed} of memory, but only {free} is free; shorten it or lower --samples"
    )))
}

/// Returns the number of samples to generate in parallel: as many as fit their KV caches and logits into a gigabyte,
/// but few enough that the first samples finish soon.
///
/// # Errors
/// Returns an error if the output that is held until it is printed (one sample, or for JSON all samples) takes more
/// than a gigabyte.
fn samples_at_once(Description { model, sizes }: &Description, options: &Options) -> Result<usize> {
    const MAX_CACHED_NUMBERS: usize = 1 << 28;
    /// The number of tokens and alternatives that fit into a gigabyte, with their text and probabilities.
    const MAX_HELD_TOKENS: usize = 1 << 24;
    let time = sizes.context + sizes.source_context.unwrap_or(0);
    let numbers_per_sample = 2 * model.blocks() * model.d_model * time + 4 * sizes.vocab;
    let Options { max_new, samples, alternatives, .. } = options;
    let tokens = MAX_HELD_TOKENS / alternatives.map_or(1, |count| count.saturating_add(1));
    let max_held_samples = tokens / (*max_new).max(1);
    if let Some(count) = alternatives.filter(|&count| count > 5.max(sizes.vocab)) {
        let vocab = counted(sizes.vocab, "token");
        return Err(Error::Input(format!(
            "--alternatives {count}: the vocabulary has only {vocab}; use a lower number"
        )));
    }
    if max_held_samples < if alternatives.is_some() { *samples } else { 1 } {
        let each =
            alternatives.map_or_else(String::new, |count| format!(", each with {count} alternatives,"));
        return Err(Error::Input(format!(
            "--max-new {max_new} and --samples {samples}: at most {} new tokens{each} fit into memory; lower either \
             number, or generate a single sample without --json, which is streamed",
            thousands(tokens as f64)
        )));
    }
    Ok((MAX_CACHED_NUMBERS / numbers_per_sample.max(1)).clamp(1, 1024).min(max_held_samples))
}
