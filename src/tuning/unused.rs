//! Keys of a study that have no effect in its trials.

use std::collections::BTreeMap;

use super::outline::{Candidate, Outline};
use crate::data::Dataset;
use crate::error::Error;
use crate::numbers::part_of;

impl Outline {
    /// Returns a warning for each searched key that has no effect on some of the trials.
    pub fn keys_without_effect(&self, candidates: &[Candidate], dataset: &Dataset) -> Vec<String> {
        let mut idle: BTreeMap<String, usize> = BTreeMap::new();
        for Candidate { config, setting, .. } in candidates {
            let keys = config.without_effect(Some(dataset)).into_iter().filter_map(|error| match error {
                Error::Key { key, .. } if setting.contains_key(&key) => Some(key),
                _ => None,
            });
            keys.for_each(|key| *idle.entry(key).or_default() += 1);
        }
        let warning = |(key, count): (String, usize)| {
            format!("`{key}` is searched but has no effect in {}", part_of(count, candidates.len(), "trial"))
        };
        idle.into_iter().map(warning).collect()
    }

    /// Returns the messages about keys without effect in the config itself that have an effect in some of the trials.
    pub fn effective_in_trials(&self, candidates: &[Candidate], dataset: &Dataset) -> Vec<String> {
        let is_used = |error: &Error| {
            let Error::Key { key, .. } = error else { return false };
            let is_unused = |other: &Error| matches!(other, Error::Key { key: other, .. } if other == key);
            let trials = candidates.iter().map(|candidate| &candidate.config);
            trials.into_iter().any(|config| !config.without_effect(Some(dataset)).iter().any(is_unused))
        };
        let of_config = self.base.without_effect(Some(dataset));
        of_config.iter().filter(|error| is_used(error)).map(Error::to_string).collect()
    }
}
