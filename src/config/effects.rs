//! Keys that are given and have no effect, because of what other keys say: they are allowed, and it is said.

use std::path::Path;

use super::{Config, DEFAULT_FILE, DEFAULT_TEXT, Method, OptimizerKind, ScheduleKind, TuneConfig};
use crate::data::{Dataset, Source, Task, Tokens, Vocabulary};
use crate::error::Error;
use crate::model::Architecture;
use crate::position::{PositionScheme, RopeScaling};

/// Models that are made of blocks of layers.
const BLOCKS: &str = "models of blocks";

impl Config {
    /// A message for each key whose value differs from its default but is not used. The `dataset` decides whether a
    /// table holds integers or symbols, and a sequence per row or one.
    pub fn without_effect(&self, dataset: Option<&Dataset>) -> Vec<Error> {
        let default = Self::default().values();
        let given = self.values().into_iter().filter(|(key, value)| default.get(key) != Some(value));
        let told = |(key, value): (String, toml::Value)| {
            let reader = match key.split_once('.')? {
                ("data", name) => self.reader_of_data(name, dataset)?.to_string(),
                ("model", name) => self.reader_of_model(name)?.to_string(),
                ("tune", name) => self.reader_of_tune(name)?.to_string(),
                ("training", "weight_decay") if self.training.weight_decay == 0.0 => return None,
                ("training", name) => match other_optimizers(self.training.optimizer, name) {
                    Some(optimizers) => optimizers,
                    None => self.reader_of_training(name)?.to_string(),
                },
                _ => return None,
            };
            let problem = format!("has no effect: it is for {reader} alone");
            Some(Error::key(key, value, problem))
        };
        given.filter_map(told).collect()
    }

    /// The runs that read a key of `[data]` that this one does not.
    fn reader_of_data(&self, key: &str, dataset: Option<&Dataset>) -> Option<&'static str> {
        let data = &self.data;
        // The program that gives the data made the config.
        if data.source() == Source::Memory {
            return None;
        }
        let is_drawn = data.source() == Source::Sequences;
        let (is_text, is_table) = (data.source() == Source::Text, data.source() == Source::Table);
        let draws = |task| is_drawn && data.task == task;
        let continues = self.run.start().is_some();
        let is_sized = match data.source() {
            Source::Sequences => data.task != Task::Addition,
            Source::Text => data.tokens == Tokens::Bpe,
            Source::Memory => true,
            Source::Table => dataset.map(|dataset| &dataset.vocabulary).is_none_or(Vocabulary::is_integers),
        };
        let has_rows = is_table && dataset.is_some_and(|dataset| dataset.train.stream().is_none());
        // The built-in config has a length for its task.
        let is_built_in = || {
            let built_in =
                Config::parse(DEFAULT_TEXT, Path::new(DEFAULT_FILE), &[]).map(|built_in| built_in.values());
            let key = format!("data.{key}");
            built_in.is_ok_and(|built_in| built_in.get(&key) == self.values().get(&key))
        };
        Some(match key {
            "vocab" if !is_sized && !is_built_in() => {
                "tasks but `addition`, byte pair encoding and tables of integers"
            }
            "length" if has_rows && !is_built_in() => "texts, tasks and a `data.column` of a table",
            "length" if draws(Task::Addition) && !is_built_in() => "texts, tables and the other tasks",
            "seed" | "train_samples" | "valid_samples" if !is_drawn => "tasks",
            "period" if !draws(Task::Repeat) => "the task `repeat`",
            "order" if !draws(Task::Markov) => "the task `markov`",
            "gap" if !draws(Task::CopyGap) => "the task `copy_gap`",
            "digits" if !draws(Task::Addition) => "the task `addition`",
            "valid_fraction" if is_drawn => "texts and tables",
            "task" if !is_drawn => "runs without a `data.path`",
            "tokens" if !is_text => "texts",
            "tokens" | "vocab" if is_text && continues => "runs that start from no other",
            "values" | "column" | "split" if !is_table => "tables",
            "delimiter" | "header" if !is_table || data.is_json() => "tables in CSV",
            _ => return None,
        })
    }

    /// The models that read a key of `[model]` that this one does not.
    fn reader_of_model(&self, key: &str) -> Option<&'static str> {
        let model = &self.model;
        let has_blocks = model.architecture != Architecture::OneLayer;
        let is_rotary = has_blocks && model.position == PositionScheme::Rotary;
        let is_random = has_blocks && model.position == PositionScheme::RandomSinusoidal;
        Some(match key {
            "layers" | "position" | "norm" | "norm_kind" | "feed_forward" | "d_inner" if !has_blocks => {
                BLOCKS
            }
            "activation" | "tie_embeddings" | "embedding_norm" | "embedding_scale" | "softcap"
                if !has_blocks =>
            {
                BLOCKS
            }
            "norm_epsilon" if !has_blocks && !model.qk_norm => BLOCKS,
            "feed_forward" if model.d_inner > 0 => "`model.d_inner` = 0",
            "rope_theta" | "rope_scaling" if !is_rotary => "`model.position` = \"rotary\"",
            "largest_position" if !is_random => "`model.position` = \"random_sinusoidal\"",
            "rope_factor" if !is_rotary || model.rope_scaling == RopeScaling::None => {
                "rotary positions with a `model.rope_scaling`"
            }
            "rope_low_frequency_factor" | "rope_high_frequency_factor" | "rope_original_context"
                if !is_rotary || model.rope_scaling != RopeScaling::Llama3 =>
            {
                "rotary positions with `model.rope_scaling` = \"llama3\""
            }
            "embedding_norm_epsilon" if !(model.embedding_norm && has_blocks) => {
                "`model.embedding_norm` = true"
            }
            "head_bias" if model.tie_embeddings && has_blocks => "`model.tie_embeddings` = false",
            _ => return None,
        })
    }

    /// The searches that read a key of `[tune]` that this one does not.
    fn reader_of_tune(&self, key: &str) -> Option<&'static str> {
        let tune = self.tune.as_ref()?;
        let draws = match tune.method {
            Some(method) => matches!(method, Method::Random | Method::Halving),
            None => !tune.search.is_empty(),
        };
        (key == "trials" && !draws && tune.trials != TuneConfig::default().trials)
            .then_some("`tune.method` = \"random\" and \"halving\"")
    }

    /// The runs that read a key of `[training]` that this one does not.
    fn reader_of_training(&self, key: &str) -> Option<&'static str> {
        let training = &self.training;
        Some(match key {
            "cooldown" if training.schedule != ScheduleKind::Trapezoid => {
                "`training.schedule` = \"trapezoid\""
            }
            "min_learning_rate" if training.schedule == ScheduleKind::Constant => "schedules that fall",
            "min_delta" if training.patience == 0 => "early stopping, which `training.patience` asks for",
            _ => return None,
        })
    }
}

