//! What a study may try: a list or a range for each searched key, and of their combinations those that
//! the config's own checks let pass. That the heads divide the width is known, not tried and failed.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::config::Config;
use crate::data::seed::{ChaCha8Rng, Purpose, generator};
use crate::error::{Error, Result};

/// Values for the searched keys, each named with its section.
pub type Setting = BTreeMap<String, toml::Value>;

/// Combinations that are looked at one by one; of more, some are drawn.
const MOST_COMBINATIONS: usize = 10_000;
/// Points of a range in a grid, where it names no number.
const POINTS: usize = 5;
/// Combinations drawn in search of one that can be tried.
const DRAWS: u64 = 1_000;

/// What one key may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Dimension {
    /// One of these.
    List(Vec<toml::Value>),
    /// Anything between two numbers.
    Range(Range),
}

/// The numbers from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    min: f64,
    max: f64,
    /// Whether ratios count rather than distances.
    log: bool,
    /// Whether only whole numbers do.
    whole: bool,
    /// How many of them a grid has.
    points: usize,
}

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
        for index in 0..count as u64 {
            for attempt in 0..DRAWS {
                let random = &mut generator(seed, Purpose::Tuning, [index, attempt]);
                let values = self.dimensions.iter();
                let setting = values.map(|(key, values)| (key.clone(), values.draw(random))).collect();
                if !found.settings.contains(&setting) && self.admit(setting, &mut found) {
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
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|whole| whole as f64));
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

/// Why the trials of a study that searches a key could not be compared; none where they can.
fn incomparable(key: &str) -> Option<&'static str> {
    match key {
        "data.train_samples" => None,
        "training.steps" | "training.epochs" | "training.max_minutes" => {
            Some("cannot be searched: every trial has the same budget, which is `tune.steps`")
        }
        "training.validate_every" | "training.checkpoint_every" | "training.log_every" => {
            Some("cannot be searched: it changes what is measured, not what is learned")
        }
        "training.backend" | "training.threads" | "training.kernels" => {
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

impl Dimension {
    /// Reads a list or a range; the error is a clause that follows the value.
    fn parse(value: &toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Array(values) if values.is_empty() => {
                Err("is empty: name at least one value, as [16, 32, 64]".into())
            }
            toml::Value::Array(values) => {
                let mut distinct: Vec<toml::Value> = Vec::new();
                for value in values {
                    if !distinct.contains(value) {
                        distinct.push(value.clone());
                    }
                }
                Ok(Self::List(distinct))
            }
            toml::Value::Table(table) => Range::parse(table).map(Self::Range),
            _ => Err(
                "must be a list, as [16, 32, 64], or a range, as { min = 1e-4, max = 1e-2, scale = \"log\" }"
                    .into(),
            ),
        }
    }

    /// The values of a grid.
    fn points(&self) -> Vec<toml::Value> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => range.points(),
        }
    }

    /// Values that show whether all of them can be used.
    fn ends(&self) -> Vec<toml::Value> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => vec![range.at(0.0), range.at(1.0)],
        }
    }

    fn draw(&self, random: &mut ChaCha8Rng) -> toml::Value {
        match self {
            Self::List(values) => values[random.random_range(0..values.len())].clone(),
            Self::Range(range) => range.at(random.random_range(0.0..1.0)),
        }
    }
}

