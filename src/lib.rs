//! Trains causal-attention decoders on sequence prediction and shows what they learned.
#![deny(missing_docs)]

pub mod analysis;
pub mod attention;
pub mod backend;
pub mod cli;
pub mod config;
pub mod data;
pub mod error;
pub mod evaluation;
pub mod files;
pub mod generation;
pub mod model;
pub mod ops;
pub mod position;
pub mod report;
pub mod terminal;
pub mod training;
pub mod tuning;
pub mod weights;

pub use causal_attention_kernels as kernels;
pub use error::{Error, Result};
