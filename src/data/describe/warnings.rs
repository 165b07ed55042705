//! What a person should know of a dataset before training on it.

use super::overlap;
use crate::data::config::{Count, DataConfig, Source, Tokens};
use crate::data::dataset::Dataset;
use crate::data::vocabulary::Notation;
use crate::terminal::{counted, part_of, thousands};

/// A file with fewer windows than this is learned by heart before anything else is learned.
const FEW_WINDOWS: usize = 20;

/// With fewer targets the mean loss of a validation is known to no better than 0.05 nats or so.
const FEW_TARGETS: usize = 1000;

/// What a person should know before training on a dataset that was loaded from `config`, a sentence each:
/// too little data, validation that training has seen, tokens that it has not. It takes a pass over
/// the data.
pub fn warnings(config: &DataConfig, dataset: &Dataset) -> Vec<String> {
    let Dataset { train, valid, .. } = dataset;
    of(config, dataset, overlap::leaked(train, valid), overlap::unseen(dataset).len())
}

/// As [`warnings`], where the sequences that leaked and the tokens that training lacks are counted already.
pub(super) fn of(config: &DataConfig, dataset: &Dataset, leaked: usize, unseen: usize) -> Vec<String> {
    let (train, valid) = (&dataset.train, &dataset.valid);
    let mut warnings = Vec::new();
    if train.stream().is_some() && train.len() < FEW_WINDOWS {
        warnings.push(format!(
            "too little data: training has {} of `data.length` = {}, which a model memorises; lower \
             `data.length` or give more data",
            counted(train.len(), "window"),
            config.length
        ));
    }
    let least = if valid.stream().is_some() { FEW_TARGETS.max(config.length) } else { FEW_TARGETS };
    if valid.targets() < least {
        let targets = counted(valid.targets(), "target");
        warnings.push(format!(
            "validation has {targets}; a mean loss over fewer than {} is uncertain",
            thousands(least as f64)
        ));
    }
    if 10 * leaked > valid.len() {
        let verb = if leaked == 1 { "stands" } else { "stand" };
        warnings.push(format!(
            "{} also {verb} in training, so the validation loss says little about new ones",
            part_of(leaked, valid.len(), "validation sequence")
        ));
    }
    if unseen > 0 {
        let tokens = counted(unseen, "token");
        warnings
            .push(format!("training lacks {tokens} of validation: no model can learn what it never sees"));
    }
    let vocabulary = &dataset.vocabulary;
    if config.source() == Source::Text
        && vocabulary.notation() == Notation::Text
        && vocabulary.end().is_none()
        && config.path.is_dir()
    {
        warnings.push(
            "the tokenizer declares no token that ends a text, so the files run together; name it as `eos_token` in a \
             tokenizer_config.json next to the tokenizer"
                .into(),
        );
    }
    let vocab = vocabulary.size();
    if config.source() == Source::Text
        && config.tokens == Tokens::Bpe
        && let Count::Of(asked) = config.vocab
        && vocab < asked
    {
        let tokens = counted(vocab, "token");
        warnings.push(format!(
            "byte pair encoding found only {tokens} in the text, fewer than `data.vocab` = {asked}"
        ));
    }
    warnings
}
