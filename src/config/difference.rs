//! Differences between two configs, and the differences that a resumed run permits.

use std::path::Path;

use super::{Config, is_empty};
use crate::data::{Source, Tokens};
use crate::error::{Error, Result};

/// A key with different values in two configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key with its section.
    pub key: String,
    /// The value in the first config, or "nothing" if unset.
    pub here: String,
    /// The value in the other config, or "nothing" if unset.
    pub there: String,
}

impl Difference {
    /// Returns the error for a config that must equal another one. `that` describes the other config, such as "the run
    /// `runs/a` was made with", and `remedy` is the advice.
    pub fn refused(self, that: &str, remedy: &str) -> Error {
        let Self { key, here, there } = self;
        let problem = match there.as_str() {
            NOTHING => format!("was left out of the config that {that}: {remedy}"),
            there => format!("differs from {there}, which {that}: {remedy}"),
        };
        Error::key(key, here, problem)
    }
}

const NOTHING: &str = "nothing";

impl Config {
    /// Returns the first key of some sections with a different value in `other`.
    pub fn difference(&self, other: &Self, sections: &[&str]) -> Option<Difference> {
        let (here, there) = (self.values(), other.values());
        let mut keys = sections.iter().flat_map(|section| {
            let is_of = move |key: &&String| key.split('.').next() == Some(section);
            here.keys().chain(there.keys()).filter(is_of)
        });
        let key = keys.find(|&key| here.get(key) != there.get(key))?;
        let shown = |value: Option<&toml::Value>| {
            value.map_or(NOTHING.to_string(), |value| value.to_string().replace('\n', " ").trim().into())
        };
        Some(Difference { key: key.clone(), here: shown(here.get(key)), there: shown(there.get(key)) })
    }

    /// Refuses to resume the run in `folder` with another config than it was `made_with`, except for the keys of
    /// training and analysis, which may change.
    ///
    /// # Errors
    /// [`Error::Key`] for the first key that differs.
    pub fn check_resumes(&self, made_with: &Self, folder: &Path) -> Result<()> {
        // Paths may change: the fingerprint of the data shows that the files are the same.
        let mut moved = made_with.clone();
        if !is_empty(&self.data.path) && !is_empty(&made_with.data.path) {
            moved.data.path.clone_from(&self.data.path);
        }
        if let (Tokens::File(here), Tokens::File(there)) = (&self.data.tokens, &mut moved.data.tokens) {
            there.clone_from(here);
        }
        // A file has a fixed number of samples, whatever these keys say.
        if self.data.source() != Source::Sequences {
            moved.data.train_samples = self.data.train_samples;
            moved.data.valid_samples = self.data.valid_samples;
        }
        match self.difference(&moved, &["run", "data", "model"]) {
            None => Ok(()),
            Some(difference) => Err(difference.refused(
                &format!("the run `{}` was made with", folder.display()),
                "only the keys of [training] and [analysis] may change, and data.path where the files have moved",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_errors_describe_missing_and_changed_keys() {
        let config = |set: &[&str]| {
            let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
            Config::parse("", Path::new("config.toml"), &set).unwrap()
        };
        let told = |here: &[&str], there: &[&str]| {
            config(here).check_resumes(&config(there), Path::new("runs/a")).unwrap_err().to_string()
        };
        let said = told(&["data.seed=3"], &[]);
        assert!(
            said.starts_with("`data.seed` = 3 was left out of the config that the run `runs/a`"),
            "{said}"
        );
        let said = told(&["model.heads=2"], &[]);
        assert!(
            said.starts_with("`model.heads` = 2 differs from 4, which the run `runs/a` was made"),
            "{said}"
        );
        let text = |samples| config(&["data.path=a.txt", samples]);
        let (one, other) = (text("data.train_samples=7"), text("data.train_samples=8"));
        assert!(one.check_resumes(&other, Path::new("a")).is_ok(), "a text has no samples to draw");
        assert!(config(&["training.steps=7"]).check_resumes(&config(&[]), Path::new("a")).is_ok());
    }
}
