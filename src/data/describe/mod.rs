//! A description of a dataset, to inspect before training.

mod entropy;
mod overlap;
mod padding;
mod page;
mod sorted;
mod warnings;

use serde::Serialize;

pub use self::overlap::leaked_samples;
pub use self::warnings::{vocabulary_warnings, warnings};
use super::config::{DataConfig, Source};
use super::dataset::{Dataset, Floor};
use super::reading::{ArrayReading, TableReading, TextReading};
use super::sequences::Sequences;
use super::vocabulary::{Notation, Vocabulary};

/// The maximum number of samples in a description.
const MAX_SAMPLES: usize = 3;
/// The maximum number of vocabulary tokens in a description.
const MAX_VOCABULARY_TOKENS: usize = 100;

/// A preview of the training data. Displays as a page of text, and serializes for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataDescription {
    /// `sequences`, `text`, `table` or `array`.
    pub source: String,
    /// The name of the task, or the path of the data.
    pub name: String,
    /// The file.
    #[serde(flatten)]
    pub file: DescribedFile,
    /// The training set.
    pub train: DescribedSplit,
    /// The validation set.
    pub valid: DescribedSplit,
    /// The documents of a text, if they are separate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<DescribedDocuments>,
    /// The lengths of the sequences that a model reads.
    #[serde(flatten)]
    pub size: SequenceSize,
    /// The vocabulary.
    #[serde(flatten)]
    pub vocabulary: DescribedVocabulary,
    /// The first samples of the training set.
    pub samples: Vec<DescribedSample>,
    /// The overlap of validation and training.
    #[serde(flatten)]
    pub overlap: Overlap,
    /// The losses of predictors that need no training.
    #[serde(flatten)]
    pub baselines: Baselines,
    /// Warnings to read before training.
    pub warnings: Vec<String>,
}

/// The file of the data; all parts are `None` for a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedFile {
    /// The format of a table, and the guesses made when it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableReading>,
    /// The files of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextReading>,
    /// The format of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayReading>,
}

/// The lengths of the sequences that a model reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SequenceSize {
    /// The shortest and the longest length of a training batch, if each batch draws its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<[usize; 2]>,
    /// The number of positions that a model needs.
    pub context: usize,
}

/// A vocabulary with its first tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedVocabulary {
    /// The kind and the number of tokens, such as `65 characters`.
    #[serde(rename = "vocabulary")]
    pub name: String,
    /// The number of tokens, which is the vocabulary size of the model.
    #[serde(rename = "vocab")]
    pub size: usize,
    /// The labels of the first tokens.
    pub tokens: Vec<String>,
    /// The end-of-text token of a tokenizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<EndOfText>,
    /// The separator between the labels of a printed sample.
    #[serde(skip)]
    separator: &'static str,
}

impl DescribedVocabulary {
    fn of(vocabulary: &Vocabulary) -> Self {
        let size = vocabulary.size();
        Self {
            name: vocabulary.to_string(),
            size,
            tokens: (0..size.min(MAX_VOCABULARY_TOKENS) as u32).map(|id| vocabulary.token(id)).collect(),
            end_of_text: EndOfText::of(vocabulary),
            separator: match vocabulary.notation() {
                Notation::Words => " ",
                Notation::Characters => "",
                Notation::Text => "|",
            },
        }
    }
}

/// The overlap of the validation set and the training set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overlap {
    /// The number of validation sequences that also occur in training.
    pub leaked: usize,
    /// The labels of the validation tokens that never occur in training.
    pub unseen: Vec<String>,
}

/// The losses of predictors that need no training, in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baselines {
    /// The entropy floor (the loss of the optimal predictor), if it is known.
    pub floor: Option<Floor>,
    /// The unigram entropy of the training targets.
    pub unigram_entropy: f64,
    /// The bigram entropy of the training targets: their entropy given the previous token. On other data, a predictor
    /// with these bigram frequencies has a higher loss, especially if pairs are rare.
    pub bigram_entropy: f64,
}

/// The token that ends a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndOfText {
    /// The id of the token.
    pub id: u32,
    /// The label of the token.
    pub token: String,
    /// The source of the declaration, such as "tokenizer_config.json".
    pub declared_by: String,
}

