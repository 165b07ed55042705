//! Lists of the runs and studies in folders, from their configs and summaries.
//!
//! A folder may hold thousands of runs, in every state and of every version of this program. Keys are therefore read
//! one by one, and missing ones are omitted.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rayon::{iter::Either, prelude::*};
use serde::Serialize;
use serde_json::Value;

use super::losses::RunLosses;
use super::trials::StudyResult;
use crate::error::{Error, Result};
use crate::files::{Text, has_entry, read_json, serialize_path};
use crate::training::{RunFolder, Scores};

/// A run, or a study with the result of its best trial. Losses are in nats per token; unknown values are `None`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Listed {
    /// The name of the folder.
    pub name: String,
    /// The folder.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// The number of trials of a study; `None` for a run.
    pub trials: Option<usize>,
    /// The number of runs of each trial, with different seeds; `None` for a run.
    pub seeds: Option<usize>,
    /// The name of the task or of the data file; `None` for an imported model.
    pub data: Option<String>,
    /// The file or folder from which the model was imported.
    pub imported_from: Option<String>,
    /// The architecture, the number of layers and their width; a study has the model of its best trial.
    pub model: Option<String>,
    /// The number of trainable parameters.
    pub parameters: Option<u64>,
    /// The losses; for a study, the losses of its best trial, means over its seeds.
    #[serde(flatten)]
    pub losses: RunLosses,
    /// The training.
    #[serde(flatten)]
    pub training: ListedTraining,
    /// The state of the folder.
    #[serde(flatten)]
    pub state: ListedState,
    /// The config by section; a study has the config of its best trial.
    #[serde(skip)]
    config: toml::Table,
}

/// The training of a listed run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListedTraining {
    /// The number of completed steps.
    pub steps: Option<u64>,
    /// The number of targets trained on per second.
    pub tokens_per_second: Option<f64>,
    /// The backend of the training.
    pub backend: Option<String>,
    /// The seed.
    pub seed: Option<u64>,
}

/// The state of the folder of a listed run or study.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListedState {
    /// The outcome: "unfinished" without a summary, "imported" for an imported model.
    pub ended: String,
    /// The time of the last write to the folder, in seconds since 1970.
    pub changed: Option<u64>,
    /// True if the config was edited after the run had ended.
    pub config_changed: bool,
}

/// Lists the runs and studies that `folders` are or contain, one level deep. Only those that match all `filters`, pairs
/// of a key and its value, are returned, sorted by the value of `sort`; those without it come last. The errors describe
/// folders that were skipped. Keys are those of [`Listed`] or of a config, such as `model.heads`.
///
/// # Errors
/// Returns an error if a folder cannot be listed, or no run has one of the keys.
pub fn list(
    folders: &[PathBuf],
    filters: &[(String, String)],
    sort: &str,
) -> Result<(Vec<Listed>, Vec<Error>)> {
    let (mut folders_with_runs, mut empty) = (Vec::new(), Vec::new());
    for folder in folders {
        match is_run(folder) {
            true => folders_with_runs.push(folder.clone()),
            false => match runs_in(folder)? {
                found if found.is_empty() => empty.push(Error::file(folder, "contains no runs")),
                found => folders_with_runs.extend(found),
            },
        }
    }
    folders_with_runs.sort();
    // A run can be reached by several paths.
    let mut known = HashSet::new();
    folders_with_runs.retain(|run| known.insert(run.canonicalize().unwrap_or_else(|_| run.clone())));
    let (mut runs, damaged) = read_all(&folders_with_runs, Listed::read);
    let damaged = empty.into_iter().filter(|_| !folders_with_runs.is_empty()).chain(damaged).collect();
    for key in filters.iter().map(|(key, _)| key.as_str()).chain([sort]) {
        if !runs.is_empty() && runs.iter().all(|run| run.value(key).is_none()) {
            let own = Listed::default().keys().join(", ");
            return Err(Error::Input(format!(
                "no run has the key `{key}`; the keys are {own}, and config keys such as model.heads"
            )));
        }
    }
    runs.retain(|run| {
        let matches = |(key, wanted): &(String, String)| {
            run.value(key).is_some_and(|value| {
                // The table writes spaces for underscores.
                let is_shown = key == "ended" && value == wanted.replace(' ', "_");
                is_shown || equals(&value, wanted) || is_end_of_path(key, &value, wanted)
            })
        };
        filters.iter().all(matches)
    });
    runs.sort_by(|a, b| order(a.value(sort), b.value(sort)));
    Ok((runs, damaged))
}

/// Reads all folders and returns the results in the order of `folders_with_runs`, with the errors of the folders that
/// failed.
pub(super) fn read_all<T: Send>(
    folders_with_runs: &[PathBuf],
    read: impl Fn(&Path) -> Result<T> + Sync + Send,
) -> (Vec<T>, Vec<Error>) {
    folders_with_runs.par_iter().partition_map(|folder| match read(folder) {
        Ok(found) => Either::Left(found),
        Err(error) => Either::Right(error),
    })
}

