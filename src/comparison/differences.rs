//! The keys in which runs differ.

use std::collections::{BTreeMap, BTreeSet};

use super::compared::ComparedRun;
use crate::data::{DataConfig, Source};

/// The keys and sections in which the runs of one setting may differ: the seed, and those that do not affect what a run
/// learns.
const WITHOUT_EFFECT: [&str; 6] =
    ["run.seed", "run.name", "analysis.", "tune.", "training.checkpoint_every", "training.log_every"];

/// The key that distinguishes runs whose data files had the same name but different contents.
const CONTENTS: &str = "data.contents";

/// The key that distinguishes runs that started from different weights, which may have had the same path.
const START: &str = "run.from.contents";

/// The key that distinguishes runs whose keys changed when they were resumed.
const RESUMED: &str = "resumed";

/// The value of every key of a run's config.
pub(super) type KeyValues = BTreeMap<String, toml::Value>;

/// Returns the values of each run's config. Runs on the same data get the same values for the data keys.
pub(super) fn values_of(runs: &[ComparedRun]) -> Vec<KeyValues> {
    let mut values: Vec<KeyValues> = runs.iter().map(|run| run.provenance.config.values()).collect();
    mark_contents(runs, &mut values);
    mark_starts(runs, &mut values);
    mark_changes(runs, &mut values);
    unify_data(runs, &mut values);
    values
}

/// Gives runs that started from the same weights the same path, and adds a key to runs whose weights differ although they
/// had the same path.
fn mark_starts(runs: &[ComparedRun], values: &mut [KeyValues]) {
    const FROM: &str = "run.from";
    let mut first_paths: BTreeMap<&str, toml::Value> = BTreeMap::new();
    for (run, values) in runs.iter().zip(values.iter_mut()) {
        let Some((hash, path)) = run.provenance.start.as_deref().zip(values.get(FROM).cloned()) else {
            continue;
        };
        values.insert(FROM.into(), first_paths.entry(hash).or_insert(path).clone());
    }
    let mut starts = BTreeMap::new();
    let is_ambiguous = runs.iter().zip(values.iter()).any(|(run, values)| {
        let path = values.get(FROM).map(ToString::to_string);
        *starts.entry(path).or_insert(&run.provenance.start) != &run.provenance.start
    });
    for (run, values) in runs.iter().zip(values).filter(|_| is_ambiguous) {
        values.extend(run.provenance.start.as_ref().map(|hash| (START.to_string(), hash[..16].into())));
    }
}

/// Adds a key to runs whose keys changed when they were resumed, because their configs hold the last values only.
fn mark_changes(runs: &[ComparedRun], values: &mut [KeyValues]) {
    for (run, values) in runs.iter().zip(values) {
        let changes = run.provenance.changes.join("; ");
        if !changes.is_empty() {
            values.insert(RESUMED.into(), changes.trim_start_matches("resumed ").into());
        }
    }
}

/// Returns true if the configs of two runs name the same data, apart from the seed that draws the validation set.
fn name_same_data(a: &ComparedRun, b: &ComparedRun) -> bool {
    let without_seed = |run: &ComparedRun| DataConfig { seed: None, ..run.provenance.config.data.clone() };
    without_seed(a) == without_seed(b)
}

/// Returns true if the contents of a run's data differ from those of another run whose config names the same data.
fn differs_from_others(runs: &[ComparedRun], run: &ComparedRun) -> bool {
    let others = runs.iter().filter(|other| name_same_data(other, run));
    let mut others = others.filter_map(|other| other.provenance.contents);
    run.provenance.contents.is_some_and(|contents| others.any(|other| other != contents))
}

/// Adds a key to runs whose configs name the same data if the contents of that data differ, because the files or the
/// sequences drawn for validation do.
fn mark_contents(runs: &[ComparedRun], values: &mut [KeyValues]) {
    let differ = runs.iter().any(|run| differs_from_others(runs, run));
    for (run, values) in runs.iter().zip(values).filter(|_| differ) {
        values.extend(run.provenance.contents.map(|it| (CONTENTS.to_string(), format!("{it:016x}").into())));
    }
}

/// Unifies the data keys of runs on the same data: files with the same contents count as the same file. Data seeds are
/// removed if they are unused or the same for all runs.
fn unify_data(runs: &[ComparedRun], values: &mut [KeyValues]) {
    const SEED: &str = "data.seed";
    for at in 0..runs.len() {
        let same = (0..at).find(|&other| {
            runs[at].provenance.contents.is_some()
                && runs[other].provenance.contents == runs[at].provenance.contents
        });
        if let Some(path) = same.and_then(|other| values[other].get("data.path").cloned()) {
            values[at].insert("data.path".into(), path);
        }
        let is_drawn = runs[at].provenance.config.data.source() == Source::Sequences;
        if !is_drawn && !differs_from_others(runs, &runs[at]) {
            values[at].remove(SEED);
        }
    }
    let seed = |run: &ComparedRun| run.provenance.config.data.seed.unwrap_or(run.provenance.config.run.seed);
    if runs.windows(2).all(|pair| seed(&pair[0]) == seed(&pair[1])) {
        values.iter_mut().for_each(|values| drop(values.remove(SEED)));
    }
}

/// Returns the keys in which the `values` of runs differ, without those that have no effect on what a run learns.
pub(super) fn differing_keys(values: &[KeyValues]) -> Vec<String> {
    let all: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&&String| values.iter().any(|run| run.get(**key) != values[0].get(**key));
    let has_effect = |key: &&&String| !WITHOUT_EFFECT.iter().any(|other| key.starts_with(other));
    all.iter().filter(differs).filter(has_effect).map(ToString::to_string).collect()
}

/// Returns the value of a key as one line.
pub(super) fn shown(value: Option<&toml::Value>) -> String {
    match value {
        Some(toml::Value::String(text)) => text.clone(),
        Some(value) => value.to_string().replace('\n', " ").trim().to_string(),
        None => "nothing".to_string(),
    }
}
