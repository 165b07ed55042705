#![doc = include_str!("../README.md")]
//! ## Modules
//!
//! | module | contents |
//! |---|---|
//! | [`attention`] | attention from a dot product to grouped heads: simple, trainable, causal, multi-head, cross-attention, with a KV cache |
//! | [`position`] | position schemes: learned, sinusoidal, rotary, ALiBi, relative biases |
//! | [`model`] | decoders and encoder-decoders from one [`ModelConfig`](model::ModelConfig), with maps, cache and loss |
//! | [`hooks`] | reading and replacing activations during a forward pass |
//! | [`role`] | the purpose of each parameter, by which initialisation, weight decay and Muon treat it |
//! | [`ops`] | the heavy operations: of Burn's operations, and fused with hand-written gradients |
#![deny(missing_docs)]

pub mod attention;
pub mod choice;
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
