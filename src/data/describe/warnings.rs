//! What a person should know of a dataset before training on it.

use super::overlap;
use crate::data::config::{Count, DataConfig, Source, Task, Tokens};
use crate::data::dataset::Dataset;
use crate::terminal::counted;

/// A file with fewer windows than this is learned by heart before anything else is learned.
const FEW_WINDOWS: usize = 20;

/// With fewer targets the mean loss of a validation is known to no better than 0.05 nats or so.
const FEW_TARGETS: usize = 1000;

/// What a person should know before training on a dataset that was loaded from `config`, a sentence each:
/// too little data, validation that training has seen, tokens that it has not, keys without effect. It
/// takes a pass over the data.
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
            "too small for the context: training has {} of `data.length` = {}, which a model learns by heart; lower \
             `data.length` or give more data",
            counted(train.len(), "window"),
            config.length
        ));
    }
    let least = if valid.stream().is_some() { FEW_TARGETS.max(config.length) } else { FEW_TARGETS };
    if valid.targets() < least {
        let targets = counted(valid.targets(), "target");
        warnings.push(format!("validation has {targets}; a mean loss over fewer than {least} is uncertain"));
    }
    if 10 * leaked > valid.len() {
        warnings.push(format!(
            "{leaked} of {} also stand in training, so the validation loss says little about new ones",
            counted(valid.len(), "validation sequence")
        ));
    }
    if unseen > 0 {
        let tokens = counted(unseen, "token");
        warnings
            .push(format!("training lacks {tokens} of validation: no model can learn what it never sees"));
    }
    let vocab = dataset.vocabulary.size();
    if config.source == Source::Text
        && config.tokens == Tokens::Bpe
        && let Count::Of(asked) = config.vocab
        && vocab < asked
    {
        let tokens = counted(vocab, "token");
        warnings.push(format!("the text has pairs for {tokens}, fewer than `data.vocab` = {asked}"));
    }
    warnings.extend(without_effect(config, dataset));
    warnings
}

/// The keys that were given and that this data does not ask for.
fn without_effect(config: &DataConfig, dataset: &Dataset) -> impl Iterator<Item = String> {
    let default = DataConfig::default();
    let (source, task) = (config.source, config.task);
    let is_task = |asked| source == Source::Sequences && task == asked;
    let is_sized = match source {
        Source::Sequences => true,
        Source::Text => config.tokens == Tokens::Bpe,
        Source::Table => dataset.vocabulary.is_integers(),
    };
    let keys = [
        ("vocab", config.vocab != default.vocab, is_sized),
        ("period", config.period != default.period, is_task(Task::Repeat)),
        ("order", config.order != default.order, is_task(Task::Markov)),
        ("gap", config.gap != default.gap, is_task(Task::CopyGap)),
        ("digits", config.digits != default.digits, is_task(Task::Addition)),
        ("path", config.path != default.path, source != Source::Sequences),
        ("tokens", config.tokens != default.tokens, source == Source::Text),
        ("values", config.values != default.values, source == Source::Table),
        ("column", config.column != default.column, source == Source::Table),
    ];
    let data = match source {
        Source::Sequences => format!("the task `{}`", task),
        Source::Text | Source::Table => format!("a {} of {}", source, dataset.vocabulary),
    };
    let idle = keys.into_iter().filter(|&(_, is_given, is_used)| is_given && !is_used);
    idle.map(move |(key, ..)| format!("`data.{key}` has no effect on {data}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::load;

    #[test]
    fn keys_without_effect_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "to be or not to be\n".repeat(1000)).unwrap();
        let text = DataConfig { source: Source::Text, path, ..DataConfig::default() };
        let of = |config: DataConfig| {
            let dataset = load(&config, 0).unwrap();
            without_effect(&config, &dataset).collect::<Vec<_>>()
        };
        assert_eq!(
            of(DataConfig { vocab: Count::Of(300), digits: 7, ..text.clone() }),
            [
                "`data.vocab` has no effect on a text of 8 characters",
                "`data.digits` has no effect on a text of 8 characters"
            ]
        );
        assert_eq!(of(DataConfig { vocab: Count::Of(258), tokens: Tokens::Bpe, ..text.clone() }), [""; 0]);
        let order = DataConfig { order: 2, train_samples: 5, valid_samples: 5, ..DataConfig::default() };
        assert_eq!(of(order.clone()), ["`data.order` has no effect on the task `repeat`"]);
        assert_eq!(of(DataConfig { task: Task::Markov, ..order }), [""; 0]);
    }
}
