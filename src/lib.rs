//! Trains causal-attention decoders on sequence prediction and shows what they learned.
//!
//! The program is documented by its README and by `causal-attention --help`; this is the library beneath it.
//!
//! # Attention in a model of your own
//! Every module is generic over Burn's [`Backend`](burn::prelude::Backend), and its attention weights can be
//! returned beside its output. A mask hides what is `true` in it.
//!
//! ```
//! use burn::prelude::*;
//! use burn_flex::Flex;
//! use causal_attention::attention::{Mask, MultiHeadAttention, MultiHeadAttentionConfig};
//! use causal_attention::ops::ScorePosition;
//!
//! #[derive(Module, Debug)]
//! struct MyModel<B: Backend> {
//!     attention: MultiHeadAttention<B>,
//! }
//!
//! impl<B: Backend> MyModel<B> {
//!     /// `[batch, time, d_model]` in and out; the weights are `[batch, heads, time, time]`.
//!     fn forward(&self, x: Tensor<B, 3>) -> causal_attention::Result<(Tensor<B, 3>, Tensor<B, 4>)> {
//!         Ok(self.attention.forward_with_weights(x, &Mask::causal(), &ScorePosition::None)?)
//!     }
//! }
//!
//! let device = Default::default();
//! let attention = MultiHeadAttentionConfig::new(64, 4).init::<Flex>(&device)?;
//! let (output, weights) = MyModel { attention }.forward(Tensor::zeros([2, 10, 64], &device))?;
//! assert_eq!(output.dims(), [2, 10, 64]);
//! assert_eq!(weights.dims(), [2, 4, 10, 10]);
//! # Ok::<(), causal_attention::Error>(())
//! ```
//!
//! # Training from code
//! A [`Config`](config::Config) is what a config file and `--set` say; [`training::launch`] trains it on the
//! device that is chosen, and leaves the run folder that the program leaves.
//!
//! ```
//! use causal_attention::backend;
//! use causal_attention::config::{Config, DEFAULT_TEXT};
//! use causal_attention::training::{Control, Mode, RunPath, launch};
//!
//! let sets = ["training.steps=3", "data.train_samples=64", "data.valid_samples=8"].map(String::from);
//! let config = Config::parse(DEFAULT_TEXT, "config.toml".as_ref(), &sets)?;
//! let control = Control::unwatched(backend::choose(None, None)?);
//! let temporary = tempfile::tempdir().unwrap();
//! let target = RunPath::Folder(temporary.path().join("run"));
//! let outcome = launch(&config, Mode::New(target), &control)?;
//! assert_eq!(outcome.summary.steps, 3);
//! # Ok::<(), causal_attention::Error>(())
//! ```
#![deny(missing_docs)]

pub mod analysis;
pub mod backend;
pub mod cli;
pub mod comparison;
pub mod config;
pub mod data;
pub mod error;
pub mod evaluation;
pub mod files;
pub mod generation;
#[cfg(test)]
mod layers;
pub mod reporting;
pub mod scaling;
pub mod terminal;
pub mod training;
pub mod tuning;
pub mod weights;
pub mod workers;

pub use causal_attention_kernels as kernels;
pub use causal_attention_nn::{attention, hooks, model, ops, position, range, role};
pub use causal_attention_report::numbers;
pub use error::{Error, Result};
