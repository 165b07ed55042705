//! Tuning.

mod config;
mod proposal;
mod recipe;
mod space;

pub use config::{Method, TuneConfig, flatten};
pub use space::{Setting, Space};
