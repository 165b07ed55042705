//! Errors returned by constructors and forward passes.

use std::fmt;

/// The result of an operation that fails on an invalid argument or shape.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An invalid argument or shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An invalid value of an argument or a config field.
    #[error("`{name}` = {value} {problem}")]
    Argument {
        /// The name of the argument or field, such as `heads`.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The problem and the remedy, as a clause that follows the value.
        problem: String,
    },

    /// Tensors, masks or lengths that do not match each other; the message contains both shapes.
    #[error("{0}")]
    Shape(String),
}

impl Error {
    /// Returns an error for the `value` of an argument unless `is_valid`. `problem` is a clause that follows the value,
    /// such as "must divide `d_model` = 64".
    ///
    /// # Errors
    /// [`Error::Argument`] if `is_valid` is false.
    pub fn check(
        is_valid: bool,
        name: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Result<()> {
        match is_valid {
            true => Ok(()),
            false => Err(Error::Argument { name, value: value.to_string(), problem: problem.into() }),
        }
    }
}

/// Returns an error of the given `kind` unless the condition `holds`.
pub(crate) fn ensure(holds: bool, kind: fn(String) -> Error, problem: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(kind(problem())) }
}
