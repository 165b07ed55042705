//! The config of an experiment: its sections, loading, overrides and checks.
//!
//! A config is read from TOML, then changed by `--set key=value`, and then checked. Each error names the location of
//! the value, and what to write instead.

mod advice;
mod analysis;
mod device;
mod difference;
mod intervals;
mod intervene;
mod keys;
mod meant;
mod names;
mod optimizer;
mod overrides;
mod paths;
mod presets;
mod run;
mod source;
mod start;
mod training;
mod tune;
mod types;
mod unused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use analysis::AnalysisConfig;
pub use device::{BackendName, DeviceChoice, DeviceKind};
pub use difference::Difference;
pub(crate) use difference::{NOTHING, differing};
pub use intervene::{ClampedPattern, Intervention, InterventionKind};
pub use keys::{SCHEMA, defaults};
pub use meant::{keys_named, nearest_key, normalised};
#[cfg(test)]
pub(crate) use names::keys_of;
pub use optimizer::OptimizerKind;
pub use overrides::sets;
pub use presets::PRESETS;
pub use run::RunConfig;
pub use training::{Monitor, ScheduleKind, TrainingConfig};
pub use tune::{Method, TuneConfig};
pub use types::is_boolean;

use crate::data::{self, DataConfig, Dataset, Paths, Source};
use crate::error::{Error, Origin, Result};
use crate::files::{Text, without_compression};
use crate::model::{ModelConfig, Sizes};
use crate::range::Section;
use source::Written;

/// The keys that set the length of a run.
pub(crate) const DURATIONS: [&str; 2] = ["training.steps", "training.epochs"];

/// The config file that `train` reads by default.
pub const DEFAULT_FILE: &str = "config.toml";

/// The shipped default experiment, used if the current folder has no `config.toml`.
pub const DEFAULT_TEXT: &str = include_str!("../../config.toml");

/// Keys whose combinations are skipped in a search if they have no effect, since they would repeat another trial.
const REDUNDANT_WHEN_UNUSED: [&str; 2] = ["training.weight_decay", "model.head_bias"];

/// One experiment: name and seed, data, model, training, analysis, search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name and seed.
    pub run: RunConfig,
    /// The data.
    pub data: DataConfig,
    /// The model.
    pub model: ModelConfig,
    /// The training.
    pub training: TrainingConfig,
    /// The analysis after a run.
    pub analysis: AnalysisConfig,
    /// The search of `tune`; `train` ignores it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TuneConfig")]
    pub tune: Option<TuneConfig>,
}

impl Config {
    /// Reads `path`, applies the overrides `key=value` in order, and checks the complete config. Without a path, reads
    /// `config.toml` of the current folder, or the shipped default.
    ///
    /// # Errors
    /// If the file cannot be read or parsed, or a value is invalid.
    pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Self> {
        Self::load_checked(path, overrides, |_| Ok(()))
    }

    /// Reads the config that a run or a study wrote into its folder.
    ///
    /// # Errors
    /// As [`Self::load`], and if the file is not a regular file.
    pub fn load_own(path: &Path) -> Result<Self> {
        Self::parse(&Text::open_own(path)?.read_to_string()?, path, &[])
    }

    /// Like [`Self::load`], for a run that starts from the weights of the run in the folder `from`. The section
    /// `[model]` and the vocabulary come from that run, and without a path the other sections too.
    ///
    /// # Errors
    /// As [`Self::load`], and if the run cannot be read.
    pub fn load_from(path: Option<&Path>, from: &Path, overrides: &[String]) -> Result<Self> {
        let original = Self::load_own(&from.join(DEFAULT_FILE))?;
        let config = path.map_or(Ok(original.clone()), |path| Self::load(Some(path), &[]))?;
        let run = RunConfig { from: from.to_path_buf(), ..config.run.clone() };
        if let Some(path) = path {
            let written = Written::open(Some(path), &[])?;
            let unused = written.keys().filter(|key| key.starts_with("model."));
            for (key, (value, own)) in differing(unused, [&config.values(), &original.values()]) {
                log::warn!(
                    "`{key}` = {value} in `{}` has no effect: the model comes from `{}`, where it is {own}; pass \
                     --set {key}={value} to override it",
                    path.display(),
                    from.display()
                );
            }
        }
        let mut merged = Self { run, model: original.model.clone(), ..config };
        merged.check_paths()?;
        // The new file may have another format.
        if sets(overrides, "data.path") {
            merged.data.source = None;
        }
        // A line number would mislead, since the config is merged from two files.
        let merged = Written::parse(&toml(&merged), None)?.with(overrides)?.read(|_| Ok(()))?;
        let set = overrides.iter().filter_map(|assignment| Some(assignment.split_once('=')?.0.trim()));
        let set = set.filter(|key| key.starts_with("model.") && *key != "model.dropout");
        let original = Self { model: original.model, ..merged.clone() };
        for (key, (value, own)) in differing(set, [&merged.values(), &original.values()]) {
            let from = from.display();
            log::warn!(
                "`{key}` = {value}, but the weights of `{from}` were trained with {own}; predictions may be worse"
            );
        }
        let own = from.join(DEFAULT_FILE);
        let path = path.or(Some(own.as_path()));
        let origin = |key: &str, value: &str| Self::origin(path, overrides, key, value);
        Ok(merged.with_start_vocabulary("--from", origin))
    }

