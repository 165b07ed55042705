//! Helpers for the tests of the kernels.

pub(crate) use super::random::*;
pub(crate) use super::textbook::*;