/// The optimizers that read a key of `[training]`, where this one does not and others do.
fn other_optimizers(optimizer: OptimizerKind, key: &str) -> Option<String> {
    let readers = OptimizerKind::ALL.into_iter().filter(|kind| kind.keys().contains(&key));
    let readers = readers.collect::<Vec<_>>();
    let titles = readers.iter().map(|kind| kind.title()).collect::<Vec<_>>();
    let (last, others) = titles.split_last().filter(|_| !readers.contains(&optimizer))?;
    Some(if others.is_empty() { last.to_string() } else { format!("{} and {last}", others.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, set: &[&str]) -> Vec<String> {
        let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let config = Config::parse(text, Path::new("config.toml"), &set).unwrap();
        config.without_effect(None).iter().map(Error::to_string).collect()
    }

    #[test]
    fn a_key_that_nothing_reads_is_named_with_what_would_read_it() {
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
            (&["data.order=2"], "`data.order` = 2 has no effect: it is for the task `markov` alone"),
        ] {
            let said = said("", set);
            assert!(said.len() == 1 && said[0].starts_with(expected), "{set:?}: {said:?}");
        }
    }

    #[test]
    fn of_a_key_that_is_read_or_has_its_default_nothing_is_said() {
        for set in [
            &["training.optimizer=sgd", "training.momentum=0.5", "training.weight_decay=0"][..],
            &["training.optimizer=sgd", "training.weight_decay=0.01"],
            &["training.optimizer=adam", "training.schedule=constant"],
            &["model.architecture=one_layer"],
            &["model.embedding_norm=true", "model.embedding_norm_epsilon=1e-5"],
            &["training.patience=3", "training.min_delta=0.1"],
            &["data.path=a.txt", "data.tokens=bpe", "data.vocab=300", "data.valid_fraction=0.2"],
            &["data.task=markov", "data.order=2"],
        ] {
            assert_eq!(said("", set), [""; 0], "{set:?}");
        }
        // What a file says of a task is no word about the text that the command line puts in its place.
        assert_eq!(said(DEFAULT_TEXT, &["data.path=a.txt"]), [""; 0]);
    }

    #[test]
    fn the_shipped_configs_hold_no_key_without_effect() {
        assert_eq!(said(DEFAULT_TEXT, &[]), [""; 0]);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/configs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(said(&text, &[]), [""; 0]);
        }
    }
}
