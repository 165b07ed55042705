//! Trains causal-attention decoders on sequence prediction and shows what they learned.
#![deny(missing_docs)]

pub mod attention;
pub mod data;
pub mod error;
pub mod kernels;
pub mod model;
pub mod ops;
pub mod position;
pub mod report;
pub mod training;

pub use error::{Error, Result};
