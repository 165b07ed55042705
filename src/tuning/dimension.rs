//! A dimension of the search space: the values of one key, as a list or as a range of numbers.

use rand::RngExt;
use serde::Deserialize;

use crate::data::seed::ChaCha8Rng;

/// The maximum number of combinations that are enumerated; larger spaces are sampled.
pub(super) const MAX_COMBINATIONS: usize = 10_000;

/// The values that a key can take.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// The points of a grid: all values of a list, evenly spaced values of a range.
    pub points: Vec<toml::Value>,
    /// The range; `None` for a list.
    pub range: Option<SearchRange>,
}

/// A range of numbers from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRange {
    min: f64,
    max: f64,
    #[serde(default)]
    scale: SearchScale,
    /// The number of points in a grid.
    #[serde(default = "default_points")]
    points: usize,
    /// True if both ends, and therefore all values, are integers.
    #[serde(skip)]
    is_integer: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchScale {
    /// Evenly spaced.
    #[default]
    Linear,
    /// Evenly spaced on a logarithmic scale.
    Log,
}

fn default_points() -> usize {
    5
}

impl Dimension {
    /// Parses a list or a range. The error message begins with a verb, for use after `key = value`.
    pub fn parse(value: &toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Array(values) if values.is_empty() => {
                Err("is empty; add at least one value, such as [16, 32, 64]".into())
            }
            toml::Value::Array(values) => {
                let mut points: Vec<toml::Value> = Vec::new();
                for value in values {
                    // 1 and 1.0 are the same value.
                    let same = |other| number(other).is_some_and(|other| number(value) == Some(other));
                    if !points.iter().any(|other| other == value || same(other)) {
                        points.push(value.clone());
                    }
                }
                Ok(Self { points, range: None })
            }
            toml::Value::Table(table) => {
                let range = SearchRange::parse(table)?;
                let share = |index: usize| index as f64 / (range.points - 1) as f64;
                let mut points = (0..range.points).map(|index| range.at(share(index))).collect::<Vec<_>>();
                points.dedup();
                Ok(Self { points, range: Some(range) })
            }
            _ => Err("must be a list such as [16, 32, 64], or a range such as \
                      { min = 1e-4, max = 1e-2, scale = \"log\" }"
                .into()),
        }
    }

    /// Draws one of the values at random.
    pub fn draw(&self, random: &mut ChaCha8Rng) -> toml::Value {
        match self.range {
            None => self.points[random.random_range(0..self.points.len())].clone(),
            Some(range) => range.at(random.random_range(0.0..1.0)),
        }
    }
}

/// Formats a value for a table, without quotes around text.
pub fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Float(number) if *number != 0.0 && !(1e-2..1e6).contains(&number.abs()) => {
            format!("{number:e}")
        }
        value => value.to_string(),
    }
}

/// Returns a value as a number, if it is one.
pub fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|integer| integer as f64))
}

impl SearchRange {
    fn parse(table: &toml::Table) -> Result<Self, String> {
        let range = Self::deserialize(table.clone()).map_err(|error| {
            format!(
                "is not a range such as {{ min = 1e-4, max = 1e-2, scale = \"log\" }}: {}",
                error.message()
            )
        })?;
        let Self { min, max, scale, points, .. } = range;
        let (low, high) = (shown(&table["min"]), shown(&table["max"]));
        if !min.is_finite() || !max.is_finite() {
            Err("must have a finite `min` and `max`".into())
        } else if min >= max {
            Err(format!("is empty: `max` = {high} must be above `min` = {low}"))
        } else if scale == SearchScale::Log && min <= 0.0 {
            Err(format!(
                "has a logarithmic scale, but `min` = {low}; use a positive `min`, or scale = \"linear\""
            ))
        } else if !(2..=MAX_COMBINATIONS).contains(&points) {
            Err(format!("has `points` = {points}, which must be in [2, {MAX_COMBINATIONS}]"))
        } else {
            Ok(Self { is_integer: table["min"].is_integer() && table["max"].is_integer(), ..range })
        }
    }

    /// Returns the number at a fraction of the range, 0 to 1. It is rounded to three significant digits for
    /// readability, or to more if these are needed to resolve a hundredth of the range.
    fn at(&self, share: f64) -> toml::Value {
        let number = match self.scale {
            SearchScale::Log => (self.min.ln() * (1.0 - share) + self.max.ln() * share).exp(),
            SearchScale::Linear => self.min * (1.0 - share) + self.max * share,
        };
        if self.is_integer {
            return toml::Value::Integer(number.round() as i64);
        }
        let power = |number: f64| number.abs().log10().floor();
        // The logarithm of zero is infinite; two digits are enough for zero.
        let digits = power(number) - power((self.max - self.min) / 100.0);
        let digits = if digits.is_finite() { digits.clamp(2.0, 16.0) as usize } else { 2 };
        let readable = format!("{number:.digits$e}").parse::<f64>().unwrap_or(number);
        // The ends keep their exact values.
        let exact = [self.min, self.max].into_iter().find(|end| (end - number).abs() <= 1e-12 * end.abs());
        toml::Value::Float(exact.unwrap_or(readable).clamp(self.min, self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_values_count_once() {
        let list = "values = [1, 1.0, 2, \"a\", \"a\"]".parse::<toml::Table>().unwrap();
        assert_eq!(Dimension::parse(&list["values"]).unwrap().points.len(), 3);
    }

    #[test]
    fn range_points_have_enough_digits_to_differ() {
        let points = |range: &str| {
            let range = format!("range = {range}").parse::<toml::Table>().unwrap();
            let points = Dimension::parse(&range["range"]).unwrap().points;
            points.iter().map(|point| point.as_float().unwrap()).collect::<Vec<_>>()
        };
        let narrow = points("{ min = 0.999, max = 0.9999 }");
        assert!(narrow.len() == 5 && narrow.is_sorted_by(|a, b| a < b), "{narrow:?}");
        assert_eq!((narrow[0], narrow[2], narrow[4]), (0.999, 0.99945, 0.9999));
        let rates = points("{ min = 1e-4, max = 1e-2, scale = \"log\" }");
        assert_eq!(rates, [1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2]);
        assert_eq!(points("{ min = -1.0, max = 1.0 }"), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }
}
