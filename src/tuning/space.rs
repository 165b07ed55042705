//! What a study may try: a list or a range for each searched key, and of their combinations those that
//! the config's own checks let pass. That the heads divide the width is known, not tried and failed.

use std::collections::{BTreeMap, HashSet};

use rand::seq::SliceRandom;

use super::dimension::{Dimension, MOST_COMBINATIONS, number, shown};
use crate::config::Config;
use crate::data::seed::{Purpose, generator};
use crate::error::{Error, Result};

/// Values for the searched keys, each named with its section.
pub type Setting = BTreeMap<String, toml::Value>;

/// Combinations drawn in search of one that can be tried.
const DRAWS: u64 = 1_000;

/// What a study may try.
#[derive(Debug, Clone)]
pub struct Space {
    base: Config,
    dimensions: BTreeMap<String, Dimension>,
}

/// Combinations of a space.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Combinations {
    /// Those that can be tried.
    pub settings: Vec<Setting>,
    /// How many were left out because the config's own checks refuse them.
    pub left_out: usize,
    /// Why the first one was.
    pub reason: Option<String>,
}

impl Space {
    /// The space of a config's `[tune.search]`; without one it has no keys.
    ///
    /// # Errors
    /// [`Error::Key`] for a key that a study cannot search, a list or range that is empty, and a value
    /// that cannot be used in any combination.
    pub fn new(config: &Config) -> Result<Self> {
        let searched = config.tune.as_ref().map(|tune| tune.searched()).unwrap_or_default();
        let mut dimensions = BTreeMap::new();
        for (key, value) in searched {
            let refused = |problem: String| {
                Error::key(format!("tune.search.{key}"), value.to_string().replace('\n', ""), problem)
            };
            if let Some(problem) = incomparable(&key) {
                return Err(refused(problem.into()));
            }
            let dimension = Dimension::parse(&value).map_err(refused)?;
            dimensions.insert(key, dimension);
        }
        let space = Self { base: Config { tune: None, ..config.clone() }, dimensions };
        space.check_values()?;
        Ok(space)
    }

    /// The config that the space is around, without its search.
    pub fn base(&self) -> &Config {
        &self.base
    }

    /// The searched keys, in their order.
    pub fn keys(&self) -> Vec<String> {
        self.dimensions.keys().cloned().collect()
    }

    /// The config of a setting. A falling schedule ends no higher than the setting's rate.
    ///
    /// # Errors
    /// If the config's own checks refuse it.
    pub fn config(&self, setting: &Setting) -> Result<Config> {
        configured(&self.base, setting)
    }

    /// Every combination; of a range so many points as it asks for, or 5.
    ///
    /// # Errors
    /// If there are too many, or none of them can be tried.
    pub fn grid(&self) -> Result<Combinations> {
        let size = self.size(true).filter(|&size| size <= MOST_COMBINATIONS);
        let Some(size) = size else {
            return Err(Error::Input(format!(
                "the grid of [tune.search] has more than {MOST_COMBINATIONS} combinations: shorten the lists, or take \
                 tune.method = \"halving\""
            )));
        };
        let values = self.dimensions.iter().map(|(key, dimension)| (key, dimension.points()));
        let values = values.collect::<Vec<_>>();
        let mut found = Combinations::default();
        for mut index in 0..size {
            let mut setting = Setting::new();
            // The last key changes fastest.
            for (key, points) in values.iter().rev() {
                setting.insert((*key).clone(), points[index % points.len()].clone());
                index /= points.len();
            }
            self.admit(setting, &mut found);
        }
        found.or_none_can_be_tried()
    }

