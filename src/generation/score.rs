//! The log-probability of a text under a model, token by token.

use std::ops::Range;

use burn::tensor::{Tensor, activation::log_softmax, backend::Backend};

use super::{rows, source};
use crate::error::{Error, Result};
use crate::hooks::{NoHooks, Patch};
use crate::model::{Inputs, Model, Sizes};

/// Returns the log-probability in nats of each token except the first, given the tokens before it.
///
/// `documents` holds the document of each token, if there are several separate ones; the log-probability of the first
/// token of a document is then given the end of the document before it.
///
/// At the positions of `patch`, activations are replaced.
///
/// A text longer than the context is read in windows that overlap by half. Each token after the first half context is
/// therefore predicted from at least half a context. Each document is such a text; a window may contain several complete
/// documents.
///
/// # Errors
/// Returns [`Error::Input`] if there are fewer than two tokens, or if the logits are not finite. Returns
/// [`Error::Shape`] if a source is missing, too long, or passed to a model without an encoder. The caller must check
/// that all ids are in the vocabulary.
pub fn score<B: Backend>(
    (model, sizes, patch): (&Model<B>, Sizes, &Patch),
    (tokens, documents): (&[u32], Option<&[u32]>),
    source_tokens: Option<&[u32]>,
    device: &B::Device,
) -> Result<Vec<f64>> {
    if tokens.len() < 2 {
        return Err(Error::Input("the text is too short to score; pass at least two tokens".into()));
    }
    let targets = tokens.len() - 1;
    let (context, stride) = (sizes.context, sizes.context.div_ceil(2));
    let mut scores = Vec::with_capacity(targets);
    let mut texts = texts(targets, documents, context).into_iter();
    let (mut first, mut text) = (0, 0..0);
    while scores.len() < targets {
        if scores.len() == text.end {
            text = texts.next().unwrap_or(text.end..targets);
            first = text.start;
        }
        let end = (first + context).min(text.end);
        let window = rows::<B>(std::iter::once(&tokens[first..end]), device);
        let next = rows::<B>(std::iter::once(&tokens[first + 1..=end]), device);
        let inputs = Inputs {
            source: source_tokens.map(|tokens| source(tokens, 1, device)),
            documents: documents.map(|documents| [documents[first..end].to_vec()].into()),
            ..Inputs::tokens(window)
        };
        let logits = model.forward_hooked(inputs, &mut patch.hooks(first, &mut NoHooks))?; // [1, time, vocab]
        let found: Tensor<B, 2> = log_softmax(logits, 2).gather(2, next.unsqueeze_dim(2)).squeeze_dim(2);
        // Targets in both windows keep the score of the earlier window, which had more context.
        let known = scores.len() - first;
        scores.extend(found.into_data().iter::<f64>().skip(known));
        first = (first + stride).min(text.end);
    }
    match scores.iter().all(|score| score.is_finite()) {
        true => Ok(scores),
        false => Err(Error::not_finite()),
    }
}

/// Divides the inputs at the ends of documents into texts that are read from their beginning: single documents, or several
/// that fit the context together.
fn texts(inputs: usize, documents: Option<&[u32]>, context: usize) -> Vec<Range<usize>> {
    let documents = documents.map_or(&[][..], |documents| &documents[..inputs]);
    let mut texts: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for document in documents.chunk_by(|a, b| a == b) {
        let end = start + document.len();
        match texts.last_mut().filter(|text| end - text.start <= context) {
            Some(text) => text.end = end,
            None => texts.push(start..end),
        }
        start = end;
    }
    if texts.is_empty() {
        texts.push(0..inputs);
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generation::sampling::softmax, model::ModelConfig};
    use burn_ndarray::NdArray;

    const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: None };

    #[test]
    fn scores_are_log_probabilities_in_overlapping_windows() {
        let device = Default::default();
        let model = ModelConfig::default().init::<NdArray>(SIZES, &device).unwrap();
        let tokens: Vec<u32> = (0..23).map(|i| (i * i + 3) % 11).collect();
        let scores = score((&model, SIZES, &Patch::default()), (&tokens, None), None, &device).unwrap();
        assert_eq!(scores.len(), 22);
        // Windows of 7 inputs start at 0, 4, 8, 12, 16 and score the targets up to 7, 11, 15, 19, 22.
        for (target, &found) in scores.iter().enumerate() {
            let first = [0, 4, 8, 12, 16].into_iter().find(|first| target < first + 7).unwrap();
            let inputs = Inputs::tokens(rows(std::iter::once(&tokens[first..=target]), &device));
            let logits: Vec<f32> = model.forward(inputs).unwrap().into_data().to_vec().unwrap();
            let expected = softmax(&logits[logits.len() - 11..])[tokens[target + 1] as usize].ln();
            assert!((found - expected).abs() < 1e-5, "{target}: {found}, not {expected}");
        }
    }

    #[test]
    fn documents_are_scored_as_they_are_alone() {
        let device = Default::default();
        let model = ModelConfig::default().init::<NdArray>(SIZES, &device).unwrap();
        let of = |tokens, documents| {
            score((&model, SIZES, &Patch::default()), (tokens, documents), None, &device).unwrap()
        };
        let (first, second) = ([3, 1, 4, 1], [5, 9, 2]);
        let both = [first.as_slice(), &second].concat();
        let packed = of(&both, Some(&[0, 0, 0, 0, 1, 1, 1]));
        let alone = [of(&first, None), of(&second, None)];
        for (found, expected) in [(&packed[..3], &alone[0]), (&packed[4..], &alone[1])] {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
        }
    }

    #[test]
    fn windows_never_cut_a_document_that_fits() {
        let device = Default::default();
        let model = ModelConfig::default().init::<NdArray>(SIZES, &device).unwrap();
        let of = |tokens: &[u32], documents: Option<&[u32]>| {
            score((&model, SIZES, &Patch::default()), (tokens, documents), None, &device).unwrap()
        };
        // A long document is read in windows from its beginning; the others fit the context of 7.
        let lengths = [3, 6, 17, 2, 2, 7];
        let tokens: Vec<u32> = (0..lengths.iter().sum()).map(|i: u32| (i * i + 3) % 11).collect();
        let ids = (0..).zip(lengths).flat_map(|(id, length)| std::iter::repeat_n(id, length as usize));
        let ids: Vec<u32> = ids.collect();
        let together = of(&tokens, Some(&ids));
        let mut start = 0;
        for length in lengths.map(|length| length as usize) {
            let alone = of(&tokens[start..start + length], None);
            let found = &together[start..start + length - 1];
            assert!(found.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {alone:?}");
            start += length;
        }
    }

    #[test]
    fn a_single_token_has_no_score() {
        let device = Default::default();
        let model = ModelConfig::default().init::<NdArray>(SIZES, &device).unwrap();
        for tokens in [&[][..], &[3]] {
            let error = score((&model, SIZES, &Patch::default()), (tokens, None), None, &device).unwrap_err();
            assert!(error.to_string().contains("at least two tokens"));
        }
    }
}
