//! What training would see, for a person to look at before any training.

mod entropy;
mod overlap;
mod page;
mod sorted;
mod warnings;

use serde::Serialize;

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
pub struct Description {
    /// `sequences`, `text` or `table`.
    pub source: String,
    /// The name of the task, or the path of the data.
    pub name: String,
    /// How a table was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableReading>,
    /// The training set.
    pub train: Split,
    /// The validation set.
    pub valid: Split,
    /// The shortest and the longest length of a batch in training, where each draws its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<[usize; 2]>,
    /// The largest number of positions that a model needs.
    pub context: usize,
    /// What the vocabulary is made of, as `65 characters`.
    pub vocabulary: String,
    /// Its size, which is the model's.
    pub vocab: usize,
    /// Labels of the first tokens.
    pub tokens: Vec<String>,
    /// The token that a tokenizer ends a text with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<EndOfText>,
    /// The first samples of the training set.
    pub samples: Vec<Sample>,
    /// Sequences of validation that also stand in training.
    pub leaked: usize,
    /// Labels of the tokens of validation that training never shows.
    pub unseen: Vec<String>,
    /// The loss of the optimal predictor, where it is known, in nats per token.
    pub floor: Option<Floor>,
    /// Entropy of the training targets by the frequency of each token (unigram), in nats per token.
    pub unigram_entropy: f64,
    /// Entropy of the training targets given the token before (bigram), in nats per token. On other data such
    /// a predictor has a higher loss, the more so the rarer the pairs are.
    pub bigram_entropy: f64,
    /// What a person should know before training.
    pub warnings: Vec<String>,
    /// What stands between labels on a page.
    #[serde(skip)]
    separator: &'static str,
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
pub struct Split {
    /// Sequences, or windows side by side.
    pub samples: usize,
    /// Targets that count.
    pub targets: usize,
    /// Those that the optimal predictor knows.
    pub determined: usize,
}

/// A sample as labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// The source, for an encoder-decoder.
    pub source: Option<Vec<String>>,
    /// The first input, then every target.
    pub tokens: Vec<String>,
    /// Whether the optimal predictor knows the token; never true for the first one.
    pub determined: Vec<bool>,
}

impl Description {
    /// Describes a dataset that was loaded from `config`.
    pub fn of(config: &DataConfig, dataset: &Dataset) -> Self {
        let vocabulary = &dataset.vocabulary;
        let vocab = vocabulary.size();
        let [unigram_entropy, bigram_entropy] = entropy::of_targets(&dataset.train, vocab);
        let leaked = overlap::leaked(&dataset.train, &dataset.valid);
        let unseen = overlap::unseen(dataset);
        Description {
            source: config.source().to_string(),
            name: match config.source() {
                Source::Sequences => config.task.to_string(),
                Source::Text | Source::Table => config.path.display().to_string(),
            },
            table: dataset.table.as_deref().cloned(),
            lengths: dataset.train.lengths(),
            context: dataset.context(),
            vocabulary: vocabulary.to_string(),
            vocab,
            tokens: (0..vocab.min(VOCABULARY_TOKENS) as u32).map(|id| vocabulary.token(id)).collect(),
            samples: (0..dataset.train.len().min(SAMPLES))
                .map(|index| sample(&dataset.train, index, vocabulary))
                .collect(),
            end_of_text: EndOfText::of(vocabulary),
            leaked,
            unseen: unseen.iter().map(|&id| vocabulary.token(id)).collect(),
            floor: dataset.floor,
            unigram_entropy,
            bigram_entropy,
            warnings: warnings::of(config, dataset, leaked, unseen.len()),
            separator: match vocabulary.notation() {
                Notation::Words => " ",
                Notation::Characters => "",
                Notation::Text => "|",
            },
            train: Split::of(&dataset.train),
            valid: Split::of(&dataset.valid),
        }
    }
}

impl Split {
    fn of(split: &Sequences) -> Self {
        Split { samples: split.len(), targets: split.targets(), determined: split.determined() }
    }
}

