//! Generation from a prompt: the prompt is read in one pass (prefill), then each new token in one step with the KV
//! cache.
//!
//! A model reads at most as many tokens as its context, the length of the longest training sequence. When a
//! continuation exceeds the context, the context slides: its later half is read again from position 0, and generation
//! continues. The cache is therefore exact for every position scheme, and the average cost per token is little more
//! than one step.
//!
//! A model of separate documents reads only the last document. While the samples of a batch are in documents that begin
//! at different positions, their windows are read without the cache.

use burn::tensor::{Tensor, backend::Backend};
use rand::RngExt;
use serde::Serialize;

use super::sampling::{Sampling, argmax, softmax, top};
use super::transcript::{Stops, Transcript};
use super::{rows, source};
use crate::data::seed::{Purpose, generator};
use crate::data::{Documents, Vocabulary, documents_of};
use crate::error::{Error, Result};
use crate::hooks::{NoHooks, Patch};
use crate::model::{Inputs, Model, Sizes};

/// The input of a generation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// The tokens to continue; for an encoder-decoder, the start of the answer.
    pub tokens: Vec<u32>,
    /// The source to answer, for an encoder-decoder.
    pub source: Option<Vec<u32>>,
    /// The activations that are replaced at positions of the tokens.
    pub patch: Patch,
}

/// The options of a continuation.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// The choice of tokens.
    #[command(flatten)]
    pub sampling: Sampling,
    /// The maximum number of new tokens.
    #[arg(skip)]
    pub max_new: usize,
    /// The number of continuations, drawn independently.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub samples: usize,
    /// The index of the first continuation. The index of a continuation determines its random draws.
    #[arg(skip)]
    pub first_sample: usize,
    /// Ends a continuation before this text; may be repeated. Integers and symbols are matched as whole tokens.
    #[arg(long = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    pub stop_strings: Vec<String>,
    /// Ends a continuation before the token with this id; may be repeated.
    #[arg(long = "stop-token", value_name = "ID")]
    pub stop_tokens: Vec<u32>,
    /// The ends of texts in training.
    #[arg(skip)]
    pub texts: TextEnds,
    /// True to read only the end of a prompt longer than the context.
    #[arg(skip)]
    pub slides: bool,
    /// Continues after the end-of-text token.
    #[arg(long)]
    pub ignore_end: bool,
    /// The seed of the random draws.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Disables the KV cache, which slows generation and does not change the output.
    #[arg(long = "no-cache", action = clap::ArgAction::SetFalse)]
    pub cache: bool,
    /// The number of most likely tokens recorded at each step, with the probability of the new token. `None` records
    /// neither, which saves a softmax over the vocabulary.
    #[arg(skip)]
    pub alternatives: Option<usize>,
}

/// The ends of the texts that a model was trained on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextEnds {
    /// The end-of-text tokens of the run; `None` for the single one of the vocabulary.
    pub tokens: Option<Vec<u32>>,
    /// The treatment of documents in training. If they are separate, only the last one is read.
    pub documents: Documents,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            max_new: 100,
            samples: 1,
            first_sample: 0,
            stop_strings: Vec::new(),
            stop_tokens: Vec::new(),
            texts: TextEnds::default(),
            slides: false,
            ignore_end: false,
            seed: 0,
            cache: true,
            alternatives: None,
        }
    }
}

/// A candidate token of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The id of the token.
    pub id: u32,
    /// The text of the token.
    pub text: String,
    /// The probability of the token under the model, before any filter.
    pub probability: f64,
}

/// The generated continuation of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Continuation {
    /// The new tokens.
    pub tokens: Vec<u32>,
    /// The text of the new tokens.
    pub text: String,
    /// The text without special tokens.
    #[serde(skip)]
    pub shown: String,
    /// The probability of each new token under the model, before any filter; empty if not requested.
    pub probabilities: Vec<f64>,
    /// The most likely tokens of each step, in descending order of probability.
    pub alternatives: Vec<Vec<Alternative>>,
    /// The reason why the continuation ended.
    pub ended: StopReason,
}

/// The reason why a continuation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A stop token was generated.
    StopToken,
    /// A stop string was generated.
    StopString,
    /// The maximum number of new tokens was reached.
    #[default]
    MaxNew,
}

