#![doc = include_str!("../README.md")]
//! ## Modules
//!
//! | module | contents |
//! |---|---|
//! | [`attention`] | attention from a dot product to grouped heads: simple, trainable, causal, multi-head, cross, cached |
//! | [`position`] | position schemes: learned, sinusoidal, random sinusoidal, rotary, ALiBi, relative biases |
//! | [`model`] | decoders and encoder-decoders built from a [`ModelConfig`](model::ModelConfig), with cache and loss |
//! | [`hooks`] | reading and replacing activations during a forward pass |
//! | [`role`] | the role of each parameter, which selects its initialisation, weight decay and Muon treatment |
//! | [`ops`] | the expensive operations: with Burn's operations, and fused with hand-written gradients; optimizer updates |
//! | [`choice`], [`range`] | the values and ranges of config fields, for programs that read configs from files |
//! | [`prelude`] | the items most often needed |
#![deny(missing_docs)]

pub mod attention;
pub mod choice;
mod display;
pub mod error;
pub mod hooks;
pub mod model;
pub mod ops;
pub mod position;
pub mod prelude;
pub mod range;
pub mod role;

pub use causal_attention_kernels as kernels;
pub use error::{Error, Result};
