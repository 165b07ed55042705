//! Summaries of how files were read, to check before training.

mod array;
mod table;
mod text;

pub use array::ArrayReading;
pub(super) use array::shape;
pub(super) use table::Gaps;
pub use table::TableReading;
pub use text::TextReading;
