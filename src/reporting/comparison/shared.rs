//! Comparisons without the paths of the machine that made them, for sharing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::comparison::Comparison;

/// Returns the comparison with the names of files and folders instead of their paths. A name includes as many parent
/// folders as are needed to make it unique.
pub fn without_folders(comparison: &Comparison) -> Comparison {
    let mut shared = comparison.clone();
    let values = comparison.settings.iter().flat_map(|setting| setting.values.values());
    let runs = comparison.runs.iter().map(|run| run.path.as_path());
    let paths: BTreeSet<&Path> =
        values.map(Path::new).filter(|path| path.is_absolute()).chain(runs).collect();
    let names = unique_names(&paths);
    for value in shared.settings.iter_mut().flat_map(|setting| setting.values.values_mut()) {
        if let Some(name) = names.get(Path::new(value)) {
            value.clone_from(name);
        }
    }
    for run in &mut shared.runs {
        let name = &names[run.path.as_path()];
        if Path::new(&run.name) == run.path {
            run.name.clone_from(name);
        }
        run.path = PathBuf::from(name);
    }
    // Longest path first, because one path can be the prefix of another.
    let mut longest: Vec<_> = names.iter().filter(|(path, _)| path.is_absolute()).collect();
    longest.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_os_str().len()));
    for sentence in &mut shared.sentences {
        for (path, name) in &longest {
            *sentence = sentence.replace(&*path.to_string_lossy(), name);
        }
    }
    shared
}

/// Returns the shortest unique tail of each path.
fn unique_names<'a>(paths: &BTreeSet<&'a Path>) -> BTreeMap<&'a Path, String> {
    let parts = |path: &Path| -> Vec<String> {
        let normal = path.components().filter(|part| matches!(part, Component::Normal(_)));
        normal.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let all: Vec<(&Path, Vec<String>)> = paths.iter().map(|&path| (path, parts(path))).collect();
    let name = |(path, own): &(&'a Path, Vec<String>)| {
        let others = || all.iter().filter(|(other, _)| other != path);
        let is_unique = |&count: &usize| {
            let tail = &own[own.len() - count..];
            others().all(|(_, other)| !other.ends_with(tail))
        };
        let count = (1..=own.len()).find(is_unique).unwrap_or(own.len());
        (*path, own[own.len() - count..].join("/"))
    };
    all.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_include_enough_folders_to_be_unique() {
        let paths = ["/home/me/a/words.txt", "/home/me/b/words.txt", "/home/me/other.txt", "runs/one", "one"];
        let names = unique_names(&paths.iter().map(Path::new).collect());
        let shown: Vec<&str> = paths.iter().map(|path| names[Path::new(path)].as_str()).collect();
        assert_eq!(shown, ["a/words.txt", "b/words.txt", "other.txt", "runs/one", "one"]);
    }
}
