//! Pairs of a clean and a corrupted sequence, which differ in the tokens that determine an answer.

use std::ops::Range;

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::pass::{Interventions, run};
use super::question::Question;
use crate::Result;
use crate::analysis::Sample;
use crate::analysis::view::floats;
use crate::data::tasks::SequenceTask;
use crate::model::{Decoder, Inputs};

/// A clean sequence and a corrupted one of the same length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The model's input, up to the position at which the answers differ.
    pub clean: Vec<u32>,
    /// The same input, with the tokens that determine the answer exchanged.
    pub corrupted: Vec<u32>,
    /// The model's argmax tokens after the clean and the corrupted sequence; they differ.
    pub answers: [u32; 2],
}

/// Two sequences, and the positions at which their answers are compared.
pub(super) struct PairCandidate {
    pub clean: Vec<u32>,
    pub corrupted: Vec<u32>,
    pub positions: Range<usize>,
}

impl Pair {
    /// Creates pairs from a task's samples and their [corruptions](SequenceTask::corrupt), which are samples of the
    /// same task. Only pairs whose answers differ are returned.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn of_task<B: Backend>(
        model: &Decoder<B>,
        task: &dyn SequenceTask,
        samples: &[Sample],
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        let candidate = |sample: &Sample| {
            let clean: Vec<u32> = sample.inputs.iter().chain(sample.targets.last()).copied().collect();
            let mut corrupted = clean.clone();
            let target = (clean.len() == task.tokens()).then(|| task.corrupt(&mut corrupted))??;
            let [clean, corrupted] = [clean, corrupted].map(|tokens| tokens[..=target].to_vec());
            Some(PairCandidate { clean, corrupted, positions: target..target + 1 })
        };
        Self::from_candidates(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// Creates pairs from sequences without a rule: the middle token of each sequence is replaced by the next different
    /// token. Of a sequence with several documents, the longest is the sequence.
    ///
    /// # Errors
    /// Same as [`run`].
    pub fn by_exchange<B: Backend>(
        model: &Decoder<B>,
        samples: &[Sample],
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        let candidate = |sample: &Sample| {
            let inputs = sample.longest_document();
            let middle = inputs.len().checked_sub(1)? / 2;
            let mut others = inputs[middle..].iter().chain(inputs).copied();
            let other = others.find(|&token| token != inputs[middle])?;
            let (clean, mut corrupted) = (inputs.to_vec(), inputs.to_vec());
            corrupted[middle] = other;
            let positions = middle + 1..clean.len();
            Some(PairCandidate { clean, corrupted, positions })
        };
        Self::from_candidates(model, samples.iter().filter_map(candidate).collect(), device)
    }

    /// Creates pairs from prompts and their corrupted sequences. Without a token against which the answer is compared,
    /// this is the model's prediction on the corrupted sequence; a pair with equal answers is left out.
    pub(super) fn of_answers<B: Backend>(
        bench: &Bench<B>,
        samples: &[Sample],
        question: &Question,
    ) -> Vec<Self> {
        let Some(pass) = &bench.corrupted else { return Vec::new() };
        let predicted: Vec<i64> = pass.logits.clone().argmax(2).into_data().iter().collect();
        let [_, time, _] = pass.logits.dims();
        let pair = |(row, (sample, corrupted)): (usize, (&Sample, &Vec<u32>))| {
            let at = sample.inputs.len() - 1;
            let other = question.against.get(row).copied().unwrap_or(predicted[row * time + at] as u32);
            let answers = [sample.targets[at], other];
            let (clean, corrupted) = (sample.inputs.clone(), corrupted.clone());
            (answers[0] != other).then_some(Self { clean, corrupted, answers })
        };
        samples.iter().zip(&question.corrupted).enumerate().filter_map(pair).collect()
    }

    /// Creates pairs from the candidates for which the model's argmax tokens differ. Each pair ends at the position
    /// where the exchange changes the logit difference most.
    pub(super) fn from_candidates<B: Backend>(
        model: &Decoder<B>,
        candidates: Vec<PairCandidate>,
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let logits = |of: fn(&PairCandidate) -> &Vec<u32>| -> Result<Tensor<B, 3>> {
            let tokens = padded(&candidates.iter().map(of).collect::<Vec<_>>(), device);
            Ok(run(model, Inputs::tokens(tokens), &[], &Interventions::default())?.logits)
        };
        let (clean, corrupted) = (logits(|it| &it.clean)?, logits(|it| &it.corrupted)?);
        let answers = Tensor::cat(vec![clean.clone().argmax(2), corrupted.clone().argmax(2)], 2); // [batch, time, 2]
        let drops = floats(clean.gather(2, answers.clone()) - corrupted.gather(2, answers.clone()));
        let [_, time, _] = answers.dims();
        let answers: Vec<i64> = answers.into_data().iter().collect();
        let at = |row: usize, position: usize| 2 * (row * time + position);
        let drop = |index: usize| drops[index] - drops[index + 1];
        let pair = |(row, PairCandidate { clean, corrupted, positions }): (usize, PairCandidate)| {
            let differ = |&position: &usize| answers[at(row, position)] != answers[at(row, position) + 1];
            let by_drop = |a: &usize, b: &usize| drop(at(row, *a)).total_cmp(&drop(at(row, *b)));
            let target = positions.filter(differ).max_by(by_drop)?;
            let [clean, corrupted] = [clean, corrupted].map(|tokens| tokens[..=target].to_vec());
            let answers = [0, 1].map(|answer| answers[at(row, target) + answer] as u32);
            Some(Self { clean, corrupted, answers })
        };
        Ok(candidates.into_iter().enumerate().filter_map(pair).collect())
    }
}

/// Collates sequences into a tensor `[batch, time]`. Shorter sequences are padded at the end, where padding does not
/// affect earlier positions.
pub(super) fn padded<B: Backend>(sequences: &[&Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let time = sequences.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
    let row = |tokens: &&Vec<u32>| {
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        ids.into_iter().chain(std::iter::repeat(0)).take(time)
    };
    let ids: Vec<i64> = sequences.iter().flat_map(row).collect();
    Tensor::from_data(TensorData::new(ids, [sequences.len(), time]), device)
}
