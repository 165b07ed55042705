//! Runs beside each other: what their folders say, read as they are.

mod listing;

pub use listing::{Listed, Sorted, list};
