//! Warnings about keys that are set but have no effect because of other keys. Each section declares these keys.

use std::path::Path;

use super::{Config, DEFAULT_FILE, DEFAULT_TEXT, TuneConfig};
use crate::choice::UnusedKeys;
use crate::data::{Dataset, Source};
use crate::error::{Error, keys_of_model};
use crate::range::Section;

/// The keys that the built-in config sets for its task; a user with other data did not set them.
const BUILT_IN_TASK_KEYS: [&str; 2] = ["data.vocab", "data.length"];

impl Config {
    /// Returns a message for each key that has no effect although its value is not the default. The `dataset` decides
    /// if a table holds integers or symbols, and one sequence per row or a single one.
    pub fn without_effect(&self, dataset: Option<&Dataset>) -> Vec<Error> {
        let sections = [
            ("data", self.data.unused_keys(dataset)),
            ("model", self.model.unused_keys()),
            ("training", self.training.unused_keys()),
            ("tune", self.tune.as_ref().map_or_else(UnusedKeys::default, Section::unused_keys)),
        ];
        let default = Self { tune: Some(TuneConfig::default()), ..Self::default() }.values();
        let values = self.values();
        let given = values.iter().filter(|(key, value)| default.get(*key) != Some(value));
        // The value is inherited from the run that this one starts from, which reported it.
        let is_inherited = self.run.start().is_some() && self.data.source() != Source::Sequences;
        let given = given.filter(|(key, _)| !(is_inherited && *key == "data.vocab"));
        let messages = given.filter_map(|(key, value)| {
            let (section, name) = key.split_once('.')?;
            let (_, unused) = sections.iter().find(|(named, _)| *named == section)?;
            let readers = unused.readers(name)?;
            let readers = if section == "model" { keys_of_model(readers) } else { readers.to_string() };
            Some((key, value, format!("has no effect: it applies only to {readers}")))
        });
        messages
            .filter(|(key, value, _)| !is_built_in(key, value))
            .map(|(key, value, problem)| Error::key(key, value, problem))
            .collect()
    }
}

