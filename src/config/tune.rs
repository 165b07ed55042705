//! The section `[tune]`: the search space and the search method of `tune`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::training::MAX_STEPS;
use crate::choice::UnusedKeys;
use crate::choices;
use crate::error::{Error, Result};
use crate::range::{Number, Range, Ranged, Section};

/// The section `[tune]`: the search for hyper-parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TuneConfig {
    /// The search method. Omitted: halving if there is a search space, else the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The number of settings that `random` and `halving` try. 40: enough for three keys.
    pub trials: usize,
    /// The number of runs per setting, with the seeds `run.seed`, `run.seed` + 1 and so on. Settings are compared by
    /// their mean loss. The seeds change weights, order and dropout, but not the data. 1: more settings help more than
    /// more seeds.
    pub seeds: usize,
    /// The steps of a trial at the config's own batch size. A trial of another batch size sees as many sequences,
    /// rounded to whole steps. Omitted: the config's steps, or a quarter of them for the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// The number of rungs, at which trials are compared; the last is the end of a trial. Omitted: 2 for the recipe, 1
    /// for grid and random. Halving uses enough rungs to leave one trial, if the first has at least 10 steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rungs: Option<usize>,
    /// The reduction factor: at each rung, the best 1/eta of the trials continue to eta times as many steps. Omitted: 3
    /// (Li et al., 2018, section 3), or 2 for the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<usize>,
    /// True to check first that the model can overfit one batch.
    pub overfit_check: bool,
    /// The values that keys may take: `"training.batch_size" = [16, 32, 64]`, or
    /// `"training.learning_rate" = { min = 1e-4, max = 1e-2, scale = "log" }`.
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub search: toml::Table,
}

choices! {
    /// A search method.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Method {
        /// Every combination of the values.
        Grid,
        /// Combinations drawn at random (Bergstra and Bengio, 2012).
        Random uses ["trials"],
        /// Combinations drawn at random, of which the better ones continue (Jamieson and Talwalkar, 2016; the brackets
        /// of Hyperband, Li et al., 2018).
        Halving uses ["trials"],
        /// One key after another: batch size, learning rate, heads and width, dropout.
        Recipe,
    }
}

impl Default for TuneConfig {
    fn default() -> Self {
        Self {
            method: None,
            trials: 40,
            seeds: 1,
            steps: None,
            rungs: None,
            eta: None,
            overfit_check: true,
            search: toml::Table::new(),
        }
    }
}

/// The maximum of `trials`, `seeds`, `rungs` and `eta`. Larger numbers are typos.
const MAX_COUNT: usize = 10_000;

impl Section for TuneConfig {
    fn unused_keys(&self) -> UnusedKeys {
        let mut unused = UnusedKeys::default();
        unused.other_choices("tune.method", self.method());
        unused
    }

    fn ranges(&self) -> Vec<Ranged> {
        let optional = |key, value: Option<usize>, min, max: usize| {
            (key, value.map(Number::from), Range::Integer(min, max as u64))
        };
        vec![
            optional("trials", Some(self.trials), 1, MAX_COUNT),
            optional("seeds", Some(self.seeds), 1, MAX_COUNT),
            optional("steps", self.steps, 1, MAX_STEPS),
            optional("rungs", self.rungs, 1, MAX_COUNT),
            optional("eta", self.eta, 2, MAX_COUNT),
        ]
    }
}

impl TuneConfig {
    /// Returns the search method.
    pub fn method(&self) -> Method {
        match self.method {
            Some(method) => method,
            None if self.search.is_empty() => Method::Recipe,
            None => Method::Halving,
        }
    }

    /// Returns the reduction factor eta: one in eta trials continues to the next rung.
    pub fn eta(&self) -> usize {
        self.eta.unwrap_or(match self.method() {
            Method::Recipe => 2,
            Method::Grid | Method::Random | Method::Halving => 3,
        })
    }

    /// Checks the section on its own, without the rest of the config.
    ///
    /// # Errors
    /// An error that names the key of the first invalid value.
    pub fn check(&self) -> Result<()> {
        self.check_ranges().map_err(Error::in_section("tune"))?;
        let method = self.method();
        let name = format!("\"{method}\"");
        let has_own_search = method == Method::Recipe;
        let own =
            "has its own search space; remove [tune.search], or use \"halving\", \"random\" or \"grid\"";
        let needed = "needs keys to search; add [tune.search] with \
                      \"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }";
        let problem = if has_own_search { own } else { needed };
        Error::check_key(has_own_search == self.search.is_empty(), "tune.method", name, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_follows_search_space_and_contradictions_fail() {
        let space = "\"model.heads\" = [2, 4]".parse::<toml::Table>().unwrap();
        let none = TuneConfig::default();
        assert_eq!((none.method(), none.eta()), (Method::Recipe, 2));
        let some = TuneConfig { search: space, ..none.clone() };
        assert_eq!((some.method(), some.eta()), (Method::Halving, 3));
        assert!(none.check().is_ok() && some.check().is_ok());
        for (config, part) in [
            (TuneConfig { method: Some(Method::Recipe), ..some.clone() }, "has its own search space"),
            (
                TuneConfig { method: Some(Method::Grid), ..none.clone() },
                "`tune.method` = \"grid\" needs keys",
            ),
            (TuneConfig { trials: 0, ..some.clone() }, "`tune.trials` = 0 must be in [1, 10000]"),
            (TuneConfig { eta: Some(1), ..some.clone() }, "`tune.eta` = 1 must be in [2, 10000]"),
            (TuneConfig { trials: 1 << 20, ..some.clone() }, "must be in ["),
            (TuneConfig { rungs: Some(usize::MAX), ..some.clone() }, "must be in ["),
            (TuneConfig { eta: Some(usize::MAX), ..some }, "must be in ["),
        ] {
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