impl Range {
    fn parse(table: &toml::Table) -> Result<Self, String> {
        if let Some(key) = table.keys().find(|key| !["min", "max", "scale", "points"].contains(&key.as_str()))
        {
            return Err(format!("has a `{key}`, where a range has min, max, scale and points"));
        }
        let number = |name: &str| {
            let value =
                table.get(name).ok_or(format!("lacks `{name}`: a range is {{ min = 1, max = 2 }}"))?;
            let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
            number.filter(|number| number.is_finite()).ok_or(format!("has no number as `{name}`"))
        };
        let (min, max) = (number("min")?, number("max")?);
        if min >= max {
            return Err(format!("is empty: `max` = {max} must be above `min` = {min}"));
        }
        let log = match table.get("scale").map(|scale| scale.as_str()) {
            None | Some(Some("linear")) => false,
            Some(Some("log")) => true,
            Some(_) => return Err("has a `scale` that is neither \"log\" nor \"linear\"".into()),
        };
        if log && min <= 0.0 {
            return Err(format!(
                "has a logarithmic scale over `min` = {min}: take a `min` above 0, or scale = \"linear\""
            ));
        }
        let points = table.get("points").map(|points| points.as_integer().filter(|&points| points >= 2));
        let points = match points {
            None => POINTS,
            Some(Some(points)) => points as usize,
            Some(None) => return Err("has `points` that are no whole number from 2".into()),
        };
        if points > MOST_COMBINATIONS {
            return Err(format!("has more than {MOST_COMBINATIONS} points"));
        }
        let whole = ["min", "max"].iter().all(|&name| table[name].is_integer());
        Ok(Self { min, max, log, whole, points })
    }

    /// The number at a share of the way, 0 to 1; its first three digits, so that it can be read.
    fn at(&self, share: f64) -> toml::Value {
        let number = match self.log {
            true => self.min * (self.max / self.min).powf(share),
            false => self.min + (self.max - self.min) * share,
        };
        if self.whole {
            return toml::Value::Integer(number.round() as i64);
        }
        let ends = [self.min, self.max];
        let readable = format!("{number:.2e}").parse::<f64>().unwrap_or(number);
        // The ends are as they were written.
        let exact = ends.into_iter().find(|end| (end - number).abs() <= 1e-12 * end.abs());
        toml::Value::Float(exact.unwrap_or(readable).clamp(self.min, self.max))
    }

