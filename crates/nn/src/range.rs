//! Validation of settings: the valid range of each number, declared once for both checks and schema, and the settings
//! without effect.

use std::fmt;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use crate::choice::UnusedKeys;
use crate::error::{Error, Result};

/// The largest signed 64-bit integer, as in TOML.
pub const MAX_INTEGER: u64 = i64::MAX as u64;

/// The valid values of a numeric key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Integers between two bounds, both inclusive.
    Integer(u64, u64),
    /// Finite numbers between two bounds.
    Real(Bound<f64>, Bound<f64>),
}

impl Range {
    /// Any non-negative integer.
    pub const ANY: Self = Self::Integer(0, MAX_INTEGER);
    /// A positive number.
    pub const POSITIVE: Self = Self::Real(Excluded(0.0), Unbounded);
    /// A non-negative number.
    pub const NON_NEGATIVE: Self = Self::Real(Included(0.0), Unbounded);
    /// A number of at least 1.
    pub const FROM_1: Self = Self::Real(Included(1.0), Unbounded);
    /// A fraction in [0, 1).
    pub const FRACTION: Self = Self::Real(Included(0.0), Excluded(1.0));
    /// A positive fraction of at most 1.
    pub const UP_TO_1: Self = Self::Real(Excluded(0.0), Included(1.0));
    /// A number in (0, 1).
    pub const BETWEEN_0_AND_1: Self = Self::Real(Excluded(0.0), Excluded(1.0));

    /// Returns the problem with `number` as a clause that follows the number; `None` if it is valid. A number must
    /// be in range both as written and in single precision, in which models compute.
    pub fn problem(self, number: Number) -> Option<String> {
        Some(match (self, number) {
            (Self::Integer(min, max), Number::Integer(value)) if !(min..=max).contains(&value) => {
                self.to_string()
            }
            (Self::Real(..), Number::Real(value)) if !self.holds(value) => self.to_string(),
            (Self::Real(..), Number::Real(value)) => {
                let single = value as f32;
                match single {
                    _ if single.is_infinite() => {
                        "is infinite in single precision; use a value below 3e38".to_string()
                    }
                    0.0 if value != 0.0 && self.holds(0.0) => {
                        "is 0 in single precision; use 0, or a value above 1e-37".to_string()
                    }
                    0.0 if value != 0.0 => "is 0 in single precision; use a value above 1e-37".to_string(),
                    _ if !self.holds(f64::from(single)) => format!("{self}, also in single precision"),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Returns a noun phrase for the numbers of this range, without the upper bound.
    pub fn noun(self) -> String {
        match self {
            Self::Integer(0, _) => "a non-negative integer".to_string(),
            Self::Integer(1, _) => "a positive integer".to_string(),
            Self::Integer(min, _) => format!("an integer of at least {min}"),
            Self::Real(..) => "a number".to_string(),
        }
    }

    fn holds(self, value: f64) -> bool {
        let Self::Real(min, max) = self else { return false };
        let is_above = match min {
            Included(min) => value >= min,
            Excluded(min) => value > min,
            Unbounded => true,
        };
        let is_below = match max {
            Included(max) => value <= max,
            Excluded(max) => value < max,
            Unbounded => true,
        };
        is_above && is_below && value.is_finite()
    }
}

impl fmt::Display for Range {
    /// Writes the requirement as a clause that follows the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(min, max) => write!(f, "must be in [{min}, {max}]"),
            Self::Real(Included(min), Unbounded) => write!(f, "must be finite and at least {min}"),
            Self::Real(Excluded(min), Unbounded) => write!(f, "must be finite and above {min}"),
            Self::Real(Included(min), Excluded(max)) => write!(f, "must be in [{min}, {max})"),
            Self::Real(Excluded(min), Excluded(max)) => write!(f, "must be in ({min}, {max})"),
            Self::Real(Excluded(min), Included(max)) => write!(f, "must be in ({min}, {max}]"),
            Self::Real(..) => f.write_str("must be finite"),
        }
    }
}

/// The value of a numeric key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Integer(u64),
    /// Any number.
    Real(f64),
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
        }
    }
}

/// A field's name, its number if it has one, and its range.
pub type Ranged = (&'static str, Option<Number>, Range);

/// A section of a config: the valid values of its keys, and the keys it uses.
pub trait Section: Default {
    /// Returns every numeric field with its value and range.
    fn ranges(&self) -> Vec<Ranged>;

    /// Returns the keys that have no effect because of the values of other keys.
    fn unused_keys(&self) -> UnusedKeys {
        UnusedKeys::default()
    }

    /// Checks every number, and fails on the first one outside its range.
    ///
    /// # Errors
    /// [`Error::Argument`] with the field, its value and the range.
    fn check_ranges(&self) -> Result<()> {
        let ranges = self.ranges().into_iter();
        ranges
            .filter_map(|(name, number, range)| Some((name, number?, range)))
            .try_for_each(|(name, number, range)| check(name, number, range))
    }
}

/// Checks that a number is in its range.
///
/// # Errors
/// [`Error::Argument`] with the field, its value and the range.
pub fn check(name: &'static str, number: Number, range: Range) -> Result<()> {
    let problem = range.problem(number);
    Error::check(problem.is_none(), name, number, problem.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_in_single_precision_too() {
        let problem = |range: Range, number: f64| range.problem(number.into()).unwrap_or_default();
        for (range, number, expected) in [
            (Range::POSITIVE, 0.0, "must be finite and above 0"),
            (Range::POSITIVE, f64::NAN, "must be finite and above 0"),
            (Range::POSITIVE, f64::INFINITY, "must be finite and above 0"),
            (Range::POSITIVE, 1e-60, "is 0 in single precision; use a value above"),
            (Range::NON_NEGATIVE, 1e-60, "is 0 in single precision"),
            (Range::NON_NEGATIVE, 1e308, "is infinite in single precision"),
            (Range::FRACTION, 1.0, "must be in [0, 1)"),
            (Range::FRACTION, 0.999_999_999, "must be in [0, 1), also in single precision"),
            (Range::BETWEEN_0_AND_1, 1.0, "must be in (0, 1)"),
            (Range::FROM_1, 0.5, "must be finite and at least 1"),
        ] {
            assert!(problem(range, number).contains(expected), "{number}: {}", problem(range, number));
        }
        for number in [0.0, 1e-12, 0.5] {
            assert_eq!(problem(Range::FRACTION, number), "", "{number}");
        }
    }
}
