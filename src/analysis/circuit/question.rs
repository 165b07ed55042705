//! The question that an explanation answers: how a model predicts its targets, or why it prefers an answer.

use burn::tensor::{Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::pass::{Interventions, run};
use crate::analysis::Sample;
use crate::data::Role;
use crate::model::{Decoder, Inputs};
use crate::numbers::counted;
use crate::{Error, Result};

/// The quantity that an explanation is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The mean loss over the targets, in nats per token.
    #[default]
    Loss,
    /// The log-probability of the answer, in nats.
    LogProbability,
    /// The logit of the answer minus the logit of another token.
    LogitDifference,
}

impl Quantity {
    /// Returns the quantity's name as used in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::LogProbability => "log-probability of the answer",
            Self::LogitDifference => "logit difference",
        }
    }

    /// Returns the unit of the quantity.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Loss | Self::LogProbability => "nats",
            Self::LogitDifference => "logits",
        }
    }

    /// Returns true if `value` is worse than `other`.
    pub fn is_worse(self, value: f64, other: f64) -> bool {
        match self {
            Self::Loss => value > other,
            Self::LogProbability | Self::LogitDifference => value < other,
        }
    }
}

/// The replacement of the output of an ablated component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ablation {
    /// The mean over sequences or positions.
    #[default]
    Mean,
    /// The output on the corrupted sequence (resample ablation: Chan et al., 2022, "Causal Scrubbing").
    Resample,
}

impl Ablation {
    /// Returns the present participle of the ablation, such as "mean-ablating".
    pub fn verb(self) -> &'static str {
        match self {
            Self::Mean => "mean-ablating",
            Self::Resample => "resampling",
        }
    }

    /// Returns the past participle of the ablation, such as "mean-ablated".
    pub fn participle(self) -> &'static str {
        match self {
            Self::Mean => "mean-ablated",
            Self::Resample => "resampled from the corrupted sequence",
        }
    }
}

/// A question about the targets of sequences. By default, it asks for the loss, with mean ablation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    /// True if the targets are answers to explain; false if the loss on them is explained.
    pub of_answers: bool,
    /// True if the answer is the model's most likely token. A model with random weights has one, too.
    pub is_predicted: bool,
    /// For each sequence, the token whose logit is subtracted from the answer's. Empty: the log-probability of the
    /// answer is explained.
    pub against: Vec<u32>,
    /// For each sequence, a corrupted sequence of the same length. Empty: mean ablation.
    pub corrupted: Vec<Vec<u32>>,
}

impl Question {
    /// Returns the quantity in question.
    pub fn quantity(&self) -> Quantity {
        match (self.of_answers, self.against.is_empty()) {
            (false, _) => Quantity::Loss,
            (true, true) => Quantity::LogProbability,
            (true, false) => Quantity::LogitDifference,
        }
    }

    /// Returns the sequences with the corrupted tokens as inputs; empty without corrupted sequences.
    pub(super) fn corrupted_samples(&self, samples: &[Sample]) -> Vec<Sample> {
        let replaced = samples.iter().zip(&self.corrupted);
        replaced.map(|(sample, tokens)| Sample { inputs: tokens.clone(), ..sample.clone() }).collect()
    }

    /// Returns the position of the first token that differs in a corrupted sequence; `None` without such tokens.
    pub(super) fn first_difference(&self, samples: &[Sample]) -> Option<usize> {
        let of_sample = |(sample, corrupted): (&Sample, &Vec<u32>)| {
            sample.inputs.iter().zip(corrupted).position(|(token, other)| token != other)
        };
        samples.iter().zip(&self.corrupted).filter_map(of_sample).min()
    }

    /// Returns the ablation that answers the question.
    pub fn ablation(&self) -> Ablation {
        if self.corrupted.is_empty() { Ablation::Mean } else { Ablation::Resample }
    }
}

