//! Trains causal-attention decoders on sequence prediction and shows what they learned.
//!
//! This library is the basis of the program, which the README and `causal-attention --help` document.
//!
//! # Attention in your own model
//! Every module is generic over Burn's [`Backend`](burn::prelude::Backend), and can return attention weights along with
//! its output. A mask hides the positions where it is `true`.
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
//! A [`Config`](config::Config) holds the values of a config file and of `--set`. [`training::launch`] trains it on the
//! chosen device and writes the same run folder as the program.
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
//! assert_eq!(outcome.summary.work.steps, 3);
//! # Ok::<(), causal_attention::Error>(())
//! ```
//!
//! # Data from memory, and a custom observer
//! A [`Dataset`](data::Dataset) can be created from your own sequences. An
//! [`Observer`](training::observers::Observer) is called before the first step and after each step.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use causal_attention::config::Config;
//! use causal_attention::data::{Dataset, Vocabulary};
//! use causal_attention::training::observers::{ModelAccess, Moment, Observer};
//! use causal_attention::training::{RunPath, train};
//!
//! /// Records the largest weight every two steps.
//! struct LargestWeight(Arc<Mutex<Vec<(usize, f32)>>>);
//!
//! impl Observer for LargestWeight {
//!     fn wants_model(&self, moment: &Moment<'_>) -> bool {
//!         moment.state.step.is_multiple_of(2)
//!     }
//!
//!     fn model(&mut self, moment: &Moment<'_>, model: &dyn ModelAccess) -> causal_attention::Result<()> {
//!         let weights = model.weights()?;
//!         let all = weights.iter().flat_map(|(_, tensor)| tensor.iter::<f32>());
//!         let largest = all.map(f32::abs).fold(0.0, f32::max);
//!         self.0.lock().unwrap().push((moment.state.step, largest));
//!         Ok(())
//!     }
//! }
//!
//! let sequences: Vec<Vec<u32>> = (0..40).map(|i| (0..9).map(|t| (i % 7 + t * (i % 5)) % 7).collect()).collect();
//! let dataset = Dataset::from_sequences(Vocabulary::integers(7, &[]), &sequences[..32], &sequences[32..])?;
//! let mut config = Config::default();
//! config.training.steps = Some(4);
//! let recorded = Arc::new(Mutex::new(Vec::new()));
//! let observer = LargestWeight(recorded.clone());
//! # let temporary = tempfile::tempdir().unwrap();
//! # let folder = temporary.path().join("run");
//! let outcome = train(&config, dataset, vec![Box::new(observer)], RunPath::Folder(folder))?;
//! assert_eq!(outcome.summary.work.steps, 4);
//! let steps: Vec<usize> = recorded.lock().unwrap().iter().map(|(step, _)| *step).collect();
//! assert_eq!(steps, [0, 2, 4]);
//! # Ok::<(), causal_attention::Error>(())
//! ```
//!
//! # Another backend
//! [`train_on`](training::train_on) trains on any of Burn's backends with autodiff, also on those that this crate does
//! not depend on. Their operations are then Burn's own.
//!
//! ```
//! use burn_autodiff::Autodiff;
//! use burn_flex::Flex;
//! use causal_attention::config::Config;
//! use causal_attention::training::{Mode, RunInputs, RunPath, train_on};
//!
//! let mut config = Config::default();
//! config.training.steps = Some(2);
//! config.data.train_samples = 64;
//! config.data.valid_samples = 8;
//! # let temporary = tempfile::tempdir().unwrap();
//! # let folder = temporary.path().join("run");
//! let mode = Mode::New(RunPath::Folder(folder));
//! let outcome = train_on::<Autodiff<Flex>>(&config, mode, RunInputs::default(), Default::default())?;
//! assert_eq!(outcome.summary.machine.backend, "autodiff<flex>");
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
pub use causal_attention_nn::{attention, choice, choices, hooks, model, ops, position, range, role};
pub use causal_attention_report::numbers;
pub use error::{Error, Result};
