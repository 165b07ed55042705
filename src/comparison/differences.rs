//! The keys in which runs differ.

use std::collections::{BTreeMap, BTreeSet};

use super::compared::ComparedRun;
use crate::data::Source;

/// The seed, in which runs of one setting may differ, and keys and sections that change nothing of what a run learns.
const WITHOUT_EFFECT: [&str; 6] =
    ["run.seed", "run.name", "analysis.", "tune.", "training.checkpoint_every", "training.log_every"];

/// The key that tells apart runs whose files had the same name and other contents.
const CONTENTS: &str = "data.contents";

/// Every key of a run's config with its value.
pub(super) type Values = BTreeMap<String, toml::Value>;

/// Returns for each run every key with its value, such that runs on the same data have the same keys for it.
pub(super) fn values_of(runs: &[ComparedRun]) -> Vec<Values> {
    let mut values: Vec<Values> = runs.iter().map(|run| run.provenance.config.values()).collect();
    tell_contents_apart(runs, &mut values);
    unite_data(runs, &mut values);
    values
}

/// Gives runs whose config reads the same data a key of their own where the contents were others.
fn tell_contents_apart(runs: &[ComparedRun], values: &mut [Values]) {
    let differ = runs.iter().enumerate().any(|(at, run)| {
        let same = |other: &&ComparedRun| other.provenance.config.data == run.provenance.config.data;
        let others = runs[..at].iter().filter(same).filter_map(|other| other.provenance.contents);
        run.provenance.contents.is_some_and(|contents| others.into_iter().any(|other| other != contents))
    });
    for (run, values) in runs.iter().zip(values).filter(|_| differ) {
        values.extend(run.provenance.contents.map(|it| (CONTENTS.to_string(), format!("{it:016x}").into())));
    }
}

/// Gives runs on the same data the same keys for it: a file at another path with the same contents counts as the same
/// file, and a seed of the data that nothing draws from, or that is the run's own, is left out.
fn unite_data(runs: &[ComparedRun], values: &mut [Values]) {
    const SEED: &str = "data.seed";
    for at in 0..runs.len() {
        let same = (0..at).find(|&other| {
            runs[at].provenance.contents.is_some()
                && runs[other].provenance.contents == runs[at].provenance.contents
        });
        if let Some(path) = same.and_then(|other| values[other].get("data.path").cloned()) {
            values[at].insert("data.path".into(), path);
        }
        if runs[at].provenance.config.data.source() != Source::Sequences {
            values[at].remove(SEED);
        }
    }
    let seed = |run: &ComparedRun| run.provenance.config.data.seed.unwrap_or(run.provenance.config.run.seed);
    if runs.windows(2).all(|pair| seed(&pair[0]) == seed(&pair[1])) {
        values.iter_mut().for_each(|values| drop(values.remove(SEED)));
    }
}

/// Returns the keys in which the `values` of runs differ, without those that change nothing of what a run learns.
pub(super) fn differing_keys(values: &[Values]) -> Vec<String> {
    let all: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&&String| values.iter().any(|of| of.get(**key) != values[0].get(**key));
    let has_effect = |key: &&&String| !WITHOUT_EFFECT.iter().any(|other| key.starts_with(other));
    all.iter().filter(differs).filter(has_effect).map(ToString::to_string).collect()
}

/// Returns the value of a key in one line.
pub(super) fn shown(value: Option<&toml::Value>) -> String {
    match value {
        Some(toml::Value::String(text)) => text.clone(),
        Some(value) => value.to_string().replace('\n', " ").trim().to_string(),
        None => "nothing".to_string(),
    }
}
