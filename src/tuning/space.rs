//! The search space: a list or a range for each searched key, and the combinations of them that make valid configs.
//! Invalid combinations, such as heads that do not divide the width, are excluded in advance.

use std::collections::{BTreeMap, HashSet};

use rand::seq::SliceRandom;

use super::dimension::{Dimension, MAX_COMBINATIONS, shown};
use crate::config::Config;
use crate::data::seed::{Purpose, generator};
use crate::error::{Error, Result, ensure};

/// The values of the searched keys; keys include their section.
pub type Setting = BTreeMap<String, toml::Value>;

/// The maximum number of draws for one valid combination.
const MAX_DRAWS: u64 = 1_000;

/// A search space.
#[derive(Debug, Clone)]
pub struct Space {
    base: Config,
    dimensions: BTreeMap<String, Dimension>,
}

/// The combinations of a search space.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Combinations {
    /// The valid combinations.
    pub settings: Vec<Setting>,
    /// The reasons why the other combinations are invalid.
    pub refused: Vec<String>,
}

impl Space {
    /// Creates the space of a config's `[tune.search]`; without this table, the space has no keys.
    ///
    /// # Errors
    /// [`Error::Key`] for a key that is not searchable, an empty list or range, and a value that is invalid in every
    /// combination.
    pub fn new(config: &Config) -> Result<Self> {
        let mut dimensions = BTreeMap::new();
        for (key, value) in config.tune.iter().flat_map(|tune| &tune.search) {
            let dimension = match incomparable(key) {
                Some(problem) => Err(problem.to_string()),
                None => Dimension::parse(value),
            };
            let dimension = dimension.map_err(|problem| not_searched(key, value, problem))?;
            dimensions.insert(key.clone(), dimension);
        }
        let space = Self { base: Config { tune: None, ..config.clone() }, dimensions };
        space.check_values()?;
        Ok(space)
    }

    /// Returns the searched keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.dimensions.keys().map(String::as_str)
    }

    /// Returns every combination; the last key changes fastest. A range contributes its number of points, 5 by default.
    ///
    /// # Errors
    /// If there are too many combinations, or none is valid.
    pub fn grid(&self) -> Result<Combinations> {
        let size = self.size();
        ensure(size <= MAX_COMBINATIONS, Error::Input, || {
            format!(
                "the grid of [tune.search] has more than {MAX_COMBINATIONS} combinations; shorten the \
                 lists, or set tune.method = \"halving\""
            )
        })?;
        let mut found = Combinations::default();
        for mut index in 0..size {
            let mut setting = Setting::new();
            for (key, Dimension { points, .. }) in self.dimensions.iter().rev() {
                setting.insert(key.clone(), points[index % points.len()].clone());
                index /= points.len();
            }
            self.admit(setting, &mut found);
        }
        found.or_error()
    }

    /// Returns up to `count` different combinations as a pure function of the seed: the first ones of a shuffled grid
    /// if all keys have lists, otherwise random draws.
    ///
    /// # Errors
    /// If no combination is valid.
    pub fn draw(&self, count: usize, seed: u64) -> Result<Combinations> {
        let is_finite = self.dimensions.values().all(|dimension| dimension.range.is_none());
        if is_finite && self.size() <= MAX_COMBINATIONS {
            let mut grid = self.grid()?;
            grid.settings.shuffle(&mut generator(seed, Purpose::Tuning, [0, 0]));
            grid.settings.truncate(count);
            return Ok(grid);
        }
        let mut found = Combinations::default();
        let mut drawn = HashSet::new();
        for index in 0..count as u64 {
            for attempt in 0..MAX_DRAWS {
                let random = &mut generator(seed, Purpose::Tuning, [index, attempt]);
                let value = |(key, values): (&String, &Dimension)| (key.clone(), values.draw(random));
                let setting = self.dimensions.iter().map(value).collect::<Setting>();
                if drawn.insert(format!("{setting:?}")) && self.admit(setting, &mut found) {
                    break;
                }
            }
        }
        found.or_error()
    }

    /// Returns the number of combinations of the grid.
    fn size(&self) -> usize {
        self.dimensions.values().fold(1, |size, dimension| size.saturating_mul(dimension.points.len()))
    }

    /// Adds a setting to the valid combinations or to the refused ones, and returns true if it is valid.
    fn admit(&self, setting: Setting, found: &mut Combinations) -> bool {
        let refused = self.base.with(&setting).err();
        let passes = refused.is_none();
        found.refused.extend(refused.map(|error| error.to_string()));
        found.settings.extend(passes.then_some(setting));
        passes
    }

    /// Checks each value on its own: a value that is invalid regardless of the other keys is an error, not just a
    /// refused combination.
    fn check_values(&self) -> Result<()> {
        for (key, dimension) in &self.dimensions {
            for value in &dimension.points {
                if let Err(Error::Key { key: refused, value, problem, .. }) =
                    self.base.with(&[(key.clone(), value.clone())].into())
                    && refused == *key
                    && (problem.starts_with("cannot be used") || !problem.contains('`'))
                {
                    return Err(Error::key(format!("tune.search.{key}"), value, problem));
                }
            }
        }
        Ok(())
    }
}

/// Returns the error for a key that cannot be searched, or not over these values.
pub fn not_searched(key: &str, value: &toml::Value, problem: impl Into<String>) -> Error {
    Error::key(format!("tune.search.{key}"), value.to_string().replace('\n', ""), problem)
}

/// Returns a setting as text: each key without its section, and its value.
pub fn setting_shown(setting: &Setting) -> String {
    let pair = |(key, value): (&String, &toml::Value)| {
        format!("{} {}", key.split_once('.').map_or(key.as_str(), |(_, name)| name), shown(value))
    };
    setting.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// Returns the reason why trials with different values of a key are not comparable; `None` if they are.
fn incomparable(key: &str) -> Option<&'static str> {
    let (section, name) = key.split_once('.').unwrap_or((key, ""));
    match (section, name) {
        ("data", "train_samples") => None,
        ("data", _) => Some(
            "cannot be searched: it changes the validation set, which all trials share; of [data], only \
            `data.train_samples` can be searched",
        ),
        ("training", "steps" | "epochs" | "max_minutes") => {
            Some("cannot be searched: every trial has the same budget, `tune.steps`")
        }
        ("training", "validate_every" | "validate_at" | "checkpoint_every" | "log_every") => {
            Some("cannot be searched: it changes when losses are measured, not the training")
        }
        ("training", "backend" | "device" | "threads" | "kernels") => {
            Some("cannot be searched: it changes the speed of training, not its result")
        }
        ("run", "seed") => {
            Some("cannot be searched; set `tune.seeds` = 3 to run each setting with three seeds")
        }
        ("model" | "training", _) => None,
        _ => Some("cannot be searched; search keys of [model] and [training]"),
    }
}

impl Combinations {
    fn or_error(self) -> Result<Self> {
        match self.refused.first().filter(|_| self.settings.is_empty()) {
            None => Ok(self),
            Some(reason) => Err(Error::Input(format!(
                "no combination of [tune.search] is valid: {reason}; search both keys, or use other values"
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
