//! What one key may be: a list of values, or a range of numbers.

use rand::RngExt;

use crate::data::seed::ChaCha8Rng;

/// Combinations that are looked at one by one; of more, some are drawn.
pub(super) const MOST_COMBINATIONS: usize = 10_000;
/// Points of a range in a grid, where it names no number.
const POINTS: usize = 5;

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

impl Dimension {
    /// Reads a list or a range; the error is a clause that follows the value.
    pub fn parse(value: &toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::Array(values) if values.is_empty() => {
                Err("is empty: name at least one value, as [16, 32, 64]".into())
            }
            toml::Value::Array(values) => {
                let mut distinct: Vec<toml::Value> = Vec::new();
                for value in values {
                    // 1 and 1.0 are one value.
                    let is_same = |other: &toml::Value| match (number(other), number(value)) {
                        (Some(other), Some(value)) => other == value,
                        _ => other == value,
                    };
                    if !distinct.iter().any(is_same) {
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
    pub fn points(&self) -> Vec<toml::Value> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => range.points(),
        }
    }

    /// Values that show whether all of them can be used.
    pub fn ends(&self) -> Vec<toml::Value> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => vec![range.at(0.0), range.at(1.0)],
        }
    }

    pub fn draw(&self, random: &mut ChaCha8Rng) -> toml::Value {
        match self {
            Self::List(values) => values[random.random_range(0..values.len())].clone(),
            Self::Range(range) => range.at(random.random_range(0.0..1.0)),
        }
    }
}

/// A value as a table shows it: text without its quotes.
pub fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Float(number) if *number != 0.0 && !(1e-2..1e6).contains(&number.abs()) => {
            format!("{number:e}")
        }
        value => value.to_string(),
    }
}

/// A value as a number, where it is one.
pub fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|whole| whole as f64))
}

impl Range {
    fn parse(table: &toml::Table) -> Result<Self, String> {
        if let Some(key) = table.keys().find(|key| !["min", "max", "scale", "points"].contains(&key.as_str()))
        {
            return Err(format!("has a `{key}`, where a range has min, max, scale and points"));
        }
        let read = |name: &str| {
            let value =
                table.get(name).ok_or(format!("lacks `{name}`: a range is {{ min = 1, max = 2 }}"))?;
            number(value).filter(|number| number.is_finite()).ok_or(format!("has no number as `{name}`"))
        };
        let (min, max) = (read("min")?, read("max")?);
        if min >= max {
            let (low, high) = (shown(&table["min"]), shown(&table["max"]));
            return Err(format!("is empty: `max` = {high} must be above `min` = {low}"));
        }
        let log = match table.get("scale").map(|scale| scale.as_str()) {
            None | Some(Some("linear")) => false,
            Some(Some("log")) => true,
            Some(_) => return Err("has a `scale` that is neither \"log\" nor \"linear\"".into()),
        };
        if log && min <= 0.0 {
            return Err(format!(
                "has a logarithmic scale over `min` = {}: take a `min` above 0, or scale = \"linear\"",
                shown(&table["min"])
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

    /// The number at a share of the way, 0 to 1: its first three digits, so that it can be read, or as many
    /// more as tell a hundredth of the range.
    fn at(&self, share: f64) -> toml::Value {
        let number = match self.log {
            true => (self.min.ln() * (1.0 - share) + self.max.ln() * share).exp(),
            false => self.min * (1.0 - share) + self.max * share,
        };
        if self.whole {
            return toml::Value::Integer(number.round() as i64);
        }
        let ends = [self.min, self.max];
        let power = |number: f64| number.abs().log10().floor();
        // Of zero the power is infinite, and two digits do.
        let digits = power(number) - power((self.max - self.min) / 100.0);
        let digits = if digits.is_finite() { digits.clamp(2.0, 16.0) as usize } else { 2 };
        let readable = format!("{number:.digits$e}").parse::<f64>().unwrap_or(number);
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
    use super::*;

    #[test]
    fn a_value_that_is_written_twice_is_one() {
        let list = "values = [1, 1.0, 2, \"a\", \"a\"]".parse::<toml::Table>().unwrap();
        assert_eq!(Dimension::parse(&list["values"]).unwrap().points().len(), 3);
    }

    #[test]
    fn points_of_a_range_have_three_digits_or_as_many_as_tell_them_apart() {
        let points = |range: &str| {
            let range = format!("range = {range}").parse::<toml::Table>().unwrap();
            let points = Dimension::parse(&range["range"]).unwrap().points();
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
