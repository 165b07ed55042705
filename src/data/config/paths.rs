//! The paths of the user's data: a file, a folder, a pattern, or a list of these.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use walkdir::{DirEntry, WalkDir};

use super::Source;
use crate::error::{Error, Result};

/// One path, or a list of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenPaths", into = "WrittenPaths")]
#[schemars(with = "WrittenPaths")]
pub struct Paths(Vec<PathBuf>);

/// Patterns match no hidden files.
const VISIBLE: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The form in a config.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected text in quotes, or a list of them")]
enum WrittenPaths {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl TryFrom<WrittenPaths> for Paths {
    type Error = &'static str;

    fn try_from(written: WrittenPaths) -> Result<Self, Self::Error> {
        match written {
            WrittenPaths::One(path) => Ok(path.into()),
            WrittenPaths::Several(paths)
                if paths.is_empty() || paths.iter().any(|path| path.as_os_str().is_empty()) =>
            {
                Err("expected text in quotes, or a list with at least one path and without empty ones")
            }
            WrittenPaths::Several(paths) => Ok(Paths(paths)),
        }
    }
}

impl From<Paths> for WrittenPaths {
    fn from(Paths(mut paths): Paths) -> Self {
        match paths.len() {
            0 | 1 => WrittenPaths::One(paths.pop().unwrap_or_default()),
            _ => WrittenPaths::Several(paths),
        }
    }
}

impl<T: Into<PathBuf>> From<T> for Paths {
    fn from(path: T) -> Self {
        let path = path.into();
        Paths(if path.as_os_str().is_empty() { Vec::new() } else { vec![path] })
    }
}

impl fmt::Display for Paths {
    /// Writes the paths, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, number) in self.0.iter().zip(0..) {
            write!(f, "{}{}", if number == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}

impl Paths {
    /// Returns true without any path.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the paths as written.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Returns true if the paths name several files: a folder, a pattern, or a list.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1 || self.first().is_dir() || !self.first().exists()
    }

    /// Returns true if each path is a regular file, a folder, or a pattern that matches files. A pipe can be read only
    /// once.
    pub fn are_files(&self) -> bool {
        let is_readable = |path: &PathBuf| path.is_file() || path.is_dir();
        !self.is_empty() && self.expand("").is_ok_and(|paths| paths.iter().all(is_readable))
    }

    /// Returns the first path, or an empty one.
    pub fn first(&self) -> &Path {
        self.0.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Returns the paths with each one mapped.
    #[must_use]
    pub fn map(&self, path: impl Fn(&Path) -> PathBuf) -> Self {
        Paths(self.iter().map(path).collect())
    }

    /// Returns the source that reads these paths.
    pub(super) fn source(&self) -> Source {
        Source::of(self.first())
    }

    /// Returns the files and folders that the paths name; patterns are replaced by the files that they match, in order.
    ///
    /// # Errors
    /// Returns an error that names `key` if a pattern is invalid or matches nothing.
    pub(in crate::data) fn expand(&self, key: &str) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for path in self.iter() {
            if !is_pattern(path) {
                all.push(path.to_path_buf());
                continue;
            }
            let failed = |problem: String| Error::key(key, path.display(), problem);
            let Some(matches) = matches_of(path) else {
                return Err(failed("is not UTF-8, as a pattern must be; rename it".to_string()));
            };
            let matches =
                matches.map_err(|error| failed(format!("is not a pattern: {error}; correct it")))?;
            let before = all.len();
            for found in matches {
                let found = found.map_err(|error| {
                    Error::io("read", error.path(), std::io::Error::from(error.error().kind()))
                })?;
                all.push(found);
            }
            if all.len() == before {
                return Err(failed("matches no file; correct the pattern".to_string()));
            }
        }
        Ok(all)
    }

    /// Returns the files that the paths name, with those below folders in path order. Hidden files are skipped.
    ///
    /// # Errors
    /// Returns the errors of [`expand`](Self::expand), and an error if a folder cannot be read or does not contain files.
    pub(in crate::data) fn files(&self, key: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in self.expand(key)? {
            if !path.is_dir() {
                files.push(path);
                continue;
            }
            let before = files.len();
            for entry in walk(&path) {
                let entry = entry?;
                if entry.file_type().is_file() {
                    files.push(entry.into_path());
                }
            }
            if files.len() == before {
                return Err(Error::key(key, path.display(), "is a folder without files; add files to it"));
            }
        }
        let mut seen = BTreeSet::new();
        let mut is_new = |file: &PathBuf| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone()));
        if let Some(twice) = files.iter().find(|file| !is_new(file)) {
            let problem =
                "is named twice; remove one of its names, or the pattern or folder that includes it";
            return Err(Error::key(key, twice.display(), problem));
        }
        Ok(files)
    }
}

/// Iterates over a file, or over the entries of a folder in path order, without hidden ones.
pub(in crate::data) fn walk(path: &Path) -> impl Iterator<Item = Result<DirEntry>> {
    let is_hidden = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let walk = WalkDir::new(path).follow_links(true).sort_by_file_name().into_iter();
    walk.filter_entry(move |entry| entry.depth() == 0 || !is_hidden(entry)).map(move |entry| {
        entry.map_err(|error| {
            let failed = error.path().unwrap_or(path).to_path_buf();
            match error.into_io_error() {
                Some(error) => Error::io("read", failed, error),
                None => Error::file(failed, "is a link to a folder that contains it; remove the link"),
            }
        })
    })
}

