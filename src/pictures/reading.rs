//! What the model does with one sequence, as the report draws it.

use std::borrow::Cow;

use crate::analysis::{AttentionKind, HeadScores, Sample, Score, View, shown_head};
use crate::data::{Role, Vocabulary};
use crate::generation::sampling;
use crate::report::{
    AllHeads, AttentionMaps, HeadMap, HeadValues, PageMaps, PagePrediction, PageSample, PredictedToken,
    Predictions, TokenProbability,
};

/// The likeliest tokens that a page shows at each position.
const LIKELIEST: usize = 5;

/// One sequence, and what a model does with it.
#[derive(Debug)]
pub struct Reading {
    /// The run whose model reads.
    pub run: String,
    /// Which sequence it is, as "validation sequence 0".
    pub sequence: String,
    /// The text of what an encoder reads, token by token, where there is one.
    pub source: Option<Vec<String>>,
    /// The text of each input token.
    pub inputs: Vec<String>,
    /// What truly follows each input; none at the end of an input of the user's.
    pub targets: Vec<Option<Target>>,
    /// What the model does.
    pub view: View,
    /// The text of the likeliest next tokens at each position, with their probabilities.
    likeliest: Vec<Vec<TokenProbability>>,
}

/// What truly follows a token.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its text.
    pub text: String,
    /// The probability that the model gave it.
    pub probability: f64,
    /// Whether the tokens before it determine it; none where no rule says so.
    pub determined: Option<bool>,
}

impl Reading {
    /// What a model does with a sequence whose tokens, targets and their roles are known.
    pub fn of_sample(
        run: String,
        sequence: String,
        sample: Sample,
        view: View,
        vocabulary: &Vocabulary,
    ) -> Self {
        let targets = sample.targets.iter().zip(&sample.roles).zip(&view.probabilities);
        let targets = targets.map(|((&target, &role), probabilities)| {
            (role != Role::Padding).then(|| Target {
                text: vocabulary.token(target),
                probability: f64::from(probabilities[target as usize]),
                determined: (role != Role::Unknown).then_some(role == Role::Determined),
            })
        });
        let likeliest = view.probabilities.iter().map(|probabilities| {
            let tokens = sampling::top(probabilities, LIKELIEST).into_iter();
            tokens
                .map(|token| TokenProbability {
                    token: vocabulary.token(token),
                    probability: probabilities[token as usize].into(),
                })
                .collect()
        });
        let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
        Self {
            run,
            sequence,
            source: sample.source.as_deref().map(texts),
            inputs: texts(&sample.inputs),
            targets: targets.collect(),
            likeliest: likeliest.collect(),
            view,
        }
    }

    /// Which sequence a map is of; with an encoder, whose map it is too.
    fn mapped(&self) -> String {
        match self.source {
            None => self.sequence.clone(),
            Some(_) => format!("{}, the decoder's self-attention", self.sequence),
        }
    }

    pub(super) fn attention_maps(&self, scores: &[Vec<HeadScores>], head: Option<usize>) -> AttentionMaps {
        let maps = self.view.attention.iter().zip(scores).enumerate().map(|(layer, (heads, scores))| {
            let head = head.unwrap_or_else(|| shown_head(scores)).min(heads.len() - 1);
            let note = scores[head][Score::Induction]
                .map_or_else(String::new, |score| format!("induction {score:.2}"));
            HeadMap { layer, head, note, weights: heads[head].clone() }
        });
        AttentionMaps {
            run: self.run.clone(),
            sequence: self.mapped(),
            tokens: self.inputs.clone(),
            maps: maps.collect(),
        }
    }

    pub(super) fn all_heads(&self) -> AllHeads<'_> {
        AllHeads {
            run: self.run.clone(),
            sequence: self.mapped(),
            time: self.inputs.len(),
            attention: Cow::Borrowed(&self.view.attention),
        }
    }

    pub(super) fn predictions(&self) -> Predictions {
        let steps = self.targets.iter().zip(&self.likeliest).filter_map(|(target, likeliest)| {
            let target = target.as_ref()?;
            Some(PredictedToken {
                truth: target.text.clone(),
                predicted: likeliest[0].token.clone(),
                determined: target.determined.unwrap_or(false),
            })
        });
        Predictions { run: self.run.clone(), sequence: self.sequence.clone(), steps: steps.collect() }
    }

    pub(super) fn page_sample(&self) -> PageSample {
        let predictions =
            self.targets.iter().zip(&self.likeliest).map(|(target, likeliest)| PagePrediction {
                truth: target.as_ref().map(|target| target.text.clone()),
                truth_probability: target.as_ref().map(|target| target.probability),
                determined: target.as_ref().and_then(|target| target.determined),
                probable: likeliest.clone(),
            });
        PageSample {
            name: self.sequence.clone(),
            source: self.source.clone(),
            inputs: self.inputs.clone(),
            predictions: predictions.collect(),
            attention: AttentionKind::ALL
                .into_iter()
                .filter(|&kind| !self.view.maps(kind).is_empty())
                .map(|kind| PageMaps { kind, weights: self.view.maps(kind).to_vec() })
                .collect(),
        }
    }
}

/// Every score that says something of any head.
pub(super) fn head_values(heads: &[Vec<HeadScores>]) -> Vec<HeadValues> {
    let values = |score| HeadValues {
        score,
        values: heads.iter().map(|heads| heads.iter().map(|head| head[score]).collect()).collect(),
    };
    let known = |values: &HeadValues| values.values.iter().flatten().any(Option::is_some);
    Score::ALL.into_iter().map(values).filter(known).collect()
}

/// What the scores of a run were taken on.
pub(super) fn measured_on([all, left_out]: [usize; 2], first_tokens: Option<usize>) -> String {
    let sequences = |count: usize| match count {
        1 => "1 validation sequence".to_string(),
        count => format!("{count} validation sequences"),
    };
    let of = first_tokens.map_or_else(String::new, |tokens| format!("the first {tokens} tokens of "));
    match left_out == all {
        true => of + &sequences(all),
        false => format!("{of}{}, ablation on {left_out}", sequences(all)),
    }
}
