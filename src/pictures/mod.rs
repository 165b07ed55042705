//! A study's pictures, from what its trials say.

mod study;

pub use study::{draw_study, of_study, of_sweep};