/// Iterates over the files and folders that match a pattern. A recursive pattern matches files only, because their folders
/// would name them again. `None` if the pattern is not UTF-8.
fn matches_of(
    path: &Path,
) -> Option<Result<impl Iterator<Item = Result<PathBuf, glob::GlobError>>, glob::PatternError>> {
    let mut pattern = path.to_str()?.to_string();
    let is_recursive = pattern.contains("**");
    if pattern.ends_with("**") {
        pattern += "/*";
    }
    let is_named = move |found: &Result<PathBuf, _>| {
        !is_recursive || !found.as_ref().is_ok_and(|path: &PathBuf| path.is_dir())
    };
    Some(glob::glob_with(&pattern, VISIBLE).map(|matches| matches.filter(is_named)))
}

/// Returns true if a path is a pattern rather than a file or folder with such a name.
fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[']) && !path.exists()
}

/// The maximum number of files whose extensions are inspected.
const MAX_ENTRIES: usize = 10_000;

/// Returns the source of all files; texts if they differ, and `None` without any.
fn common(mut sources: impl Iterator<Item = Source>) -> Option<Source> {
    let first = sources.next()?;
    Some(if sources.all(|source| source == first) { first } else { Source::Text })
}

impl Source {
    /// Returns the source that reads the file or folder at `path`: a table or an array by its extension, or by the
    /// extensions of all files in a folder or of a pattern, or else a text. For a compressed file, the extension before
    /// `.gz` or `.zst` decides. An empty path selects the task.
    pub fn of(path: &Path) -> Self {
        if path.as_os_str().is_empty() {
            return Source::Sequences;
        }
        if path.is_dir() {
            return source_of_folder(path);
        }
        source_of_pattern(path).unwrap_or_else(|| Self::by_extension(path))
    }
}

/// Returns the source that reads all files and folders that match a pattern; `None` if the path is not a pattern, or
/// matches nothing.
fn source_of_pattern(path: &Path) -> Option<Source> {
    let matches = matches_of(path).filter(|_| is_pattern(path))?.ok()?;
    common(matches.flatten().take(MAX_ENTRIES).map(|path| match path.is_dir() {
        true => source_of_folder(&path),
        false => Source::by_extension(&path),
    }))
}

/// Returns the source that reads all files below a folder by their extensions; texts if they are mixed. Only the first
/// files of a large folder are inspected.
fn source_of_folder(folder: &Path) -> Source {
    let entries = walk(folder).take(MAX_ENTRIES).flatten();
    let files = entries.filter(|entry| !entry.file_type().is_dir());
    common(files.map(|file| Source::by_extension(file.path()))).unwrap_or(Source::Text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn paths_are_written_as_one_or_as_a_list() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Section {
            path: Paths,
        }
        for (text, paths) in [
            ("path = \"\"\n", vec![]),
            ("path = \"a.csv\"\n", vec!["a.csv"]),
            ("path = [\"a.csv\", \"b.csv\"]\n", vec!["a.csv", "b.csv"]),
        ] {
            let section: Section = toml::from_str(text).unwrap();
            assert!(section.path.iter().eq(paths.iter().map(Path::new)), "{text}");
            assert_eq!(toml::to_string(&section).unwrap(), text);
        }
    }

    #[test]
    fn patterns_and_folders_become_sorted_files() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("more")).unwrap();
        for name in ["b.csv", "a.csv", "c.txt", "more/d.tsv", ".hidden.csv"] {
            fs::write(at(name), "1,2\n").unwrap();
        }
        let names = |paths: Paths| -> Vec<String> {
            let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            paths.files("data.path").unwrap().into_iter().map(name).collect()
        };
        assert_eq!(names(at("*.csv").into()), ["a.csv", "b.csv"]);
        assert_eq!(names(folder.path().into()), ["a.csv", "b.csv", "c.txt", "d.tsv"]);
        for pattern in ["**", "**/*"] {
            assert_eq!(names(at(pattern).into()), ["a.csv", "b.csv", "c.txt", "d.tsv"], "{pattern}");
        }
        assert_eq!(names(at("**/*.csv").into()), ["a.csv", "b.csv"]);
        assert_eq!(names(Paths(vec![at("more"), at("a.csv")])), ["d.tsv", "a.csv"]);
        assert_eq!(Paths::from(at("more")).source(), Source::Table);
        assert_eq!(Paths::from(folder.path()).source(), Source::Text);
        fs::write(at("more/train.bin"), "").unwrap();
        assert_eq!(Paths::from(at("more")).source(), Source::Text);
        fs::remove_file(at("more/d.tsv")).unwrap();
        assert_eq!(Paths::from(at("more")).source(), Source::Array);
        fs::write(at("more/day.csv.gz"), "").unwrap();
        for (pattern, source) in [
            ("*.csv", Source::Table),
            ("a*", Source::Table),
            ("more/*.gz", Source::Table),
            ("m*", Source::Text),
        ] {
            assert_eq!(Paths::from(at(pattern)).source(), source, "{pattern}");
        }
        assert_eq!(Paths::from(at("more/tr*")).source(), Source::Array);
        let error = Paths::from(at("*.json")).files("data.path").unwrap_err().to_string();
        assert!(error.contains("matches no file"), "{error}");
        let error = Paths(vec![at("*.csv"), at("a.csv")]).files("data.path").unwrap_err().to_string();
        assert!(error.contains("a.csv is named twice"), "{error}");
    }
}
