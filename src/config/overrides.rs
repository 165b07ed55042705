//! Overrides of keys by the command line, each as `section.key=value`.

use crate::error::excerpt;

/// Returns true if the command line overrides a key, given with its section.
pub fn sets(overrides: &[String], key: &str) -> bool {
    overrides.iter().filter_map(|assignment| key_of(assignment)).any(|name| name == key)
}

/// Warns of each key with several values, of which the last one applies.
pub(super) fn warn_of_repeated(overrides: &[String]) {
    for (index, assignment) in overrides.iter().enumerate() {
        let key = key_of(assignment);
        let last = overrides[index + 1..].iter().rfind(|other| key_of(other) == key);
        if let (Some(key), Some(last)) = (key, last.filter(|last| *last != assignment)) {
            log::warn!("--set {key} is passed twice, and the last value applies: {}", excerpt(last, 60));
        }
    }
}

fn key_of(assignment: &str) -> Option<&str> {
    assignment.split_once('=').map(|(key, _)| key.trim())
}
