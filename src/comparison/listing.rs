//! The runs and studies below folders, each by what its config and its summary say.
//!
//! A folder may hold thousands, of every version of this program and in every state: keys are read one by one, and what
//! a folder lacks is left out.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rayon::{iter::Either, prelude::*};
use serde::Serialize;
use serde_json::Value;

use super::losses::Losses;
use crate::error::{Error, Result};
use crate::files::{Text, is_there, read_json, serialize_path};
use crate::training::{RunFolder, Scores};

/// A run, or a study with its best run. Losses are in nats per token; what is not known is none.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Listed {
    /// The name of its folder.
    pub name: String,
    /// The folder.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// Whether it is a study of several runs, and of how many.
    pub trials: Option<usize>,
    /// What it learned: a task, or the name of a file; none of a model that was imported.
    pub data: Option<String>,
    /// The file or folder that it was imported from.
    pub imported_from: Option<String>,
    /// The architecture, the number of its layers and their width.
    pub model: Option<String>,
    /// Number of trained parameters.
    pub parameters: Option<u64>,
    /// Its losses; of a study those of its best run.
    #[serde(flatten)]
    pub losses: Losses,
    /// Its training.
    #[serde(flatten)]
    pub training: ListedTraining,
    /// The state of its folder.
    #[serde(flatten)]
    pub state: ListedState,
    /// Every key of its config, by section.
    #[serde(skip)]
    config: toml::Table,
}

/// The training of a listed run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListedTraining {
    /// Steps done.
    pub steps: Option<u64>,
    /// Targets trained on in a second.
    pub tokens_per_second: Option<f64>,
    /// The backend that computed.
    pub backend: Option<String>,
    /// The seed.
    pub seed: Option<u64>,
}

/// The state of the folder of a listed run or study.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListedState {
    /// How it ended; "unfinished" while it has no summary, "imported" where it was not trained.
    pub ended: String,
    /// When its folder was last written to, in seconds since 1970.
    pub changed: Option<u64>,
    /// Whether its config was edited after it had ended.
    pub config_changed: bool,
}

/// The runs and studies that `folders` are or hold, one level deep, that `filters` (a key and its value) let pass, by
/// the value of `sort`, those without one last; with them comes what is wrong with those that were passed by. Keys are
/// those of [`Listed`], or of a config, as `model.heads`.
///
/// # Errors
/// If a folder is none, or no run has one of the keys.
pub fn list(
    folders: &[PathBuf],
    filters: &[(String, String)],
    sort: &str,
) -> Result<(Vec<Listed>, Vec<Error>)> {
    let mut places = Vec::new();
    for folder in folders {
        match is_run(folder) {
            true => places.push(folder.clone()),
            false => places.extend(runs_in(folder)?),
        }
    }
    places.sort();
    places.dedup();
    let (mut runs, damaged) = read_all(&places, |place| Listed::read(place, Depth::Studies));
    for key in filters.iter().map(|(key, _)| key.as_str()).chain([sort]) {
        if !runs.is_empty() && runs.iter().all(|run| run.value(key).is_none()) {
            let own = Listed::default().keys().join(", ");
            return Err(Error::Input(format!(
                "no run here has a key `{key}`: it must be one of {own}, or a key of the config, as model.heads"
            )));
        }
    }
    runs.retain(|run| {
        let lets_pass = |(key, wanted): &(String, String)| {
            run.value(key)
                .is_some_and(|value| is_meant(&value, wanted) || is_end_of_path(key, &value, wanted))
        };
        filters.iter().all(lets_pass)
    });
    runs.sort_by(|a, b| order(a.value(sort), b.value(sort)));
    Ok((runs, damaged))
}

/// What is read of each place, in their order, and what is wrong with the others.
pub(super) fn read_all<T: Send>(
    places: &[PathBuf],
    read: impl Fn(&Path) -> Result<T> + Sync + Send,
) -> (Vec<T>, Vec<Error>) {
    places.par_iter().partition_map(|place| match read(place) {
        Ok(found) => Either::Left(found),
        Err(error) => Either::Right(error),
    })
}