/// The maximum number of entries read from one folder.
const MAX_ENTRIES: usize = 1 << 20;

/// Returns the runs and studies in a folder, sorted by name. A link to a run counts as that run.
pub(super) fn runs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut runs = entries(folder)?;
    runs.retain(|path| is_run(path));
    Ok(runs)
}

/// Returns the runs of a study. Links are ignored, because they point out of the study or back into it.
pub(super) fn trials_in(study: &Path) -> Result<Vec<PathBuf>> {
    let mut runs = entries(&study.join(TRIALS))?;
    runs.retain(|path| !path.is_symlink() && is_run(path));
    Ok(runs)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |error| Error::io("list", folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
        if paths.len() > MAX_ENTRIES {
            let problem = format!(
                "contains more than {MAX_ENTRIES} files and folders; pass the paths of its runs instead"
            );
            return Err(Error::file(folder, problem));
        }
    }
    paths.sort();
    Ok(paths)
}

/// The subfolder of a study that holds its runs.
const TRIALS: &str = "trials";

/// Returns true if a folder is a study.
pub(super) fn is_study(path: &Path) -> bool {
    path.join(TRIALS).symlink_metadata().is_ok_and(|data| data.is_dir())
}

/// Returns true if a folder is a run or a study.
pub(super) fn is_run(path: &Path) -> bool {
    let has = |name: &str| has_entry(&path.join(name));
    path.is_dir() && has("config.toml") && (has("summary.json") || has("checkpoints") || has(TRIALS))
}

/// Returns true if a value equals the requested one: numbers are compared by value, other values by their text.
fn equals(value: &Value, wanted: &str) -> bool {
    match (value.as_f64(), wanted.parse::<f64>()) {
        (Some(value), Ok(wanted)) => value == wanted,
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_string) == wanted,
    }
}

/// Returns true if a path ends with the requested components; configs hold absolute paths.
fn is_end_of_path(key: &str, value: &Value, wanted: &str) -> bool {
    const PATHS: [&str; 4] = ["data.path", "data.tokens", "run.from", "path"];
    let is_end = |path: &str| !wanted.is_empty() && Path::new(path).ends_with(wanted);
    PATHS.contains(&key) && value.as_str().is_some_and(is_end)
}

/// Orders numbers by value and texts alphabetically; missing values come last.
fn order(a: Option<Value>, b: Option<Value>) -> Ordering {
    let (Some(a), Some(b)) = (&a, &b) else { return a.is_none().cmp(&b.is_none()) };
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

impl Listed {
    fn read(path: &Path) -> Result<Self> {
        let folder = RunFolder::at(path);
        let config_path = folder.config();
        let read_table = |path: &Path| -> Result<toml::Table> {
            let text = Text::open_own(path)?.read_to_string()?;
            text.parse().map_err(|error: toml::de::Error| Error::file(path, error.message().to_string()))
        };
        let mut config = read_table(&config_path)?;
        let summary: Value = match has_entry(&folder.summary()) {
            true => {
                Scores::check(&folder)?;
                read_json(&folder.summary(), "the outcome of a run")?
            }
            false => Value::Null,
        };
        let number = |key: &str| summary[key].as_f64();
        let text = |key: &str| summary[key].as_str().map(str::to_string);
        let study = is_study(path).then(|| StudyResult::read(path)).transpose()?;
        let seeds = config.get("tune").and_then(|tune| tune.get("seeds")?.as_integer()?.try_into().ok());
        // A study has the loss of its best trial.
        let best = path.join("best.toml");
        if study.is_some() && has_entry(&best) {
            config = read_table(&best)?;
        }
        let ended = match (&study, &summary) {
            (Some(_), _) => "study".to_string(),
            (None, Value::Null) => "unfinished".to_string(),
            _ => text("ended").unwrap_or_else(|| "imported".to_string()),
        };
        let written = [folder.summary(), folder.metrics(), config_path]
            .into_iter()
            .find_map(|path| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            path: path.to_path_buf(),
            trials: study.map(|study| study.trials),
            seeds: study.map(|_| seeds.unwrap_or(1)),
            // The config of an imported model names the data for further training, not the data that it learned from.
            data: if ended == "imported" { None } else { data(&config) },
            imported_from: text("imported_from"),
            model: model(&config),
            parameters: summary["parameters"].as_u64(),
            losses: study.map_or_else(
                || RunLosses::new(number("best_valid_loss"), number("floor")),
                |study| study.losses,
            ),
            training: ListedTraining {
                steps: summary["steps"].as_u64(),
                tokens_per_second: number("tokens_per_second"),
                backend: text("backend"),
                seed: summary["seed"].as_u64(),
            },
            state: ListedState {
                ended,
                changed: written.map(|since| since.as_secs()),
                config_changed: folder.has_changed_config(),
            },
            config,
        })
    }

    /// Returns the value of a key, if present.
    fn value(&self, key: &str) -> Option<Value> {
        let own = serde_json::to_value(self).ok()?.get(key).filter(|value| !value.is_null()).cloned();
        own.or_else(|| {
            let (section, key) = key.split_once('.')?;
            // A run on a file keeps this key in its config but does not use the task.
            if (section, key) == ("data", "task") {
                let task = self.config.get(section)?.get(key)?.as_str();
                return task.filter(|_| self.data.as_deref() == task).map(Value::from);
            }
            serde_json::to_value(self.config.get(section)?.get(key)?).ok()
        })
    }

    /// Returns the keys of a listed run, without the keys of its config.
    pub fn keys(&self) -> Vec<String> {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }
}

