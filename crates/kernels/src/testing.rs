//! What tests of the kernels share.

pub(crate) use super::random::*;
pub(crate) use super::textbook::*;