/// The most names that are read of one folder.
const MAX_ENTRIES: usize = 1 << 20;

/// The runs and studies in a folder, in the order of their names. A link to a run counts as the run.
pub(super) fn runs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut runs = entries(folder)?;
    runs.retain(|path| is_run(path));
    Ok(runs)
}

/// The runs of the study in a folder. What a link below a study leads to is not the study's, and may lead back to it.
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
            let problem =
                format!("holds more than {MAX_ENTRIES} files and folders: name the runs in it that you want");
            return Err(Error::file(folder, problem));
        }
    }
    paths.sort();
    Ok(paths)
}

/// The folder in that of a study that holds its runs.
const TRIALS: &str = "trials";

/// Whether a folder is a study's.
pub(super) fn is_study(path: &Path) -> bool {
    path.join(TRIALS).symlink_metadata().is_ok_and(|data| data.is_dir())
}

/// Whether a folder is a run's or a study's.
pub(super) fn is_run(path: &Path) -> bool {
    let has = |name: &str| is_there(&path.join(name));
    path.is_dir() && has("config.toml") && (has("summary.json") || has("checkpoints") || has(TRIALS))
}

/// Whether a value is the one that was typed: numbers by what they are worth, others as they are written.
fn is_meant(value: &Value, wanted: &str) -> bool {
    match (value.as_f64(), wanted.parse::<f64>()) {
        (Some(value), Ok(wanted)) => value == wanted,
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_string) == wanted,
    }
}

/// Whether the last parts of a path are those that were typed: configs hold absolute paths.
fn is_end_of_path(key: &str, value: &Value, wanted: &str) -> bool {
    const PATHS: [&str; 4] = ["data.path", "data.tokens", "run.from", "path"];
    let is_end = |path: &str| !wanted.is_empty() && Path::new(path).ends_with(wanted);
    PATHS.contains(&key) && value.as_str().is_some_and(is_end)
}