    /// Like [`Self::load`], for a command with additional requirements. Errors of `check` also name the location where
    /// the value was written.
    ///
    /// # Errors
    /// As [`Self::load`], and the errors of `check`.
    pub fn load_checked(
        path: Option<&Path>,
        overrides: &[String],
        check: impl Fn(&Self) -> Result<()>,
    ) -> Result<Self> {
        Written::open(path, overrides)?.read(check)
    }

    /// Returns the location where [`Self::load`] reads this value of a key, or `None` if the value comes from
    /// elsewhere, such as a search.
    pub fn origin(path: Option<&Path>, overrides: &[String], key: &str, value: &str) -> Option<Origin> {
        Written::open(path, overrides).ok()?.origin_of_value(key, value)
    }

    /// Parses the text of the file `path`, applies `overrides`, and checks the complete config.
    ///
    /// # Errors
    /// If the text cannot be parsed, or a value is invalid.
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Self> {
        Written::parse(text, Some(path))?.with(overrides)?.read(|_| Ok(()))
    }

    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// An error that names the key of the first invalid value.
    pub fn check(&self) -> Result<()> {
        let name = &self.run.name;
        let is_forbidden = |c: char| c.is_control() || matches!(c, '/' | '\\');
        let is_plain = !name.contains(is_forbidden) && !name.starts_with(['.', '-']) && name == name.trim();
        let problem = "must be a plain folder name of up to 200 bytes that begins with neither `.` nor `-`; pass another \
                       folder with --run DIR";
        Error::check_key(is_plain && name.len() <= 200, "run.name", format!("\"{name}\""), problem)?;
        self.run.check_ranges().map_err(Error::in_section("run"))?;
        self.check_paths()?;
        data::check(&self.data)?;
        self.model.check()?;
        self.training.check()?;
        intervene::check(&self.training.intervene, &self.model, &self.data)?;
        self.analysis.check(self.model.heads)?;
        self.tune.iter().try_for_each(TuneConfig::check)
    }

    /// Returns this config with other values for some keys, each given with its section.
    ///
    /// # Errors
    /// If a value is invalid, or conflicts with the others.
    pub fn with(&self, changes: &BTreeMap<String, toml::Value>) -> Result<Self> {
        let mut written = Written::parse(&self.to_toml(), None)?;
        changes.iter().for_each(|(key, value)| written.set(key, value.clone(), &value.to_string(), None));
        written.read(|config| {
            let is_redundant = |error: &Error| match error {
                Error::Key { key, .. } => REDUNDANT_WHEN_UNUSED.contains(&key.as_str()),
                _ => false,
            };
            config.without_effect(None).into_iter().find(is_redundant).map_or(Ok(()), Err)
        })
    }

    /// Returns the sizes that the data requires of the model.
    pub fn sizes(&self, dataset: &Dataset) -> Sizes {
        Sizes {
            vocab: dataset.vocabulary.size(),
            context: dataset.train.longest().max(dataset.valid.time()),
            source_context: dataset.train.source_time().max(dataset.valid.source_time()),
        }
    }

    /// Returns the config of a run with data from memory.
    pub(crate) fn with_data_from_memory(&self) -> Self {
        let data = DataConfig { source: Some(Source::Memory), path: Paths::default(), ..self.data.clone() };
        Self { data, ..self.clone() }
    }

    /// Returns the run's name, or a default name if it has none.
    pub fn name(&self) -> String {
        match self.run.name.as_str() {
            "" => format!("{}-{}", self.data_name(), variant_name(self.model.architecture)),
            name => name.to_string(),
        }
    }

    /// Returns the name of the task or of the data file.
    fn data_name(&self) -> String {
        match self.data.source() {
            Source::Sequences => variant_name(self.data.task),
            Source::Text | Source::Table | Source::Array | Source::Memory => {
                let path = without_compression(self.data.path.first());
                let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                stem.unwrap_or_else(|| variant_name(self.data.source()))
            }
        }
    }

    /// Returns the values of all keys that have a value, by key with its section.
    pub(crate) fn values(&self) -> BTreeMap<String, toml::Value> {
        let sections =
            toml::Table::try_from(self.with_absolute_paths()).expect("a config holds only TOML values");
        let keys = |(section, keys): (String, toml::Value)| {
            let keys = keys.try_into::<toml::Table>().unwrap_or_default().into_iter();
            keys.map(move |(key, value)| (format!("{section}.{key}"), value))
        };
        sections.into_iter().flat_map(keys).collect()
    }