impl EndOfText {
    /// Returns the end-of-text token of a vocabulary, if a tokenizer declares one.
    pub fn of(vocabulary: &Vocabulary) -> Option<Self> {
        let (id, declared_by) = (vocabulary.end()?, vocabulary.end_declared_by()?.to_string());
        Some(EndOfText { id, token: vocabulary.token(id), declared_by })
    }
}

/// The size of a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedSplit {
    /// The number of sequences, or of adjacent windows.
    pub samples: usize,
    /// The number of targets that count in the loss.
    pub targets: usize,
    /// The number of targets that the optimal predictor knows.
    pub determined: usize,
}

/// The separate documents of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescribedDocuments {
    /// The number of documents in the training set.
    pub train: usize,
    /// The number of documents in the validation set.
    pub valid: usize,
    /// The median length of the training documents, in tokens.
    pub median_length: usize,
}

impl DescribedDocuments {
    /// Describes the documents of both sets; `None` if they are joined.
    fn of(dataset: &Dataset) -> Option<Self> {
        let [mut lengths, valid] = [&dataset.train, &dataset.valid].map(Sequences::document_lengths);
        lengths.sort_unstable();
        let middle = lengths.len() / 2;
        let upper = *lengths.get(middle)?;
        let median_length = match lengths.len() % 2 {
            0 => usize::midpoint(lengths[middle - 1], upper),
            _ => upper,
        };
        // A validation text may be a single document.
        Some(Self { train: lengths.len(), valid: valid.len().max(1), median_length })
    }
}

/// A sample as token labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedSample {
    /// The source, for an encoder-decoder.
    pub source: Option<Vec<String>>,
    /// The first input, then every target.
    pub tokens: Vec<String>,
    /// True for tokens that the optimal predictor knows; never for the first one.
    pub determined: Vec<bool>,
}

impl DataDescription {
    /// Describes a dataset that was loaded from `config`.
    pub fn of(config: &DataConfig, dataset: &Dataset) -> Self {
        let vocabulary = &dataset.vocabulary;
        let [unigram_entropy, bigram_entropy] = entropy::of_targets(&dataset.train, vocabulary.size());
        let leaked = overlap::leaked(&dataset.train, &dataset.valid);
        let unseen = overlap::unseen(dataset);
        DataDescription {
            source: config.source().to_string(),
            name: match config.source() {
                Source::Sequences => config.task.to_string(),
                Source::Text | Source::Table | Source::Array | Source::Memory => config.path.to_string(),
            },
            file: DescribedFile {
                table: dataset.table.as_deref().cloned(),
                text: dataset.text.as_deref().cloned(),
                array: dataset.array.as_deref().cloned(),
            },
            size: SequenceSize { lengths: dataset.train.lengths(), context: dataset.context() },
            vocabulary: DescribedVocabulary::of(vocabulary),
            samples: (0..dataset.train.len().min(MAX_SAMPLES))
                .map(|index| sample(&dataset.train, index, vocabulary))
                .collect(),
            overlap: Overlap { leaked, unseen: unseen.iter().map(|&id| vocabulary.token(id)).collect() },
            baselines: Baselines { floor: dataset.floor, unigram_entropy, bigram_entropy },
            warnings: warnings::of(config, dataset, leaked, unseen.len()),
            train: DescribedSplit::of(&dataset.train),
            valid: DescribedSplit::of(&dataset.valid),
            documents: DescribedDocuments::of(dataset),
        }
    }
}

impl DescribedSplit {
    fn of(split: &Sequences) -> Self {
        DescribedSplit { samples: split.len(), targets: split.targets(), determined: split.determined() }
    }
}

fn sample(split: &Sequences, index: usize, vocabulary: &Vocabulary) -> DescribedSample {
    let (source, tokens) = split.sample(index);
    let labels = |ids: Vec<u32>| ids.into_iter().map(|id| vocabulary.token(id)).collect();
    DescribedSample {
        source: Some(source).filter(|source| !source.is_empty()).map(labels),
        tokens: labels(tokens),
        determined: split.is_determined(index),
    }
}

#[cfg(test)]
mod tests;