/// Numbers by size, texts by letters; what is missing comes last.
fn order(a: Option<Value>, b: Option<Value>) -> Ordering {
    let (Some(a), Some(b)) = (&a, &b) else { return a.is_none().cmp(&b.is_none()) };
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// How deep a folder is looked into: a study is not a trial of another.
#[derive(Clone, Copy, PartialEq)]
enum Depth {
    Studies,
    Runs,
}

impl Listed {
    fn read(path: &Path, depth: Depth) -> Result<Self> {
        let folder = RunFolder::at(path);
        let place = folder.config();
        let config: toml::Table = Text::open_own(&place)?
            .whole()?
            .parse()
            .map_err(|error: toml::de::Error| Error::file(&place, error.message().to_string()))?;
        let summary: Value = match is_there(&folder.summary()) {
            true => {
                Scores::check(&folder)?;
                read_json(&folder.summary(), "how a run ended")?
            }
            false => Value::Null,
        };
        let number = |key: &str| summary[key].as_f64();
        let text = |key: &str| summary[key].as_str().map(str::to_string);
        let (mut best, mut floor, mut count) = (number("best_valid_loss"), number("floor"), None);
        let is_study = is_study(path) && depth == Depth::Studies;
        if is_study {
            let (runs, _) = read_all(&trials_in(path)?, |run| Self::read(run, Depth::Runs));
            count = Some(runs.len());
            let losses = runs.iter().filter_map(|run| run.losses.best_valid_loss);
            (best, floor) = (losses.min_by(f64::total_cmp), runs.iter().find_map(|run| run.losses.floor));
        }
        let ended = if is_study {
            "study".to_string()
        } else if summary.is_null() {
            "unfinished".to_string()
        } else {
            text("ended").unwrap_or_else(|| "imported".to_string())
        };
        let written = [folder.summary(), folder.metrics(), place]
            .into_iter()
            .find_map(|path| fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            path: path.to_path_buf(),
            trials: count,
            // The data of an imported model is what it may be trained on further.
            data: if ended == "imported" { None } else { data(&config) },
            imported_from: text("imported_from"),
            model: model(&config),
            parameters: summary["parameters"].as_u64(),
            losses: Losses::new(best, floor),
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

    /// The value of a key; none where it has none.
    fn value(&self, key: &str) -> Option<Value> {
        let own = serde_json::to_value(self).ok()?.get(key).filter(|value| !value.is_null()).cloned();
        own.or_else(|| {
            let (section, key) = key.split_once('.')?;
            // A run on a file keeps the key, and draws no task.
            if (section, key) == ("data", "task") {
                let task = self.config.get(section)?.get(key)?.as_str();
                return task.filter(|_| self.data.as_deref() == task).map(Value::from);
            }
            serde_json::to_value(self.config.get(section)?.get(key)?).ok()
        })
    }

    /// The names of its keys.
    pub fn keys(&self) -> Vec<String> {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }
}

/// The task that a config draws from, or the name of the file that it reads.
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

/// A model in few words, as "decoder, 2 x 64".
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

    /// A run's folder with a config and a summary.
    fn run(place: &Path, name: &str, config: &str, summary: Option<Value>) {
        let folder = place.join(name);
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
    fn runs_come_in_the_order_and_with_the_values_that_were_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let summary =
            |loss: f64| Some(json!({"best_valid_loss": loss, "floor": 1.0, "ended": "completed", "seed": 3}));
        run(place, "a", &config(4), summary(1.5));
        run(place, "b", &config(2), summary(1.25));
        run(place, "c", &config(4), None);
        run(&place.join("d/trials"), "000", &config(4), summary(1.75));
        fs::write(place.join("d/config.toml"), config(8)).unwrap();
        fs::create_dir(place.join("none")).unwrap();
        run(place, "e", "[data\n", summary(0.5));
        let all = [place.to_path_buf()];
        let names = |filters: &[(&str, &str)], sort: &str| {
            let filters: Vec<_> =
                filters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            let (runs, damaged) = list(&all, &filters, sort).unwrap();
            assert_eq!(damaged.len(), 1);
            runs.into_iter().map(|run| run.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], "name"), ["a", "b", "c", "d"]);
        assert_eq!(names(&[], "best_valid_loss"), ["b", "a", "d", "c"]);
        fs::write(place.join("c/config.toml"), "[data]\npath = \"/data/own/c.csv\"\n").unwrap();
        assert_eq!(names(&[("data.task", "sort")], "name"), ["a", "b", "d"]);
        for (wanted, expected) in
            [("c.csv", &["c"][..]), ("own/c.csv", &["c"]), ("n/c.csv", &[]), ("csv", &[])]
        {
            assert_eq!(names(&[("data.path", wanted)], "name"), expected, "{wanted}");
        }
        fs::write(place.join("c/config.toml"), config(4)).unwrap();
        assert_eq!(names(&[("model.heads", "4")], "above_floor"), ["a", "c"]);
        assert_eq!(names(&[("model.heads", "4.0"), ("ended", "completed")], "name"), ["a"]);
        let (runs, _) = list(&all, &[], "name").unwrap();
        assert_eq!(
            (runs[0].losses.above_floor, runs[0].model.as_deref()),
            (Some(0.5), Some("decoder, 2 x 64"))
        );
        assert_eq!((runs[2].state.ended.as_str(), runs[2].data.as_deref()), ("unfinished", Some("sort")));
        assert_eq!((runs[3].trials, runs[3].losses.best_valid_loss), (Some(1), Some(1.75)));
        let said = list(&all, &[("model.hed".into(), "4".into())], "name").unwrap_err().to_string();
        assert!(said.contains("`model.hed`") && said.contains("best_valid_loss"), "{said}");
    }
}
