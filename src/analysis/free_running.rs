//! Free-running continuations of a run's validation samples. After the prompt, the model reads its own output instead
//! of the truth, so one wrong token can lead to others.

use burn::tensor::backend::Backend;

use super::Sample;
use crate::data::{Role, Vocabulary};
use crate::error::Result;
use crate::generation::{Options, Prompt, Sampling, generate};
use crate::model::{Model, Sizes};

/// A generated continuation and the true one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeRunning {
    /// The prompt: the beginning of the sample, or the source of an answer.
    pub prompt: Vec<u32>,
    /// The argmax token at each position, given all tokens before it; as many as in `truth`.
    pub generated: Vec<u32>,
    /// The true continuation.
    pub truth: Vec<u32>,
}

impl FreeRunning {
    /// Continues a validation sample with the model. Of several documents, only the longest is continued.
    ///
    /// The prompt ends where all later tokens are determined. If that position is in the last quarter of the sample,
    /// the prompt is its first half. If only the targets of answers count, the prompt ends before the last answer.
    ///
    /// # Errors
    /// Same as [`generate()`].
    pub fn new<B: Backend>(
        (model, sizes): (&Model<B>, Sizes),
        vocabulary: &Vocabulary,
        sample: &Sample,
        device: &B::Device,
    ) -> Result<Self> {
        let mut sequence = sample.longest_document().to_vec();
        if sample.documents.is_none() {
            sequence.extend(sample.targets.last());
        }
        let prompt_length = match sample {
            // The prompt of an answer is its start token.
            Sample { source: Some(_), .. } => 1,
            Sample { documents: Some(_), .. } => sequence.len().div_ceil(2),
            Sample { roles, .. } => prompt_length(roles),
        };
        let truth = sequence.split_off(prompt_length.min(sequence.len()));
        let prompt = Prompt { tokens: sequence, source: sample.source.clone(), ..Prompt::default() };
        // The truth may contain the end-of-text token.
        let max_new = truth.len();
        let options = Options { sampling: Sampling::GREEDY, max_new, ignore_end: true, ..Options::default() };
        let mut continuations =
            generate((model, sizes), vocabulary, &prompt, &options, device, |_, _| Ok(()))?;
        let generated = continuations.pop().map_or_else(Vec::new, |continuation| continuation.tokens);
        Ok(Self { prompt: prompt.source.unwrap_or(prompt.tokens), generated, truth })
    }
}

/// Returns the number of prompt tokens of a sample whose targets have these roles.
fn prompt_length(roles: &[Role]) -> usize {
    let all = roles.len() + 1;
    // Target `i` is token `i + 1`. Only the last answer of a pair or a conversation is generated.
    if let Some(last) =
        roles.iter().rposition(|&role| role == Role::Padding).filter(|last| last + 1 < roles.len())
    {
        return last + 2;
    }
    let end = roles.iter().rposition(|&role| role != Role::Determined).map_or(1, |last| last + 2);
    if end <= all * 3 / 4 { end } else { all.div_ceil(2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, ModelConfig};
    use burn_ndarray::NdArray;

    #[test]
    fn prompt_ends_at_determined_targets_or_midway() {
        use Role::{Determined, Undetermined};
        let mut roles = vec![Undetermined; 2];
        roles.extend([Determined; 9]);
        assert_eq!(prompt_length(&roles), 3);
        assert_eq!(prompt_length(&[Undetermined; 11]), 6);
        assert_eq!(prompt_length(&[Determined; 11]), 1);
        assert_eq!(prompt_length(&[Determined, Determined, Determined, Undetermined, Determined]), 3);
        let [read, learned] = [Role::Padding, Role::Unknown];
        assert_eq!(prompt_length(&[read, read, learned]), 3);
        assert_eq!(prompt_length(&[read, learned, read, read, learned, learned]), 5);
    }

    #[test]
    fn generation_is_greedy_and_as_long_as_truth() {
        let device = Default::default();
        let sizes = Sizes { vocab: 11, context: 12, source_context: Some(5) };
        let vocabulary = Vocabulary::integers(11, &[]);
        for architecture in [Architecture::Decoder, Architecture::EncoderDecoder] {
            let config = ModelConfig { architecture, ..ModelConfig::default() };
            let model = config.init::<NdArray>(sizes, &device).unwrap();
            let source = (architecture == Architecture::EncoderDecoder).then(|| vec![4, 2, 4]);
            let sample = Sample {
                inputs: vec![3, 1, 4, 1, 5, 9, 2],
                targets: vec![1, 4, 1, 5, 9, 2, 6],
                roles: vec![Role::Undetermined; 7],
                source: source.clone(),
                documents: None,
            };
            let free = FreeRunning::new((&model, sizes), &vocabulary, &sample, &device).unwrap();
            let (prompt, truth) = match &source {
                None => (vec![3, 1, 4, 1], vec![5, 9, 2, 6]),
                Some(source) => (source.clone(), vec![1, 4, 1, 5, 9, 2, 6]),
            };
            assert_eq!((&free.prompt, &free.truth), (&prompt, &truth));
            let options = Options {
                sampling: Sampling::GREEDY,
                max_new: truth.len(),
                ignore_end: true,
                ..Options::default()
            };
            let tokens = if source.is_some() { vec![3] } else { prompt };
            let prompt = Prompt { tokens, source, ..Prompt::default() };
            let expected = generate((&model, sizes), &vocabulary, &prompt, &options, &device, |_, _| Ok(()));
            assert_eq!(free.generated, expected.unwrap()[0].tokens);
        }
    }
}