/// Returns the name of a config's task or of its data file.
pub(super) fn data(config: &toml::Table) -> Option<String> {
    let section = config.get("data")?;
    let path = section.get("path").and_then(toml::Value::as_str).filter(|path| !path.is_empty());
    let source = section.get("source").and_then(toml::Value::as_str);
    match path {
        Some(path) => Some(Path::new(path).file_name()?.to_string_lossy().into_owned()),
        None if source.is_some_and(|source| source != "sequences") => None,
        None => section.get("task")?.as_str().map(str::to_string),
    }
}

/// Returns a short description of a model, such as "decoder, 2 x 64".
pub(super) fn model(config: &toml::Table) -> Option<String> {
    let section = config.get("model")?;
    let size = |key: &str| section.get(key)?.as_integer();
    let architecture = section.get("architecture")?.as_str()?.replace('_', "-");
    let layers = if architecture == "one-layer" { 1 } else { size("layers")? };
    Some(format!("{architecture}, {layers} x {}", size("d_model")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes the folder of a run with a config and a summary.
    fn run(dir: &Path, name: &str, config: &str, summary: Option<Value>) {
        let folder = dir.join(name);
        fs::create_dir_all(folder.join("checkpoints")).unwrap();
        fs::write(folder.join("config.toml"), config).unwrap();
        if let Some(summary) = summary {
            fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
        }
    }

    fn config(heads: usize) -> String {
        format!(
            "[data]\ntask = \"sort\"\npath = \"\"\n[model]\narchitecture = \"decoder\"\nlayers = 2\nd_model = 64\nheads = {heads}\n"
        )
    }

    #[test]
    fn runs_are_sorted_and_filtered_as_requested() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let summary =
            |loss: f64| Some(json!({"best_valid_loss": loss, "floor": 1.0, "ended": "completed", "seed": 3}));
        run(dir, "a", &config(4), summary(1.5));
        run(dir, "b", &config(2), summary(1.25));
        run(dir, "c", &config(4), None);
        run(&dir.join("d/trials"), "000", &config(4), summary(1.75));
        fs::write(dir.join("d/config.toml"), config(8) + "[tune]\nseeds = 2\n").unwrap();
        fs::write(dir.join("d/study.csv"), "ended,loss,floor\ncompleted,1.75,1.0\n").unwrap();
        fs::create_dir(dir.join("none")).unwrap();
        run(dir, "e", "[data\n", summary(0.5));
        let all = [dir.to_path_buf()];
        let names = |filters: &[(&str, &str)], sort: &str| {
            let filters: Vec<_> =
                filters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            let (runs, damaged) = list(&all, &filters, sort).unwrap();
            assert_eq!(damaged.len(), 1);
            runs.into_iter().map(|run| run.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], "name"), ["a", "b", "c", "d"]);
        assert_eq!(names(&[], "best_valid_loss"), ["b", "a", "d", "c"]);
        fs::write(dir.join("c/config.toml"), "[data]\npath = \"/data/own/c.csv\"\n").unwrap();
        assert_eq!(names(&[("data.task", "sort")], "name"), ["a", "b", "d"]);
        for (wanted, expected) in
            [("c.csv", &["c"][..]), ("own/c.csv", &["c"]), ("n/c.csv", &[]), ("csv", &[])]
        {
            assert_eq!(names(&[("data.path", wanted)], "name"), expected, "{wanted}");
        }
        fs::write(dir.join("c/config.toml"), config(4)).unwrap();
        assert_eq!(names(&[("model.heads", "4")], "above_floor"), ["a", "c"]);
        assert_eq!(names(&[("model.heads", "4.0"), ("ended", "completed")], "name"), ["a"]);
        let (runs, _) = list(&all, &[], "name").unwrap();
        assert_eq!(
            (runs[0].losses.above_floor, runs[0].model.as_deref()),
            (Some(0.5), Some("decoder, 2 x 64"))
        );
        assert_eq!((runs[2].state.ended.as_str(), runs[2].data.as_deref()), ("unfinished", Some("sort")));
        assert_eq!((runs[3].trials, runs[3].losses.best_valid_loss), (Some(1), Some(1.75)));
        assert_eq!((runs[3].seeds, runs[0].seeds), (Some(2), None));
        let message = list(&all, &[("model.hed".into(), "4".into())], "name").unwrap_err().to_string();
        assert!(message.contains("`model.hed`") && message.contains("best_valid_loss"), "{message}");
    }
}
