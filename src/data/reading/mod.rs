//! Summaries of how files were read, to check before training.

mod array;
mod table;
mod text;

pub(super) use array::shape;
pub use array::{ArrayFormat, ArrayReading};
pub(super) use table::Gaps;
pub use table::{TableFormat, TableReading};
pub use text::TextReading;
