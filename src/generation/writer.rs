//! Writing on from a prompt: the prompt is read in one pass, then each new token in a step of its
//! own, with what earlier ones left in the cache.
//!
//! A model reads no further than the longest sequence it was trained on, its context. Where a
//! continuation is longer, the context slides: of a full one the later half is read again, from
//! place 0, and writing goes on. So the cache stays exact for every position scheme, and a token
//! still costs little more than a step on average.

use burn::tensor::{Tensor, backend::Backend};
use rand::RngExt;
use serde::Serialize;

use super::sampling::{Sampling, likeliest, softmax, top};
use super::transcript::Transcript;
use super::{rows, source};
use crate::data::Vocabulary;
use crate::data::seed::{Purpose, generator};
use crate::error::{Error, Result};
use crate::model::{Inputs, Model, Sizes};

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// The tokens to continue; for an encoder-decoder what an answer starts with.
    pub tokens: Vec<u32>,
    /// What an encoder-decoder answers.
    pub source: Option<Vec<u32>>,
}

/// How to write.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Most new tokens.
    #[arg(skip)]
    pub max_new: usize,
    /// Continuations, each drawn by itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub samples: usize,
    /// The number of the first of them: each is drawn by its number, whatever is beside it.
    #[arg(skip)]
    pub first_sample: usize,
    /// Ends a continuation where this text comes; may be repeated.
    #[arg(long = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    pub stop_strings: Vec<String>,
    /// Ends a continuation where this id comes; may be repeated.
    #[arg(long = "stop-token", value_name = "ID")]
    pub stop_tokens: Vec<u32>,
    /// The tokens that end a text, where the run knows more of them than its vocabulary does.
    #[arg(skip)]
    pub ends: Option<Vec<u32>>,
    /// Whether of a prompt beyond the context only its end is read.
    #[arg(skip)]
    pub slides: bool,
    /// Continues after the token that ends a text.
    #[arg(long)]
    pub ignore_end: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Computes all keys and values anew at each step: the same output, only slower.
    #[arg(long = "no-cache", action = clap::ArgAction::SetFalse)]
    pub cache: bool,
    /// How many of the likeliest tokens are noted at each step, beside the probability of the new one. None: not
    /// even that, which takes a pass over the vocabulary.
    #[arg(skip)]
    pub alternatives: Option<usize>,
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
            ends: None,
            slides: false,
            ignore_end: false,
            seed: 0,
            cache: true,
            alternatives: None,
        }
    }
}

/// A token that could have come instead.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
    /// The model's probability for it, before any filter.
    pub probability: f64,
}

/// What a model wrote.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Continuation {
    /// The new tokens.
    pub tokens: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Their text without special tokens.
    #[serde(skip)]
    pub shown: String,
    /// The model's probability for each of them, before any filter; none where they were not noted.
    pub probabilities: Vec<f64>,
    /// At each step, the likeliest tokens, likeliest first.
    pub alternatives: Vec<Vec<Alternative>>,
    /// Why it ended.
    pub ended: StopReason,
}

/// Why a continuation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// By a stop token.
    StopToken,
    /// By a stop string.
    StopString,
    /// By the number of new tokens.
    #[default]
    MaxNew,
}

/// How many tokens are read before the context slides, and how many of them are then read again. A prompt beyond
/// the context is read whole, unless the context `slides` over it as well.
pub fn window(sizes: Sizes, prompt: &Prompt, slides: bool) -> [usize; 2] {
    let prompt = if slides { 0 } else { prompt.tokens.len() };
    [sizes.context.max(prompt), sizes.context.div_ceil(2)]
}

/// A continuation under way.
struct BatchRow<'a> {
    /// Prompt and new tokens.
    all: Vec<u32>,
    transcript: Transcript<'a>,
    /// What is noted of it; the transcript has its tokens and its text.
    written: Continuation,
}

