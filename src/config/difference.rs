//! Differences between two configs, and the differences that a resumed run permits.

use std::collections::BTreeMap;
use std::path::Path;

use super::Config;
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
    /// Returns the error for a config that must equal the config of `owner`, such as "the run `runs/a`". `remedy` is
    /// the advice, as a clause.
    pub fn refused(self, owner: &str, remedy: &str) -> Error {
        let Self { key, here, there } = self;
        let problem = match there.as_str() {
            NOTHING => format!("is not set in the config of {owner}; {remedy}"),
            there => format!("differs from {there} in the config of {owner}; {remedy}"),
        };
        Error::key(key, here, problem)
    }
}

/// The value of a key that is not set.
pub(crate) const NOTHING: &str = "nothing";

/// Returns the keys with different values in two configs, with both values.
pub(crate) fn differing<'k>(
    keys: impl Iterator<Item = &'k str>,
    [values, others]: [&BTreeMap<String, toml::Value>; 2],
) -> impl Iterator<Item = (&'k str, (String, String))> {
    keys.filter_map(move |key| {
        let [value, other] = [values.get(key), others.get(key)];
        let shown =
            |value: Option<&toml::Value>| value.map_or_else(|| NOTHING.to_string(), ToString::to_string);
        (value != other).then(|| (key, (shown(value), shown(other))))
    })
}

impl Config {
    /// Returns the first key in `sections` whose value is different in `other`.
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

    /// Refuses to resume the run in `folder` with a config that differs from the `original`. The keys of training and
    /// analysis may change.
    ///
    /// # Errors
    /// [`Error::Key`] for the first key that differs.
    pub fn check_resumes(&self, original: &Self, folder: &Path) -> Result<()> {
        // Paths may change: the fingerprint of the data shows that the files are the same.
        let mut moved = original.clone();
        for (here, there) in
            [(&self.data.path, &mut moved.data.path), (&self.data.valid_path, &mut moved.data.valid_path)]
        {
            if !here.is_empty() && !there.is_empty() {
                there.clone_from(here);
            }
        }
        if let (Tokens::File(here), Tokens::File(there)) = (&self.data.tokens, &mut moved.data.tokens) {
            there.clone_from(here);
        }
        moved.data.cache.clone_from(&self.data.cache);
        // A file has a fixed number of samples, so these keys have no effect.
        if self.data.source() != Source::Sequences {
            moved.data.train_samples = self.data.train_samples;
            moved.data.valid_samples = self.data.valid_samples;
        }
        match self.difference(&moved, &["run", "data", "model"]) {
            None => Ok(()),
            Some(difference) => Err(difference.refused(
                &format!("the run `{}`", folder.display()),
                "only the keys of [training] and [analysis] may change, and data.path if the files have moved",
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
        let refusal = |here: &[&str], there: &[&str]| {
            config(here).check_resumes(&config(there), Path::new("runs/a")).unwrap_err().to_string()
        };
        let message = refusal(&["data.seed=3"], &[]);
        assert!(
            message.starts_with("`data.seed` = 3 is not set in the config of the run `runs/a`;"),
            "{message}"
        );
        let message = refusal(&["model.heads=2"], &[]);
        assert!(
            message.starts_with("`model.heads` = 2 differs from 4 in the config of the run `runs/a`;"),
            "{message}"
        );
        let text = |samples| config(&["data.path=a.txt", samples]);
        let (one, other) = (text("data.train_samples=7"), text("data.train_samples=8"));
        assert!(one.check_resumes(&other, Path::new("a")).is_ok(), "a text has no samples to draw");
        assert!(config(&["training.steps=7"]).check_resumes(&config(&[]), Path::new("a")).is_ok());
    }
}