fn sample(split: &Sequences, index: usize, vocabulary: &Vocabulary) -> Sample {
    let (source, tokens) = split.sample(index);
    let labels = |ids: Vec<u32>| ids.into_iter().map(|id| vocabulary.token(id)).collect();
    Sample {
        source: Some(source).filter(|source| !source.is_empty()).map(labels),
        tokens: labels(tokens),
        determined: split.is_determined(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, Task, load, load_pairs};
    use crate::error::Result;

    fn describe(config: &DataConfig, seed: u64) -> Result<Description> {
        Ok(Description::of(config, &load(config, seed)?))
    }

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_task_shows_its_floor_and_marks_what_is_determined() {
        let config = DataConfig { task: Task::Sort, length: 6, train_samples: 5, ..DataConfig::default() };
        let description = describe(&config, 3).unwrap();
        let sample = &description.samples[0];
        assert_eq!((description.samples.len(), sample.tokens.len()), (3, 7));
        assert_eq!(sample.determined, [false, false, false, true, true, true, true]);
        assert_eq!((description.train.targets, description.train.determined), (30, 20));
        assert_eq!((description.vocab, description.tokens[16].as_str()), (17, "|"));
        let page = description.to_string();
        let floor = format!("floor       {:.4} nats per token", 2.0 * 16f64.ln() / 6.0);
        assert!(page.contains(&floor), "{page}");
        assert!(page.contains("5 samples, 30 targets, 66.7 % of them determined"), "{page}");
        // The marks stand under the tokens that they are for.
        let lines: Vec<&str> = page.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("samples (^ marks")).unwrap();
        let bar = lines[at + 1].find('|').unwrap();
        assert!(lines[at + 2][..bar].trim().is_empty() && lines[at + 2][bar..].starts_with('^'), "{page}");
    }

    #[test]
    fn sequences_that_validation_shares_with_training_are_counted_and_warned_of() {
        // Of 240 sequences of arithmetic a large training set has all.
        let config = DataConfig { task: Task::Arithmetic, ..DataConfig::default() };
        let description = describe(&config, 0).unwrap();
        assert_eq!(description.leaked, 512);
        assert!(
            description.warnings[0].starts_with("512 of 512 validation sequences also stand in training")
        );
        assert_eq!(describe(&DataConfig::default(), 0).unwrap().warnings, [""; 0]);
    }

    #[test]
    fn a_text_too_small_for_the_context_and_with_unseen_characters_is_warned_of() {
        let (_folder, path) = file("a.txt", &("to be or not to be\n".repeat(8) + "a question?!"));
        let config = DataConfig { source: Some(Source::Text), path, length: 64, ..DataConfig::default() };
        let description = describe(&config, 0).unwrap();
        assert_eq!(description.unseen, ["!", "?", "a", "i", "q", "s", "u"]);
        let page = description.to_string();
        for part in [
            "vocabulary  15 characters: \\n ␣ ! ? a b",
            "  to␣be␣or␣not␣to␣be\\nto␣be",
            "unseen      missing from training: ! ? a i q s u",
            "warning: too little data: training has 3 windows of `data.length` = 64",
            "warning: validation has 16 targets; a mean loss over fewer than 1,000 is uncertain",
            "validation  1 sample, 16 targets",
            "warning: training lacks 7 tokens of validation: no model",
        ] {
            assert!(page.contains(part), "{part}\nnot in\n{page}");
        }
        assert!(description.floor.is_none() && !page.contains("floor"));
        assert!(description.bigram_entropy < description.unigram_entropy);
    }

    #[test]
    fn a_column_of_a_table_and_pairs_are_described_too() {
        let (_folder, path) = file("a.csv", &"1,up\n2,down\n".repeat(400));
        let config = DataConfig {
            source: Some(Source::Table),
            path,
            column: Column::Number(2),
            length: 5,
            ..DataConfig::default()
        };
        let description = describe(&config, 0).unwrap();
        assert_eq!(description.tokens, ["down", "up"]);
        assert!(description.bigram_entropy < 1e-9 && (description.unigram_entropy - 2f64.ln()).abs() < 1e-3);
        let long = "x".repeat(100_000);
        std::fs::write(&config.path, format!("up,{long}\ndown,{long}\nup,{long}\n")).unwrap();
        let page = describe(&DataConfig { column: Column::default(), ..config }, 0).unwrap().to_string();
        assert!(page.contains(&format!("up {}…\n", &long[..40])) && page.len() < 2000, "{page}");
        let config = DataConfig { task: Task::Reverse, length: 5, ..DataConfig::default() };
        let pairs = Description::of(&config, &load_pairs(&config, 0).unwrap());
        let sample = &pairs.samples[0];
        let source = sample.source.as_ref().unwrap();
        let answer: Vec<String> = source.iter().rev().cloned().chain(["<end>".to_string()]).collect();
        assert_eq!(sample.tokens[1..], answer);
        assert!(pairs.to_string().contains(&format!("  {} →", source.join(" "))));
    }

    #[test]
    fn programs_get_the_same_as_json() {
        let json = serde_json::to_value(describe(&DataConfig::default(), 0).unwrap()).unwrap();
        assert_eq!(json["name"], "repeat");
        assert_eq!(json["train"]["samples"], 8192);
        assert!(json["floor"]["valid"].as_f64().unwrap() > 0.0);
        assert_eq!(json["samples"][0]["determined"][0], false);
    }
}