    fn points(&self) -> Vec<toml::Value> {
        let mut points: Vec<toml::Value> =
            (0..self.points).map(|index| self.at(index as f64 / (self.points - 1) as f64)).collect();
        points.dedup();
        points
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn space(search: &str) -> Result<Space> {
        let text = format!("[tune.search]\n{search}");
        Space::new(&Config::parse(&text, Path::new("study.toml"), &[])?)
    }

    fn refused(search: &str) -> String {
        space(search).unwrap_err().to_string()
    }

    fn values(settings: &[Setting], key: &str) -> Vec<toml::Value> {
        settings.iter().map(|setting| setting[key].clone()).collect()
    }

    #[test]
    fn a_grid_holds_every_combination_that_the_config_lets_pass() {
        let space = space("\"model.heads\" = [2, 3, 5]\n\"model.d_model\" = [15, 24]").unwrap();
        let grid = space.grid().unwrap();
        let pairs = grid.settings.iter().map(|setting| {
            (setting["model.d_model"].as_integer().unwrap(), setting["model.heads"].as_integer().unwrap())
        });
        assert_eq!(pairs.collect::<Vec<_>>(), [(15, 3), (15, 5), (24, 2), (24, 3)]);
        assert_eq!(grid.left_out, 2);
        assert!(grid.reason.unwrap().contains("must divide"));
    }

    #[test]
    fn points_of_a_logarithmic_range_have_one_ratio_and_keep_its_ends() {
        let space = space(
            "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\", points = 3 }\n\
             \"model.layers\" = { min = 1, max = 3 }",
        )
        .unwrap();
        let grid = space.grid().unwrap().settings;
        let mut rates = values(&grid, "training.learning_rate");
        rates.dedup();
        let floats = [1e-4, 1e-3, 1e-2].map(toml::Value::Float);
        assert!(floats.iter().all(|rate| rates.contains(rate)), "{rates:?}");
        assert_eq!(grid.len(), 9, "three rates, and of five points of 1 to 3 the three whole ones");
    }

    #[test]
    fn draws_are_different_within_their_range_and_the_same_for_the_same_seed() {
        let space = space(
            "\"training.learning_rate\" = { min = 1e-4, max = 1e-2, scale = \"log\" }\n\
             \"model.heads\" = [2, 3]\n\"model.d_model\" = { min = 5, max = 13 }",
        )
        .unwrap();
        let drawn = space.draw(64, 7).unwrap();
        assert_eq!(drawn.settings.len(), 64);
        assert_eq!(space.draw(64, 7).unwrap(), drawn);
        assert_eq!(space.draw(5, 7).unwrap().settings, drawn.settings[..5], "a longer study begins alike");
        assert_ne!(space.draw(64, 8).unwrap().settings, drawn.settings);
        let rates = values(&drawn.settings, "training.learning_rate");
        let rates = rates.iter().map(|rate| rate.as_float().unwrap()).collect::<Vec<_>>();
        assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
        let below = rates.iter().filter(|&&rate| rate < 1e-3).count();
        assert!((20..44).contains(&below), "half of a logarithmic range lies below its middle: {below}");
        for setting in &drawn.settings {
            let whole = |key: &str| setting[key].as_integer().unwrap();
            assert_eq!(whole("model.d_model") % whole("model.heads"), 0);
        }
    }

    #[test]
    fn lists_are_drawn_without_repetition_to_their_end() {
        let space = space("\"model.heads\" = [2, 4, 8]\n\"training.batch_size\" = [3, 5]").unwrap();
        let drawn = space.draw(100, 0).unwrap().settings;
        assert_eq!(drawn.len(), 6);
        assert!(space.grid().unwrap().settings.iter().all(|setting| drawn.contains(setting)));
        assert_ne!(drawn, space.grid().unwrap().settings, "shuffled");
    }

    #[test]
    fn the_end_of_a_schedule_is_no_higher_than_the_rate_that_is_tried() {
        let space = space("\"training.learning_rate\" = [1e-5, 1e-3]").unwrap();
        let least = space.grid().unwrap().settings;
        let least = least.iter().map(|setting| space.config(setting).unwrap().training.min_learning_rate);
        assert_eq!(least.collect::<Vec<_>>(), [1e-5, 1e-4]);
    }

    #[test]
    fn what_cannot_be_searched_is_told_with_its_line_and_a_remedy() {
        let cases = [
            (
                "\"model.hed\" = [2]",
                "study.toml:2: `tune.search.model.hed` = [2] is no known key: did you mean `model.heads`?",
            ),
            ("\"modell.heads\" = [2]", "did you mean `model.heads`?"),
            ("\"model.heads\" = []", "study.toml:2: `tune.search.model.heads` = [] is empty"),
            ("\"model.heads\" = 4", "must be a list"),
            ("\"model.heads\" = [\"four\"]", "expected a whole number"),
            ("\"training.batch_size\" = [16, 0]", "`tune.search.training.batch_size` = 0 must be at least 1"),
            ("\"model.dropout\" = { min = 0, max = 2 }", "[0, 1)"),
            (
                "\"model.dropout\" = { min = 0.3, max = 0.1 }",
                "is empty: `max` = 0.1 must be above `min` = 0.3",
            ),
            ("\"model.dropout\" = { min = 0.3 }", "lacks `max`"),
            (
                "\"model.dropout\" = { min = 0, max = 0.5, scale = \"log\" }",
                "logarithmic scale over `min` = 0",
            ),
            ("\"model.dropout\" = { min = 0, max = 0.5, sacle = \"log\" }", "has a `sacle`"),
            ("\"training.steps\" = [10, 20]", "`tune.steps`"),
            ("\"run.seed\" = [1, 2]", "`tune.seeds`"),
            ("\"data.length\" = [8, 16]", "validation set"),
            ("\"tune.trials\" = [8, 16]", "cannot be searched"),
        ];
        for (search, part) in cases {
            let said = refused(search);
            assert!(said.contains(part) && said.lines().count() == 1, "{search}: {said}");
        }
        let said = space("\"model.heads\" = [3, 5, 7]").unwrap().grid().unwrap_err().to_string();
        assert!(
            said.contains("no combination") && said.contains("must divide `model.d_model` = 64"),
            "{said}"
        );
    }
}
