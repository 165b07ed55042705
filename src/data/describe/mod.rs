//! What training would see, for a person to look at before any training.

mod entropy;
mod overlap;
mod page;
mod sorted;
mod warnings;

use serde::Serialize;

pub use self::overlap::leaked;
pub use self::warnings::warnings;
use super::config::{DataConfig, Source};
use super::dataset::{Dataset, Floor};
use super::sequences::Sequences;
use super::table::TableReading;
use super::vocabulary::{Notation, Vocabulary};

/// Samples that are shown, and tokens of the vocabulary.
const SAMPLES: usize = 3;
const VOCABULARY_TOKENS: usize = 100;

/// What training would see. Prints as a page of text, and serializes for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataDescription {
    /// `sequences`, `text` or `table`.
    pub source: String,
    /// The name of the task, or the path of the data.
    pub name: String,
    /// How a table was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableReading>,
    /// The training set.
    pub train: DescribedSplit,
    /// The validation set.
    pub valid: DescribedSplit,
    /// The shortest and the longest length of a batch in training, where each draws its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<[usize; 2]>,
    /// The largest number of positions that a model needs.
    pub context: usize,
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
    /// What a person should know before training.
    pub warnings: Vec<String>,
}

/// A vocabulary with its first tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedVocabulary {
    /// Its contents in words, as `65 characters`.
    #[serde(rename = "vocabulary")]
    pub name: String,
    /// Its size, which is the model's.
    #[serde(rename = "vocab")]
    pub size: usize,
    /// Labels of the first tokens.
    pub tokens: Vec<String>,
    /// The token that a tokenizer ends a text with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<EndOfText>,
    /// The separator of labels on a page.
    #[serde(skip)]
    separator: &'static str,
}

impl DescribedVocabulary {
    fn of(vocabulary: &Vocabulary) -> Self {
        let size = vocabulary.size();
        Self {
            name: vocabulary.to_string(),
            size,
            tokens: (0..size.min(VOCABULARY_TOKENS) as u32).map(|id| vocabulary.token(id)).collect(),
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
    /// Sequences of validation that also stand in training.
    pub leaked: usize,
    /// Labels of the tokens of validation that training never shows.
    pub unseen: Vec<String>,
}

/// The losses of predictors that need no training, in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baselines {
    /// The loss of the optimal predictor, where it is known.
    pub floor: Option<Floor>,
    /// Entropy of the training targets by the frequency of each token (unigram).
    pub unigram_entropy: f64,
    /// Entropy of the training targets given the token before (bigram). On other data such a predictor has a higher
    /// loss, the more so the rarer the pairs are.
    pub bigram_entropy: f64,
}

/// The token that ends a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndOfText {
    /// Its id.
    pub id: u32,
    /// Its label.
    pub token: String,
    /// What declares it, as "tokenizer_config.json".
    pub declared_by: String,
}

impl EndOfText {
    /// That of a vocabulary which reads text by a tokenizer.
    pub fn of(vocabulary: &Vocabulary) -> Option<Self> {
        let (id, declared_by) = (vocabulary.end()?, vocabulary.end_declared_by()?.to_string());
        Some(EndOfText { id, token: vocabulary.token(id), declared_by })
    }
}

/// The size of a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedSplit {
    /// Sequences, or windows side by side.
    pub samples: usize,
    /// Targets that count.
    pub targets: usize,
    /// Those that the optimal predictor knows.
    pub determined: usize,
}

/// A sample as labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DescribedSample {
    /// The source, for an encoder-decoder.
    pub source: Option<Vec<String>>,
    /// The first input, then every target.
    pub tokens: Vec<String>,
    /// Whether the optimal predictor knows the token; never true for the first one.
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
                Source::Text | Source::Table | Source::Memory => config.path.display().to_string(),
            },
            table: dataset.table.as_deref().cloned(),
            lengths: dataset.train.lengths(),
            context: dataset.context(),
            vocabulary: DescribedVocabulary::of(vocabulary),
            samples: (0..dataset.train.len().min(SAMPLES))
                .map(|index| sample(&dataset.train, index, vocabulary))
                .collect(),
            overlap: Overlap { leaked, unseen: unseen.iter().map(|&id| vocabulary.token(id)).collect() },
            baselines: Baselines { floor: dataset.floor, unigram_entropy, bigram_entropy },
            warnings: warnings::of(config, dataset, leaked, unseen.len()),
            train: DescribedSplit::of(&dataset.train),
            valid: DescribedSplit::of(&dataset.valid),
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