/// Returns true if the built-in config has this value for its task.
fn is_built_in(key: &str, value: &toml::Value) -> bool {
    BUILT_IN_TASK_KEYS.contains(&key)
        && Config::parse(DEFAULT_TEXT, Path::new(DEFAULT_FILE), &[])
            .is_ok_and(|built_in| built_in.values().get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str, set: &[&str]) -> Vec<String> {
        let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let config = Config::parse(text, Path::new("config.toml"), &set).unwrap();
        config.without_effect(None).iter().map(Error::to_string).collect()
    }

    #[test]
    fn keys_without_effect_exist() {
        let sets: [&[&str]; 6] = [
            &[],
            &["model.architecture=one_layer", "training.schedule=constant", "training.optimizer=sgd"],
            &[
                "data.task=addition",
                "model.position=rotary",
                "model.rope_scaling=llama3",
                "training.optimizer=muon",
            ],
            &["data.path=a.txt", "model.rope_scaling=linear", "training.schedule=trapezoid"],
            &["data.path=a.csv", "data.bins=4"],
            &["data.path=a.npy", "data.valid_path=b.npy", "tune.method=recipe"],
        ];
        for set in sets {
            let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
            let config = Config::parse("", Path::new("config.toml"), &set).unwrap();
            let tune = config.tune.clone().unwrap_or_default();
            for (section, unused) in [
                ("data", config.data.unused_keys(None)),
                ("model", config.model.unused_keys()),
                ("training", config.training.unused_keys()),
                ("tune", tune.unused_keys()),
            ] {
                let keys = crate::config::keys_of(section);
                let unknown: Vec<_> = unused.keys().filter(|key| !keys.contains(key)).collect();
                assert!(unknown.is_empty(), "[{section}] has no {unknown:?}");
                assert!(unused.keys().next().is_some() || section == "tune", "[{section}] with {set:?}");
            }
        }
    }

    #[test]
    fn keys_without_effect_are_reported() {
        for (set, expected) in [
            (&["training.optimizer=sgd", "training.weight_decay=0.1"][..], "`training.weight_decay` = 0.1"),
            (&["training.optimizer=adam", "training.weight_decay=0.1"], "`training.weight_decay` = 0.1"),
            (&["training.optimizer=sgd", "training.beta2=0.5"], "`training.beta2` = 0.5"),
            (&["training.optimizer=adam", "training.momentum=0.5"], "`training.momentum` = 0.5"),
            (&["model.architecture=one_layer", "model.layers=3"], "`model.layers` = 3"),
            (&["model.architecture=one_layer", "model.feed_forward=3"], "`model.feed_forward` = 3"),
            (&["model.d_inner=100", "model.feed_forward=3"], "`model.feed_forward` = 3"),
            (&["model.rope_theta=500000"], "`model.rope_theta` = 500000.0"),
            (&["model.position=rotary", "model.rope_factor=2"], "`model.rope_factor` = 2.0"),
            (
                &["model.position=rotary", "model.rope_scaling=linear", "model.rope_original_context=7"],
                "`model.rope_original_context` = 7",
            ),
            (&["model.architecture=one_layer", "model.norm=post"], "`model.norm` = \"post\""),
            (&["model.embedding_norm_epsilon=1e-5"], "`model.embedding_norm_epsilon` = 0.00001"),
            (&["model.tie_embeddings=true", "model.head_bias=true"], "`model.head_bias` = true"),
            (
                &["training.schedule=constant", "training.min_learning_rate=0"],
                "`training.min_learning_rate` = 0.0",
            ),
            (&["training.min_delta=0.1"], "`training.min_delta` = 0.1"),
            (&["data.valid_fraction=0.2"], "`data.valid_fraction` = 0.2"),
            (&["data.path=a.txt", "data.train_samples=7"], "`data.train_samples` = 7"),
            (&["data.path=a.txt", "data.vocab=7"], "`data.vocab` = 7"),
            (&["data.source=text", "data.task=sort"], "`data.task` = \"sort\""),
            (&["data.path=a.txt", "data.split=shuffle"], "`data.split` = \"shuffle\""),
            (&["data.path=a.txt", "data.delimiter=;"], "`data.delimiter` = \"semicolon\""),
            (&["data.path=a.json", "data.header=true"], "`data.header` = true"),
            (&["data.task=addition", "data.length=9"], "`data.length` = 9"),
            (&["data.task=addition", "data.vocab=9"], "`data.vocab` = 9"),
            (&["tune.method=recipe", "tune.trials=9"], "`tune.trials` = 9"),
            (
                &["data.order=2"],
                "`data.order` = 2 has no effect: it applies only to `data.task` = \"markov\"",
            ),
        ] {
            let messages = messages("", set);
            assert!(messages.len() == 1 && messages[0].starts_with(expected), "{set:?}: {messages:?}");
        }
    }

    #[test]
    fn used_and_default_keys_are_not_reported() {
        for set in [
            &["training.optimizer=sgd", "training.momentum=0.5", "training.weight_decay=0"][..],
            &["training.optimizer=sgd", "training.weight_decay=0.01"],
            &["training.optimizer=adam", "training.schedule=constant"],
            &["model.architecture=one_layer"],
            &["model.embedding_norm=true", "model.embedding_norm_epsilon=1e-5"],
            &["training.patience=3", "training.min_delta=0.1"],
            &["data.path=a.txt", "data.tokens=bpe", "data.vocab=300", "data.valid_fraction=0.2"],
            &["data.task=markov", "data.order=2"],
            &["tune.method=recipe", "tune.seeds=2"],
            &["run.from=runs/a", "data.path=a.txt", "data.vocab=7"],
        ] {
            assert_eq!(messages("", set), [""; 0], "{set:?}");
        }
        // Task keys in a file are not reported if the command line replaces the task with a text.
        assert_eq!(messages(DEFAULT_TEXT, &["data.path=a.txt"]), [""; 0]);
    }

    #[test]
    fn shipped_configs_have_no_keys_without_effect() {
        assert_eq!(messages(DEFAULT_TEXT, &[]), [""; 0]);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/configs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(messages(&text, &[]), [""; 0]);
        }
    }
}