/// Returns the maximum number of tokens in the context, and the number kept when it slides. A prompt longer than the
/// context is read in full, unless `slides` is true.
pub fn window(sizes: Sizes, prompt: &Prompt, slides: bool) -> [usize; 2] {
    let prompt = if slides { 0 } else { prompt.tokens.len() };
    [sizes.context.max(prompt), sizes.context.div_ceil(2)]
}

/// One row of the batch during generation.
struct BatchRow<'a> {
    /// The tokens of the prompt and the new tokens.
    all: Vec<u32>,
    transcript: Transcript<'a>,
    /// Probabilities, alternatives and stop reason; the transcript holds the tokens and the text.
    continuation: Continuation,
}

/// Continues a prompt. `on_text` receives the index of a sample and its new text without special tokens. If it returns
/// an error, the generation stops with this error.
///
/// # Errors
/// Returns [`Error::Input`] if the options or the prompt are invalid, or if the logits are not finite. Returns
/// [`Error::Shape`] if the prompt exceeds the learned positions, and the errors of `on_text`.
pub fn generate<B: Backend>(
    (model, sizes): (&Model<B>, Sizes),
    vocabulary: &Vocabulary,
    prompt: &Prompt,
    options: &Options,
    device: &B::Device,
    mut on_text: impl FnMut(usize, &str) -> Result<()>,
) -> Result<Vec<Continuation>> {
    check(vocabulary, prompt, options)?;
    let stops = Stops::new(vocabulary, &options.stop_strings)?;
    let source = prompt.source.as_ref().map(|tokens| source::<B>(tokens, options.samples, device));
    let mut cache = model.start(source.clone())?;
    let new_row = |_| BatchRow::new(vocabulary, prompt, &stops);
    let mut batch: Vec<BatchRow> = (0..options.samples).map(new_row).collect();

    // The window holds the tokens from `first` on. The cache holds the tokens of the window before `unread`.
    let [context, kept] = window(sizes, prompt, options.slides);
    let mut first = prompt.tokens.len().saturating_sub(context);
    let mut unread = first;
    for step in 0..options.max_new {
        let time = prompt.tokens.len() + step;
        if time - first > context {
            (first, unread) = (time - kept, time - kept);
            cache.clear();
        }
        let starts = batch.iter().filter(|row| !row.is_over());
        let starts: Vec<usize> = starts.map(|row| row.document_start(vocabulary, options)).collect();
        if let Some(&start) = starts.iter().min().filter(|&&start| start > first) {
            (first, unread) = (start, start);
            cache.clear();
        }
        let are_apart = starts.iter().any(|&start| start > first);
        let is_read = options.cache && !are_apart;
        let logits: Tensor<B, 2> = if is_read {
            let next = rows(batch.iter().map(|row| &row.all[unread..]), device);
            model.read_hooked(next, &mut cache, &mut prompt.patch.hooks(unread, &mut NoHooks))? // [samples, vocab]
        } else {
            let window = rows(batch.iter().map(|row| &row.all[first..]), device);
            let documents =
                are_apart.then(|| batch.iter().map(|row| row.documents(first, vocabulary)).collect());
            let inputs = Inputs { source: source.clone(), documents, ..Inputs::tokens(window) };
            let logits = model.forward_hooked(inputs, &mut prompt.patch.hooks(first, &mut NoHooks))?;
            logits.narrow(1, time - first - 1, 1).squeeze_dim(1)
        };
        if is_read {
            unread = time;
        }
        let logits = finite(logits)?;
        for (sample, (row, logits)) in batch.iter_mut().zip(logits.chunks_exact(sizes.vocab)).enumerate() {
            row.step(logits, vocabulary, options, [options.first_sample + sample, step]);
            let is_over = row.is_over() || step + 1 == options.max_new;
            on_text(sample, &row.transcript.take_visible(is_over))?;
        }
        if batch.iter().all(BatchRow::is_over) {
            break;
        }
    }
    Ok(batch.into_iter().map(BatchRow::finish).collect())
}

/// Copies logits to the host.
///
/// # Errors
/// Returns [`Error::Input`] if a logit is not finite.
fn finite<B: Backend>(logits: Tensor<B, 2>) -> Result<Vec<f32>> {
    let logits = logits.into_data().convert::<f32>().into_vec();
    let logits: Vec<f32> = logits.map_err(|error| Error::Failed(format!("{error:?}")))?;
    if logits.iter().all(|logit| logit.is_finite()) { Ok(logits) } else { Err(Error::not_finite()) }
}

