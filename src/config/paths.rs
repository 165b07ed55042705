//! The paths of a config, which a run stores in their absolute form.

use std::path::{Path, PathBuf};

use super::Config;
use super::run::{RunConfig, is_empty};
use crate::data::{Cache, DataConfig, Tokens};
use crate::error::{Error, Result};

impl Config {
    /// Refuses paths whose absolute form is not UTF-8, since TOML cannot represent them.
    ///
    /// # Errors
    /// If a path is not UTF-8. The error names its key.
    pub fn check_paths(&self) -> Result<()> {
        let Self { run, data, .. } = self.with_absolute_paths();
        let tokens = if let Tokens::File(path) = data.tokens { path } else { PathBuf::new() };
        let one = [("run.from", run.from.as_path()), ("data.tokens", &tokens)].into_iter();
        let path = data.path.iter().map(|path| ("data.path", path));
        let valid = data.valid_path.iter().map(|path| ("data.valid_path", path));
        for (key, path) in one.chain(path).chain(valid) {
            let problem = "is not UTF-8 and cannot be written in a config; rename the file or its folder";
            Error::check_key(path.to_str().is_some(), key, path.display(), problem)?;
        }
        Ok(())
    }

    /// Returns the config with an explicit source and absolute paths.
    pub(super) fn with_absolute_paths(&self) -> Self {
        self.with_paths(|path| match is_empty(path) {
            true => PathBuf::new(),
            false => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
        })
    }

    /// Returns the config with each path mapped.
    pub(super) fn with_paths(&self, path: impl Fn(&Path) -> PathBuf) -> Self {
        let tokens = match &self.data.tokens {
            Tokens::File(file) => Tokens::File(path(file)),
            other => other.clone(),
        };
        let cache = match &self.data.cache {
            Cache::Folder(folder) => Cache::Folder(path(folder)),
            other => other.clone(),
        };
        let source = Some(self.data.source());
        let [data_path, valid_path] = [&self.data.path, &self.data.valid_path].map(|paths| paths.map(&path));
        let data = DataConfig { source, path: data_path, valid_path, tokens, cache, ..self.data.clone() };
        let run = RunConfig { from: path(&self.run.from), ..self.run.clone() };
        Self { run, data, ..self.clone() }
    }
}