/// Continues a prompt. `watch` hears by how much text each sample grows, special tokens apart, and ends the writing by
/// an error.
///
/// # Errors
/// [`Error::Input`] where options or prompt cannot be used; [`Error::Shape`] where learned positions end within the
/// prompt; [`Error::Failed`] where the model's logits are not finite; and those of `watch`.
pub fn write<B: Backend>(
    (model, sizes): (&Model<B>, Sizes),
    vocabulary: &Vocabulary,
    prompt: &Prompt,
    options: &Options,
    device: &B::Device,
    mut watch: impl FnMut(usize, &str) -> Result<()>,
) -> Result<Vec<Continuation>> {
    check(vocabulary, prompt, options)?;
    let source = prompt.source.as_ref().map(|tokens| source::<B>(tokens, options.samples, device));
    let mut cache = model.start(source.clone())?;
    let mut written: Vec<BatchRow> = (0..options.samples)
        .map(|_| BatchRow {
            all: prompt.tokens.clone(),
            transcript: Transcript::new(vocabulary, &prompt.tokens, &options.stop_strings),
            written: Continuation::default(),
        })
        .collect();

    // The window is what the model sees: the tokens from `first` on, of which all before `unread`
    // lie in the cache.
    let [context, kept] = window(sizes, prompt, options.slides);
    let mut first = prompt.tokens.len().saturating_sub(context);
    let mut unread = first;
    for step in 0..options.max_new {
        let time = prompt.tokens.len() + step;
        if time - first > context {
            (first, unread) = (time - kept, time - kept);
            cache.clear();
        }
        let logits: Tensor<B, 2> = if options.cache {
            let next = rows(written.iter().map(|row| &row.all[unread..]), device);
            model.read(next, &mut cache)? // [samples, vocab]
        } else {
            let window = rows(written.iter().map(|row| &row.all[first..]), device);
            let inputs = Inputs { tokens: window, source: source.clone() };
            model.forward(inputs)?.narrow(1, time - first - 1, 1).squeeze_dim(1)
        };
        unread = time;
        let data = logits.into_data().convert::<f32>();
        let logits = data.as_slice::<f32>().map_err(|error| Error::Failed(format!("{error:?}")))?;
        for (sample, (row, logits)) in written.iter_mut().zip(logits.chunks_exact(sizes.vocab)).enumerate() {
            if logits.iter().any(|logit| !logit.is_finite()) {
                let problem = "the model's logits are not finite: its weights are damaged";
                return Err(Error::Failed(problem.into()));
            }
            row.step(logits, vocabulary, options, [options.first_sample + sample, step]);
            let over = row.is_over() || step + 1 == options.max_new;
            watch(sample, &row.transcript.fresh(over))?;
        }
        if written.iter().all(BatchRow::is_over) {
            break;
        }
    }
    Ok(written.into_iter().map(BatchRow::finish).collect())
}

impl BatchRow<'_> {
    fn is_over(&self) -> bool {
        self.written.ended != StopReason::MaxNew
    }

    /// Takes the next token, which is drawn by the number of the sample and the step. A row that has ended takes
    /// any, to be as long as the others.
    fn step(&mut self, all_logits: &[f32], vocabulary: &Vocabulary, options: &Options, number: [usize; 2]) {
        // A model may have rows for more tokens than there are, to fill up a matrix. None of them is written, but they
        // have their share of the probability, as in its loss.
        let logits = &all_logits[..vocabulary.size().min(all_logits.len())];
        if self.is_over() {
            self.all.push(likeliest(logits));
            return;
        }
        let uniform = generator(options.seed, Purpose::Sampling, number.map(|number| number as u64)).random();
        let token = options.sampling.choose(logits, &self.all, uniform);
        self.all.push(token);
        let is_end = match &options.ends {
            Some(ends) => ends.contains(&token),
            None => vocabulary.end() == Some(token),
        };
        if is_end && !options.ignore_end || options.stop_tokens.contains(&token) {
            self.written.ended = StopReason::StopToken;
            return;
        }
        if let Some(count) = options.alternatives {
            let probabilities = softmax(all_logits);
            let probability = |id: u32| probabilities[id as usize];
            let alternative =
                |id| Alternative { id, text: vocabulary.decode(&[id]), probability: probability(id) };
            self.written.probabilities.push(probability(token));
            self.written.alternatives.push(top(logits, count).into_iter().map(alternative).collect());
        }
        if self.transcript.push(token) {
            self.written.ended = StopReason::StopString;
        }
    }

    fn finish(self) -> Continuation {
        let Self { transcript, mut written, .. } = self;
        let shown = transcript.visible(0..transcript.text.len());
        let Transcript { tokens, text, .. } = transcript;
        // A stop string takes tokens back.
        written.probabilities.truncate(tokens.len());
        written.alternatives.truncate(tokens.len());
        Continuation { tokens, text, shown, ..written }
    }
}

/// What cannot be continued, or not so.
fn check(vocabulary: &Vocabulary, prompt: &Prompt, options: &Options) -> Result<()> {
    options.sampling.check()?;
    let Prompt { tokens, source } = prompt;
    let problem = if options.samples == 0 {
        "--samples 0: write at least one"
    } else if options.stop_strings.iter().any(String::is_empty) {
        "--stop \"\": an empty string would stop before the first token"
    } else if tokens.is_empty() {
        "the prompt is empty, and the vocabulary has no token that a text starts with: give a prompt of at least one \
         token"
    } else if source.as_ref().is_some_and(Vec::is_empty) {
        "the prompt is empty: an encoder-decoder needs a source to answer"
    } else {
        return [tokens, &options.stop_tokens, source.as_ref().unwrap_or(&Vec::new())]
            .into_iter()
            .try_for_each(|ids| vocabulary.check(ids));
    };
    Err(Error::Input(problem.into()))
}

#[cfg(test)]
mod tests;