    /// Up to `count` different combinations, a pure function of the seed: the first of a shuffled grid
    /// where there are lists only, else drawn one by one.
    ///
    /// # Errors
    /// If none of them can be tried.
    pub fn draw(&self, count: usize, seed: u64) -> Result<Combinations> {
        if self.size(false).is_some_and(|size| size <= MOST_COMBINATIONS) {
            let mut grid = self.grid()?;
            grid.settings.shuffle(&mut generator(seed, Purpose::Tuning, [0, 0]));
            grid.settings.truncate(count);
            return Ok(grid);
        }
        let mut found = Combinations::default();
        let mut drawn = HashSet::new();
        for index in 0..count as u64 {
            for attempt in 0..DRAWS {
                let random = &mut generator(seed, Purpose::Tuning, [index, attempt]);
                let values = self.dimensions.iter();
                let setting: Setting =
                    values.map(|(key, values)| (key.clone(), values.draw(random))).collect();
                if drawn.insert(format!("{setting:?}")) && self.admit(setting, &mut found) {
                    break;
                }
            }
        }
        found.or_none_can_be_tried()
    }

    /// The number of combinations; none where a range has no end of values, or they cannot be counted.
    fn size(&self, in_points: bool) -> Option<usize> {
        self.dimensions.values().try_fold(1usize, |size, dimension| match dimension {
            Dimension::Range(_) if !in_points => None,
            dimension => size.checked_mul(dimension.points().len()),
        })
    }

    /// Takes a setting in, if the config's checks let it pass.
    fn admit(&self, setting: Setting, found: &mut Combinations) -> bool {
        match self.config(&setting) {
            Ok(_) => found.settings.push(setting),
            Err(error) => {
                found.left_out += 1;
                found.reason.get_or_insert(error.to_string());
                return false;
            }
        }
        true
    }

    /// A value that is wrong by itself, whatever the other keys say, is no condition but an error.
    fn check_values(&self) -> Result<()> {
        for (key, dimension) in &self.dimensions {
            for value in dimension.ends() {
                let setting = [(key.clone(), value)].into();
                if let Err(Error::Key { key: refused, value, problem, .. }) = self.config(&setting)
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

/// The config of a setting around `base`.
///
/// # Errors
/// If the config's own checks refuse it.
pub fn configured(base: &Config, setting: &Setting) -> Result<Config> {
    const RATE: &str = "training.learning_rate";
    const LEAST: &str = "training.min_learning_rate";
    let mut setting = setting.clone();
    if let Some(rate) = setting.get(RATE).and_then(number)
        && !setting.contains_key(LEAST)
        && base.training.min_learning_rate > rate
        && rate > 0.0
    {
        setting.insert(LEAST.to_string(), rate.into());
    }
    base.with(&setting)
}

/// A setting in words: each key without its section, and its value.
pub fn setting_shown(setting: &Setting) -> String {
    let pair = |(key, value): (&String, &toml::Value)| {
        format!("{} {}", key.split_once('.').map_or(key.as_str(), |(_, name)| name), shown(value))
    };
    setting.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// Whether the trials start from the weights of a run, which fit its model alone.
pub fn keeps_its_shape(config: &Config) -> bool {
    !config.run.from.as_os_str().is_empty()
}

/// Why the trials of a study that searches a key could not be compared; none where they can.
fn incomparable(key: &str) -> Option<&'static str> {
    match key {
        "data.train_samples" => None,
        "training.steps" | "training.epochs" | "training.max_minutes" => {
            Some("cannot be searched: every trial has the same budget, which is `tune.steps`")
        }
        "training.validate_every"
        | "training.validate_at"
        | "training.checkpoint_every"
        | "training.log_every" => {
            Some("cannot be searched: it changes what is measured, not what is learned")
        }
        "training.backend" | "training.device" | "training.threads" | "training.kernels" => {
            Some("cannot be searched: it changes how fast a model learns, not what")
        }
        "run.seed" => Some("cannot be searched: `tune.seeds` = 3 runs each setting with three seeds"),
        key if key.starts_with("data.") => Some(
            "cannot be searched: it changes the validation set, which must be the same for all trials; of [data] \
             only `data.train_samples` can",
        ),
        key if key.starts_with("model.") || key.starts_with("training.") => None,
        _ => Some("cannot be searched: search keys of [model] and [training]"),
    }
}

impl Combinations {
    fn or_none_can_be_tried(self) -> Result<Self> {
        match (self.settings.is_empty(), &self.reason) {
            (true, Some(reason)) => Err(Error::Input(format!(
                "no combination of [tune.search] can be tried: {reason}; search that key too, or other values"
            ))),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests;
