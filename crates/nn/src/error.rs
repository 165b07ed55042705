//! Errors of constructors and forward passes.

use std::fmt;

/// The result of anything that can fail on an argument or a shape.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An argument or a shape that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The value of an argument, or of a field of a config.
    #[error("`{name}` = {value} {problem}")]
    Argument {
        /// The argument or field, as `heads`.
        name: &'static str,
        /// The value as it was given.
        value: String,
        /// The problem and the remedy, as a clause that follows the value.
        problem: String,
    },

    /// Tensors, masks or lengths that do not fit each other; the message names both shapes.
    #[error("{0}")]
    Shape(String),
}

impl Error {
    /// Refuses the `value` of an argument unless it `is_right`; `problem` is a clause that follows the value, as
    /// "must divide `d_model` = 64".
    ///
    /// # Errors
    /// [`Error::Argument`] where it is not.
    pub fn check(
        is_right: bool,
        name: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Result<()> {
        match is_right {
            true => Ok(()),
            false => Err(Error::Argument { name, value: value.to_string(), problem: problem.into() }),
        }
    }
}

/// Fails with an error of this `kind` unless a condition `holds`.
pub(crate) fn ensure(holds: bool, kind: fn(String) -> Error, problem: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(kind(problem())) }
}