impl<'a> BatchRow<'a> {
    fn new(vocabulary: &'a Vocabulary, prompt: &Prompt, stops: &'a Stops<'a>) -> Self {
        Self {
            all: prompt.tokens.clone(),
            transcript: Transcript::new(vocabulary, &prompt.tokens, stops),
            continuation: Continuation::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.continuation.ended != StopReason::MaxNew
    }

    /// Returns the position of the first token of the last document, or 0 if documents are joined.
    fn document_start(&self, vocabulary: &Vocabulary, options: &Options) -> usize {
        let end = vocabulary.end().filter(|_| options.texts.documents == Documents::Separate);
        // An end token at the end is read with the document that it ends, as nothing follows it yet.
        let before = self.all.split_last().map_or(&[][..], |(_, before)| before);
        end.and_then(|end| before.iter().rposition(|&token| token == end)).map_or(0, |end| end + 1)
    }

    /// Returns the document of each token from `first` on.
    fn documents(&self, first: usize, vocabulary: &Vocabulary) -> Vec<u32> {
        let window = &self.all[first..];
        documents_of(Documents::Separate, window, vocabulary).unwrap_or_else(|| vec![0; window.len()])
    }

    /// Appends the next token. `indices`, the sample index and the step, seed the draw. A finished row appends an
    /// arbitrary token, so that all rows have the same length.
    fn step(&mut self, all_logits: &[f32], vocabulary: &Vocabulary, options: &Options, indices: [usize; 2]) {
        // The output matrix may be padded to more rows than there are tokens. The padded ids are never generated, but
        // keep their share of the probability, as in the loss.
        let logits = &all_logits[..vocabulary.size().min(all_logits.len())];
        if self.is_over() {
            self.all.push(argmax(logits));
            return;
        }
        let uniform = generator(options.seed, Purpose::Sampling, indices.map(|index| index as u64)).random();
        let token = options.sampling.choose(logits, &self.all, uniform);
        self.all.push(token);
        let is_end = match &options.texts.tokens {
            Some(ends) => ends.contains(&token),
            None => vocabulary.end() == Some(token),
        };
        if is_end && !options.ignore_end || options.stop_tokens.contains(&token) {
            self.continuation.ended = StopReason::StopToken;
            return;
        }
        if let Some(count) = options.alternatives {
            let probabilities = softmax(all_logits);
            let probability = |id: u32| probabilities[id as usize];
            let alternative =
                |id| Alternative { id, text: vocabulary.piece(id), probability: probability(id) };
            self.continuation.probabilities.push(probability(token));
            self.continuation.alternatives.push(top(logits, count).into_iter().map(alternative).collect());
        }
        if self.transcript.push(token) {
            self.continuation.ended = StopReason::StopString;
        }
    }

    fn finish(self) -> Continuation {
        let Self { transcript, mut continuation, .. } = self;
        let shown = transcript.visible(0..transcript.text.len());
        let Transcript { tokens, text, .. } = transcript;
        // A stop string removes tokens that are already recorded.
        continuation.probabilities.truncate(tokens.len());
        continuation.alternatives.truncate(tokens.len());
        Continuation { tokens, text, shown, ..continuation }
    }
}

/// Checks the options and the prompt before generation.
fn check(vocabulary: &Vocabulary, prompt: &Prompt, options: &Options) -> Result<()> {
    options.sampling.check()?;
    let Prompt { tokens, source, .. } = prompt;
    let problem = if options.samples == 0 {
        "--samples 0 must be at least 1"
    } else if options.stop_strings.iter().any(String::is_empty) {
        "--stop \"\" is empty and would stop before the first token; pass a non-empty text"
    } else if tokens.is_empty() {
        "the prompt is empty, and the vocabulary does not have a begin-of-text token; pass at least one token"
    } else if source.as_ref().is_some_and(Vec::is_empty) {
        "the prompt is empty, but an encoder-decoder needs a source to answer; pass at least one token"
    } else {
        return [tokens, &options.stop_tokens, source.as_ref().unwrap_or(&Vec::new())]
            .into_iter()
            .try_for_each(|ids| vocabulary.check(ids));
    };
    Err(Error::Input(problem.into()))
}

#[cfg(test)]
mod tests;