    /// Returns the config as TOML, with every key and absolute paths, since the reader may be in another folder.
    pub fn to_toml(&self) -> String {
        toml(&self.with_absolute_paths())
    }

    /// Returns the config as TOML for a page that is shared: paths are reduced to their file names.
    pub fn to_shared_toml(&self) -> String {
        toml(&self.with_paths(|path| path.file_name().map(PathBuf::from).unwrap_or_default()))
    }
}

fn toml(config: &Config) -> String {
    toml::to_string(config).expect("a config holds only TOML values")
}

/// Returns the name of a variant in a config, adapted to file names.
fn variant_name(variant: impl Serialize) -> String {
    let value = toml::Value::try_from(variant).ok();
    value.as_ref().and_then(toml::Value::as_str).unwrap_or("run").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn non_utf8_paths_are_rejected_by_key() {
        use std::os::unix::ffi::OsStrExt;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(b"r\xe9sum\xe9.txt"));
        let config =
            Config { data: DataConfig { path: path.into(), ..DataConfig::default() }, ..Config::default() };
        let message = config.check().unwrap_err().to_string();
        assert!(message.starts_with("`data.path` = ") && message.contains("is not UTF-8"), "{message}");
    }

    #[test]
    fn fine_tuning_on_another_file_uses_its_source() {
        let run = tempfile::tempdir().unwrap();
        for (path, source, other) in [("a.txt", Source::Text, "b.csv"), ("b.csv", Source::Table, "a.txt")] {
            let text = format!("[data]\nsource = \"{source}\"\npath = \"{path}\"\n");
            std::fs::write(run.path().join(DEFAULT_FILE), text).unwrap();
            let read = |sets: &[String]| Config::load_from(None, run.path(), sets).unwrap().data.source();
            let set = format!("data.path={other}");
            assert_eq!(read(std::slice::from_ref(&set)), Source::of(Path::new(other)));
            assert_eq!(read(&[set, format!("data.source={source}")]), source);
            assert_eq!(read(&[]), source);
        }
    }

    #[test]
    fn a_path_set_in_code_is_used() {
        let shipped = Config::parse(DEFAULT_TEXT, Path::new("config.toml"), &[]).unwrap();
        for mut config in [Config::default(), shipped] {
            config.data.path = "own/words.csv".into();
            config.check().unwrap();
            assert_eq!((config.data.source(), config.name()), (Source::Table, "words-decoder".to_string()));
            assert!(config.to_toml().contains("source = \"table\""), "{}", config.to_toml());
        }
    }

    #[test]
    fn set_search_replaces_file_search_in_any_notation() {
        for text in [
            "[tune.search]\n\"training.batch_size\" = [16, 32]\n",
            "[tune.search.training]\nbatch_size = [16, 32]\n",
        ] {
            for set in ["tune.search.training.batch_size=[8]", "tune.search.\"training.batch_size\"=[8]"] {
                let config = Config::parse(text, Path::new("config.toml"), &[set.to_string()]).unwrap();
                let written = config.to_toml();
                assert!(written.contains("[8]") && !written.contains("16"), "{text}{set}: {written}");
            }
        }
    }

    #[test]
    fn setting_a_backend_drops_another_backends_device() {
        let text = "[training]\nbackend = \"wgpu\"\ndevice = \"discrete\"\n";
        let device = |set: &[&str]| {
            let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
            Config::parse(text, Path::new("config.toml"), &set).unwrap().training.device
        };
        assert!(device(&[]).is_some() && device(&["training.backend=wgpu"]).is_some());
        assert_eq!(device(&["training.backend=ndarray"]), None);
        for sets in
            [["training.backend=cuda", "training.device=1"], ["training.device=1", "training.backend=cuda"]]
        {
            assert_eq!(device(&sets).unwrap().to_string(), "1");
        }
    }

    #[test]
    fn written_configs_are_equivalent_with_absolute_paths() {
        let text = "[run]\nfrom = \"start\"\n[data]\npath = \"a/words.txt\"\ntokens = \"tokenizer.json\"\n";
        let config = Config::parse(text, Path::new("config.toml"), &[]).unwrap();
        let written = Config::parse(&config.to_toml(), Path::new("config.toml"), &[]).unwrap();
        assert_eq!(config.data.path, "a/words.txt".into(), "as written");
        assert_eq!(written.data.path, std::env::current_dir().unwrap().join("a/words.txt").into());
        assert_eq!(written.difference(&config, &["run", "data", "model", "training", "analysis"]), None);
        assert_eq!(written.to_toml(), config.to_toml());
        let other = Config::parse(&text.replace("words", "other"), Path::new("config.toml"), &[]).unwrap();
        assert_eq!(other.difference(&config, &["data"]).unwrap().key, "data.path");
    }
}