/// A prompt with a question about the token that follows one of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuestionPrompt {
    /// The tokens up to the one that the answer follows.
    pub tokens: Vec<u32>,
    /// The answer; `None` for the model's prediction.
    pub answer: Option<u32>,
    /// The token that the answer is compared with.
    pub against: Option<u32>,
    /// A corrupted prompt of the same length, with the same documents.
    pub corrupted: Option<Vec<u32>>,
    /// The document of each token, if there are several separate ones.
    pub documents: Option<Vec<u32>>,
}

impl Question {
    /// Returns the sequences and the question of prompts. Either all prompts have a token to compare with or none, and so
    /// for the corrupted prompt.
    ///
    /// # Errors
    /// Returns an error if the prompts differ in what they have, if a corrupted prompt differs in length, if mean ablation
    /// changes nothing because all tokens are equal, if an answer is compared with itself, or if the model cannot read a
    /// prompt.
    pub fn of_prompts<B: Backend>(
        model: &Decoder<B>,
        prompts: &[QuestionPrompt],
        device: &B::Device,
    ) -> Result<(Vec<Sample>, Self)> {
        let all = |values: Vec<Option<_>>, what| match values.iter().flatten().count() {
            0 => Ok(Vec::new()),
            count if count == prompts.len() => Ok(values.into_iter().flatten().collect()),
            count => Err(Error::Input(format!(
                "{count} of {} {} {what}; give it for all or for none",
                counted(prompts.len(), "prompt"),
                if count == 1 { "has" } else { "have" }
            ))),
        };
        let against = prompts.iter().map(|prompt| prompt.against.map(|token| vec![token])).collect();
        let against = all(against, "a token to compare with")?.concat();
        let corrupted =
            all(prompts.iter().map(|prompt| prompt.corrupted.clone()).collect(), "a corrupted prompt")?;
        let mut tokens = prompts.iter().flat_map(|prompt| &prompt.tokens);
        let first = tokens.next();
        if corrupted.is_empty() && tokens.all(|token| Some(token) == first) {
            let problem = "the prompt repeats a single token, so the mean output of a component over its positions is the \
                           output itself; give a longer prompt, several prompts, or a corrupted one";
            return Err(Error::Input(problem.into()));
        }
        let sample = |prompt: &QuestionPrompt| {
            let answer = match prompt.answer {
                Some(answer) => answer,
                None => prediction(model, prompt, device)?,
            };
            if prompt.against == Some(answer) {
                let problem = "the model predicts the token that its prediction is compared with; pass another one, or name \
                               the answer as well";
                return Err(Error::Input(problem.into()));
            }
            let mut roles = vec![Role::Padding; prompt.tokens.len()];
            if let Some(last) = roles.last_mut() {
                *last = Role::Unknown;
            }
            let targets = prompt.tokens[1..].iter().copied().chain([answer]).collect();
            Ok(Sample {
                inputs: prompt.tokens.clone(),
                targets,
                roles,
                source: None,
                documents: prompt.documents.clone(),
            })
        };
        let samples = prompts.iter().map(sample).collect::<Result<_>>()?;
        let is_predicted = prompts.iter().any(|prompt| prompt.answer.is_none());
        Ok((samples, Self { of_answers: true, is_predicted, against, corrupted }))
    }
}

/// Returns the model's argmax token after a prompt.
fn prediction<B: Backend>(model: &Decoder<B>, prompt: &QuestionPrompt, device: &B::Device) -> Result<u32> {
    let tokens = &prompt.tokens;
    let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
    let ids = Tensor::from_data(TensorData::new(ids, [1, tokens.len()]), device);
    let documents = prompt.documents.clone().map(|documents| [documents].into());
    let inputs = Inputs { documents, ..Inputs::tokens(ids) };
    let logits = run(model, inputs, &[], &Interventions::default())?.logits;
    let last = logits.narrow(1, tokens.len() - 1, 1).argmax(2);
    Ok(last.into_data().iter::<i64>().next().unwrap_or(0) as u32)
}
