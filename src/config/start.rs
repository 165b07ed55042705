//! The vocabulary keys of `[data]` in the config of a run that starts from another run.

use std::path::Path;

use super::{Config, DEFAULT_FILE, differing};
use crate::data::{DataConfig, Source};
use crate::error::{Error, Origin};

/// The keys that select the vocabulary of a file.
const VOCABULARY_KEYS: [&str; 5] = ["data.tokens", "data.vocab", "data.values", "data.bins", "data.binning"];

impl Config {
    /// Returns this config with the vocabulary keys of the run that it starts from, whose vocabulary is used. Logs a
    /// warning for each different value that the user set; `origin` returns the location where a value was written.
    /// `option` is the option or the key that names the run to start from.
    pub fn with_start_vocabulary(self, option: &str, origin: impl Fn(&str, &str) -> Option<Origin>) -> Self {
        let (config, overridden) = self.start_vocabulary(option, origin);
        overridden.iter().for_each(|message| log::warn!("{message}"));
        config
    }

    /// Returns the config of [`Self::with_start_vocabulary`], and a message for each overridden key.
    fn start_vocabulary(
        self,
        option: &str,
        origin: impl Fn(&str, &str) -> Option<Origin>,
    ) -> (Self, Vec<Error>) {
        let Some(from) = self.run.start().map(Path::to_path_buf) else { return (self, Vec::new()) };
        // A run that cannot be read is reported when it is opened.
        let Ok(original) = Self::load_own(&from.join(DEFAULT_FILE)) else { return (self, Vec::new()) };
        let are_tokens =
            [&original.data, &self.data].map(|data| matches!(data.source(), Source::Text | Source::Array));
        let inherited = match original.data.source() == self.data.source() || are_tokens == [true; 2] {
            true => original.data,
            // For a task, `data.vocab` does not mean the same as for a table.
            false => DataConfig::default(),
        };
        let data = self.data.clone();
        let data = match self.data.source() {
            Source::Text | Source::Array => {
                DataConfig { tokens: inherited.tokens, vocab: inherited.vocab, ..data }
            }
            Source::Table => {
                let DataConfig { values, vocab, bins, binning, .. } = inherited;
                DataConfig { vocab, values, bins, binning, ..data }
            }
            // The vocabulary of a task follows from its keys.
            Source::Sequences | Source::Memory => return (self, Vec::new()),
        };
        let merged = Self { data, ..self.clone() };
        // `Self::values` would return absolute paths.
        let written = toml::Table::try_from(&self.data).expect("a config holds only TOML values");
        let message = |(key, _): (&str, _)| {
            let value = written.get(key.strip_prefix("data.")?)?;
            let shown = value.to_string();
            let origin = origin(key, value.as_str().unwrap_or(&shown))?;
            let problem = format!(
                "has no effect with {option}: the vocabulary of `{}` is used; omit it",
                from.display()
            );
            let origin = Some(origin).filter(|origin| matches!(origin, Origin::File(_)));
            Some(Error::key(key, shown, problem).at(origin))
        };
        let values = [self.values(), merged.values()];
        let overridden = differing(VOCABULARY_KEYS.into_iter(), values.each_ref()).filter_map(message);
        let overridden = overridden.collect();
        (merged, overridden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::data::{Count, Tokens, Values};

    /// Returns the data of a run that starts from a run with this config, and the messages about overridden keys.
    fn started(original: &str, set: &[&str]) -> (DataConfig, Vec<String>) {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join(DEFAULT_FILE), original).unwrap();
        let set: Vec<_> = set.iter().map(ToString::to_string).collect();
        let path = run.path().join(DEFAULT_FILE);
        let config = Config::load(Some(&path), &set).unwrap();
        let config = Config { run: RunConfig { from: run.path().into(), ..config.run }, ..config };
        let origin = |key: &str, value: &str| Config::origin(Some(&path), &set, key, value);
        let (config, overridden) = config.start_vocabulary("--from", origin);
        let from = run.path().display().to_string();
        let messages = overridden.iter().map(|error| error.to_string().replace(&from, "RUN"));
        (config.data, messages.collect())
    }

    #[test]
    fn vocabulary_keys_come_from_the_start() {
        let text = "[data]\npath = \"a.txt\"\ntokens = \"bpe\"\nvocab = 300\n";
        let (data, messages) =
            started(text, &["data.path=b.txt", "data.tokens=characters", "data.vocab=400"]);
        assert_eq!((data.tokens, data.vocab, data.path), (Tokens::Bpe, Count::Of(300), "b.txt".into()));
        let problem = "has no effect with --from: the vocabulary of `RUN` is used; omit it";
        let expected = [("tokens", "\"characters\""), ("vocab", "400")];
        assert_eq!(messages, expected.map(|(key, value)| format!("`data.{key}` = {value} {problem}")));
        for unset in [&["data.path=b.txt"][..], &["data.tokens=bpe"], &[]] {
            assert_eq!(started(text, unset).1, [""; 0], "{unset:?}");
        }

        let table = "[data]\npath = \"a.csv\"\nvalues = \"integers\"\n";
        let binned =
            started("[data]\npath = \"a.csv\"\nbins = 8\n", &["data.bins=16", "data.binning=uniform"]);
        assert_eq!(
            (binned.0.bins, binned.0.binning, binned.1.len()),
            (8, Default::default(), 2),
            "{:?}",
            binned.1
        );
        let (data, messages) = started(table, &["data.values=symbols", "data.vocab=30"]);
        assert_eq!(
            (data.values, data.vocab, messages.len()),
            (Values::Integers, Count::Auto, 2),
            "{messages:?}"
        );
    }

    #[test]
    fn task_keys_do_not_become_table_keys() {
        let task = "[data]\ntask = \"markov\"\nvocab = 12\n";
        let (data, messages) = started(task, &["data.path=a.csv"]);
        assert_eq!((data.vocab, messages), (Count::Auto, Vec::new()));
        let (data, messages) = started(task, &["data.vocab=13"]);
        assert_eq!((data.vocab, messages), (Count::Of(13), Vec::new()));
    }
}
